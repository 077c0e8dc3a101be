//! Feedback of an ended call on its endpoint.

use std::time::Duration;

use super::breaker::{History, Signal};
use crate::outcome::{Answer, Failure, FailureKind};

/// Feedback of a call on its endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feedback {
    /// It answered, if only to refuse this request.
    Ok,
    /// Too many requests; come back after this time.
    Throttled(Option<Duration>),
    /// It could not be reached.
    NoConnection,
    /// It answered 500 or above, or broke the connection.
    Failed,
    /// It did not answer in time.
    TimedOut,
    /// Nothing: the call was cancelled, or failed for other reasons.
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

    /// Returns whether the endpoint may be to blame.
    #[must_use]
    pub const fn is_endpoint_error(self) -> bool {
        matches!(self, Self::NoConnection | Self::Failed | Self::TimedOut)
    }
}

/// End of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CallEnd {
    pub feedback: Feedback,
    /// Tokens that it used, if it reported them.
    pub tokens: Option<f64>,
    /// History of its earlier attempts.
    pub history: History,
}
