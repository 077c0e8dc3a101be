//! Feedback of an ended call about its endpoint.

use std::time::Duration;

use super::breaker::{History, Signal};
use crate::outcome::{Answer, Failure, FailureKind};

/// Feedback of a call about its endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feedback {
    /// It answered, even if only to refuse this request.
    Ok,
    /// Too many requests; the `Retry-After` if the server sent one.
    Throttled(Option<Duration>),
    /// It could not be reached.
    NoConnection,
    /// It answered 500 or above, or broke the connection.
    Failed,
    /// It did not answer in time.
    TimedOut,
    /// No evidence: the call was cancelled, or failed for another reason.
    Unknown,
}

impl Feedback {
    /// Returns the feedback of a failed attempt.
    #[must_use]
    pub fn of(failure: &Failure) -> Self {
        match (failure.kind, failure.answer) {
            (FailureKind::Timeout, Some(Answer::Unreachable)) => Self::NoConnection,
            (FailureKind::Timeout, _) => Self::TimedOut,
            (FailureKind::Error, Some(Answer::Status(429))) => Self::Throttled(failure.retry_after),
            // "Overloaded, come back": the endpoint is up.
            (FailureKind::Error, Some(Answer::Status(500..))) if failure.retry_after.is_some() => {
                Self::Throttled(failure.retry_after)
            }
            (FailureKind::Error, Some(Answer::Unreachable)) => Self::NoConnection,
            (FailureKind::Error, Some(Answer::Status(500..) | Answer::Broken)) => Self::Failed,
            (FailureKind::Error, Some(Answer::Status(_))) => Self::Ok,
            _ => Self::Unknown,
        }
    }

    /// Converts the feedback for a circuit breaker.
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

    /// Returns whether the endpoint may be the cause.
    #[must_use]
    pub const fn is_endpoint_error(self) -> bool {
        matches!(self, Self::NoConnection | Self::Failed | Self::TimedOut)
    }
}

/// End of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CallEnd {
    pub feedback: Feedback,
    /// Tokens that the call used, if it reported their number.
    pub tokens: Option<f64>,
    /// History of its earlier attempts.
    pub history: History,
}
