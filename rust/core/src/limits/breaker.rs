//! The circuit breaker of one endpoint: closed, open, half-open. Arithmetic only: no clock, no
//! lock, no file.
//!
//! - `FAILURES` failures in a row, without an answer to what was sent in between, open it.
//! - Open, it lets nothing through until `open_until_ns`; then it is half-open and lets one trial
//!   call through at a time.
//! - An answer closes it; a trial that fails opens it again, for longer.
//! - One that has not closed for `PATIENCE_NS` refuses calls instead of letting them wait.

use super::nanoseconds::{nanoseconds, real};

/// Failures in a row that open the breaker.
const FAILURES: u64 = 5;
const FIRST_OPEN_NS: u64 = 1_000_000_000;
const LONGEST_OPEN_NS: u64 = 15_000_000_000;
/// A trial call without an outcome for so long is given up for another.
const TRIAL_NS: u64 = 60_000_000_000;
/// Longer than a model server takes to start.
const PATIENCE_NS: u64 = 300_000_000_000;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Breaker {
    /// Failures in a row, and when the first of them was seen.
    pub failures: u64,
    pub failing_since_ns: u64,
    /// How often it has opened since it was last closed, and until when it is open.
    pub openings: u64,
    pub open_until_ns: u64,
    /// Half-open: until when the trial call under way is waited for.
    pub trial_until_ns: u64,
}

/// What the breaker says to the next call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    Closed,
    /// Half-open: this call would be the trial.
    Trial,
    /// Open until then.
    Open(u64),
    /// Half-open with a trial in flight, waited for until then.
    TrialInFlight(u64),
    /// Open for so long (nanoseconds) that waiting is pointless.
    Refused(u64),
}

impl Breaker {
    /// Whether it is open or half-open.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.failures >= FAILURES
    }

    pub(super) fn state(&self, now_ns: u64) -> BreakerState {
        if !self.is_open() {
            return BreakerState::Closed;
        }
        if self.open_until_ns > now_ns {
            let failing_ns = now_ns.saturating_sub(self.failing_since_ns);
            let patient = failing_ns < PATIENCE_NS;
            return if patient { BreakerState::Open(self.open_until_ns) } else { BreakerState::Refused(failing_ns) };
        }
        if self.trial_until_ns > now_ns {
            return BreakerState::TrialInFlight(self.trial_until_ns.min(now_ns + TRIAL_NS));
        }
        BreakerState::Trial
    }

    pub(super) const fn start_trial(&mut self, now_ns: u64) {
        self.trial_until_ns = now_ns + TRIAL_NS;
    }

    /// The trial was never made: another call may be the trial.
    pub(super) const fn cancel_trial(&mut self) {
        self.trial_until_ns = 0;
    }

    /// An answer to a call that was sent then.
    pub(super) fn succeeded(&mut self, sent_ns: u64) {
        // A call that was sent before the failures began says nothing of the time since.
        if sent_ns >= self.failing_since_ns {
            *self = Self { failing_since_ns: self.failing_since_ns, ..Self::default() };
        }
    }

    /// A call failed for the endpoint's sake; `random` is uniform in [0, 1).
    pub(super) fn failed(&mut self, now_ns: u64, trial: bool, random: f64) {
        if self.failures == 0 {
            self.failing_since_ns = now_ns;
        }
        let was_open = self.is_open();
        self.failures = self.failures.saturating_add(1);
        if self.is_open() && (trial || !was_open) {
            self.open(now_ns, random);
        }
    }

    pub(super) fn open(&mut self, now_ns: u64, random: f64) {
        let longest_ns = FIRST_OPEN_NS.saturating_mul(1 << self.openings.min(10)).min(LONGEST_OPEN_NS);
        // Jitter between half and all of it: a trial at once would tell nothing.
        self.open_until_ns = now_ns.saturating_add(nanoseconds(real(longest_ns) * (0.5 + random / 2.0)));
        self.openings = self.openings.saturating_add(1);
        self.trial_until_ns = 0;
    }

    /// Brings times that another process wrote into bounds.
    pub(super) fn clamp(&mut self, now_ns: u64, latest_ns: u64) {
        self.open_until_ns = self.open_until_ns.min(latest_ns);
        self.failing_since_ns = self.failing_since_ns.min(now_ns);
        self.trial_until_ns = self.trial_until_ns.min(now_ns.saturating_add(TRIAL_NS));
    }
}
