//! Warnings to users about a limit's endpoint; each comes once until its condition is over.

use std::time::Duration;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitWarning {
    /// The circuit breaker has opened.
    BreakerOpen,
    /// Requests time out, and none is answered.
    Hangs,
    /// The server sent this `Retry-After`, which is more than the limiter waits.
    LongRetryAfter(Duration),
}
