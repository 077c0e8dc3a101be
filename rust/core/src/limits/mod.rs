//! Limits: how fast, and how many at once, calls may go to an endpoint, over all functions, lanes
//! and processes that name its key. `Limiter` gives permits. `RateLimiter` and its `Breaker` decide
//! about them. `SharedFile` keeps both for all processes of a host, a `Lease` shows which processes
//! are alive, and `fairness` decides which engine has the next turn.
//!
//! A call gets its permit before it reaches a lane, so waiting is queueing and never run time. The
//! crate governor has the same arithmetic (GCRA), but for one process and fixed rates.

mod breaker;
pub(crate) mod contents;
mod fairness;
mod feedback;
pub(crate) mod lease;
mod limiter;
mod nanoseconds;
mod pace;
mod pauses;
mod rate_limiter;
mod shared_file;
mod store;
#[cfg(test)]
mod tests;
mod warning;
mod window;

pub use breaker::{Attempt, Breaker, BreakerState, History, Signal};
pub use feedback::Feedback;
pub use limiter::{AcquireResult, Limit, Limiter, NextRequest, Permit};
pub use pauses::LONGEST_RETRY_AFTER;
pub use rate_limiter::{Rules, Tokens};
pub use warning::LimitWarning;
