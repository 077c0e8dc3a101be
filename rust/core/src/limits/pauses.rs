//! Pauses after throttled calls: no call goes before the server's `Retry-After` has passed, or
//! without one for a time that doubles with each refusal.
//!
//! The refusal of a single sample causes no pause. Two signs identify it: most of the last calls
//! were answered; or it has a short `Retry-After`, is the first refusal of its sample, and calls
//! that had been refused are answered now.

use std::time::Duration;

use super::breaker::PATIENCE_NS;
use super::nanoseconds::{nanoseconds, real};
use crate::clock::nanos;
use crate::words::words_of;

/// Longest `Retry-After` that is obeyed, since rates are per minute.
pub const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(120);
/// The pause after a throttled call without a `Retry-After`, and after further ones.
const FIRST_NS: u64 = 500_000_000;
const LONGEST_NS: u64 = 8_000_000_000;
/// The longest of these pauses, for warnings.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_nanos(LONGEST_NS);
/// Number of pauses in a row that a server may make shorter than `FIRST_NS` (`Retry-After: 0`).
const BELIEVED: u64 = 2;
/// Answers for each refusal among the last calls that contradict it.
const CONTRADICTIONS: u64 = 2;
/// Number of calls that count as the last ones; at most twice as many do.
const LAST_CALLS: u64 = 16;
/// Each answer to a call that had been refused allows for this many refusals of single samples, up
/// to a bound. Each answer to a first call takes one off, so that the evidence of old answers
/// fades.
const SINGLE: u64 = 4;
const MOST_SINGLE: u64 = 1024;
/// A longer `Retry-After` is never attributed to a single sample: until the first one is over, the
/// server may refuse all.
const LONGEST_SINGLE: Duration = Duration::from_secs(2);

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pauses {
    /// No call goes before this time.
    pub until_ns: u64,
    /// Number of pauses since the last answer, and the beginning of the first.
    pub count: u64,
    pub since_ns: u64,
    /// Number of the last calls that were answered.
    pub answered: u64,
    pub refused: u64,
    /// Number of first refusals that may still be attributed to single samples.
    pub single: u64,
}

words_of!(Pauses: until_ns, count, since_ns, answered, refused, single);

impl Pauses {
    /// Returns the time for which all calls have been throttled, if waiting longer is pointless.
    pub(super) fn hopeless_ns(&self, now_ns: u64) -> Option<u64> {
        let throttled_ns = now_ns.saturating_sub(self.since_ns);
        (self.count > 0 && throttled_ns >= PATIENCE_NS).then_some(throttled_ns)
    }

    /// Returns whether a call was sent after the end of the last pause.
    pub(super) const fn is_after(&self, sent_ns: u64) -> bool {
        sent_ns >= self.until_ns
    }

    /// Counts a call that was answered or refused; `again` means that it had been refused before.
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

    /// Returns whether a refusal is attributed to a single sample; `first` means that it is the
    /// first of its sample.
    pub(super) fn take_for_single(&mut self, retry_after: Option<Duration>, first: bool) -> bool {
        if self.are_contradicted() {
            return true;
        }
        let single =
            first && self.single > 0 && retry_after.is_some_and(|after| !after.is_zero() && after <= LONGEST_SINGLE);
        self.single -= u64::from(single);
        single
    }

    /// Returns whether most of the last calls were answered, so that refusals are of single
    /// samples.
    pub(super) const fn are_contradicted(&self) -> bool {
        self.answered > CONTRADICTIONS && self.answered >= self.refused.saturating_mul(CONTRADICTIONS)
    }

    /// Shortens the first long pause of a server that has answered other calls: the next call shows
    /// whether it refuses all.
    pub(super) fn doubt(&mut self, now_ns: u64) {
        if self.count == 1 && self.answered > 0 && self.until_ns > now_ns.saturating_add(nanos(LONGEST_SINGLE)) {
            self.until_ns = self.since_ns.saturating_add(FIRST_NS);
        }
    }

    /// Ends the pause and undoes its effects.
    pub(super) const fn lift(&mut self) {
        (self.until_ns, self.count) = (0, 0);
    }

    /// Begins a pause: for the `Retry-After`, or for a time that grows with each pause. `again`
    /// means that the call had been refused before; `random` is uniform in [0, 1).
    pub(super) fn begin(&mut self, now_ns: u64, retry_after: Option<Duration>, again: bool, random: f64) {
        let longest_ns = FIRST_NS.saturating_mul(1 << self.count.min(10)).min(LONGEST_NS);
        let own_ns = nanoseconds(real(longest_ns) * (0.5 + random / 2.0));
        let pause_ns = match retry_after.map(believed_ns) {
            None => own_ns,
            // Short `Retry-After`s were wrong before, and calls would use up their attempts at
            // once.
            Some(after_ns) if again && self.count >= BELIEVED && after_ns < FIRST_NS => after_ns.max(own_ns),
            Some(after_ns) => after_ns,
        };
        self.since_ns = if self.count == 0 { now_ns } else { self.since_ns };
        self.count = self.count.saturating_add(1);
        self.wait_until(now_ns.saturating_add(pause_ns));
    }

    /// Extends the last pause to the end of the `Retry-After` of a refused call sent before it.
    pub(super) fn prolong(&mut self, now_ns: u64, retry_after: Duration) {
        if !retry_after.is_zero() {
            self.wait_until(now_ns.saturating_add(believed_ns(retry_after)));
        }
    }

    /// Limits the values that another process wrote to their possible range.
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
