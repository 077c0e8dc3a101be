//! What is due when: retries, deadlines, budgets.

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
    /// Write down what a limit could not be told.
    Settle { function: FunctionId },
    /// Deliver these groups as they are.
    Cut { batch: u64, groups: Range<usize> },
    /// End what is open of these calls of a batch that grows: their deadline passed.
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

    /// Forgets the timers of a batch that is done.
    pub(crate) fn forget(&mut self, done: u64) {
        // The calls of a retry that has others too are ended: they go nowhere.
        self.heap.retain(|Reverse(timer)| match &timer.due {
            Due::Retry { calls, .. } => calls.iter().any(|(batch, _)| *batch != done),
            Due::Expire { batch, .. } => *batch != done,
            Due::Late { batch, .. } | Due::Cut { batch, .. } => *batch != done,
            Due::Look | Due::Settle { .. } => true,
        });
    }
}
