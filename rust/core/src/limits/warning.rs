//! Warnings to users about a limit's endpoint: each once, until it is over.

use std::time::Duration;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitWarning {
    /// The circuit breaker has opened.
    BreakerOpen,
    /// Requests time out, and none is answered.
    Hangs,
    /// The server asks to wait for so long, which is more than is waited.
    LongRetryAfter(Duration),
}
