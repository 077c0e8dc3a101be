//! The rate limiter of one endpoint: token buckets (GCRA) for requests and tokens, adaptive rates,
//! a circuit breaker. Arithmetic only: no clock, no lock, no file.
//!
//! - Any period `t` has at most `1 + (t + SLACK_NS) / interval` permits, of `60 s / (rpm * PACE)`.
//! - Tokens are charged by an estimate before the call, and corrected by the reported usage.
//! - Throttling lowers all rates (without rates: the concurrency) once for all calls in flight.
//! - `Retry-After`, or a pause that doubles with each refusal, holds for all calls. After a pause,
//!   limits without rates allow one call, and more as the server takes them (`Window`, `Pace`).
//!   Answers that contradict a pause undo it.

use serde::Deserialize;

use super::breaker::{Attempt, Breaker, BreakerState};
use super::feedback::{CallEnd, Feedback};
use super::nanoseconds::{nanoseconds, real};
use super::pace::Pace;
use super::pauses::Pauses;
use super::window::{FULL, Window};
use crate::words::words_of;

const MINUTE_NS: f64 = 60e9;
/// Share of an allowance that is used. The rest is a margin for the server's sliding window and the
/// network's jitter.
const PACE: f64 = 0.98;
/// Delay of a request that does not delay the next ones, since timers are late by some
/// milliseconds.
const SLACK_NS: u64 = 25_000_000;
/// Factor of the rates after a throttled call: at the first one, which the network may have caused,
/// and at one that comes soon after another.
const FIRST_DECREASE: f64 = 0.95;
const DECREASE: f64 = 0.85;
const SOON_NS: u64 = 10_000_000_000;
/// Lowest factor of the rates, and the time in which they recover from nothing to all.
const LEAST_FACTOR: f64 = 0.02;
const RECOVERY_NS: f64 = 30e9;
/// Rates recover only while answers arrive: a gap between two answers counts up to this.
const RECOVERY_STEP_NS: u64 = 1_000_000_000;
const LONGEST_NS: u64 = 600_000_000_000;
/// Longest time between another process's reading of its clock and its use of the file: on a busy
/// machine, and on one that hardly runs.
const STALE_NS: u64 = 1_000_000_000;
const AHEAD_NS: u64 = 60_000_000_000;
/// Tokens charged for a call without an estimate.
const UNKNOWN_TOKENS: f64 = 1000.0;

/// Limits set for an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// Requests a minute.
    pub rpm: Option<f64>,
    /// Tokens a minute.
    pub tpm: Option<f64>,
    /// Calls in flight.
    pub concurrency: Option<usize>,
}

/// Tokens of a call, as far as they can be determined before it is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tokens {
    /// A number that its function counted.
    Counted(f64),
    /// Assumed for each call until calls have reported their use; `None` without an assumption.
    Estimated(Option<f64>),
}

/// A call that may go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grant {
    pub sent_ns: u64,
    /// Time since the call before it.
    pub gap_ns: u64,
    /// Number of calls in flight when it was let through.
    pub others: u64,
    /// Tokens that were charged.
    pub tokens: f64,
    /// True if the call is a trial: the circuit breaker is half-open, and the call's result counts.
    pub trial: bool,
}

/// Decision on one call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decision {
    Go(Grant),
    /// Request again at this time; sooner if a call has ended and `on_release`.
    Wait {
        until_ns: u64,
        on_release: bool,
    },
    /// Time that the circuit breaker has been open, in nanoseconds.
    BreakerOpen(u64),
    /// Time that all calls have been throttled, in nanoseconds.
    Throttled(u64),
}

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub struct RateLimiter {
    /// The time when the next request is due, and the time when the tokens charged so far are paid
    /// off.
    requests_ns: u64,
    tokens_ns: u64,
    /// Tokens per minute at which the debt is paid off; 0 before the first charge.
    tpm: f64,
    /// Mean tokens of the calls that reported their use.
    mean_tokens: f64,
    /// Factor to which throttling has lowered the rates; the times when they were last lowered and
    /// raised.
    factor: f64,
    lowered_ns: u64,
    raised_ns: u64,
    pauses: Pauses,
    window: Window,
    pace: Pace,
    /// Values before the last pause: the factor, and the width of the window.
    factor_before: f64,
    most_before: u64,
    breaker: Breaker,
}

words_of!(RateLimiter: requests_ns, tokens_ns, tpm, mean_tokens, factor, lowered_ns, raised_ns, pauses, window, pace,
    factor_before, most_before, breaker);

impl Default for RateLimiter {
    fn default() -> Self {
        Self {
            requests_ns: 0,
            tokens_ns: 0,
            tpm: 0.0,
            mean_tokens: 0.0,
            factor: 1.0,
            lowered_ns: 0,
            raised_ns: 0,
            pauses: Pauses::default(),
            window: Window::default(),
            pace: Pace::default(),
            factor_before: 1.0,
            most_before: 0,
            breaker: Breaker::default(),
        }
    }
}

