//! The grid: one cell per (sample, function), filled exactly once, and one countdown per group.
//!
//! - A cell goes from open to its outcome once; a second writer gets no claim.
//! - A group is announced once, by the writer that fills its last cell, after all others became
//!   readable.
//! - The cells of one call are claimed together, by its first cell.
//! - A claim belongs to one attempt: after `reopen`, earlier attempts get no claim.

use std::ops::Range;

use crate::append_list::AppendList;
use crate::outcome::{Outcome, Status, Times};
use crate::sync::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Phase of a cell, in the low bits of its state word; the number of the attempt (1, 2, …) is in
/// the bits above.
const OPEN: u32 = 0;
const CLAIMED: u32 = 1;
const COMPLETE: u32 = 2;
const PHASE: u32 = 0b11;

/// Initial room of a grid that begins empty.
const FIRST_GROUPS: usize = 16;

const fn word(attempt: u16, phase: u32) -> u32 {
    (attempt as u32) << 2 | phase
}

const fn attempt_of(word: u32) -> u16 {
    (word >> 2) as u16
}

/// One cell. Only the holder of the claim on its call writes the fields other than `state`; others
/// read them only once the cell is complete.
struct Slot {
    /// Attempt and phase. Written by the thread that claims, completes or reopens the call.
    state: AtomicU32,
    status: AtomicU8,
    value: AtomicU64,
    started_ns: AtomicU64,
    run_ns: AtomicU64,
}

impl Slot {
    fn open() -> Self {
        Self {
            state: AtomicU32::new(word(1, OPEN)),
            status: AtomicU8::new(Status::Cancelled as u8),
            value: AtomicU64::new(f64::NAN.to_bits()),
            started_ns: AtomicU64::new(0),
            run_ns: AtomicU64::new(0),
        }
    }
}

/// The cell matrix of one batch.
pub struct Grid {
    group_size: usize,
    functions: usize,
    /// The function of the first column.
    first_function: usize,
    slots: AppendList<Slot>,
    /// Number of open cells per group. Written by every claim that completes; the write that takes
    /// it to zero announces the group.
    open: AppendList<AtomicU32>,
}

impl Grid {
    /// A grid of open cells, each at its first attempt.
    #[must_use]
    pub fn new(groups: usize, group_size: usize, functions: usize) -> Self {
        Self::of_functions(groups, group_size, 0..functions)
    }

    /// A grid that has only the columns of these functions.
    #[must_use]
    pub fn of_functions(groups: usize, group_size: usize, functions: Range<usize>) -> Self {
        let first = if groups == 0 { FIRST_GROUPS } else { groups };
        let (first_function, functions) = (functions.start, functions.len());
        let grid = Self {
            group_size,
            functions,
            first_function,
            slots: AppendList::new(first * group_size * functions),
            open: AppendList::new(first),
        };
        grid.grow(groups);
        grid
    }

    /// Grows the grid to `groups` groups. A thread that reads the new number also sees the cells.
    pub fn grow(&self, groups: usize) {
        let cells_of_group = u32::try_from(self.group_size * self.functions).unwrap_or(u32::MAX);
        self.slots.grow(groups * self.group_size * self.functions, Slot::open);
        self.open.grow(groups, || AtomicU32::new(cells_of_group));
    }

    /// Returns the number of complete cells among the first `groups` groups.
    pub fn filled(&self, groups: usize) -> u64 {
        let cells_of_group = u32::try_from(self.group_size * self.functions).unwrap_or(u32::MAX);
        let open = (0..groups).filter_map(|group| self.open.get(group));
        open.map(|open| u64::from(cells_of_group.saturating_sub(open.load(Ordering::Relaxed)))).sum()
    }

    /// Returns whether a cell of this group has no outcome yet.
    #[must_use]
    pub fn is_group_open(&self, group: usize) -> bool {
        self.open.get(group).is_some_and(|open| open.load(Ordering::Acquire) > 0)
    }

    /// The function of the first column.
    pub(crate) const fn first_function(&self) -> usize {
        self.first_function
    }

    fn slot(&self, sample: usize, function: usize) -> Option<&Slot> {
        self.slots.get(sample * self.functions + function - self.first_function)
    }

    /// Claims the call that begins at this cell, if its attempt `attempt` is still open.
    pub fn claim(&self, first: usize, function: usize, attempt: u16) -> Option<Claim<'_>> {
        let state = &self.slot(first, function)?.state;
        let taken =
            state.compare_exchange(word(attempt, OPEN), word(attempt, CLAIMED), Ordering::Acquire, Ordering::Relaxed);
        taken.ok().map(|_| Claim { grid: self, first, function, attempt, ended: false })
    }

    /// Claims the call that begins at this cell, if it is open, at any attempt.
    pub fn claim_open(&self, first: usize, function: usize) -> Option<Claim<'_>> {
        let state = &self.slot(first, function)?.state;
        let mut seen = state.load(Ordering::Relaxed);
        while seen & PHASE == OPEN {
            match state.compare_exchange(seen, seen | CLAIMED, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => {
                    return Some(Claim { grid: self, first, function, attempt: attempt_of(seen), ended: false });
                }
                Err(now) => seen = now,
            }
        }
        None
    }

    /// Returns whether this attempt of a call is still open; `first` is the call's first sample.
    pub fn is_open(&self, first: usize, function: usize, attempt: u16) -> bool {
        let open = word(attempt, OPEN);
        self.slot(first, function).is_some_and(|slot| slot.state.load(Ordering::Acquire) == open)
    }

    /// Returns the outcome of a completed cell, and its number of attempts; `None` for a cell that
    /// is not completed.
    pub fn read(&self, sample: usize, function: usize) -> Option<(Outcome, u16)> {
        let slot = self.slot(sample, function)?;
        let state = slot.state.load(Ordering::Acquire);
        if state & PHASE != COMPLETE {
            return None;
        }
        let times =
            Times { started_ns: slot.started_ns.load(Ordering::Relaxed), run_ns: slot.run_ns.load(Ordering::Relaxed) };
        let status = Status::from_u8(slot.status.load(Ordering::Relaxed))?;
        let value = f64::from_bits(slot.value.load(Ordering::Relaxed));
        Some((Outcome { status, value, times }, attempt_of(state)))
    }
}

