//! The rate limiter of one endpoint: token buckets (GCRA) for requests and tokens, adaptive rates,
//! a circuit breaker. Arithmetic only: no clock, no lock, no file.
//!
//! - Any stretch `t` has at most `1 + (t + SLACK_NS) / interval` permits, of `60 s / (rpm * PACE)`.
//! - Tokens are charged by an estimate before the call, and corrected once its use is known.
//! - Throttling lowers all rates (without rates: the concurrency) once for all calls in flight.
//! - `Retry-After`, else a pause that doubles with each refusal, holds for all calls; without rates
//!   one goes then, and as many more as were let through. No wait is longer than these rules
//!   explain.

use std::time::Duration;

use super::breaker::{self, Attempt, Breaker, BreakerState, History, PATIENCE_NS, Signal};
use super::nanoseconds::{nanoseconds, real};
use crate::clock::nanos;
use crate::outcome::{Answer, Failure, FailureKind};

const MINUTE_NS: f64 = 60e9;
/// Share of an allowance that is used. The rest is room for the server's sliding window and
/// the network's jitter.
const PACE: f64 = 0.98;
/// How late a request may be without delaying the next ones: timers are late by some milliseconds.
const SLACK_NS: u64 = 25_000_000;
/// What is left of the rates after a throttled call: the first, which may be the network's doing,
/// and one that comes soon after another.
const FIRST_DECREASE: f64 = 0.95;
const DECREASE: f64 = 0.85;
const SOON_NS: u64 = 10_000_000_000;
/// The least that is ever left of the rates, and how long they take to recover from nothing to all.
const LEAST_FACTOR: f64 = 0.02;
const RECOVERY_NS: f64 = 30e9;
/// Rates recover only while there are answers: a pause between two of them counts up to this.
const RECOVERY_STEP_NS: u64 = 1_000_000_000;
const LONGEST_NS: u64 = 600_000_000_000;
/// What is believed of a `Retry-After`: rates are by the minute.
pub const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(120);
/// The pause after a throttled call that does not say when to come again, and after the next ones.
const FIRST_PAUSE_NS: u64 = 500_000_000;
const LONGEST_PAUSE_NS: u64 = 8_000_000_000;
/// Pauses in a row that a server may make shorter than the first of ours (`Retry-After: 0`).
const BELIEVED: u64 = 2;
/// Answers may take long, and refusals don't: a call after a pause that was not refused for so many
/// times as long as refusals take was let through, between these bounds.
const LET_THROUGH: u64 = 4;
const SOONEST_LET_THROUGH_NS: u64 = 250_000_000;
const LATEST_LET_THROUGH_NS: u64 = 60_000_000_000;
/// So many calls in flight after a pause are as many as ever.
const FULL_WINDOW: u64 = 1024;
/// How much later another process may have read its clock and still got its turn first: on a busy
/// machine, and on one that hardly moves.
const STALE_NS: u64 = 1_000_000_000;
const AHEAD_NS: u64 = 60_000_000_000;
/// Tokens of a call of which nothing is known.
const UNKNOWN_TOKENS: f64 = 1000.0;

/// What was set for an endpoint.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules {
    /// Requests a minute.
    pub rpm: Option<f64>,
    /// Tokens a minute.
    pub tpm: Option<f64>,
    /// Calls in flight.
    pub concurrency: Option<usize>,
}

/// What a call says about the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feedback {
    /// It answered, if only to refuse this request.
    Ok,
    /// Too many requests; come back after this time.
    Throttled(Option<Duration>),
    /// There was no connection to it.
    NoConnection,
    /// It answered 500 or above, or broke the connection.
    Failed,
    /// It did not answer in time.
    TimedOut,
    /// Nothing: the call was cancelled, or failed for reasons of its own.
    Unknown,
}

