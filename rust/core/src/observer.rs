//! Telemetry of an engine: journals, metrics and timelines are sinks of one trait.
//!
//! - A sink never blocks, never takes the GIL and never panics: its work is done elsewhere, and
//!   entries without room are dropped and counted.
//! - Each group is reported once, when all of its cells have outcomes, and before its batch hands
//!   it out: what the calls were made of is still there. It is reported off all locks, on the
//!   thread that completed it.
//! - Without a sink that takes events, a frame costs one check for it, and a call that is completed
//!   with others nothing.

use std::sync::Arc;

use crate::batch::Batch;
use crate::tracer::TraceEvent;

/// Takes what happens.
pub trait Telemetry: Send + Sync {
    /// All cells of these groups have their outcomes.
    fn groups_completed(&self, _batch: &Arc<Batch>, _groups: &[usize]) {}

    /// `None` for a sink that takes groups alone. A call that ran for less is reported by itself
    /// only if it failed or was tried again.
    fn shortest_ns(&self) -> Option<u64> {
        None
    }

    fn record(&self, _event: TraceEvent) {}
}
