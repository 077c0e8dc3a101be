use std::sync::Arc;

use loom::sync::atomic::{AtomicU64, Ordering};

use super::{beside, explore};
use crate::grid::{Claim, Grid};
use crate::outcome::{Outcome, Status, Times};

/// A writer's mark is in all fields that it writes, so that a mixture of two writers shows.
fn outcome(mark: u32) -> Outcome {
    let ns = u64::from(mark);
    Outcome { status: Status::Ok, value: f64::from(mark), times: Times { started_ns: ns, run_ns: ns } }
}

/// A grid, and how often each group was announced.
struct GridModel {
    grid: Grid,
    announced: Vec<AtomicU64>,
}

impl GridModel {
    fn new(groups: usize, size: usize, functions: usize) -> Arc<Self> {
        let announced = (0..groups).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Self { grid: Grid::new(groups, size, functions), announced })
    }

    /// Completes a claim's `span` cells with this mark; all of a completed group must be visible to
    /// the thread that is notified of it.
    fn complete(&self, claim: Claim<'_>, span: usize, mark: u32, cells_of_group: &[(usize, usize)]) {
        claim.complete((0..span).map(|_| outcome(mark)), |group| {
            self.announced[group].fetch_add(1, Ordering::Relaxed);
            for (sample, function) in cells_of_group {
                self.check(*sample, *function);
            }
        });
    }

    /// The mark of a completed cell, which one writer wrote.
    fn check(&self, sample: usize, function: usize) -> (u32, u16) {
        let (seen, attempts) = self.grid.read(sample, function).expect("the cell is complete");
        let mark = seen.times.run_ns as u32;
        assert_eq!(seen, outcome(mark), "two writers mixed");
        (mark, attempts)
    }

    fn announced(&self) -> Vec<u64> {
        self.announced.iter().map(|times| times.load(Ordering::Relaxed)).collect()
    }
}

#[test]
fn two_lanes_and_a_sweep() {
    const CELLS: &[(usize, usize)] = &[(0, 0), (1, 0)];
    explore(|| {
        let world = GridModel::new(1, 2, 1);
        let lane = |sample: usize| {
            let world = world.clone();
            Box::new(move || {
                if let Some(claim) = world.grid.claim(sample, 0, 1) {
                    world.complete(claim, 1, 1, CELLS);
                }
            }) as Box<dyn FnOnce() + Send>
        };
        let sweeper = world.clone();
        let sweep = Box::new(move || {
            for sample in 0..2 {
                if let Some(claim) = sweeper.grid.claim_open(sample, 0) {
                    sweeper.complete(claim, 1, 2, CELLS);
                }
            }
        });
        beside(vec![lane(0), lane(1), sweep]);
        assert_eq!(world.announced(), [1]);
        assert!([0, 1].iter().all(|sample| matches!(world.check(*sample, 0), (1 | 2, 1))));
    });
}

#[test]
fn a_call_over_a_group_is_taken_as_one() {
    const CELLS: &[(usize, usize)] = &[(0, 0), (1, 0), (0, 1), (1, 1)];
    explore(|| {
        let world = GridModel::new(1, 2, 2);
        let caller = world.clone();
        let call = Box::new(move || {
            if let Some(claim) = caller.grid.claim(0, 0, 1) {
                caller.complete(claim, 2, 1, CELLS);
            }
        });
        let other = world.clone();
        let others = Box::new(move || {
            for sample in 0..2 {
                other.complete(other.grid.claim(sample, 1, 1).expect("nobody else takes it"), 1, 3, CELLS);
            }
        });
        let sweeper = world.clone();
        let sweep = Box::new(move || {
            if let Some(claim) = sweeper.grid.claim_open(0, 0) {
                sweeper.complete(claim, 2, 2, CELLS);
            }
        });
        beside(vec![call, others, sweep]);
        assert_eq!(world.announced(), [1]);
        assert_eq!(world.check(0, 0), world.check(1, 0), "one call, two writers");
    });
}

#[test]
fn two_calls_over_two_groups() {
    explore(|| {
        let world = GridModel::new(2, 1, 2);
        let call = |function: usize| {
            let world = world.clone();
            Box::new(move || {
                let claim = world.grid.claim(0, function, 1).expect("nobody else takes it");
                world.complete(claim, 2, 1, &[]);
            }) as Box<dyn FnOnce() + Send>
        };
        beside(vec![call(0), call(1)]);
        assert_eq!(world.announced(), [1, 1]);
    });
}

#[test]
fn a_late_outcome_beside_another_attempt_and_a_sweep() {
    explore(|| {
        let world = GridModel::new(1, 1, 1);
        let second = world.clone();
        let again = Box::new(move || {
            if let Some(claim) = second.grid.claim(0, 0, 1) {
                assert_eq!(claim.reopen(), 2);
                if let Some(claim) = second.grid.claim(0, 0, 2) {
                    second.complete(claim, 1, 2, &[(0, 0)]);
                }
            }
        });
        let first = world.clone();
        let late = Box::new(move || {
            if let Some(claim) = first.grid.claim(0, 0, 1) {
                first.complete(claim, 1, 1, &[(0, 0)]);
            }
        });
        let sweeper = world.clone();
        let sweep = Box::new(move || {
            if let Some(claim) = sweeper.grid.claim_open(0, 0) {
                sweeper.complete(claim, 1, 3, &[(0, 0)]);
            }
        });
        beside(vec![again, late, sweep]);
        assert_eq!(world.announced(), [1]);
        assert!(matches!(world.check(0, 0), (1, 1) | (2, 2) | (3, 1 | 2)), "{:?}", world.check(0, 0));
    });
}
