//! How a batch that grows takes samples, and how a group is delivered before all of its calls have ended.
//!
//! - B-4  Whether a group was cut is written and read under the scheduler's lock; so is the end of growth.

use std::ops::Range;

use crate::batch::Batch;
use crate::call::Cause;
use crate::delivery::Delivery;
use crate::function::{FunctionId, Shape};
use crate::growth::{Added, Growth, Incomplete, Places, Refusal};
use crate::sync::Ordering;

impl Batch {
    /// Whether its samples come one by one, or came so.
    #[must_use]
    pub const fn grows(&self) -> bool {
        self.growth.is_some()
    }

    /// Whether samples can still be added.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.growth.as_ref().is_some_and(|growth| !growth.is_ended())
    }

    /// Takes places for samples. Their calls can be made once `Scheduler::add` was told.
    pub fn reserve(&self, places: &Places) -> Result<Added, Refusal> {
        let Some(growth) = &self.growth else {
            return Err(Refusal::Ended("it was submitted whole".to_owned()));
        };
        growth.add(places, self.clock.now_ns(), |groups| {
            self.grid.grow(groups);
            for stage in self.stages.iter().flatten() {
                stage.grow(groups);
            }
            if let Some(quorum) = &self.quorum {
                quorum.grow(groups);
            }
            self.open_groups.fetch_add((groups - growth.groups()) as u64, Ordering::Relaxed);
        })
    }

    /// Learns that samples which took places have their values; the groups that this makes whole.
    pub(crate) fn arrive(&self, samples: &[usize]) -> Vec<usize> {
        self.growth.as_ref().map_or_else(Vec::new, |growth| growth.arrive(samples))
    }

    /// Whether all samples of a group are there.
    pub(crate) fn is_whole(&self, group: usize) -> bool {
        self.growth.as_ref().is_none_or(|growth| growth.is_whole(group))
    }

    /// Whether a quorum counts that a group became whole.
    pub(crate) fn counts_whole(&self) -> bool {
        self.quorum.is_some()
            && self.functions.iter().any(|function| function.finish || function.shape != Shape::Sample)
    }

    /// Whether samples can be added without waiting, as `max_pending` says.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.growth.as_ref().is_none_or(Growth::has_room)
    }

    #[must_use]
    pub const fn delivery(&self) -> Delivery {
        self.delivery
    }

    /// Notes that a group is delivered before all of its calls have ended; false if that was noted before.
    pub(crate) fn mark_cut(&self, group: usize) -> bool {
        let first = self.cuts.lock().insert(group);
        if let Some(growth) = self.growth.as_ref().filter(|_| first) {
            growth.excuse(group);
        }
        first
    }

    pub(crate) fn is_cut(&self, group: usize) -> bool {
        self.delivery != Delivery::Whole && self.cuts.lock().contains(&group)
    }

    /// Why the call of this function that begins at this sample is to end with the cut of its group, if that was cut.
    pub(crate) fn cut_of(&self, first: usize, function: FunctionId, finish: bool) -> Option<Cause> {
        let cause = self.delivery.cause()?;
        let cuttable = match self.functions[function].shape {
            Shape::Sample => true,
            Shape::Group => cause == Cause::GroupDeadline,
            Shape::Batch => false,
        };
        (cuttable && !finish && self.is_cut(first / self.group_size)).then_some(cause)
    }

    /// Counts what one function has settled; the groups whose quorum that completed.
    pub(crate) fn count_settled(&self, samples: Range<usize>) -> Vec<usize> {
        self.quorum.as_ref().map_or_else(Vec::new, |quorum| quorum.settled(samples))
    }

    /// Groups of a batch that grows that were completed since the last time: what their calls were made of is needed no more.
    #[must_use]
    pub fn take_completed(&self) -> Vec<usize> {
        self.growth.as_ref().map_or_else(Vec::new, Growth::take_completed)
    }

    /// Ends growth; true if that was the end of the batch. With `whole`, only if no group lacks samples.
    pub(crate) fn end_growth(&self, why: &str, whole: bool) -> Result<bool, Incomplete> {
        let Some(growth) = &self.growth else { return Ok(false) };
        Ok(growth.end(self.clock.now_ns(), why, whole)? && self.close(1))
    }
}