impl Feedback {
    /// What a failed attempt says about the endpoint.
    #[must_use]
    pub fn of(failure: &Failure) -> Self {
        match (failure.kind, failure.answer) {
            (FailureKind::Timeout, Some(Answer::Unreachable)) => Self::NoConnection,
            (FailureKind::Timeout, _) => Self::TimedOut,
            (FailureKind::Error, Some(Answer::Status(429))) => Self::Throttled(failure.retry_after),
            // "Overloaded, come back": it is not down.
            (FailureKind::Error, Some(Answer::Status(500..))) if failure.retry_after.is_some() => {
                Self::Throttled(failure.retry_after)
            }
            (FailureKind::Error, Some(Answer::Unreachable)) => Self::NoConnection,
            (FailureKind::Error, Some(Answer::Status(500..) | Answer::Broken)) => Self::Failed,
            (FailureKind::Error, Some(Answer::Status(_))) => Self::Ok,
            _ => Self::Unknown,
        }
    }

    /// The same for a circuit breaker.
    #[must_use]
    pub const fn signal(self) -> Signal {
        match self {
            Self::Ok | Self::Throttled(_) => Signal::Answered,
            Self::NoConnection => Signal::NoConnection,
            Self::Failed => Signal::Failed,
            Self::TimedOut => Signal::TimedOut,
            Self::Unknown => Signal::Nothing,
        }
    }

    /// Whether the endpoint may be to blame.
    #[must_use]
    pub const fn is_endpoint_error(self) -> bool {
        matches!(self, Self::NoConnection | Self::Failed | Self::TimedOut)
    }
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CallEnd {
    pub feedback: Feedback,
    /// Tokens that it used, if it reported them.
    pub tokens: Option<f64>,
    /// Of its earlier attempts.
    pub history: History,
}

/// Tokens of a call, before it is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tokens {
    /// As its function counts them.
    Counted(f64),
    /// Assumed for each call until calls have reported their use; `None`: nobody knows.
    Estimated(Option<f64>),
}

/// A call that was let through.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grant {
    pub sent_ns: u64,
    /// Tokens that were charged.
    pub tokens: f64,
    /// The circuit breaker is half-open, and this call decides.
    pub trial: bool,
}

/// Whether another call may go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decision {
    Go(Grant),
    /// Ask again then; sooner when a call has ended, if `on_release`.
    Wait {
        until_ns: u64,
        on_release: bool,
    },
    /// The circuit breaker has been open for so many nanoseconds.
    BreakerOpen(u64),
    /// All calls have been throttled for so many nanoseconds.
    Throttled(u64),
}

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub struct RateLimiter {
    /// When the next request is due, and when the tokens charged so far are paid off.
    requests_ns: u64,
    tokens_ns: u64,
    /// Tokens a minute at which that debt is paid off; 0: there was none yet.
    tpm: f64,
    /// Mean tokens of the calls that reported their use.
    mean_tokens: f64,
    /// What throttling leaves of the rates; when they were last lowered and last raised.
    factor: f64,
    lowered_ns: u64,
    raised_ns: u64,
    /// Nothing goes before this: a server's `Retry-After`, or a pause.
    retry_after_ns: u64,
    /// Pauses since the last answer, and when the first one began.
    pauses: u64,
    throttled_since_ns: u64,
    /// Calls in flight that may be since the last pause, 0 for all; those that are, and when the
    /// last of them was sent.
    window: u64,
    window_in_flight: u64,
    window_sent_ns: u64,
    /// How long refusals took lately, the longest weighing most.
    refusal_ns: u64,
    breaker: Breaker,
}

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
            retry_after_ns: 0,
            pauses: 0,
            throttled_since_ns: 0,
            window: 0,
            window_in_flight: 0,
            window_sent_ns: 0,
            refusal_ns: 0,
            breaker: Breaker::default(),
        }
    }
}

