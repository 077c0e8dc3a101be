//! Health of one endpoint: its circuit breaker, its speed, its requests in flight. Arithmetic only:
//! no clock, no lock, no socket.
//!
//! An endpoint that answers more slowly than the typical one counts for less, and one that is
//! silent for longer than its answers take counts for less with each moment.

use guerdon_core::clock::nanos;
use guerdon_core::limits::{Attempt, Breaker, BreakerState, Feedback, History, Signal};
use guerdon_core::outcome::{Answer, FailureKind};

use crate::fleet::latency::{Latency, real_ns};
use crate::fleet::request::SendError;

/// Factor of the typical endpoint's time above which an endpoint counts for less.
const SLOW: f64 = 2.0;
/// The least that an endpoint counts for.
const LEAST_FACTOR: f64 = 0.02;
/// Time without a request in which half of the knowledge of its speed is forgotten.
const FORGET_NS: f64 = 10e9;
/// Time that an endpoint is left alone that answered "too many requests" without a time.
const THROTTLED_NS: u64 = 1_000_000_000;
const LONGEST_THROTTLED_NS: u64 = 60_000_000_000;

/// State of an endpoint for the next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Availability {
    Up,
    /// Half-open: the request would be a trial.
    Trial,
    /// Nothing is sent to it until then: its breaker is open, or it answered "too many requests".
    Down(u64),
}

/// A request that was sent to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentAt {
    pub sent_ns: u64,
    pub trial: bool,
}

/// End of a request to one endpoint.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RequestEnd {
    Answered,
    /// It failed; the time that the endpoint asked to be left alone, if it answered "too many
    /// requests".
    Failed(Signal, Option<u64>),
    /// It was answered without a score: the endpoint is to blame where another one has a score.
    Refused(Refusal),
    /// Nobody waits for it any more.
    Dropped,
    /// Another endpoint answered first.
    Overtaken,
}

/// An answer without a score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Its status tells that the address or the key is wrong: 3xx, 401, 403, 404, 405, 421.
    Endpoint,
    /// Its status tells that the request is wrong: 400, 422.
    Request,
    /// It can't be read.
    Unreadable,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Health {
    pub in_flight: usize,
    /// Those of them that have waited for longer than a request waits before it is hedged.
    pub overdue: usize,
    pub answered: u64,
    pub failed: u64,
    /// Requests that it answered with "too many requests".
    pub deferred: u64,
    pub latency: Latency,
    breaker: Breaker,
    throttled_until_ns: u64,
    /// When it answered last, or was given something to do.
    heard_ns: u64,
}

impl RequestEnd {
    pub fn of(error: &SendError) -> Self {
        if let (FailureKind::Error, Some(Answer::Status(code))) = (error.failure.kind, error.failure.answer)
            && let Some(refusal) = Refusal::of(code)
        {
            return Self::Refused(refusal);
        }
        let feedback = if error.unsent { Feedback::NoConnection } else { Feedback::of(&error.failure) };
        let throttled_ns = match feedback {
            Feedback::Throttled(wait) => Some(wait.map_or(THROTTLED_NS, nanos)),
            _ => None,
        };
        Self::Failed(feedback.signal(), throttled_ns)
    }

    /// Returns whether another endpoint may have the request at once, after `tries` tries: the
    /// endpoint surely did not process it, or refused it as the first.
    pub const fn goes_on(self, tries: usize) -> bool {
        match self {
            Self::Failed(Signal::NoConnection, _) | Self::Failed(_, Some(_)) => true,
            Self::Refused(Refusal::Endpoint | Refusal::Request) => tries < 2,
            _ => false,
        }
    }
}

impl Refusal {
    const fn of(code: u16) -> Option<Self> {
        match code {
            300..=399 | 401 | 403 | 404 | 405 | 421 => Some(Self::Endpoint),
            400 | 422 => Some(Self::Request),
            200..=299 => Some(Self::Unreadable),
            _ => None,
        }
    }
}

