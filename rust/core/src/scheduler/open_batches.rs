//! The open batches, and which of them have calls to hand out.
//!
//! works-1  While the lock is free, a batch is in the set of a function exactly if its queue of
//! that function is ready. Every change of a queue therefore goes through `edit`, and an event
//! costs the same with one open batch and with a thousand.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use crate::batch::Batch;
use crate::function::FunctionId;
use crate::scheduler::queue::{Queue, Work};

pub(crate) struct OpenBatches {
    /// Open batches by id; a lower id is an older batch.
    open: BTreeMap<u64, Work>,
    /// Per function: the batches with calls of it to hand out. Written by `edit`, `insert` and
    /// `remove`.
    ready: Vec<BTreeSet<u64>>,
}

impl OpenBatches {
    pub(crate) fn new(functions: usize) -> Self {
        Self { open: BTreeMap::new(), ready: vec![BTreeSet::new(); functions] }
    }

    /// Number of batches that users see.
    pub(crate) fn seen(&self) -> usize {
        self.open.values().filter(|work| work.batch.owner().is_none()).count()
    }

    /// The batches that users see, oldest first.
    pub(crate) fn batches(&self) -> Vec<Arc<Batch>> {
        self.open.values().map(|work| work.batch.clone()).filter(|batch| batch.owner().is_none()).collect()
    }

    pub(crate) fn get(&self, batch: u64) -> Option<&Work> {
        self.open.get(&batch)
    }

    /// Returns a batch for changes that don't change the calls in its queues.
    pub(crate) fn get_mut(&mut self, batch: u64) -> Option<&mut Work> {
        self.open.get_mut(&batch)
    }

    /// All open batches, oldest first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Work> {
        self.open.values()
    }

    pub(crate) fn insert(&mut self, work: Work) {
        let (id, samples) = (work.batch.id(), work.submitted());
        for (ready, queue) in self.ready.iter_mut().zip(&work.queues) {
            if queue.is_ready(samples) {
                ready.insert(id);
            }
        }
        self.open.insert(id, work);
    }

    pub(crate) fn remove(&mut self, batch: u64) -> Option<Work> {
        for ready in &mut self.ready {
            ready.remove(&batch);
        }
        self.open.remove(&batch)
    }

    /// The open batches with these ids.
    pub(crate) fn range(&self, ids: Range<u64>) -> impl Iterator<Item = &Work> {
        self.open.range(ids).map(|(_, work)| work)
    }

    /// Removes those with these ids.
    pub(crate) fn remove_all(&mut self, ids: Range<u64>) -> Vec<Work> {
        let open: Vec<u64> = self.range(ids).map(|work| work.batch.id()).collect();
        open.into_iter().filter_map(|id| self.remove(id)).collect()
    }

    pub(crate) fn queue(&self, batch: u64, function: FunctionId) -> Option<&Queue> {
        self.open.get(&batch)?.queues.get(function)
    }

    /// Changes a queue; `None` if its batch is not open.
    pub(crate) fn edit<T>(
        &mut self,
        batch: u64,
        function: FunctionId,
        change: impl FnOnce(&mut Queue) -> T,
    ) -> Option<T> {
        let work = self.open.get_mut(&batch)?;
        let samples = work.submitted();
        let queue = work.queues.get_mut(function)?;
        let before = queue.is_ready(samples);
        let done = change(queue);
        let after = queue.is_ready(samples);
        if before != after {
            let ready = &mut self.ready[function];
            if after {
                ready.insert(batch)
            } else {
                ready.remove(&batch)
            };
        }
        Some(done)
    }

    /// Returns whether any batch has calls of this function to hand out.
    pub(crate) fn has_ready(&self, function: FunctionId) -> bool {
        !self.ready[function].is_empty()
    }

    /// The batches with calls of this function to hand out, oldest first.
    pub(crate) fn ready(&self, function: FunctionId) -> impl Iterator<Item = &Work> {
        self.ready[function].iter().filter_map(|id| self.open.get(id))
    }

    /// Returns the oldest batch with a call of these functions to hand out. `waits` is true for
    /// functions that are left out because their samples wait for more. Member calls come after the
    /// other calls of their batch, and go through its samples together.
    pub(crate) fn oldest(
        &self,
        functions: impl Iterator<Item = FunctionId>,
        waits: impl Fn(u64, FunctionId) -> bool,
    ) -> Option<u64> {
        let turn = |work: &Work, function: FunctionId| match work.batch.owner() {
            None => (work.batch.id(), 0),
            Some(owner) => (owner.batch.id(), 1 + work.queues[function].position(0)),
        };
        let first = |function| {
            let mut ready = self.ready(function).filter(|work| !waits(work.batch.id(), function));
            let oldest = ready.next()?;
            let others = ready.take_while(|work| turn(work, function).0 == turn(oldest, function).0);
            let turns = std::iter::once(oldest).chain(others).map(|work| (turn(work, function), work.batch.id()));
            turns.min()
        };
        functions.filter_map(first).min().map(|(_, batch)| batch)
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::batch::{Batch, BatchSpec};
    use crate::call::{Call, Cause};
    use crate::clock::Clock;
    use crate::function::Function;
    use crate::scheduler::queue::tests::{NoValues, function};

    #[expect(clippy::unwrap_used, reason = "a batch that can't be made fails its test")]
    fn batch(id: u64, samples: usize) -> Arc<Batch> {
        let functions: Arc<[Function]> = [function(), function()].into();
        let spec = BatchSpec::whole(samples, 1, Box::new(NoValues));
        Arc::new(Batch::new(id, Clock::start(), functions, &Arc::default(), spec).unwrap())
    }

    /// Computes the set of a function from all batches.
    fn found(works: &OpenBatches, function: usize) -> Vec<u64> {
        let is_ready = |work: &&Work| work.queues[function].is_ready(work.submitted());
        works.all().filter(is_ready).map(|work| work.batch.id()).collect()
    }

    proptest! {
        #[test]
        fn the_sets_hold_what_is_ready(steps in prop::collection::vec((0..6_u8, 1..5_u64, 0..2_usize), 1..60)) {
            let mut works = OpenBatches::new(2);
            for (what, id, function) in steps {
                match what {
                    0 => works.insert(Work::new(batch(id, 2))),
                    1 => drop(works.remove(id)),
                    2 => drop(works.edit(id, function, |queue| queue.cursor += 1)),
                    3 => drop(works.edit(id, function, |queue| queue.returned.push_front(Call::fresh(0)))),
                    4 => drop(works.edit(id, function, |queue| queue.returned.pop_front())),
                    _ => drop(works.edit(id, function, |queue| queue.close(&Cause::TotalTimeout))),
                }
                for one in 0..2 {
                    let ready: Vec<u64> = works.ready(one).map(|work| work.batch.id()).collect();
                    prop_assert_eq!(&ready, &found(&works, one));
                    prop_assert_eq!(works.has_ready(one), !ready.is_empty());
                    prop_assert_eq!(works.oldest(std::iter::once(one), |id, _| id == 1), ready.into_iter().find(|id| *id != 1));
                }
            }
        }
    }
}