impl RateLimiter {
    /// Asks for a call that takes `tokens` while `in_flight` are under way.
    pub fn ask(&mut self, rules: &Rules, now_ns: u64, tokens: Tokens, in_flight: usize) -> Decision {
        let wait = |until_ns: u64| Decision::Wait {
            until_ns: until_ns.min(now_ns.saturating_add(LONGEST_NS)),
            on_release: false,
        };
        if self.retry_after_ns > now_ns {
            let throttled_ns = now_ns.saturating_sub(self.throttled_since_ns);
            let patient = self.pauses == 0 || throttled_ns < PATIENCE_NS;
            return if patient { wait(self.retry_after_ns) } else { Decision::Throttled(throttled_ns) };
        }
        let breaker = self.breaker.state(now_ns);
        match breaker {
            BreakerState::Closed | BreakerState::Trial => {}
            BreakerState::Open(until_ns) => return wait(until_ns),
            BreakerState::TrialsInFlight(until_ns) => return Decision::Wait { until_ns, on_release: true },
            BreakerState::Refused(failing_ns) => return Decision::BreakerOpen(failing_ns),
        }
        if rules.concurrency.is_some_and(|most| in_flight >= self.allowed_concurrency(rules, most)) {
            return Decision::Wait { until_ns: u64::MAX, on_release: true };
        }
        if let Some(until_ns) = self.window_full(now_ns) {
            return Decision::Wait { until_ns, on_release: true };
        }
        // At most one interval away, if it was this rate that put it there; another process may
        // have read its clock a little later.
        let interval_ns = self.cost_ns(rules.rpm, 1.0);
        let latest_ns = now_ns.saturating_add(interval_ns).saturating_add(SLACK_NS).saturating_add(STALE_NS);
        self.requests_ns = self.requests_ns.min(latest_ns);
        self.rescale_debt(rules, now_ns);
        let rates = [(rules.rpm, self.requests_ns), (rules.tpm, self.tokens_ns)];
        let due_ns = rates.iter().filter(|(rate, _)| rate.is_some()).map(|(_, due_ns)| *due_ns).max().unwrap_or(0);
        if due_ns > now_ns + SLACK_NS {
            let until_ns = (due_ns - SLACK_NS).min(now_ns.saturating_add(LONGEST_NS));
            // A call that reports fewer tokens than were charged makes room sooner.
            let by_tokens = rules.tpm.is_some() && due_ns == self.tokens_ns;
            return Decision::Wait { until_ns, on_release: by_tokens && in_flight > 0 };
        }
        let tokens = match tokens {
            Tokens::Counted(tokens) => tokens,
            Tokens::Estimated(_) if self.mean_tokens > 0.0 => self.mean_tokens,
            Tokens::Estimated(tokens) => tokens.unwrap_or(UNKNOWN_TOKENS),
        };
        // Counted from now: idle time is not saved up for a burst.
        self.requests_ns = self.requests_ns.max(now_ns).saturating_add(interval_ns);
        self.tokens_ns = self.tokens_ns.max(now_ns).saturating_add(self.cost_ns(rules.tpm, tokens));
        if self.window > 0 {
            (self.window_in_flight, self.window_sent_ns) = (self.window_in_flight.saturating_add(1), now_ns);
        }
        let trial = breaker == BreakerState::Trial;
        if trial {
            self.breaker.start_trial(now_ns);
        }
        Decision::Go(Grant { sent_ns: now_ns, tokens, trial })
    }