impl Health {
    /// Returns it as a word for people.
    pub fn breaker(&self, now_ns: u64) -> &'static str {
        match self.breaker.state(now_ns) {
            BreakerState::Closed => "closed",
            BreakerState::Open(_) | BreakerState::Refused(_) => "open",
            BreakerState::Trial | BreakerState::TrialsInFlight(_) => "half-open",
        }
    }

    pub fn is_throttled(&self, now_ns: u64) -> bool {
        self.throttled_until_ns > now_ns
    }

    pub fn availability(&self, now_ns: u64) -> Availability {
        if self.is_throttled(now_ns) {
            return Availability::Down(self.throttled_until_ns);
        }
        match self.breaker.state(now_ns) {
            BreakerState::Closed => Availability::Up,
            BreakerState::Trial => Availability::Trial,
            BreakerState::Open(until_ns) | BreakerState::TrialsInFlight(until_ns) => Availability::Down(until_ns),
            BreakerState::Refused(_) => Availability::Down(u64::MAX),
        }
    }

    pub fn send(&mut self, now_ns: u64, trial: bool) -> SentAt {
        if self.in_flight == 0 {
            self.heard_ns = now_ns;
        }
        self.in_flight += 1;
        if trial {
            self.breaker.start_trial(now_ns);
        }
        SentAt { sent_ns: now_ns, trial }
    }

    /// A request ended; `failed_before` says whether an earlier attempt of its call failed.
    pub fn end(&mut self, sent: SentAt, ended: RequestEnd, failed_before: bool, now_ns: u64, random: f64) {
        self.in_flight = self.in_flight.saturating_sub(1);
        let took_ns = now_ns.saturating_sub(sent.sent_ns);
        let signal = match ended {
            RequestEnd::Answered => {
                self.answered += 1;
                self.latency.answered(took_ns);
                Signal::Answered
            }
            RequestEnd::Failed(signal, throttled) => {
                *if throttled.is_some() { &mut self.deferred } else { &mut self.failed } += 1;
                if signal == Signal::TimedOut {
                    self.latency.unanswered(took_ns);
                }
                if let Some(throttled_ns) = throttled {
                    self.throttled_until_ns = now_ns.saturating_add(throttled_ns.min(LONGEST_THROTTLED_NS));
                }
                signal
            }
            RequestEnd::Refused(_) => {
                self.failed += 1;
                self.heard_ns = now_ns;
                // Another endpoint's answer decides later if it is to blame.
                if sent.trial { Signal::Failed } else { Signal::Nothing }
            }
            RequestEnd::Dropped | RequestEnd::Overtaken => {
                self.latency.unanswered(took_ns);
                // A trial that takes too long has failed.
                if ended == RequestEnd::Overtaken && sent.trial { Signal::TimedOut } else { Signal::Nothing }
            }
        };
        if signal == Signal::Answered {
            self.heard_ns = now_ns;
        }
        let attempt = Attempt {
            sent_ns: sent.sent_ns,
            trial: sent.trial,
            history: History { failed_before, ..History::default() },
        };
        self.breaker.record(attempt, signal, now_ns, self.in_flight, random);
    }

    /// Another endpoint had a score for what this one refused.
    pub fn blame(&mut self, now_ns: u64, random: f64) {
        let attempt = Attempt { sent_ns: now_ns, ..Attempt::default() };
        self.breaker.record(attempt, Signal::Failed, now_ns, self.in_flight, random);
    }

    /// Returns whether it has answered nothing since this request was sent, or is slow anyway.
    pub fn is_slower(&self, sent: SentAt, typical_ns: Option<f64>, now_ns: u64) -> bool {
        self.heard_ns <= sent.sent_ns || self.factor(typical_ns, now_ns) < 1.0
    }

    /// Returns its weight, if the typical endpoint takes `typical_ns` to answer and counts for 1.
    pub fn factor(&self, typical_ns: Option<f64>, now_ns: u64) -> f64 {
        let Some(typical) = typical_ns else { return 1.0 };
        let own = self.latency.average_ns().unwrap_or(typical);
        let silent = real_ns(now_ns.saturating_sub(self.heard_ns));
        let own = if self.in_flight > 0 {
            own.max(silent)
        } else {
            typical + (own - typical).max(0.0) * 0.5_f64.powf(silent / FORGET_NS)
        };
        // Squared: with the same number of requests in flight it would still be every tenth answer
        // of a slow one that the last percent of all calls are.
        (SLOW * typical / own.max(1.0)).powi(2).clamp(LEAST_FACTOR, 1.0)
    }
}