impl RateLimiter {
    /// Decides on a call that takes `tokens` while `in_flight` are under way.
    pub fn ask(&mut self, rules: &Rules, now_ns: u64, tokens: Tokens, in_flight: usize) -> Decision {
        let latest_ns = now_ns.saturating_add(LONGEST_NS);
        if self.pauses.until_ns > now_ns {
            let hopeless_ns = self.pauses.hopeless_ns(now_ns);
            // Calls in flight may be answered, which contradicts the refusal.
            let on_release = in_flight > 0 && !has_rates(rules);
            let paused = Decision::Wait { until_ns: self.pauses.until_ns.min(latest_ns), on_release };
            return hopeless_ns.map_or(paused, Decision::Throttled);
        }
        let breaker = self.breaker.state(now_ns);
        match breaker {
            BreakerState::Closed | BreakerState::Trial => {}
            BreakerState::Open(until_ns) => {
                return Decision::Wait { until_ns: until_ns.min(latest_ns), on_release: false };
            }
            BreakerState::TrialsInFlight(until_ns) => return Decision::Wait { until_ns, on_release: true },
            BreakerState::Refused(failing_ns) => return Decision::BreakerOpen(failing_ns),
        }
        if rules.concurrency.is_some_and(|most| in_flight >= self.allowed_concurrency(rules, most)) {
            return Decision::Wait { until_ns: u64::MAX, on_release: true };
        }
        if let Some(until_ns) = self.window.full_until_ns(now_ns, in_flight) {
            return Decision::Wait { until_ns, on_release: true };
        }
        if self.pace.due_ns() > now_ns {
            return Decision::Wait { until_ns: self.pace.due_ns(), on_release: false };
        }
        // A time that this rate set is at most one interval away; another process may have read its
        // clock a little later.
        let interval_ns = self.cost_ns(rules.rpm, 1.0);
        let latest_due_ns = now_ns.saturating_add(interval_ns).saturating_add(SLACK_NS).saturating_add(STALE_NS);
        self.requests_ns = self.requests_ns.min(latest_due_ns);
        self.rescale_debt(rules, now_ns);
        let rates = [(rules.rpm, self.requests_ns), (rules.tpm, self.tokens_ns)];
        let due_ns = rates.iter().filter(|(rate, _)| rate.is_some()).map(|(_, due_ns)| *due_ns).max().unwrap_or(0);
        if due_ns > now_ns + SLACK_NS {
            let until_ns = (due_ns - SLACK_NS).min(latest_ns);
            // A call that reports fewer tokens than were charged makes room sooner.
            let by_tokens = rules.tpm.is_some() && due_ns == self.tokens_ns;
            return Decision::Wait { until_ns, on_release: by_tokens && in_flight > 0 };
        }
        let tokens = match tokens {
            Tokens::Counted(tokens) => tokens,
            Tokens::Estimated(_) if self.mean_tokens > 0.0 => self.mean_tokens,
            Tokens::Estimated(tokens) => tokens.unwrap_or(UNKNOWN_TOKENS),
        };
        // Counted from now, so that idle time allows no burst.
        self.requests_ns = self.requests_ns.max(now_ns).saturating_add(interval_ns);
        self.tokens_ns = self.tokens_ns.max(now_ns).saturating_add(self.cost_ns(rules.tpm, tokens));
        let others = self.window.others(in_flight);
        self.window.send(now_ns);
        let gap_ns = self.pace.send(now_ns, self.window.refusal_ns);
        let trial = breaker == BreakerState::Trial;
        if trial {
            self.breaker.start_trial(now_ns);
        }
        Decision::Go(Grant { sent_ns: now_ns, gap_ns, others, tokens, trial })
    }

