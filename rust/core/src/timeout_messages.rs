//! The messages of calls that ran out of their own time, the same on every lane. `call::Cause` has
//! those of timeouts from outside.

use std::time::Duration;

use crate::outcome::{Failure, FailureKind, Traceback};

/// Of a call, for `Failure::reason`; a lane may add what it knows, after a semicolon.
#[must_use]
pub fn no_answer(timeout: Duration) -> String {
    format!("no answer within the timeout of {} s", timeout.as_secs_f64())
}

/// The same where there was not even a connection.
#[must_use]
pub fn no_connection(timeout: Duration) -> String {
    format!("can't connect within the timeout of {} s", timeout.as_secs_f64())
}

/// Of a function's `setup()`.
#[must_use]
pub fn no_setup(setup_timeout: Duration) -> String {
    format!("setup() did not end within the setup_timeout of {} s", setup_timeout.as_secs_f64())
}

/// An attempt that ran out of time, and where it was last seen.
#[must_use]
pub fn timed_out(reason: String, last_seen: Option<String>) -> Failure {
    let traceback = last_seen.map(Traceback::LastSeen);
    Failure { kind: FailureKind::Timeout, reason, traceback, retryable: true, retry_after: None, answer: None }
}
