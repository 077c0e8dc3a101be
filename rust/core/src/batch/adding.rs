//! Adds samples to an open batch, and keeps which of its groups were delivered early. Early
//! deliveries and the end of additions are written and read under the scheduler's lock.

use std::collections::btree_map::Entry;
use std::ops::Range;

use crate::batch::Batch;
use crate::call::Cause;
use crate::delivery::Delivery;
use crate::function::{FunctionId, Shape};
use crate::open_batch::{AddError, AddedSamples, IncompleteGroups, OpenBatch, Placement};
use crate::sync::Ordering;

impl Batch {
    /// Returns whether the samples come one by one, also after the last one came.
    #[must_use]
    pub const fn is_streamed(&self) -> bool {
        self.additions.is_some()
    }

    /// Returns whether samples can still be added.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.additions.as_ref().is_some_and(|additions| !additions.is_ended())
    }

    /// Reserves places for samples. Their calls become possible with `Scheduler::add`.
    pub fn reserve(&self, places: &Placement) -> Result<AddedSamples, AddError> {
        let Some(additions) = &self.additions else {
            return Err(AddError::Ended("it was submitted whole".to_owned()));
        };
        additions.add(places, self.clock.now_ns(), |groups| {
            self.grid.grow(groups);
            for stage in self.stages.iter().flatten() {
                stage.grow(groups);
            }
            if let Some(quorum) = &self.quorum {
                quorum.grow(groups);
            }
            if let Some(dependents) = &self.dependents {
                dependents.grow(groups * self.group_size);
            }
            self.open_groups.fetch_add((groups - additions.groups()) as u64, Ordering::Relaxed);
        })
    }

    /// Records that samples with reserved places have their values, and returns the groups that are
    /// now whole.
    pub(crate) fn arrive(&self, samples: &[usize]) -> Vec<usize> {
        self.additions.as_ref().map_or_else(Vec::new, |additions| additions.arrive(samples))
    }

    /// Returns whether all samples of a group are there.
    pub(crate) fn is_whole(&self, group: usize) -> bool {
        self.additions.as_ref().is_none_or(|additions| additions.is_whole(group))
    }

    /// Returns whether these groups of a streamed batch have all their outcomes.
    pub(crate) fn are_complete(&self, groups: &Range<usize>) -> bool {
        self.additions.as_ref().is_some_and(|additions| groups.clone().all(|group| additions.is_complete(group)))
    }

    /// Returns whether the quorum has to count groups that become whole.
    pub(crate) fn counts_whole(&self) -> bool {
        self.quorum.is_some()
            && self.functions.iter().any(|function| function.finish || function.shape != Shape::Sample)
    }

    /// Returns whether fewer than `max_pending` samples are pending.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.additions.as_ref().is_none_or(OpenBatch::has_room)
    }

    #[must_use]
    pub const fn delivery(&self) -> Delivery {
        self.delivery
    }

    /// Records why a group is delivered before all of its calls have ended; false if a cause was
    /// recorded before.
    pub(crate) fn mark_delivered_early(&self, group: usize, cause: &Cause) -> bool {
        let first = match self.delivered_early.lock().entry(group) {
            Entry::Vacant(entry) => entry.insert(cause.clone()) == cause,
            Entry::Occupied(_) => false,
        };
        if let Some(additions) = self.additions.as_ref().filter(|_| first) {
            additions.excuse(group);
        }
        first
    }

    pub(crate) fn is_delivered_early(&self, group: usize) -> bool {
        self.delivery.can_be_early() && self.delivered_early.lock().contains_key(&group)
    }

    /// Returns the cause of the group's early delivery, if the delivery ends the call of this
    /// function that begins at sample `first`.
    pub(crate) fn early_delivery_of(&self, first: usize, function: FunctionId, finish: bool) -> Option<Cause> {
        if finish || !self.delivery.can_be_early() {
            return None;
        }
        let cause = self.delivered_early.lock().get(&(first / self.group_size)).cloned()?;
        let ends = match self.functions[function].shape {
            Shape::Sample => true,
            Shape::Group => cause.ends_group_calls(),
            Shape::Batch => false,
        };
        ends.then_some(cause)
    }

    /// Counts the samples that one function has completed, and returns the groups whose quorum this
    /// fills.
    pub(crate) fn count_completed(&self, samples: Range<usize>) -> Vec<usize> {
        self.quorum.as_ref().map_or_else(Vec::new, |quorum| quorum.completed(samples))
    }

    /// Returns the groups of a streamed batch that were completed since the last call: the values
    /// of their calls are not needed any more.
    #[must_use]
    pub fn take_completed(&self) -> Vec<usize> {
        self.additions.as_ref().map_or_else(Vec::new, OpenBatch::take_completed)
    }

    /// Ends additions; true if that ended the batch. If `whole` is set, a group that lacks samples
    /// is an error.
    pub(crate) fn end_additions(&self, why: &str, whole: bool) -> Result<bool, IncompleteGroups> {
        let Some(additions) = &self.additions else { return Ok(false) };
        Ok(additions.end(self.clock.now_ns(), why, whole)? && self.close(1))
    }
}