    /// Records the end of a call while others are `in_flight`; `random` is uniform in [0, 1). True
    /// if a failure is excused (`Breaker::record`).
    pub fn record(
        &mut self,
        rules: &Rules,
        now_ns: u64,
        grant: Grant,
        end: CallEnd,
        in_flight: usize,
        random: f64,
    ) -> bool {
        let CallEnd { feedback, tokens, history } = end;
        self.rescale_debt(rules, now_ns);
        if let Some(tokens) = tokens.filter(|tokens| *tokens >= 0.0 && *tokens <= most_tokens(rules)) {
            let charged_ns = self.cost_ns(rules.tpm, grant.tokens);
            let used_ns = self.cost_ns(rules.tpm, tokens);
            let due_ns = self.tokens_ns.saturating_add(used_ns).saturating_sub(charged_ns);
            self.tokens_ns = due_ns.min(now_ns.saturating_add(LONGEST_NS));
            let known = if self.mean_tokens > 0.0 { self.mean_tokens } else { tokens };
            self.mean_tokens = (known * 0.9 + tokens * 0.1).max(1.0);
        }
        self.leave_window(grant);
        if !matches!(feedback, Feedback::Throttled(_)) && self.pauses.is_after(grant.sent_ns) {
            self.window.answered(random);
        }
        match feedback {
            Feedback::Ok => {
                self.window.take(grant.others);
                self.pauses.count(true, history.throttled_before);
                let pauses = self.pauses.until_ns > now_ns;
                let contradicts = grant.sent_ns < self.lowered_ns && self.pauses.are_contradicted();
                if contradicts {
                    self.pace.interval_ns = 0;
                }
                if contradicts && pauses && !has_rates(rules) {
                    self.pauses.lift();
                    (self.factor, self.window.most) = (self.factor_before, self.most_before);
                } else if !has_rates(rules) {
                    self.pauses.doubt(now_ns);
                }
                if grant.sent_ns >= self.lowered_ns {
                    self.pauses.count = 0;
                    let since_ns = self.raised_ns.max(self.lowered_ns);
                    let step_ns = now_ns.saturating_sub(since_ns).min(RECOVERY_STEP_NS);
                    self.factor = (self.factor + real(step_ns) / RECOVERY_NS).min(1.0);
                    self.raised_ns = now_ns;
                }
            }
            Feedback::Throttled(retry_after) => {
                self.window.refused(now_ns.saturating_sub(grant.sent_ns));
                self.pauses.count(false, history.throttled_before);
                let needs_no_pause = !has_rates(rules)
                    && (retry_after.is_none() && self.is_explained(grant, now_ns, in_flight)
                        || self.pauses.take_for_single(retry_after, !history.throttled_before));
                // A call sent before the rates were lowered is not evidence about the new ones.
                if grant.sent_ns >= self.lowered_ns && !needs_no_pause {
                    (self.factor_before, self.most_before) = (self.factor, self.window.most);
                    // A refusal during a pause has the same meaning as the first one, unless there
                    // are rates.
                    if self.pauses.count == 0 || has_rates(rules) {
                        let again = self.lowered_ns != 0 && now_ns.saturating_sub(self.lowered_ns) < SOON_NS;
                        self.factor = (self.factor * if again { DECREASE } else { FIRST_DECREASE }).max(LEAST_FACTOR);
                    }
                    self.lowered_ns = now_ns.max(grant.sent_ns) + 1;
                    self.pauses.begin(now_ns, retry_after, history.throttled_before, random);
                    if !has_rates(rules) {
                        self.window.narrow();
                        self.pauses.doubt(now_ns);
                    }
                } else if let Some(after) = retry_after.filter(|_| !needs_no_pause) {
                    self.pauses.prolong(now_ns, after);
                }
            }
            Feedback::Failed => self.pace.end(now_ns),
            Feedback::NoConnection | Feedback::TimedOut | Feedback::Unknown => {}
        }
        let attempt = Attempt { sent_ns: grant.sent_ns, trial: grant.trial, history };
        self.breaker.record(attempt, feedback.signal(), now_ns, in_flight, random)
    }

    /// Returns whether a bound of the server explains a refusal while others are `in_flight`: a
    /// bound on these, or a pace. Both are assumed only after a pause since which no request has
    /// failed.
    fn is_explained(&mut self, grant: Grant, now_ns: u64, in_flight: usize) -> bool {
        let begins = self.pace.interval_ns == 0;
        let before_ns = grant.sent_ns.saturating_sub(grant.gap_ns);
        let known = self.lowered_ns > self.pace.failed_ns && before_ns >= self.lowered_ns;
        if begins && !self.window.is_held() && (!known || self.pauses.are_contradicted()) {
            return false;
        }
        if begins && self.window.hold(in_flight) {
            return true;
        }
        let exceeded = self.pace.refused(grant.sent_ns, grant.gap_ns, now_ns);
        if begins && exceeded {
            self.lowered_ns = now_ns.max(grant.sent_ns) + 1;
        }
        exceeded
    }

    /// Removes an ended call from the window; a call sent before the last pause is not in it.
    const fn leave_window(&mut self, grant: Grant) {
        if self.window.is_held() || self.pauses.is_after(grant.sent_ns) {
            self.window.leave();
        }
    }

    /// The time when the next call is, or was, due by the rates, if there are any.
    pub(super) fn due_ns(&self, rules: &Rules) -> Option<u64> {
        let due_ns = self.requests_ns.max(if rules.tpm.is_some() { self.tokens_ns } else { 0 });
        has_rates(rules).then_some(due_ns.saturating_sub(SLACK_NS))
    }

