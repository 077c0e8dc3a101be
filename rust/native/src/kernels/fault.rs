//! Faults of a sample in place of a number, and how work on it is stopped.

/// Result of a kernel for a sample: a number, or that it has no opinion.
pub type Score = Option<f64>;

/// Reason why there is no score.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It was asked to stop.
    #[error("stopped")]
    Stopped,
    /// The sample is not what the kernel takes; says why.
    #[error("{0}")]
    Invalid(String),
    /// The same, of one input: its place among them.
    #[error("{1}")]
    Input(usize, String),
}

impl Fault {
    pub(crate) fn invalid(why: impl Into<String>) -> Self {
        Self::Invalid(why.into())
    }

    pub(crate) fn input(place: usize, why: impl Into<String>) -> Self {
        Self::Input(place, why.into())
    }
}

/// Tells if work on a sample must stop: asked now and then by kernels that take long.
pub trait Stop {
    fn is_asked(&self) -> bool;

    /// An error if it is.
    fn check(&self) -> Result<(), Fault> {
        if self.is_asked() { Err(Fault::Stopped) } else { Ok(()) }
    }
}

/// Asked by a plain closure.
impl<F: Fn() -> bool> Stop for F {
    fn is_asked(&self) -> bool {
        self()
    }
}
