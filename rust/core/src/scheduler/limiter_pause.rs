//! A function whose limiter let nothing through: until when, so that the limiter is not asked again
//! and again, and for people who ask why its samples wait.

/// One function's.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LimiterPause {
    until_ns: u64,
    /// When the last of the calls is due that the other side put off.
    deferred_until_ns: u64,
    /// The end of a call may end it sooner.
    on_release: bool,
    /// A timer is set to flush the limiter.
    flush_scheduled: bool,
}

impl LimiterPause {
    pub(crate) const fn until(&mut self, until_ns: u64, on_release: bool) {
        (self.until_ns, self.on_release) = (until_ns, on_release);
    }

    /// The other side had too many requests: a call is made again then.
    pub(crate) fn deferred(&mut self, due_ns: u64) {
        self.deferred_until_ns = self.deferred_until_ns.max(due_ns);
    }

    /// Returns when calls that wait for the limit go on, where that is known.
    pub(crate) fn known_end_ns(self, now_ns: u64) -> Option<u64> {
        let ends = [self.until_ns, self.deferred_until_ns].into_iter();
        ends.filter(|end_ns| (now_ns + 1..u64::MAX).contains(end_ns)).max()
    }

    pub(crate) const fn is_over(self, now_ns: u64) -> bool {
        self.until_ns <= now_ns
    }

    /// A call of the same limiter has ended.
    pub(crate) const fn released(&mut self) {
        if self.on_release {
            self.until_ns = 0;
        }
    }

    /// Returns whether a timer to flush the limiter has to be set now.
    pub(crate) const fn schedule_flush(&mut self, has_unwritten: bool) -> bool {
        let first = has_unwritten && !self.flush_scheduled;
        self.flush_scheduled = has_unwritten;
        first
    }
}
