//! Sinks for the events of an engine: rows of outcomes on disk, metrics and live state, and a
//! timeline of calls.
//!
//! - Reporting an event never waits: queues are bounded, and dropped entries are counted.
//! - The sinks share no state. A dispatcher may have any of them.

#![forbid(unsafe_code)]

mod background_work;
pub mod journal;
pub mod metrics;
mod queue;
pub mod timeline;
