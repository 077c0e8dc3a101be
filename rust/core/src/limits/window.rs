//! Number of calls that may be in flight after a pause, for limits without rates: one, then one
//! more for each call that was let through, and at last any number.
//!
//! A server may bound the requests that it answers at a time. The sign of a bound: a request is
//! refused while as many others are in flight as ever when one was taken. Then no more go.

use super::nanoseconds::real;
use crate::words::words_of;

/// Answers may take long, but refusals come quickly. A call after a pause counts as let through if
/// it was not refused within a multiple of the time of refusals, limited to these bounds.
const LET_THROUGH: u64 = 4;
const SOONEST_LET_THROUGH_NS: u64 = 250_000_000;
const LATEST_LET_THROUGH_NS: u64 = 60_000_000_000;
/// A pace of the server is more likely than a bound if fewer calls are in flight.
const FEWEST_HELD: u64 = 2;
/// A pause is over when this many calls are in flight after it.
pub(super) const FULL: u64 = 1024;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Window {
    /// The bound of calls in flight since the last pause (0: none), their number, and when the last
    /// of them was sent.
    pub most: u64,
    pub in_flight: u64,
    pub sent_ns: u64,
    /// Duration of the latest refusals; the longest weighs most.
    pub refusal_ns: u64,
    /// The number of answers since the last refusal plus one, if the server is assumed to bound the
    /// requests in flight; then all calls in flight count. Otherwise 0.
    pub held: u64,
    /// The most calls in flight when an answered one was sent.
    pub taken: u64,
}

words_of!(Window: most, in_flight, sent_ns, refusal_ns, held, taken);

impl Window {
    /// Begins a pause: one call goes after it. The server may take fewer calls than before.
    pub(super) const fn narrow(&mut self) {
        (self.most, self.in_flight, self.held) = (1, 0, 0);
        self.taken /= 2;
    }

    /// Returns the number of calls in flight, at least the `known` ones of all engines.
    pub(super) fn others(&self, known: usize) -> u64 {
        (known as u64).max(self.in_flight)
    }

    /// Records a refusal while `known` others were in flight. If their number explains it, no more
    /// may be in flight, and the result is true.
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

    /// Records an answer to a call sent while `others` were in flight.
    pub(super) fn take(&mut self, others: u64) {
        self.taken = self.taken.max(others);
    }

    /// Records the end of a call that was not refused, so that one more may be in flight; `random`
    /// is uniform in [0, 1). A held window is widened by one of as many ends as it is wide, by two
    /// of the next as many, and so on.
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

    /// Allows more calls in flight than before.
    pub(super) const fn widen(&mut self, by: u64) {
        if self.most > 0 {
            let most = self.most.saturating_add(by);
            self.most = if most <= FULL { most } else { 0 };
        }
    }

    /// Returns the time until which the window is full, if it is full. It doubles once its calls
    /// were let through. A held window counts the `known` calls in flight, so that calls of a dead
    /// process end.
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

    /// Records the end of a call sent since the last pause.
    pub(super) const fn leave(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// Records the duration of a refusal.
    pub(super) fn refused(&mut self, took_ns: u64) {
        self.refusal_ns = took_ns.max(self.refusal_ns - self.refusal_ns / 8);
    }

    /// Limits values to their possible range: another process may have read its clock a little
    /// later.
    pub(super) fn clamp(&mut self, now_ns: u64) {
        self.most = self.most.min(FULL);
        self.taken = self.taken.min(FULL);
        self.sent_ns = self.sent_ns.min(now_ns);
        self.refusal_ns = self.refusal_ns.min(LATEST_LET_THROUGH_NS);
    }
}
