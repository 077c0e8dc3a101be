//! The circuit breaker of one endpoint: closed, open, half-open. Arithmetic only: no clock, no
//! lock, no file. One for all processes that share a limit, and one for each endpoint of a fleet.
//!
//! - Any answer below 500 is a sign of life, whenever its request was sent. It closes an open
//!   breaker; the answer to a trial doubles the number of trials allowed, until all may go.
//! - Failures of one call count once. They open the breaker only if no request was answered in
//!   between and more failed than are in flight. A missing connection can't be a call's fault, so
//!   it always counts.
//! - A breaker that has not closed for `PATIENCE_NS` refuses calls instead of letting them wait.

use super::nanoseconds::{nanoseconds, real};
use crate::words::words_of;

/// Failures in a row that open the breaker, at least.
pub const FAILURES: u64 = 5;
/// Requests in a row without an answer, sent since the last answer, after which the endpoint is
/// reported as hanging.
pub const SILENT: u64 = 3;
/// Number of answered trials that closes the breaker. While it is open, `1 << ramp` trials may run
/// after `ramp` answers.
pub const RAMP: u64 = 8;
/// Failures of one call that are excused by an open breaker: in general, and for lack of a
/// connection. The latter are more than there are trials within `PATIENCE_NS`.
pub const EXCUSED: u16 = 2;
pub const EXCUSED_UNCONNECTED: u16 = 40;
const FIRST_OPEN_NS: u64 = 250_000_000;
const LONGEST_OPEN_NS: u64 = 15_000_000_000;
/// Trials without an outcome for this long are replaced by others.
const TRIAL_NS: u64 = 60_000_000_000;
/// Longer than a model server takes to start.
pub(super) const PATIENCE_NS: u64 = 300_000_000_000;

/// Result of a request, as evidence about its endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// It was answered with a status below 500; 429 and a refusal of this request count too.
    Answered,
    /// It was not sent, for lack of a connection.
    NoConnection,
    /// It was answered with 500 or above, or its connection broke: the request may be the cause.
    Failed,
    /// No answer came within its timeout.
    TimedOut,
    /// It was cancelled, or ended for a reason that is not the endpoint's.
    Nothing,
}

/// Results of the earlier attempts of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// One of them has failed.
    pub failed_before: bool,
    /// One of them was throttled.
    pub throttled_before: bool,
    /// Failures that were excused so far.
    pub excused: u16,
}

/// Facts about a request that the breaker needs beside its result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attempt {
    pub sent_ns: u64,
    /// It was sent as a trial (`Breaker::start_trial`).
    pub trial: bool,
    pub history: History,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Breaker {
    /// Failures of distinct calls in a row, the ones without a connection among them, and the time
    /// of the first.
    pub(super) failures: u64,
    pub(super) unconnected: u64,
    pub(super) failing_since_ns: u64,
    /// Timeouts in a row of requests sent since the last answer, and the time of that answer.
    pub(super) timeouts: u64,
    pub(super) answered_ns: u64,
    /// Number of openings since it was last closed, and the time until which it is open.
    pub(super) openings: u64,
    pub(super) open_until_ns: u64,
    /// Half-open: trials in flight, the time until which they are waited for, and the number of
    /// answered trials.
    pub(super) trials: u64,
    pub(super) trials_until_ns: u64,
    pub(super) ramp: u64,
}

/// State of the breaker for the next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    Closed,
    /// Half-open: the request would be a trial, and should be of a call that has not failed before.
    Trial,
    /// Open until this time.
    Open(u64),
    /// Half-open, with all allowed trials in flight, waited for until this time.
    TrialsInFlight(u64),
    /// Open for so long (nanoseconds) that waiting is pointless.
    Refused(u64),
}