/// The right to end one attempt of one call. Dropping it unused leaves the call open.
#[must_use = "a claim that is dropped leaves its call open"]
pub struct Claim<'a> {
    grid: &'a Grid,
    first: usize,
    function: usize,
    attempt: u16,
    ended: bool,
}

impl Claim<'_> {
    /// The first sample of its call.
    #[must_use]
    pub const fn first(&self) -> usize {
        self.first
    }

    /// The attempt that this claim ends.
    #[must_use]
    pub const fn attempt(&self) -> u16 {
        self.attempt
    }

    /// Returns the times of a call that is not made.
    pub const fn unattempted(mut self) -> Self {
        self.attempt = 0;
        self
    }

    /// Fills the cells of the call, from its first sample on, and calls `completed` with each group
    /// that this completes.
    pub fn complete(mut self, outcomes: impl IntoIterator<Item = Outcome>, mut completed: impl FnMut(usize)) {
        self.ended = true;
        let grid = self.grid;
        // Cells of one group are subtracted together: one atomic operation a group, however long
        // the call.
        let mut group = self.first / grid.group_size;
        let mut filled = 0;
        let mut close = |group: usize, filled: u32| {
            let open = grid.open.get(group).filter(|_| filled > 0);
            if open.is_some_and(|open| open.fetch_sub(filled, Ordering::AcqRel) == filled) {
                completed(group);
            }
        };
        for (sample, outcome) in (self.first..).zip(outcomes) {
            if sample / grid.group_size != group {
                close(group, filled);
                group = sample / grid.group_size;
                filled = 0;
            }
            let Some(slot) = grid.slot(sample, self.function) else { break };
            slot.status.store(outcome.status as u8, Ordering::Relaxed);
            slot.value.store(outcome.value.to_bits(), Ordering::Relaxed);
            slot.started_ns.store(outcome.times.started_ns, Ordering::Relaxed);
            slot.run_ns.store(outcome.times.run_ns, Ordering::Relaxed);
            slot.state.store(word(self.attempt, COMPLETE), Ordering::Release);
            filled += 1;
        }
        close(group, filled);
    }

    /// Starts another attempt of the call, and returns its number.
    pub fn reopen(mut self) -> u16 {
        self.ended = true;
        let next = self.attempt.saturating_add(1);
        self.leave_open(next);
        next
    }

    fn leave_open(&self, attempt: u16) {
        if let Some(slot) = self.grid.slot(self.first, self.function) {
            slot.state.store(word(attempt, OPEN), Ordering::Release);
        }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.leave_open(self.attempt);
        }
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    const RAN: Times = Times { started_ns: 7, run_ns: 3 };

    fn ok(value: f64) -> Outcome {
        Outcome { status: Status::Ok, value, times: RAN }
    }

    #[test]
    fn a_second_write_finds_no_claim() {
        let grid = Grid::new(1, 1, 1);
        grid.claim(0, 0, 1).unwrap().complete([ok(1.0)], |_| {});
        assert!(grid.claim(0, 0, 1).is_none());
        assert!(grid.claim_open(0, 0).is_none());
        assert_eq!(grid.read(0, 0), Some((ok(1.0), 1)));
    }

    #[test]
    fn a_call_over_several_groups_announces_each_that_it_completes() {
        let grid = Grid::new(3, 2, 2);
        let mut announced = Vec::new();
        for sample in 0..5 {
            grid.claim(sample, 0, 1).unwrap().complete([ok(0.5)], |group| announced.push(group));
        }
        assert!(announced.is_empty());
        grid.claim(0, 1, 1).unwrap().complete((0..6).map(|n| ok(f64::from(n))), |group| announced.push(group));
        assert_eq!(announced, [0, 1]);
        grid.claim(5, 0, 1).unwrap().complete([ok(0.5)], |group| announced.push(group));
        assert_eq!(announced, [0, 1, 2]);
        assert_eq!(grid.read(5, 1).unwrap().0.value.to_bits(), 5.0_f64.to_bits());
    }

    #[test]
    fn a_late_outcome_of_an_abandoned_attempt_finds_nothing() {
        let grid = Grid::new(1, 1, 1);
        assert_eq!(grid.claim(0, 0, 1).unwrap().reopen(), 2);
        assert!(grid.claim(0, 0, 1).is_none());
        assert!(!grid.is_open(0, 0, 1));
        grid.claim(0, 0, 2).unwrap().complete([ok(2.0)], |_| {});
        assert_eq!(grid.read(0, 0), Some((ok(2.0), 2)));
    }

    #[test]
    fn a_dropped_claim_leaves_its_call_open() {
        let grid = Grid::new(1, 1, 1);
        drop(grid.claim(0, 0, 1));
        assert!(grid.is_open(0, 0, 1));
    }
}
