//! Faults of a sample in place of a score, and the way to stop work on a sample.

/// Result of a kernel for a sample: a number, or `None` for an abstention.
pub type Score = Option<f64>;

/// Reason for a missing score.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The work was stopped.
    #[error("stopped")]
    Stopped,
    /// The kernel can't take the sample, for this reason.
    #[error("{0}")]
    Invalid(String),
    /// The kernel can't take one input, by its index, for this reason.
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

/// Decides whether work on a sample must stop. Kernels that take long check it at intervals.
pub trait Stop {
    fn must_stop(&self) -> bool;

    /// Returns an error if work must stop.
    fn check(&self) -> Result<(), Fault> {
        if self.must_stop() { Err(Fault::Stopped) } else { Ok(()) }
    }
}

/// A closure that returns whether to stop.
impl<F: Fn() -> bool> Stop for F {
    fn must_stop(&self) -> bool {
        self()
    }
}
