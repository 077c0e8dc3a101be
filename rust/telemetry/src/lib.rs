//! Records what a run does: rows of outcomes on disk, metrics and live state, a timeline of calls.
//!
//! - A caller that reports an event never waits: queues are bounded, and dropped entries are
//!   counted.
//! - The modules share no state: a dispatcher may have each of them or none.

#![forbid(unsafe_code)]

pub mod journal;
pub mod metrics;
mod queue;
pub mod timeline;
