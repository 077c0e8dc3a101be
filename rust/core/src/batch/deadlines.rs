//! The times of a batch: since when its calls could be made, when they end at the latest, and how
//! long it took.

use super::Batch;
use crate::function::{FunctionId, Shape};
use crate::open_batch::OpenBatch;
use crate::sync::Ordering;

impl Batch {
    /// The clock at submission.
    #[must_use]
    pub const fn submitted_ns(&self) -> u64 {
        self.submitted_ns
    }

    /// The clock when the call that begins at this sample became possible: when its last sample
    /// came (streamed batch), or when its gate opened (gated function).
    #[must_use]
    pub fn ready_ns(&self, first: usize, function: FunctionId) -> u64 {
        let dependents = self.dependents.as_ref();
        if let Some(since_ns) =
            dependents.and_then(|dependents| dependents.since_ns(first, function)).filter(|ns| *ns != 0)
        {
            return since_ns;
        }
        let Some(additions) = &self.additions else { return self.submitted_ns };
        let since_ns = match self.functions[function].shape {
            Shape::Sample => additions.since_ns(first..first + 1),
            Shape::Group => additions.since_ns(first..first + self.group_size),
            Shape::Batch => additions.ended_ns().unwrap_or(0),
        };
        since_ns.max(self.submitted_ns)
    }

    /// The latest clock at which this function's call on sample `first` may still run, if the batch
    /// or the function has such a bound.
    #[must_use]
    pub fn expires_ns(&self, first: usize, function: FunctionId) -> Option<u64> {
        let total = self.functions[function].policy.total_timeout.map(crate::clock::nanos);
        let total = total.map(|ns| self.ready_ns(first, function).saturating_add(ns));
        let batch = self.batch_timeout_ns.map(|ns| self.submitted_ns.saturating_add(ns));
        let owner = self.owner.as_ref().and_then(|owner| owner.batch.expires_ns(owner.first(first), owner.function));
        [total, batch, owner].into_iter().flatten().min()
    }

    /// The clock at which the scheduler ends a call that begins at this sample, if there is a
    /// bound: the earlier of `expires_ns` and the timeout of its group.
    #[must_use]
    pub fn ends_ns(&self, first: usize, function: FunctionId) -> Option<u64> {
        let start_ns =
            self.additions.as_ref().map_or(self.submitted_ns, |additions| additions.begun_ns(first / self.group_size));
        let group = self.delivery.group_timeout_ns.map(|ns| start_ns.saturating_add(ns));
        let owner = self.owner.as_ref().and_then(|owner| owner.batch.ends_ns(owner.first(first), owner.function));
        [self.expires_ns(first, function), group, owner].into_iter().flatten().min()
    }

    /// Returns the time from submission to the last outcome, or to now.
    #[must_use]
    pub fn elapsed_ns(&self) -> u64 {
        let end = match self.finished_ns.load(Ordering::Acquire) {
            0 => self.clock.now_ns(),
            finished => finished,
        };
        end.saturating_sub(self.submitted_ns)
    }

    /// Returns the time from the last sample's arrival to the last outcome, or to now: the part of
    /// scoring that came after the samples.
    #[must_use]
    pub fn tail_ns(&self) -> u64 {
        let last_ns = self.additions.as_ref().map_or(0, OpenBatch::last_ns).max(self.submitted_ns);
        (self.submitted_ns + self.elapsed_ns()).saturating_sub(last_ns)
    }
}
