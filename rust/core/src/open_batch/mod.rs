//! The places of an open batch: which are taken, and the progress of its groups.
//!
//! - A place is taken once; a refused addition takes none. Samples fill the lowest free places.
//! - A group becomes whole once, with the value of its last sample.
//! - A group is in the grid and the count before it is announced.
//! - There is room while fewer than `max_pending` samples are in full groups that are not complete
//!   (others could never complete), and after additions ended, so that waiting callers return.
//! - `take_completed` reports a group once, and again if values came after an early delivery.

mod placement;
mod state;

use std::io;
use std::sync::Arc;

use crate::sync::{AtomicU64, Mutex, Ordering};
use crate::wake::Wake;
pub use placement::{AddError, AddedSamples, IncompleteGroups, Placement};
use state::{MOST_AHEAD, OpenBatchState, OpenGroup};

/// Number of groups that an error lists.
const MOST_LISTED: usize = 5;

/// Places of a batch's samples.
pub(crate) struct OpenBatch {
    size: usize,
    /// Number of samples that a group needs to be delivered.
    needed: usize,
    /// Written by additions, by `complete` and by `end`.
    state: Mutex<OpenBatchState>,
    /// Equal to `OpenBatchState::groups`. Written by additions, after the grid has the groups.
    groups: AtomicU64,
    /// The most samples that may be pending.
    most: Option<usize>,
    /// Largest distance between a sample's place and all others.
    most_ahead: usize,
}

impl OpenBatch {
    pub(crate) fn new(size: usize, needed: usize, max_pending: Option<usize>) -> io::Result<Self> {
        let room = max_pending.map(|_| Wake::new()).transpose()?.map(Arc::new);
        if let Some(room) = &room {
            room.notify();
        }
        let state = OpenBatchState {
            since_ns: Vec::new(),
            groups: Vec::new(),
            lowest: 0,
            ended: None,
            completed: Vec::new(),
            pending: 0,
            room,
        };
        let groups = AtomicU64::new(0);
        Ok(Self { size, needed, state: Mutex::new(state), groups, most: max_pending, most_ahead: MOST_AHEAD })
    }

    /// Accepts samples in any order and at any distance from each other, because their places are
    /// those of another batch.
    pub(crate) fn in_any_order(self) -> Self {
        Self { most_ahead: usize::MAX, ..self }
    }

    pub(crate) fn has_room(&self) -> bool {
        let state = self.state.lock();
        state.ended.is_some() || self.most.is_none_or(|most| state.pending < most)
    }

    /// Returns a descriptor that is readable while there is room; `None` without a bound, and after
    /// `forget_room`.
    pub(crate) fn room(&self) -> Option<Arc<Wake>> {
        self.state.lock().room.clone()
    }

    /// Drops the descriptor; a holder of a copy finds it in its present state.
    pub(crate) fn forget_room(&self) {
        let gone = self.state.lock().room.take();
        drop(gone);
    }

    /// Sets the number of pending samples, and the descriptor that shows whether there is room.
    fn set_pending(&self, state: &mut OpenBatchState, pending: usize) {
        let before = std::mem::replace(&mut state.pending, pending);
        let (Some(most), Some(room)) = (self.most, &state.room) else { return };
        if before < most && pending >= most {
            room.drain();
        } else if before >= most && pending < most {
            room.notify();
        }
    }

    pub(crate) fn groups(&self) -> usize {
        usize::try_from(self.groups.load(Ordering::Acquire)).unwrap_or(usize::MAX)
    }

    /// Takes places. If more groups are needed than exist, `grow` is called with their number
    /// before other threads can read it.
    pub(crate) fn add(
        &self,
        places: &Placement,
        now_ns: u64,
        grow: impl FnOnce(usize),
    ) -> Result<AddedSamples, AddError> {
        let mut state = self.state.lock();
        if let Some((_, why)) = &state.ended {
            return Err(AddError::Ended(why.clone()));
        }
        let samples = match places {
            Placement::InOrder(count) => state.free_from(state.lowest).take(*count).collect(),
            Placement::OfGroup(group, count) => state.in_group(*group, *count, self.size)?,
            Placement::Exact(samples) => state.exact(samples)?,
        };
        let Some(groups) = samples.iter().map(|sample| sample / self.size + 1).max() else {
            return Ok(AddedSamples::default());
        };
        let there = state.groups.len();
        if groups > there.saturating_add(self.most_ahead.div_ceil(self.size)) {
            let sample = samples.iter().copied().max().unwrap_or_default();
            return Err(AddError::TooFar { sample, samples: there * self.size });
        }
        if groups > there {
            grow(groups);
            state.groups.resize(groups, OpenGroup::default());
            state.since_ns.resize(groups * self.size, 0);
            self.groups.store(groups as u64, Ordering::Release);
        }
        let mut added = AddedSamples { samples, at_ns: now_ns.max(1), ..AddedSamples::default() };
        let mut pending = state.pending;
        for sample in &added.samples {
            state.since_ns[*sample] = added.at_ns;
            let group = &mut state.groups[sample / self.size];
            group.have += 1;
            if group.have == 1 {
                added.begun.push(sample / self.size);
            }
            if group.have == self.size {
                pending += if group.complete { 0 } else { self.size };
            }
        }
        self.set_pending(&mut state, pending);
        state.raise_lowest();
        Ok(added)
    }

