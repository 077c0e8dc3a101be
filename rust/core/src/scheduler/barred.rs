//! What the scheduler remembers of a limit that let nothing through: until when, so that it isn't asked again and again.

/// One function's.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Barred {
    until_ns: u64,
    /// The end of a call can change it.
    on_release: bool,
}

impl Barred {
    pub(crate) const fn new(until_ns: u64, on_release: bool) -> Self {
        Self { until_ns, on_release }
    }

    pub(crate) const fn is_over(self, now_ns: u64) -> bool {
        self.until_ns <= now_ns
    }

    /// A call of the same limit has ended.
    pub(crate) fn released(&mut self) {
        if self.on_release {
            *self = Self::default();
        }
    }
}
