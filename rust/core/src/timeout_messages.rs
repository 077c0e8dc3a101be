//! The messages of calls that ran out of time, the same on every lane. `call::Cause` has the
//! messages of timeouts from outside.

use std::time::Duration;

use crate::outcome::{Failure, FailureKind, Traceback};

/// Returns the message for a call's `Failure::reason`; a lane may add details, after a semicolon.
#[must_use]
pub fn no_answer(timeout: Duration) -> String {
    format!("no answer within the timeout of {} s", timeout.as_secs_f64())
}

/// The same, if not even a connection was made.
#[must_use]
pub fn no_connection(timeout: Duration) -> String {
    format!("can't connect within the timeout of {} s", timeout.as_secs_f64())
}

/// Returns the message for a function's `setup()`.
#[must_use]
pub fn no_setup(setup_timeout: Duration) -> String {
    format!("setup() did not end within the setup_timeout of {} s", setup_timeout.as_secs_f64())
}

/// Returns the failure of an attempt that ran out of time, with the location where it was last
/// seen.
#[must_use]
pub fn timed_out(reason: String, last_seen: Option<String>) -> Failure {
    let traceback = last_seen.map(Traceback::LastSeen);
    Failure { traceback, ..Failure::new(FailureKind::Timeout, reason) }
}