    /// Records that these samples have their values, and returns the groups that are now whole.
    pub(crate) fn arrive(&self, samples: &[usize]) -> Vec<usize> {
        let mut state = self.state.lock();
        let mut whole = Vec::new();
        for sample in samples {
            if let Some(group) = state.groups.get_mut(sample / self.size) {
                group.arrived += 1;
                if group.arrived == self.size {
                    whole.push(sample / self.size);
                }
                if group.complete {
                    state.completed.push(sample / self.size);
                }
            }
        }
        whole
    }

    /// Returns whether all samples of a group have their values.
    pub(crate) fn is_whole(&self, group: usize) -> bool {
        self.state.lock().groups.get(group).is_some_and(|group| group.arrived == self.size)
    }

    /// Records that all cells of a group have outcomes.
    pub(crate) fn complete(&self, group: usize) {
        let mut state = self.state.lock();
        if let Some(known) = state.groups.get_mut(group) {
            known.complete = true;
            let full = known.have == self.size;
            state.completed.push(group);
            if full {
                let left = state.pending.saturating_sub(self.size);
                self.set_pending(&mut state, left);
            }
        }
    }

    /// Returns whether all cells of a group have their outcome.
    pub(crate) fn is_complete(&self, group: usize) -> bool {
        self.state.lock().groups.get(group).is_some_and(|group| group.complete)
    }

    /// Records that a group needs no more samples.
    pub(crate) fn excuse(&self, group: usize) {
        if let Some(known) = self.state.lock().groups.get_mut(group) {
            known.excused = true;
        }
    }

    /// Returns the groups that were completed since the last call.
    pub(crate) fn take_completed(&self) -> Vec<usize> {
        std::mem::take(&mut self.state.lock().completed)
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.state.lock().ended.is_some()
    }

    /// Ends additions; false if they had ended before. If `whole` is set, a group that lacks
    /// samples is an error.
    pub(crate) fn end(&self, now_ns: u64, why: &str, whole: bool) -> Result<bool, IncompleteGroups> {
        let mut state = self.state.lock();
        if state.ended.is_some() {
            return Ok(false);
        }
        if whole {
            let lacking =
                |(_, group): &(usize, &OpenGroup)| group.have < self.needed && !group.excused && !group.complete;
            let lacks = || state.groups.iter().enumerate().filter(lacking);
            let groups = lacks().count();
            if groups > 0 {
                let first = lacks().take(MOST_LISTED).map(|(index, group)| (index, group.have)).collect();
                return Err(IncompleteGroups { size: self.needed, groups, first });
            }
        }
        state.ended = Some((now_ns, why.to_owned()));
        if let Some(room) = state.room.as_ref().filter(|_| self.most.is_some_and(|most| state.pending >= most)) {
            room.notify();
        }
        Ok(true)
    }

    /// The time when a call of these samples became possible: when the last of them came; 0 if none
    /// came.
    pub(crate) fn since_ns(&self, samples: std::ops::Range<usize>) -> u64 {
        let state = self.state.lock();
        state.since_ns.get(samples).and_then(|since| since.iter().max().copied()).unwrap_or(0)
    }

    /// The time when the last sample so far came; 0 before.
    pub(crate) fn last_ns(&self) -> u64 {
        self.state.lock().since_ns.iter().max().copied().unwrap_or(0)
    }

    /// The time when the first sample of a group came; 0 before.
    pub(crate) fn begun_ns(&self, group: usize) -> u64 {
        let state = self.state.lock();
        let since = state.since_ns.get(group * self.size..(group + 1) * self.size);
        since.and_then(|since| since.iter().copied().filter(|ns| *ns > 0).min()).unwrap_or(0)
    }

