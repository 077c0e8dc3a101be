//! Number of calls that may be in flight after a pause, if there are no rates: one, as many more as
//! were let through, and in the end as many as ever.

/// Answers may take long, and refusals don't: a call after a pause that was not refused within a
/// multiple of the refusals' time was let through, between these bounds.
const LET_THROUGH: u64 = 4;
const SOONEST_LET_THROUGH_NS: u64 = 250_000_000;
const LATEST_LET_THROUGH_NS: u64 = 60_000_000_000;
/// With this many calls in flight after a pause, the pause is over.
pub(super) const FULL: u64 = 1024;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Window {
    /// Calls in flight that may be since the last pause, 0 for all; those that are, and when the
    /// last of them was sent.
    pub most: u64,
    pub in_flight: u64,
    pub sent_ns: u64,
    /// Duration of the latest refusals, the longest weighing most.
    pub refusal_ns: u64,
}

impl Window {
    /// There is a pause: after it one call goes.
    pub(super) const fn narrow(&mut self) {
        (self.most, self.in_flight) = (1, 0);
    }

    /// More calls may be in flight than before.
    pub(super) const fn widen(&mut self, by: u64) {
        if self.most > 0 {
            let most = self.most.saturating_add(by);
            self.most = if most <= FULL { most } else { 0 };
        }
    }

    /// Until when it is full, if it is. It doubles once its calls were let through.
    pub(super) fn full_until_ns(&mut self, now_ns: u64) -> Option<u64> {
        if self.most == 0 || self.in_flight < self.most {
            return None;
        }
        let after_ns = self.refusal_ns.saturating_mul(LET_THROUGH);
        let after_ns = after_ns.clamp(SOONEST_LET_THROUGH_NS, LATEST_LET_THROUGH_NS);
        let until_ns = self.sent_ns.saturating_add(after_ns);
        if until_ns > now_ns {
            return Some(until_ns);
        }
        self.widen(self.in_flight);
        None
    }

    pub(super) const fn send(&mut self, now_ns: u64) {
        if self.most > 0 {
            (self.in_flight, self.sent_ns) = (self.in_flight.saturating_add(1), now_ns);
        }
    }

    /// A call that was sent since the last pause has ended.
    pub(super) const fn leave(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// A call was refused after so long.
    pub(super) fn refused(&mut self, took_ns: u64) {
        self.refusal_ns = took_ns.max(self.refusal_ns - self.refusal_ns / 8);
    }

    /// Brings what a process wrote whose clock was read a little later into bounds.
    pub(super) fn clamp(&mut self, now_ns: u64) {
        self.most = self.most.min(FULL);
        self.sent_ns = self.sent_ns.min(now_ns);
        self.refusal_ns = self.refusal_ns.min(LATEST_LET_THROUGH_NS);
    }
}
