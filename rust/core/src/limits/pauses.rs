//! Pauses after throttled calls: nothing goes before the server's `Retry-After` has passed, else
//! for a time that doubles with each refusal.
//!
//! Nothing pauses for the refusal of a single sample. There are two signs of it: most of the last
//! calls were answered; or it has a short `Retry-After`, is the first of its sample, and calls that
//! had been refused are answered now.

use std::time::Duration;

use super::breaker::PATIENCE_NS;
use super::nanoseconds::{nanoseconds, real};
use crate::clock::nanos;
use crate::words::words_of;

/// Longest `Retry-After` that is obeyed: rates are by the minute.
pub const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(120);
/// The pause after a throttled call that does not say when to come again, and after the next ones.
const FIRST_NS: u64 = 500_000_000;
const LONGEST_NS: u64 = 8_000_000_000;
/// Number of pauses in a row that a server may make shorter than the first of ours (`Retry-After:
/// 0`).
const BELIEVED: u64 = 2;
/// Answers for each refusal among the last calls that contradict it.
const CONTRADICTIONS: u64 = 2;
/// Number of calls that count as the last ones; at most twice as many do.
const LAST_CALLS: u64 = 16;
/// Each answer to a call that had been refused allows for this many refusals of single samples, up
/// to a bound. Each answer to a first call takes one off, so that old answers count no more.
const SINGLE: u64 = 4;
const MOST_SINGLE: u64 = 1024;
/// A longer `Retry-After` is never taken for a single sample's: until the first one is over, the
/// server may refuse all.
const LONGEST_SINGLE: Duration = Duration::from_secs(2);

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pauses {
    /// Nothing goes before this.
    pub until_ns: u64,
    /// Pauses since the last answer, and when the first one began.
    pub count: u64,
    pub since_ns: u64,
    /// Number of the last calls that were answered.
    pub answered: u64,
    pub refused: u64,
    /// Number of first refusals that are still taken for those of single samples.
    pub single: u64,
}

words_of!(Pauses: until_ns, count, since_ns, answered, refused, single);

impl Pauses {
    /// Returns the time for which all calls have been throttled, if that is too long to wait on.
    pub(super) fn hopeless_ns(&self, now_ns: u64) -> Option<u64> {
        let throttled_ns = now_ns.saturating_sub(self.since_ns);
        (self.count > 0 && throttled_ns >= PATIENCE_NS).then_some(throttled_ns)
    }

    /// Returns whether a call was sent since the last one.
    pub(super) const fn is_after(&self, sent_ns: u64) -> bool {
        sent_ns >= self.until_ns
    }

    /// A call was answered, or refused; `again`: it had been refused before.
    pub(super) fn count(&mut self, answered: bool, again: bool) {
        if answered {
            self.answered += 1;
        } else {
            self.refused += 1;
        }
        self.single = match (answered, again) {
            (true, true) => (self.single + SINGLE).min(MOST_SINGLE),
            (true, false) => self.single.saturating_sub(1),
            (false, true) => 0,
            (false, false) => self.single,
        };
        if self.answered + self.refused >= 2 * LAST_CALLS {
            (self.answered, self.refused) = (self.answered / 2, self.refused.div_ceil(2));
        }
    }

    /// Returns whether a refusal is taken for that of a single sample; `first`: it is its first.
    pub(super) fn take_for_single(&mut self, retry_after: Option<Duration>, first: bool) -> bool {
        if self.are_contradicted() {
            return true;
        }
        let single =
            first && self.single > 0 && retry_after.is_some_and(|after| !after.is_zero() && after <= LONGEST_SINGLE);
        self.single -= u64::from(single);
        single
    }

    /// Returns whether most of the last calls were answered: refusals are of single samples.
    pub(super) const fn are_contradicted(&self) -> bool {
        self.answered > CONTRADICTIONS && self.answered >= self.refused.saturating_mul(CONTRADICTIONS)
    }

    /// Shortens the first long pause of a server that has answered other calls: the next call finds
    /// out if it refuses all.
    pub(super) fn doubt(&mut self, now_ns: u64) {
        if self.count == 1 && self.answered > 0 && self.until_ns > now_ns.saturating_add(nanos(LONGEST_SINGLE)) {
            self.until_ns = self.since_ns.saturating_add(FIRST_NS);
        }
    }

    /// Goes on as if the pause had not been.
    pub(super) const fn lift(&mut self) {
        (self.until_ns, self.count) = (0, 0);
    }

    /// Lets nothing through for as long as the server says, or for longer each time; `again`: the
    /// call had been refused before, `random` is uniform in [0, 1).
    pub(super) fn begin(&mut self, now_ns: u64, retry_after: Option<Duration>, again: bool, random: f64) {
        let longest_ns = FIRST_NS.saturating_mul(1 << self.count.min(10)).min(LONGEST_NS);
        let own_ns = nanoseconds(real(longest_ns) * (0.5 + random / 2.0));
        let pause_ns = match retry_after.map(believed_ns) {
            None => own_ns,
            // Its word was too short so often that calls would use up their attempts at once.
            Some(after_ns) if again && self.count >= BELIEVED && after_ns < FIRST_NS => after_ns.max(own_ns),
            Some(after_ns) => after_ns,
        };
        self.since_ns = if self.count == 0 { now_ns } else { self.since_ns };
        self.count = self.count.saturating_add(1);
        self.wait_until(now_ns.saturating_add(pause_ns));
    }

    /// A call that was sent before the last pause was refused, with this `Retry-After`.
    pub(super) fn prolong(&mut self, now_ns: u64, retry_after: Duration) {
        if !retry_after.is_zero() {
            self.wait_until(now_ns.saturating_add(believed_ns(retry_after)));
        }
    }

    /// Brings what another process wrote into bounds.
    pub(super) fn clamp(&mut self) {
        self.answered = self.answered.min(LAST_CALLS);
        self.refused = self.refused.min(LAST_CALLS);
        self.single = self.single.min(MOST_SINGLE);
    }

    fn wait_until(&mut self, until_ns: u64) {
        self.until_ns = self.until_ns.max(until_ns);
    }
}

fn believed_ns(retry_after: Duration) -> u64 {
    nanos(retry_after.min(LONGEST_RETRY_AFTER))
}
