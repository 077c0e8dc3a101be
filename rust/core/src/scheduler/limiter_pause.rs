//! Pause of a function whose limiter refused a permit. Until its end the limiter is not called
//! again, and users can see why samples wait.

/// Pause of one function.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LimiterPause {
    until_ns: u64,
    /// The time when the last deferred call is due.
    deferred_until_ns: u64,
    /// True if the end of a call may end the pause sooner.
    on_release: bool,
    /// True if a timer is set to flush the limiter.
    flush_scheduled: bool,
}

impl LimiterPause {
    pub(crate) const fn until(&mut self, until_ns: u64, on_release: bool) {
        (self.until_ns, self.on_release) = (until_ns, on_release);
    }

    /// Records that the other side had too many requests, and that a call is made again at
    /// `due_ns`.
    pub(crate) fn deferred(&mut self, due_ns: u64) {
        self.deferred_until_ns = self.deferred_until_ns.max(due_ns);
    }

    /// Returns the time when calls that wait for the limit go on, if there is such a time.
    pub(crate) fn known_end_ns(self, now_ns: u64) -> Option<u64> {
        let ends = [self.until_ns, self.deferred_until_ns].into_iter();
        ends.filter(|end_ns| (now_ns + 1..u64::MAX).contains(end_ns)).max()
    }

    pub(crate) const fn is_over(self, now_ns: u64) -> bool {
        self.until_ns <= now_ns
    }

    /// Records that a call of the same limiter has ended.
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
