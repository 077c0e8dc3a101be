//! Number of calls that may be in flight after a pause, if there are no rates: one, as many more as
//! were let through, and in the end as many as ever.
//!
//! A server may bound the requests that it answers at a time. Its sign: a request is refused while
//! as many others are in flight as ever were when one was taken. Then no more go.

use super::nanoseconds::real;
use crate::words::words_of;

/// Answers may take long, and refusals don't: a call after a pause that was not refused within a
/// multiple of the refusals' time was let through, between these bounds.
const LET_THROUGH: u64 = 4;
const SOONEST_LET_THROUGH_NS: u64 = 250_000_000;
const LATEST_LET_THROUGH_NS: u64 = 60_000_000_000;
/// Fewer calls in flight are more likely a pace of the server than its bound.
const FEWEST_HELD: u64 = 2;
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
    /// If the server is taken to bound the requests in flight, the answers since the last refusal,
    /// and one; all calls in flight count then. Otherwise 0.
    pub held: u64,
    /// The most calls that were in flight when one was sent that was answered.
    pub taken: u64,
}

words_of!(Window: most, in_flight, sent_ns, refusal_ns, held, taken);

impl Window {
    /// There is a pause: after it one call goes. The server may take fewer than before.
    pub(super) const fn narrow(&mut self) {
        (self.most, self.in_flight, self.held) = (1, 0, 0);
        self.taken /= 2;
    }

    /// Returns the number of calls in flight, at least the `known` ones of all engines.
    pub(super) fn others(&self, known: usize) -> u64 {
        (known as u64).max(self.in_flight)
    }

    /// A call was refused while `known` others were in flight. If their number explains that, no
    /// more may be; returns whether it does.
    pub(super) fn hold(&mut self, known: usize) -> bool {
        let others = self.others(known);
        let explains = (FEWEST_HELD..FULL).contains(&others) && others >= self.taken;
        self.taken -= self.taken.div_ceil(8);
        self.held = u64::from(explains);
        if explains {
            (self.most, self.in_flight) = (others, others);
        }
        explains
    }

    /// A call was answered that was sent while `others` were in flight.
    pub(super) fn take(&mut self, others: u64) {
        self.taken = self.taken.max(others);
    }

    /// A call has ended that was not refused; `random` is uniform in [0, 1). One more may be in
    /// flight. If the window is held, that is one of as many ends as it is wide, two of the next as
    /// many, and so on.
    pub(super) fn answered(&mut self, random: f64) {
        if !self.is_held() {
            return self.widen(1);
        }
        let rounds = self.held / self.most;
        self.held = self.held.saturating_add(1);
        self.widen(u64::from(random * real(self.most) < real(1 << rounds.min(10))));
    }

    pub(super) const fn is_held(&self) -> bool {
        self.held > 0 && self.most > 0
    }

    /// More calls may be in flight than before.
    pub(super) const fn widen(&mut self, by: u64) {
        if self.most > 0 {
            let most = self.most.saturating_add(by);
            self.most = if most <= FULL { most } else { 0 };
        }
    }

    /// Until when it is full, if it is. It doubles once its calls were let through. A held window
    /// counts the `known` calls in flight, so that the calls of a dead process end.
    pub(super) fn full_until_ns(&mut self, now_ns: u64, known: usize) -> Option<u64> {
        if self.is_held() {
            self.in_flight = self.in_flight.min(known as u64);
        }
        if self.most == 0 || self.in_flight < self.most {
            return None;
        }
        let after_ns = self.refusal_ns.saturating_mul(LET_THROUGH);
        let after_ns = after_ns.clamp(SOONEST_LET_THROUGH_NS, LATEST_LET_THROUGH_NS);
        let after_ns = if self.is_held() { LATEST_LET_THROUGH_NS } else { after_ns };
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
        self.taken = self.taken.min(FULL);
        self.sent_ns = self.sent_ns.min(now_ns);
        self.refusal_ns = self.refusal_ns.min(LATEST_LET_THROUGH_NS);
    }
}