    /// Takes in how a call ended while others are `in_flight`; `random` is uniform in [0, 1). True
    /// where a failure is excused (`Breaker::record`).
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
        if !matches!(feedback, Feedback::Throttled(_)) && grant.sent_ns >= self.retry_after_ns && self.window > 0 {
            self.widen(1);
        }
        match feedback {
            Feedback::Ok => {
                self.pauses = if grant.sent_ns >= self.lowered_ns { 0 } else { self.pauses };
                if grant.sent_ns >= self.lowered_ns {
                    let since_ns = self.raised_ns.max(self.lowered_ns);
                    let step_ns = now_ns.saturating_sub(since_ns).min(RECOVERY_STEP_NS);
                    self.factor = (self.factor + real(step_ns) / RECOVERY_NS).min(1.0);
                    self.raised_ns = now_ns;
                }
            }
            Feedback::Throttled(retry_after) => {
                let took_ns = now_ns.saturating_sub(grant.sent_ns);
                self.refusal_ns = took_ns.max(self.refusal_ns - self.refusal_ns / 8);
                // A call that was sent before the rates were lowered says nothing of the new ones.
                if grant.sent_ns >= self.lowered_ns {
                    // Without rates, refusals while it pauses say no more than the first one.
                    if self.pauses == 0 || has_rates(rules) {
                        let again = self.lowered_ns != 0 && now_ns.saturating_sub(self.lowered_ns) < SOON_NS;
                        self.factor = (self.factor * if again { DECREASE } else { FIRST_DECREASE }).max(LEAST_FACTOR);
                    }
                    self.lowered_ns = now_ns.max(grant.sent_ns) + 1;
                    self.pause(rules, now_ns, retry_after, random);
                } else if let Some(after) = retry_after.filter(|after| !after.is_zero()) {
                    self.wait_until(now_ns.saturating_add(nanos(after.min(LONGEST_RETRY_AFTER))));
                }
            }
            Feedback::NoConnection | Feedback::Failed | Feedback::TimedOut | Feedback::Unknown => {}
        }
        let attempt = Attempt { sent_ns: grant.sent_ns, trial: grant.trial, history };
        self.breaker.record(attempt, feedback.signal(), now_ns, in_flight, random)
    }

    /// Lets nothing through for as long as the server says, or for longer each time; without rates
    /// one call goes then.
    fn pause(&mut self, rules: &Rules, now_ns: u64, retry_after: Option<Duration>, random: f64) {
        let longest_ns = FIRST_PAUSE_NS.saturating_mul(1 << self.pauses.min(10)).min(LONGEST_PAUSE_NS);
        let own_ns = nanoseconds(real(longest_ns) * (0.5 + random / 2.0));
        let pause_ns = match retry_after.map(|after| nanos(after.min(LONGEST_RETRY_AFTER))) {
            None => own_ns,
            // Its word was too short so often that calls would use up their attempts at once.
            Some(after_ns) if self.pauses >= BELIEVED && after_ns < FIRST_PAUSE_NS => after_ns.max(own_ns),
            Some(after_ns) => after_ns,
        };
        self.throttled_since_ns = if self.pauses == 0 { now_ns } else { self.throttled_since_ns };
        self.pauses = self.pauses.saturating_add(1);
        self.wait_until(now_ns.saturating_add(pause_ns));
        if !has_rates(rules) {
            (self.window, self.window_in_flight) = (1, 0);
        }
    }

    /// Until when the window is full, if it is. It doubles once its calls were let through.
    fn window_full(&mut self, now_ns: u64) -> Option<u64> {
        if self.window == 0 || self.window_in_flight < self.window {
            return None;
        }
        let after_ns = self.refusal_ns.saturating_mul(LET_THROUGH);
        let after_ns = after_ns.clamp(SOONEST_LET_THROUGH_NS, LATEST_LET_THROUGH_NS);
        let until_ns = self.window_sent_ns.saturating_add(after_ns);
        if until_ns > now_ns {
            return Some(until_ns);
        }
        self.widen(self.window_in_flight);
        None
    }

    const fn widen(&mut self, by: u64) {
        let window = self.window.saturating_add(by);
        self.window = if window <= FULL_WINDOW { window } else { 0 };
    }

    fn wait_until(&mut self, until_ns: u64) {
        self.retry_after_ns = self.retry_after_ns.max(until_ns);
    }

    /// A call has ended; those that were sent before the last pause are not of its window.
    const fn leave_window(&mut self, grant: Grant) {
        if grant.sent_ns >= self.retry_after_ns {
            self.window_in_flight = self.window_in_flight.saturating_sub(1);
        }
    }

    /// When the next call is, or was, due by the rates, if there are any.
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

    /// Whether the circuit breaker is open, or half-open, and whether the endpoint hangs.
    #[must_use]
    pub const fn breaker_seen(&self) -> (bool, bool) {
        (self.breaker.is_open(), self.breaker.is_silent())
    }

    /// Whether a process with the same clock can have written it: no time is further ahead than any
    /// that is ever set, and every number is one.
    #[must_use]
    pub fn is_plausible(&self, now_ns: u64) -> bool {
        let soon_ns = now_ns.saturating_add(LONGEST_NS).saturating_add(AHEAD_NS);
        let times = [
            self.requests_ns,
            self.tokens_ns,
            self.lowered_ns,
            self.raised_ns,
            self.retry_after_ns,
            self.window_sent_ns,
            self.breaker.failing_since_ns,
            self.breaker.open_until_ns,
            self.breaker.answered_ns,
            self.breaker.trials_until_ns,
        ];
        let rates = (LEAST_FACTOR..=1.0).contains(&self.factor)
            && [self.mean_tokens, self.tpm].iter().all(|number| number.is_finite() && *number >= 0.0);
        rates && times.iter().all(|ns| *ns <= soon_ns)
    }

    /// Brings what a process wrote whose clock was read a little later into bounds.
    pub fn clamp(&mut self, now_ns: u64) {
        let soon_ns = now_ns.saturating_add(LONGEST_NS);
        for ns in [&mut self.requests_ns, &mut self.tokens_ns, &mut self.retry_after_ns] {
            *ns = (*ns).min(soon_ns);
        }
        for ns in [&mut self.lowered_ns, &mut self.raised_ns, &mut self.throttled_since_ns, &mut self.window_sent_ns] {
            *ns = (*ns).min(now_ns);
        }

        self.window = self.window.min(FULL_WINDOW);
        self.refusal_ns = self.refusal_ns.min(LATEST_LET_THROUGH_NS);
        self.breaker.clamp(now_ns, soon_ns);
        self.factor = if self.factor.is_nan() { 1.0 } else { self.factor.clamp(LEAST_FACTOR, 1.0) };
        for number in [&mut self.mean_tokens, &mut self.tpm] {
            *number = if number.is_finite() { number.max(0.0) } else { 0.0 };
        }
    }

    /// Calls in flight that throttling leaves of `most`: only without rates, which are lowered
    /// instead.
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

    /// Expresses the token debt as the time that it takes at the rate of these rules.
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

