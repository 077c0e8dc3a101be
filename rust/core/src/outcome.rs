//! Outcome of one cell: its status, value and times; and the result of one attempt as a lane
//! reports it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The status of a cell. The numbers are part of the Python interface (`guerdon.Status`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum Status {
    /// A number came back.
    Ok = 0,
    /// The function returned `None`.
    Abstained = 1,
    /// A timeout ran out.
    Timeout = 2,
    /// An exception, or a value that is not a reward.
    Error = 3,
    /// The worker died under the call, twice.
    Crashed = 4,
    /// Cancelled by the user, or by the engine's end.
    Cancelled = 5,
    /// Its gate was closed: the call was not made.
    Skipped = 6,
}

impl Status {
    /// The names in Python, in the order of the numbers.
    pub const WORDS: [&'static str; 7] = ["ok", "abstained", "timeout", "error", "crashed", "cancelled", "skipped"];

    /// Returns the name in Python.
    #[must_use]
    pub const fn word(self) -> &'static str {
        Self::WORDS[self as usize]
    }

    /// Returns whether the cell is one that `failures()` lists and `max_failure_rate` counts.
    #[must_use]
    pub const fn is_failure(self) -> bool {
        !matches!(self, Self::Ok | Self::Abstained | Self::Skipped)
    }

    /// Returns whether the function was called and gave an answer, if only `None`.
    #[must_use]
    pub const fn is_answer(self) -> bool {
        matches!(self, Self::Ok | Self::Abstained)
    }

    /// The status with this number.
    #[must_use]
    pub const fn from_u8(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::Ok,
            1 => Self::Abstained,
            2 => Self::Timeout,
            3 => Self::Error,
            4 => Self::Crashed,
            5 => Self::Cancelled,
            6 => Self::Skipped,
            _ => return None,
        })
    }
}

/// Times of the user's code; both zero if it never started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// The clock when user code started.
    pub started_ns: u64,
    /// Duration of the run.
    pub run_ns: u64,
}

/// Value of a function for one cell, as a lane reports it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Cell {
    /// A number. The core checks once whether a float32 can hold it.
    Value(f64),
    /// `None`.
    Abstained,
    /// A value that is not a reward, with the reason.
    Invalid(String),
    /// Another engine's outcome for the sample: a status without a number, and the reason.
    Reported(Box<(Status, String)>),
}

/// The completed content of one cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    pub status: Status,
    /// The reward where `status` is `Ok`, NaN elsewhere.
    pub value: f64,
    pub times: Times,
}

impl Outcome {
    /// A cell without a number.
    #[must_use]
    pub const fn without_value(status: Status, times: Times) -> Self {
        Self { status, value: f64::NAN, times }
    }
}

/// Why an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailureKind {
    Timeout,
    Error,
    /// The worker died while it ran this call.
    Crashed,
}

impl FailureKind {
    /// The status of a cell whose last attempt failed like this.
    #[must_use]
    pub const fn status(self) -> Status {
        match self {
            Self::Timeout => Status::Timeout,
            Self::Error => Status::Error,
            Self::Crashed => Status::Crashed,
        }
    }
}

/// Answer of the other side of a call, usually a server, if there is an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// A status as in HTTP; 429 means "too many requests", in whatever form it was sent.
    Status(u16),
    /// No connection could be made.
    Unreachable,
    /// The connection broke before there was an answer.
    Broken,
}

impl Answer {
    /// Reads the number that Python and workers send: a status, 0 for no connection, 1 for a
    /// connection that broke.
    #[must_use]
    pub const fn from_u16(number: u16) -> Self {
        match number {
            0 => Self::Unreachable,
            1 => Self::Broken,
            status => Self::Status(status),
        }
    }

    /// Returns whether it is a request to come back later rather than a failure.
    #[must_use]
    pub const fn is_later(self) -> bool {
        matches!(self, Self::Status(429))
    }

    /// Returns whether the same request will always be refused.
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Status(400 | 401 | 403 | 404 | 422))
    }
}

/// The stack of a function's code, as text that the core passes on unread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Traceback {
    /// Text of an exception, or of the event that ended the call.
    Raised(String),
    /// Position in the code at which the call ran out of time.
    LastSeen(String),
}

impl Traceback {
    #[must_use]
    pub fn text(&self) -> &str {
        let (Self::Raised(text) | Self::LastSeen(text)) = self;
        text
    }
}

/// A failed attempt, as a lane reports it. The scheduler decides on another attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    pub kind: FailureKind,
    /// One line for `dump()`: the event, without the function and the sample, which the result
    /// adds.
    pub reason: String,
    pub traceback: Option<Traceback>,
    /// False if another attempt cannot help, for example after a value of the wrong type.
    pub retryable: bool,
    /// The `Retry-After` of the other side.
    pub retry_after: Option<Duration>,
    /// Answer of the other side, if the lane has one.
    pub answer: Option<Answer>,
    /// True if an earlier part of the call succeeded in this attempt: its attempts begin anew.
    pub progressed: bool,
}

impl Failure {
    /// Returns an error that is not retried.
    #[must_use]
    pub const fn error(reason: String) -> Self {
        let kind = FailureKind::Error;
        Self { kind, reason, traceback: None, retryable: false, retry_after: None, answer: None, progressed: false }
    }

    /// A failure that allows another attempt, without a traceback and an answer.
    #[must_use]
    pub const fn new(kind: FailureKind, reason: String) -> Self {
        Self { kind, reason, traceback: None, retryable: true, retry_after: None, answer: None, progressed: false }
    }
}

/// Reason and traceback of a failed cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    pub reason: String,
    pub traceback: Option<Traceback>,
}

impl From<Failure> for Note {
    fn from(failure: Failure) -> Self {
        Self { reason: failure.reason, traceback: failure.traceback }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_status_has_its_name() {
        let words = [(Status::Ok, "ok"), (Status::Crashed, "crashed"), (Status::Skipped, "skipped")];
        words.into_iter().for_each(|(status, word)| assert_eq!(status.word(), word));
        assert!(Status::from_u8(Status::WORDS.len() as u8).is_none());
    }
}
