//! The pace of a server that takes some requests, refuses others, and does not say when to come
//! again: the time between two requests that it takes.
//!
//! - The interval is longer than the gap before a refused request, which takes no turn: the next
//!   one is due by the request before it.
//! - Requests in a row without a refusal shorten the interval, each by more than the one before,
//!   until it is gone.
//! - A server that fails has no pace, and one that takes nothing for `LONGEST_NS` has none for a
//!   minute: perhaps it bounds the requests in flight. Their refusals are pauses.

use super::nanoseconds::{nanoseconds, real};
use crate::words::words_of;

const SHORTEST_NS: u64 = 1_000_000;
const LONGEST_NS: u64 = 2_000_000_000;
const HOLD_NS: u64 = 60_000_000_000;
/// Growth over the gap that was too short: of the first refusal, and of the next ones in a row.
const SLOWER: f64 = 1.1;
const MUCH_SLOWER: f64 = 1.35;
/// Requests in a row that leave the interval as it is; each further one takes another eighth off.
const STEADY: u64 = 4;
const FASTER: f64 = 0.875;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pace {
    /// Time between two requests; 0 without a pace.
    pub interval_ns: u64,
    /// When the last request was sent, and the one before it that was not refused.
    pub sent_ns: u64,
    pub before_ns: u64,
    /// When the interval last changed, and requests since it last grew.
    pub changed_ns: u64,
    pub steps: u64,
    /// Until when a pace explained nothing.
    pub failed_ns: u64,
}

words_of!(Pace: interval_ns, sent_ns, before_ns, changed_ns, steps, failed_ns);

impl Pace {
    /// When the next request is due; 0: at once.
    pub(super) const fn due_ns(&self) -> u64 {
        if self.interval_ns == 0 { 0 } else { self.sent_ns.saturating_add(self.interval_ns) }
    }

    /// Sends a request, and returns the time since the one before. The refusals of requests that
    /// were sent before a change take `refusal_ns`.
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

    /// A request was refused that had been sent `gap_ns` after the one before; false if the server
    /// has no pace.
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

    /// The server failed: no pace explains that.
    pub(super) const fn end(&mut self, now_ns: u64) {
        (self.interval_ns, self.failed_ns) = (0, now_ns);
    }

    /// Brings what a process wrote whose clock was read a little later into bounds.
    pub(super) fn clamp(&mut self, now_ns: u64) {
        self.interval_ns = self.interval_ns.min(LONGEST_NS);
        for ns in [&mut self.sent_ns, &mut self.before_ns, &mut self.changed_ns] {
            *ns = (*ns).min(now_ns);
        }
        self.failed_ns = self.failed_ns.min(now_ns.saturating_add(HOLD_NS));
    }
}
