//! What the scheduler remembers of a limit that let nothing through: until when, so that it isn't asked again and again.

/// One function's.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Barred {
    until_ns: u64,
    /// The end of a call can change it.
    on_release: bool,
    /// A time is set to write down what the limit is owed.
    settling: bool,
}

impl Barred {
    pub(crate) const fn until(&mut self, until_ns: u64, on_release: bool) {
        (self.until_ns, self.on_release) = (until_ns, on_release);
    }

    pub(crate) const fn is_over(self, now_ns: u64) -> bool {
        self.until_ns <= now_ns
    }

    /// A call of the same limit has ended.
    pub(crate) const fn released(&mut self) {
        if self.on_release {
            self.until_ns = 0;
        }
    }

    /// Whether a time to settle has to be set now.
    pub(crate) const fn settle(&mut self, owes: bool) -> bool {
        let first = owes && !self.settling;
        self.settling = owes;
        first
    }
}