/// The most tokens that a call can have used. More is not believed: it would hold up all that share
/// the limit.
fn most_tokens(rules: &Rules) -> f64 {
    rules.tpm.map_or(f64::MAX, |tpm| tpm * real(LONGEST_NS) / MINUTE_NS)
}

/// Numbers of a rate limiter in a file.
pub(super) const WORDS: usize = 14 + breaker::WORDS;

impl RateLimiter {
    pub(super) fn to_words(&self) -> [u64; WORDS] {
        let mut words = [0; WORDS];
        let (own, breaker) = words.split_at_mut(WORDS - breaker::WORDS);
        own.copy_from_slice(&[
            self.requests_ns,
            self.tokens_ns,
            self.mean_tokens.to_bits(),
            self.factor.to_bits(),
            self.lowered_ns,
            self.raised_ns,
            self.retry_after_ns,
            self.tpm.to_bits(),
            self.pauses,
            self.throttled_since_ns,
            self.window,
            self.window_in_flight,
            self.window_sent_ns,
            self.refusal_ns,
        ]);
        breaker.copy_from_slice(&self.breaker.to_words());
        words
    }

    pub(super) fn from_words(words: [u64; WORDS]) -> Self {
        let [requests_ns, tokens_ns, mean_tokens, factor, lowered_ns, raised_ns, retry_after_ns, tpm, rest @ ..] =
            words;
        let [pauses, throttled_since_ns, window, window_in_flight, window_sent_ns, refusal_ns, breaker @ ..] = rest;
        Self {
            requests_ns,
            tokens_ns,
            mean_tokens: f64::from_bits(mean_tokens),
            factor: f64::from_bits(factor),
            lowered_ns,
            raised_ns,
            retry_after_ns,
            tpm: f64::from_bits(tpm),
            pauses,
            throttled_since_ns,
            window,
            window_in_flight,
            window_sent_ns,
            refusal_ns,
            breaker: Breaker::from_words(breaker),
        }
    }
}
