//! Timers: the times at which work is due.
//!
//! The timers of a batch that is done are removed at a cost that does not depend on the number of
//! other timers. Only the soonest timeout of a streamed batch's calls or groups is here: the others
//! are in a `DueQueue`, which drops the ended ones.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::call::{Call, Cause};
use crate::function::FunctionId;

/// Work to do at a time.
#[derive(Debug)]
pub(crate) enum Due {
    /// Queue other attempts, of these batches.
    Retry { function: FunctionId, calls: Vec<(u64, Vec<Call>)> },
    /// End the open calls of one function, or of all.
    Expire { batch: u64, function: Option<FunctionId>, cause: Cause },
    /// Search for work again, because a limit allows more calls.
    Look,
    /// Write the ends of calls that a limiter could not write.
    Flush { function: FunctionId },
    /// Deliver groups of this batch as they are.
    DeliverEarly { batch: u64 },
    /// Wake the lane of a call.
    Wake { batch: u64, function: FunctionId, first: usize },
    /// End calls of a streamed batch whose total timeout passed.
    Late { batch: u64, function: FunctionId },
}

impl Due {
    fn batches(&self) -> Vec<u64> {
        match self {
            Self::Retry { calls, .. } => calls.iter().map(|(batch, _)| *batch).collect(),
            Self::Expire { batch, .. }
            | Self::Wake { batch, .. }
            | Self::Late { batch, .. }
            | Self::DeliverEarly { batch, .. } => {
                vec![*batch]
            }
            Self::Look | Self::Flush { .. } => Vec::new(),
        }
    }
}

/// Time, and a number that distinguishes timers of the same time.
type Key = (u64, u64);

/// Timers, soonest first.
#[derive(Default)]
pub(crate) struct Timers {
    due: BTreeMap<Key, Due>,
    of_batch: BTreeMap<u64, BTreeSet<Key>>,
    set: u64,
}

impl Timers {
    /// Sets a timer; true when it is now the soonest.
    pub(crate) fn set(&mut self, due_ns: u64, due: Due) -> bool {
        let soonest = self.next_ns().is_none_or(|next| due_ns < next);
        self.set += 1;
        let key = (due_ns, self.set);
        for batch in due.batches() {
            self.of_batch.entry(batch).or_default().insert(key);
        }
        self.due.insert(key, due);
        soonest
    }

    /// Returns the time of the next timer.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.due.first_key_value().map(|((due_ns, _), _)| *due_ns)
    }

    /// Takes the next timer that is due at `now_ns`.
    pub(crate) fn take(&mut self, now_ns: u64) -> Option<Due> {
        let next = self.due.first_entry().filter(|next| next.key().0 <= now_ns)?;
        let (key, due) = next.remove_entry();
        for batch in due.batches() {
            if let Some(keys) = self.of_batch.get_mut(&batch) {
                keys.remove(&key);
            }
        }
        Some(due)
    }

    /// Removes the timers of a batch that is done. A retry timer may also have calls of other
    /// batches.
    pub(crate) fn forget(&mut self, batch: u64) {
        for key in self.of_batch.remove(&batch).unwrap_or_default() {
            if let Some(Due::Retry { calls, .. }) = self.due.get_mut(&key) {
                calls.retain(|(of, _)| *of != batch);
                if !calls.is_empty() {
                    continue;
                }
            }
            self.due.remove(&key);
        }
    }
}

/// Entries of one batch, each due at a separate time, soonest first.
#[derive(Debug)]
pub(crate) struct DueQueue<T>(VecDeque<(u64, T)>);

impl<T> Default for DueQueue<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> DueQueue<T> {
    /// Adds an entry; true if a timer must be set for it. Entries at the front for which `is_over`
    /// holds are removed, because most end in the order of their arrival.
    pub(crate) fn add(&mut self, due_ns: u64, thing: T, is_over: impl Fn(&T) -> bool) -> bool {
        while self.0.front().is_some_and(|(_, thing)| is_over(thing)) {
            self.0.pop_front();
        }
        // Entries come nearly in order.
        let place = self.0.iter().rposition(|(other_ns, _)| *other_ns <= due_ns).map_or(0, |before| before + 1);
        self.0.insert(place, (due_ns, thing));
        place == 0
    }

    /// Returns the entries due at `now_ns`, and the time of the timer for the next.
    pub(crate) fn take(&mut self, now_ns: u64, is_over: impl Fn(&T) -> bool) -> (Vec<T>, Option<u64>) {
        let mut due = Vec::new();
        while let Some((_, thing)) = self.0.pop_front_if(|(due_ns, thing)| *due_ns <= now_ns || is_over(thing)) {
            due.push(thing);
        }
        (due, self.0.front().map(|(due_ns, _)| *due_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_kept_for_batches_that_are_done() {
        let mut timers = Timers::default();
        timers.set(5, Due::Retry { function: 0, calls: vec![(1, Vec::new()), (2, Vec::new())] });
        timers.set(6, Due::DeliverEarly { batch: 1 });
        timers.set(7, Due::Look);
        timers.forget(1);
        assert_eq!((timers.due.len(), timers.next_ns()), (2, Some(5)));
        timers.forget(2);
        assert_eq!((timers.due.len(), timers.next_ns()), (1, Some(7)));
        assert!(timers.of_batch.is_empty());
    }

    #[test]
    fn timers_come_in_the_order_of_their_times_and_then_as_they_were_set() {
        let mut timers = Timers::default();
        assert!(timers.set(9, Due::Flush { function: 0 }));
        assert!(!timers.set(9, Due::Flush { function: 1 }));
        assert!(timers.set(3, Due::Late { batch: 4, function: 2 }));
        assert!(timers.take(2).is_none());
        assert!(matches!(timers.take(9), Some(Due::Late { .. })));
        assert!(matches!(timers.take(9), Some(Due::Flush { function: 0 })));
        assert!(matches!(timers.take(9), Some(Due::Flush { function: 1 })));
        assert!(timers.take(u64::MAX).is_none());
    }

    #[test]
    fn ended_entries_are_released() {
        let mut queue = DueQueue::default();
        assert!(queue.add(10, 0, |_| false));
        for thing in 1..1000 {
            queue.add(10 + thing, thing, |_| true);
            assert_eq!(queue.0.len(), 1);
        }
        assert!(queue.add(5, 7, |_| false), "it is the soonest now");
        assert!(!queue.add(6, 8, |_| false));
        assert_eq!(queue.take(5, |_| false), (vec![7], Some(6)));
        assert_eq!(queue.take(6, |thing| *thing == 999), (vec![8, 999], None));
    }
}