impl Breaker {
    /// Returns whether it is open or half-open.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.openings > 0
    }

    /// Returns whether the endpoint hangs: requests are sent and none is answered.
    #[must_use]
    pub const fn is_silent(&self) -> bool {
        self.timeouts >= SILENT
    }

    /// Returns the state for a request that would be sent now.
    #[must_use]
    pub fn state(&self, now_ns: u64) -> BreakerState {
        if !self.is_open() {
            return BreakerState::Closed;
        }
        if self.open_until_ns > now_ns {
            let failing_ns = now_ns.saturating_sub(self.failing_since_ns);
            let patient = failing_ns < PATIENCE_NS;
            return if patient { BreakerState::Open(self.open_until_ns) } else { BreakerState::Refused(failing_ns) };
        }
        if self.trials >= 1 << self.ramp && self.trials_until_ns > now_ns {
            return BreakerState::TrialsInFlight(self.trials_until_ns.min(now_ns.saturating_add(TRIAL_NS)));
        }
        BreakerState::Trial
    }

    /// Sends a request for which the state was `Trial`.
    pub const fn start_trial(&mut self, now_ns: u64) {
        if self.trials_until_ns <= now_ns {
            self.trials = 0; // the old ones are replaced
        }
        self.trials += 1;
        self.trials_until_ns = now_ns.saturating_add(TRIAL_NS);
    }

    /// Cancels a trial that was never sent, so that another request may be the trial.
    pub const fn cancel_trial(&mut self) {
        self.trials = self.trials.saturating_sub(1);
    }

    /// Records the result of a request. `in_flight` is the number of requests that are still under
    /// way, and `random` is uniform in [0, 1). True if a failure is excused because the endpoint
    /// caused it, not the call.
    pub fn record(&mut self, attempt: Attempt, signal: Signal, now_ns: u64, in_flight: usize, random: f64) -> bool {
        if attempt.trial {
            self.cancel_trial();
        }
        match signal {
            Signal::Answered => self.answered(attempt.trial, now_ns),
            Signal::Nothing => {}
            Signal::NoConnection | Signal::Failed | Signal::TimedOut => {
                return self.failed(attempt, signal, now_ns, in_flight, random);
            }
        }
        false
    }

    fn answered(&mut self, trial: bool, now_ns: u64) {
        let ramp = if trial { self.ramp + 1 } else { RAMP };
        let answered = Self { answered_ns: self.answered_ns.max(now_ns), ..Self::default() };
        if !self.is_open() || ramp >= RAMP {
            *self = answered;
            return;
        }
        let Self { openings, open_until_ns, trials, trials_until_ns, .. } = *self;
        *self = Self { openings, open_until_ns, trials, trials_until_ns, ramp, ..answered };
    }

    fn failed(&mut self, attempt: Attempt, signal: Signal, now_ns: u64, in_flight: usize, random: f64) -> bool {
        let unconnected = signal == Signal::NoConnection;
        // Other requests were answered meanwhile, so the endpoint does not hang: the call is slow.
        let slow = signal == Signal::TimedOut && attempt.sent_ns < self.answered_ns;
        self.timeouts = self.timeouts.saturating_add((signal == Signal::TimedOut && !slow).into());
        let most = if unconnected { EXCUSED_UNCONNECTED } else { EXCUSED };
        let own = slow || (attempt.history.failed_before && attempt.history.excused >= most);
        let counts = unconnected || !(attempt.history.failed_before || slow);
        // Results of requests sent before the breaker opened do not count for the time since.
        if counts && (!self.is_open() || attempt.trial) {
            self.failing_since_ns = if self.failures == 0 { now_ns } else { self.failing_since_ns };
            self.failures = self.failures.saturating_add(1);
            self.unconnected = self.unconnected.saturating_add(unconnected.into());
        }
        // More requests than may still be answered.
        let most_failed = u64::try_from(in_flight).unwrap_or(u64::MAX).saturating_add(1);
        if self.is_open() {
            let conclusive = attempt.trial && (unconnected || !own) && self.open_until_ns <= now_ns;
            if conclusive && (self.ramp == 0 || self.failures >= FAILURES) {
                self.open(now_ns, random);
            }
        } else if counts && (self.unconnected >= FAILURES || self.failures >= FAILURES.max(most_failed)) {
            self.open(now_ns, random);
        }
        self.is_open() && !own
    }

    fn open(&mut self, now_ns: u64, random: f64) {
        let longest_ns = FIRST_OPEN_NS.saturating_mul(1 << self.openings.min(10)).min(LONGEST_OPEN_NS);
        // The jitter is between half and all of the time: otherwise all processes would send their
        // trials at once.
        self.open_until_ns = now_ns.saturating_add(nanoseconds(real(longest_ns) * (0.5 + random / 2.0)));
        self.openings = self.openings.saturating_add(1);
        (self.trials, self.ramp) = (0, 0);
    }

    /// Limits the values that another process wrote to their possible range.
    pub(super) fn clamp(&mut self, now_ns: u64, latest_ns: u64) {
        self.open_until_ns = self.open_until_ns.min(latest_ns);
        self.failing_since_ns = self.failing_since_ns.min(now_ns);
        self.answered_ns = self.answered_ns.min(now_ns);
        self.trials_until_ns = self.trials_until_ns.min(now_ns.saturating_add(TRIAL_NS));
        self.ramp = self.ramp.min(RAMP - 1);
        self.trials = self.trials.min(1 << RAMP);
    }
}

words_of!(Breaker: failures, unconnected, failing_since_ns, timeouts, answered_ns, openings, open_until_ns, trials,
    trials_until_ns, ramp);