    /// The time when additions ended.
    pub(crate) fn ended_ns(&self) -> Option<u64> {
        self.state.lock().ended.as_ref().map(|(at_ns, _)| *at_ns)
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    fn add(additions: &OpenBatch, places: Placement) -> Result<AddedSamples, AddError> {
        additions.add(&places, 7, |_| {})
    }

    #[test]
    fn samples_fill_the_lowest_free_places() {
        let additions = OpenBatch::new(3, 3, None).unwrap();
        assert_eq!(add(&additions, Placement::Exact(vec![4, 1])).unwrap().samples, [4, 1]);
        let added = add(&additions, Placement::InOrder(3)).unwrap();
        assert_eq!((added.samples, added.begun), (vec![0, 2, 3], vec![]));
        assert_eq!(add(&additions, Placement::OfGroup(1, 1)).unwrap().samples, [5]);
        let added = add(&additions, Placement::InOrder(1)).unwrap();
        assert_eq!((added.samples, added.begun), (vec![6], vec![2]));
        assert_eq!(additions.groups(), 3);
    }

    #[test]
    fn a_group_is_whole_with_its_last_value() {
        let additions = OpenBatch::new(2, 2, None).unwrap();
        add(&additions, Placement::InOrder(4)).unwrap();
        assert_eq!(additions.arrive(&[0, 3]), [0; 0]);
        assert_eq!(
            (additions.arrive(&[2, 1]), additions.is_whole(0), additions.is_whole(2)),
            (vec![1, 0], true, false)
        );
    }

    #[test]
    fn a_refused_addition_takes_nothing() {
        let additions = OpenBatch::new(2, 2, None).unwrap();
        add(&additions, Placement::InOrder(1)).unwrap();
        assert_eq!(add(&additions, Placement::Exact(vec![3, 0])), Err(AddError::Taken(0)));
        assert_eq!(add(&additions, Placement::Exact(vec![3, 3])), Err(AddError::Taken(3)));
        let full = AddError::NoRoom { group: 0, free: 1, wanted: 2, size: 2 };
        assert_eq!(add(&additions, Placement::OfGroup(0, 2)), Err(full));
        for far in [Placement::Exact(vec![usize::MAX]), Placement::OfGroup(usize::MAX, 1)] {
            assert!(matches!(add(&additions, far), Err(AddError::TooFar { .. })));
        }
        assert_eq!(additions.groups(), 1);
        assert_eq!(add(&additions, Placement::InOrder(3)).unwrap().samples, [1, 2, 3]);
    }

    #[test]
    fn additions_end_once_and_only_whole() {
        let additions = OpenBatch::new(2, 2, None).unwrap();
        add(&additions, Placement::Exact(vec![0, 1, 5])).unwrap();
        let incomplete = IncompleteGroups { size: 2, groups: 2, first: vec![(1, 0), (2, 1)] };
        assert_eq!(incomplete.to_string(), "2 groups lack samples: group 1 has 0 of 2, group 2 has 1 of 2");
        assert_eq!(additions.end(9, "finished", true), Err(incomplete));
        assert!(!additions.is_ended());
        additions.complete(1); // it was delivered early
        add(&additions, Placement::OfGroup(2, 1)).unwrap();
        assert_eq!(additions.end(9, "finished", true), Ok(true));
        assert_eq!(additions.end(9, "cancelled", false), Ok(false));
        assert_eq!(add(&additions, Placement::InOrder(1)), Err(AddError::Ended("finished".to_owned())));
        assert_eq!((additions.ended_ns(), additions.since_ns(0..2), additions.since_ns(2..4)), (Some(9), 7, 0));
    }

    #[test]
    fn there_is_room_while_few_samples_are_pending() {
        let additions = OpenBatch::new(2, 2, Some(4)).unwrap();
        add(&additions, Placement::Exact(vec![0, 2, 4, 6])).unwrap();
        assert!(additions.has_room(), "no group is full");
        add(&additions, Placement::InOrder(3)).unwrap();
        assert!(!additions.has_room());
        additions.complete(3);
        assert!(!additions.has_room(), "it was not full");
        add(&additions, Placement::OfGroup(3, 1)).unwrap();
        additions.complete(1);
        assert!(!additions.has_room());
        additions.complete(0);
        assert!(additions.has_room());
        add(&additions, Placement::InOrder(2)).unwrap();
        assert!(!additions.has_room());
        assert_eq!(additions.take_completed(), [3, 1, 0]);
        additions.end(1, "cancelled", false).unwrap();
        assert!(additions.has_room(), "who waits must learn of the end");
    }

    #[test]
    fn values_that_come_to_a_complete_group_are_reported() {
        let additions = OpenBatch::new(2, 2, None).unwrap();
        add(&additions, Placement::InOrder(1)).unwrap();
        additions.arrive(&[0]);
        assert_eq!(additions.take_completed(), [0; 0]);
        additions.complete(0); // it was delivered early
        assert_eq!(additions.take_completed(), [0]);
        add(&additions, Placement::InOrder(1)).unwrap();
        additions.arrive(&[1]);
        assert_eq!((additions.take_completed(), additions.take_completed()), (vec![0], vec![]));
    }

    #[test]
    fn the_grid_grows_before_the_groups_are_known() {
        let additions = OpenBatch::new(2, 2, None).unwrap();
        additions.add(&Placement::InOrder(5), 1, |groups| assert_eq!((groups, additions.groups()), (3, 0))).unwrap();
        additions.add(&Placement::InOrder(1), 1, |_| panic!("there is room")).unwrap();
        assert_eq!(additions.groups(), 3);
    }
}
