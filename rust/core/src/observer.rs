//! Telemetry of an engine: journals, metrics and timelines are sinks of one trait.
//!
//! - A sink never blocks, never takes the GIL and never panics. Its work is done on another thread,
//!   and entries for which it has no room are dropped and counted.
//! - Each group is reported once, between its last outcome and its hand-out, while the values of
//!   its calls still exist. It is reported with no lock held, on the thread that completed it.
//! - If no sink takes events, a frame costs one check, and a call completed together with others
//!   nothing.

use std::sync::Arc;

use crate::batch::Batch;
use crate::tracer::TraceEvent;

/// Receives the events of an engine.
pub trait Telemetry: Send + Sync {
    /// All cells of these groups have their outcomes.
    fn groups_completed(&self, _batch: &Arc<Batch>, _groups: &[usize]) {}

    /// Run time from which on a call is reported by itself; a shorter call only if it failed or was
    /// tried again. `None` for a sink that takes groups only.
    fn shortest_ns(&self) -> Option<u64> {
        None
    }

    fn record(&self, _event: TraceEvent) {}
}
