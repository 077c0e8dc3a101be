//! Observers of outcomes as groups complete: journals and metrics.
//!
//! - Each group is reported once, when all of its cells have outcomes, and before its batch hands
//!   it out: what the calls were made of is still there.
//! - It is reported off all locks, on the thread that completed it. An observer does not wait,
//!   never takes an interpreter's lock and does not panic: its work on a group is done elsewhere.

use std::sync::Arc;

use crate::batch::Batch;

/// Learns of groups that are complete.
pub trait BatchObserver: Send + Sync {
    /// All cells of these groups have their outcomes.
    fn groups_completed(&self, batch: &Arc<Batch>, groups: &[usize]);
}