    /// Refunds a call that was never made.
    pub fn refund(&mut self, rules: &Rules, grant: Grant) {
        self.leave_window(grant);
        self.requests_ns = self.requests_ns.saturating_sub(self.cost_ns(rules.rpm, 1.0));
        self.tokens_ns = self.tokens_ns.saturating_sub(self.cost_ns(rules.tpm, grant.tokens));
        if grant.trial {
            self.breaker.cancel_trial();
        }
    }

    /// Returns whether the circuit breaker is open or half-open, and whether the endpoint hangs.
    #[must_use]
    pub const fn breaker_seen(&self) -> (bool, bool) {
        (self.breaker.is_open(), self.breaker.is_silent())
    }

    /// Returns whether a process with the same clock can have written this: every value is a
    /// number, and no time is further ahead than any that is ever set.
    #[must_use]
    pub fn is_plausible(&self, now_ns: u64) -> bool {
        let soon_ns = now_ns.saturating_add(LONGEST_NS).saturating_add(AHEAD_NS);
        let times = [
            self.requests_ns,
            self.tokens_ns,
            self.lowered_ns,
            self.raised_ns,
            self.pauses.until_ns,
            self.window.sent_ns,
            self.breaker.failing_since_ns,
            self.breaker.open_until_ns,
            self.breaker.answered_ns,
            self.breaker.trials_until_ns,
        ];
        let rates = (LEAST_FACTOR..=1.0).contains(&self.factor)
            && [self.mean_tokens, self.tpm].iter().all(|number| number.is_finite() && *number >= 0.0);
        rates && times.iter().all(|ns| *ns <= soon_ns)
    }

    /// Limits values to their possible range: another process may have read its clock a little
    /// later.
    pub fn clamp(&mut self, now_ns: u64) {
        let soon_ns = now_ns.saturating_add(LONGEST_NS);
        for ns in [&mut self.requests_ns, &mut self.tokens_ns, &mut self.pauses.until_ns] {
            *ns = (*ns).min(soon_ns);
        }
        for ns in [&mut self.lowered_ns, &mut self.raised_ns, &mut self.pauses.since_ns] {
            *ns = (*ns).min(now_ns);
        }
        self.window.clamp(now_ns);
        self.pace.clamp(now_ns);
        self.most_before = self.most_before.min(FULL);
        self.pauses.clamp();
        self.breaker.clamp(now_ns, soon_ns);
        for factor in [&mut self.factor, &mut self.factor_before] {
            *factor = if factor.is_nan() { 1.0 } else { factor.clamp(LEAST_FACTOR, 1.0) };
        }
        for number in [&mut self.mean_tokens, &mut self.tpm] {
            *number = if number.is_finite() { number.max(0.0) } else { 0.0 };
        }
    }

    /// Number of calls in flight that throttling allows, of `most`. The result is `most` if there
    /// are rates, because throttling lowers these instead.
    #[must_use]
    pub fn allowed_concurrency(&self, rules: &Rules, most: usize) -> usize {
        if has_rates(rules) {
            return most;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "between 1 and most"
        )]
        let left = (most as f64 * self.factor) as usize;
        left.clamp(1, most.max(1))
    }

    /// Number of calls that may be in flight now, of `most`; a held window bounds it too.
    pub(super) fn places(&self, rules: &Rules, most: usize) -> usize {
        let most = self.allowed_concurrency(rules, most);
        if self.window.is_held() { most.min(usize::try_from(self.window.most).unwrap_or(most)) } else { most }
    }

    /// Converts the token debt into the time that it takes at the rate of these rules.
    fn rescale_debt(&mut self, rules: &Rules, now_ns: u64) {
        let Some(tpm) = rules.tpm.filter(|tpm| self.tpm.to_bits() != tpm.to_bits()) else { return };
        let debt_ns = self.tokens_ns.saturating_sub(now_ns);
        if debt_ns > 0 && self.tpm > 0.0 {
            let rescaled_ns = nanoseconds(real(debt_ns) * (self.tpm / tpm)).min(LONGEST_NS);
            self.tokens_ns = now_ns.saturating_add(rescaled_ns);
        }
        self.tpm = tpm;
    }

    fn cost_ns(&self, rate: Option<f64>, amount: f64) -> u64 {
        rate.map_or(0, |rate| nanoseconds(MINUTE_NS * amount / (rate * PACE * self.factor)).min(LONGEST_NS))
    }
}

const fn has_rates(rules: &Rules) -> bool {
    rules.rpm.is_some() || rules.tpm.is_some()
}

/// The most tokens that a call can have used. A higher report is not believed: it would hold up all
/// that share the limit.
fn most_tokens(rules: &Rules) -> f64 {
    rules.tpm.map_or(f64::MAX, |tpm| tpm * real(LONGEST_NS) / MINUTE_NS)
}
