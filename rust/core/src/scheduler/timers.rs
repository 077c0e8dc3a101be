//! Timers: what is due when.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use crate::call::{Call, Cause};
use crate::function::FunctionId;

/// What to do when a time comes.
#[derive(Debug)]
pub(crate) enum Due {
    /// Hand out other attempts, of these batches.
    Retry { function: FunctionId, calls: Vec<(u64, Vec<Call>)> },
    /// End what is open of one function, or of all.
    Expire { batch: u64, function: Option<FunctionId>, cause: Cause },
    /// Look for work again: a limit lets more through.
    Look,
    /// Write the ends of calls that a limiter could not write.
    Flush { function: FunctionId },
    /// Deliver these groups as they are.
    DeliverEarly { batch: u64, groups: Range<usize> },
    /// End what is open of these calls of a streamed batch: their total timeout passed.
    Late { batch: u64, function: FunctionId, calls: Vec<Call> },
}

struct Timer {
    due_ns: u64,
    /// Keeps timers of the same time in the order in which they were set.
    order: u64,
    due: Due,
}

impl PartialEq for Timer {
    fn eq(&self, other: &Self) -> bool {
        (self.due_ns, self.order) == (other.due_ns, other.order)
    }
}

impl Eq for Timer {}

impl PartialOrd for Timer {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timer {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due_ns, self.order).cmp(&(other.due_ns, other.order))
    }
}

/// Timers, soonest first.
#[derive(Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<Timer>>,
    set: u64,
}

impl Timers {
    /// Sets a timer; true when it is now the soonest.
    pub(crate) fn set(&mut self, due_ns: u64, due: Due) -> bool {
        let soonest = self.next_ns().is_none_or(|next| due_ns < next);
        self.set += 1;
        self.heap.push(Reverse(Timer { due_ns, order: self.set, due }));
        soonest
    }

    /// When the next one is due.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse(timer)| timer.due_ns)
    }

    /// The next one that is due at `now_ns`.
    pub(crate) fn take(&mut self, now_ns: u64) -> Option<Due> {
        if self.next_ns()? > now_ns {
            return None;
        }
        self.heap.pop().map(|Reverse(timer)| timer.due)
    }

    /// Keeps the timers of batches that are open. A retry may have calls of several; those of one
    /// that is done go nowhere.
    pub(crate) fn keep(&mut self, open: impl Fn(u64) -> bool) {
        self.heap.retain(|Reverse(timer)| match &timer.due {
            Due::Retry { calls, .. } => calls.iter().any(|(batch, _)| open(*batch)),
            Due::Expire { batch, .. } | Due::Late { batch, .. } | Due::DeliverEarly { batch, .. } => open(*batch),
            Due::Look | Due::Flush { .. } => true,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_kept_for_batches_that_are_done() {
        let mut timers = Timers::default();
        timers.set(5, Due::Retry { function: 0, calls: vec![(1, Vec::new()), (2, Vec::new())] });
        timers.set(6, Due::DeliverEarly { batch: 1, groups: 0..1 });
        timers.keep(|batch| batch == 2);
        assert_eq!(timers.next_ns(), Some(5));
        timers.keep(|_| false);
        assert_eq!(timers.next_ns(), None);
    }
}
