//! The pace of a server that takes some requests, refuses others, and sends no `Retry-After`: the
//! time between two requests that it takes.
//!
//! - The interval is longer than the gap before a refused request. A refused request takes no turn:
//!   the next one is due an interval after the request before it.
//! - Requests in a row without a refusal shorten the interval, each by more than the one before,
//!   until it is gone.
//! - A server that fails has no pace. One that takes nothing for `LONGEST_NS` has none for a
//!   minute: perhaps it bounds the requests in flight. Refusals then lead to pauses.

use super::nanoseconds::{nanoseconds, real};
use crate::words::words_of;

const SHORTEST_NS: u64 = 1_000_000;
const LONGEST_NS: u64 = 2_000_000_000;
const HOLD_NS: u64 = 60_000_000_000;
/// Factor of the interval over a gap that was too short: at the first refusal, and at further ones
/// in a row.
const SLOWER: f64 = 1.1;
const MUCH_SLOWER: f64 = 1.35;
/// Requests in a row that leave the interval unchanged; each further one shortens it by another
/// eighth.
const STEADY: u64 = 4;
const FASTER: f64 = 0.875;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pace {
    /// Time between two requests; 0 without a pace.
    pub interval_ns: u64,
    /// Times of the last request, and of the one before it that was not refused.
    pub sent_ns: u64,
    pub before_ns: u64,
    /// The last change of the interval, and the number of requests since it last grew.
    pub changed_ns: u64,
    pub steps: u64,
    /// The time until which no pace is assumed.
    pub failed_ns: u64,
}

words_of!(Pace: interval_ns, sent_ns, before_ns, changed_ns, steps, failed_ns);

impl Pace {
    /// When the next request is due; 0: at once.
    pub(super) const fn due_ns(&self) -> u64 {
        if self.interval_ns == 0 { 0 } else { self.sent_ns.saturating_add(self.interval_ns) }
    }

    /// Records a request that is sent, and returns the time since the one before. `refusal_ns` is
    /// how long refusals of requests sent before a change may take.
    pub(super) fn send(&mut self, now_ns: u64, refusal_ns: u64) -> u64 {
        if now_ns > self.sent_ns {
            (self.before_ns, self.sent_ns) = (self.sent_ns, now_ns);
        }
        if self.interval_ns > 0 && now_ns >= self.changed_ns.saturating_add(refusal_ns) {
            (self.changed_ns, self.steps) = (now_ns, self.steps.saturating_add(1));
            let exponent = i32::try_from(self.steps.saturating_sub(STEADY)).unwrap_or(i32::MAX);
            let interval_ns = nanoseconds(real(self.interval_ns) * FASTER.powi(exponent));
            self.interval_ns = if interval_ns < SHORTEST_NS { 0 } else { interval_ns };
        }
        now_ns.saturating_sub(self.before_ns)
    }

    /// Records the refusal of a request sent `gap_ns` after the one before; false if the server has
    /// no pace.
    pub(super) fn refused(&mut self, sent_ns: u64, gap_ns: u64, now_ns: u64) -> bool {
        if sent_ns == self.sent_ns {
            self.sent_ns = self.before_ns;
        }
        let first = self.steps > 1 || sent_ns < self.changed_ns;
        let longer_ns = nanoseconds(real(gap_ns) * if first { SLOWER } else { MUCH_SLOWER });
        if longer_ns >= LONGEST_NS {
            (self.interval_ns, self.failed_ns) = (0, now_ns.saturating_add(HOLD_NS));
        } else if longer_ns >= SHORTEST_NS && longer_ns > self.interval_ns {
            (self.interval_ns, self.changed_ns, self.steps) = (longer_ns, now_ns, 0);
        }
        self.interval_ns > 0
    }

    /// Ends the pace, because the server failed and no pace explains that.
    pub(super) const fn end(&mut self, now_ns: u64) {
        (self.interval_ns, self.failed_ns) = (0, now_ns);
    }

    /// Limits values to their possible range: another process may have read its clock a little
    /// later.
    pub(super) fn clamp(&mut self, now_ns: u64) {
        self.interval_ns = self.interval_ns.min(LONGEST_NS);
        for ns in [&mut self.sent_ns, &mut self.before_ns, &mut self.changed_ns] {
            *ns = (*ns).min(now_ns);
        }
        self.failed_ns = self.failed_ns.min(now_ns.saturating_add(HOLD_NS));
    }
}
