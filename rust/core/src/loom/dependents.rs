use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::batch::{function, spec};
use super::scheduler::{RAN, SchedulerModel, failure};
use super::{beside, explore, explore_within};
use crate::batch::{Batch, BatchSpec};
use crate::delivery::Delivery;
use crate::function::{Comparison, Condition, Function, FunctionId, RunIf};
use crate::open_batch::Placement;
use crate::outcome::{Cell, FailureKind, Status};

/// Runs where each of these functions has returned 1.
fn gated(sources: &[FunctionId]) -> Function {
    let condition = |source: &FunctionId| Condition { source: *source, comparison: Comparison::Equal, bound: 1.0 };
    let run_if = RunIf { conditions: sources.iter().map(condition).collect(), otherwise: f32::NAN };
    Function { run_if: Some(Arc::new(run_if)), ..function(0, false) }
}

/// A world with a batch, whose last function is the dependent of all others.
struct Chain {
    world: Arc<SchedulerModel>,
    batch: Arc<Batch>,
    /// Calls of the dependent that were made to their end.
    made: AtomicUsize,
}

/// End of a source.
#[derive(Clone, Copy, PartialEq)]
enum Source {
    Opens,
    Closes,
    Fails,
}

impl Chain {
    fn new(functions: Vec<Function>, spec: BatchSpec) -> Arc<Self> {
        let world = SchedulerModel::with_functions(8, functions);
        let batch = world.scheduler.submit(spec).unwrap();
        Arc::new(Self { world, batch, made: AtomicUsize::new(0) })
    }

    fn dependent(&self) -> FunctionId {
        self.batch.functions().len() - 1
    }

    fn end(&self, source: FunctionId, how: Source) {
        let Some(mut frame) = self.world.lane.take_of(source) else { return };
        match how {
            Source::Opens => frame.complete(0, Cell::Value(1.0), RAN),
            Source::Closes => frame.complete(0, Cell::Value(0.0), RAN),
            Source::Fails => frame.fail(0, failure(FailureKind::Error), RAN),
        }
    }

    /// Makes a call of the dependent, if one was handed out.
    fn make(&self) -> bool {
        let frame = self.world.lane.take_of(self.dependent());
        frame.is_some_and(|mut frame| {
            frame.complete(0, Cell::Value(1.0), RAN);
            self.made.fetch_add(1, Ordering::Relaxed);
            true
        })
    }

    fn status(&self, sample: usize, function: FunctionId) -> Status {
        self.batch.cell(sample, function).expect("the cell is complete").outcome.status
    }

    /// Everything has been done: no call was lost, and none was made twice.
    fn ends(&self) {
        while (0..self.dependent()).any(|source| {
            let open = self.world.lane.take_of(source);
            open.is_some_and(|mut frame| {
                frame.complete(0, Cell::Value(1.0), RAN);
                true
            })
        }) || self.make()
        {}
        assert!(self.batch.is_done(), "a call was lost");
        let groups: Vec<_> = std::iter::from_fn(|| self.batch.take_group()).collect();
        assert_eq!(groups.len(), self.batch.groups(), "each group is handed out once");
        let (mut scored, samples) = (0, self.batch.samples());
        for sample in 0..samples {
            let status = self.status(sample, self.dependent());
            scored += usize::from(status == Status::Ok);
            let opened = (0..self.dependent()).all(|source| self.status(sample, source) == Status::Ok);
            assert!(status != Status::Ok || opened, "made though a source has no number");
        }
        let late = usize::try_from(self.world.scheduler.late_outcomes()).unwrap();
        let made = self.made.load(Ordering::Relaxed);
        assert!(made <= samples, "a call was made twice");
        assert!(scored <= made && made <= scored + late, "{scored} are scored, {made} were made, {late} came late");
        assert_eq!(self.world.scheduler.open_batches(), 0);
        self.world.close();
    }
}

fn job(chained: &Arc<Chain>, work: impl FnOnce(&Chain) + Send + 'static) -> Box<dyn FnOnce() + Send> {
    let chained = chained.clone();
    Box::new(move || work(&chained))
}

/// Cause that ends a batch from outside.
#[derive(Clone, Copy, PartialEq)]
enum Sweep {
    Cancel,
    Close,
    /// The batch's.
    Timeout,
    /// The group's.
    GroupTimeout,
    /// The dependent's own, from when it became possible.
    TotalTimeout,
}

impl Sweep {
    fn spec(self) -> BatchSpec {
        let batch_timeout_ns = (self == Self::Timeout).then_some(1);
        let delivery = if self == Self::GroupTimeout { Delivery::timeout_ns(1) } else { Delivery::default() };
        BatchSpec { batch_timeout_ns, delivery, ..spec(1, 1) }
    }

    fn does(self, chained: &Chain) {
        match self {
            Self::Cancel => chained.world.scheduler.cancel(&chained.batch, "stop"),
            Self::Close => chained.world.close(),
            Self::Timeout | Self::GroupTimeout | Self::TotalTimeout => {
                chained.world.scheduler.keep_time_once();
            }
        }
    }

    fn status(self) -> Status {
        if matches!(self, Self::Cancel | Self::Close) { Status::Cancelled } else { Status::Timeout }
    }
}

/// The source ends while something ends the batch, and the dependent's call ends as soon as it is
/// made.
fn a_source_that_ends_beside(how: Source, sweep: Sweep) {
    explore(move || {
        let total_timeout = (sweep == Sweep::TotalTimeout).then_some(Duration::from_nanos(1));
        let mut dependent = gated(&[0]);
        dependent.policy.total_timeout = total_timeout;
        let chained = Chain::new(vec![function(0, false), dependent], sweep.spec());
        let source = job(&chained, move |chained| {
            chained.end(0, how);
            chained.make();
        });
        beside(vec![source, job(&chained, move |chained| sweep.does(chained))]);
        chained.ends();
        let [source, dependent] = [0, 1].map(|function| chained.status(0, function));
        assert!([Status::Ok, Status::Error, sweep.status()].contains(&source), "{source:?}");
        let expected = match how {
            Source::Opens if source == Status::Ok => Status::Ok,
            _ => Status::Skipped,
        };
        assert!(dependent == expected || dependent == sweep.status(), "{dependent:?} after {source:?}");
        if how != Source::Opens {
            assert_eq!(chained.made.load(Ordering::Relaxed), 0, "the condition did not hold");
        }
    });
}

#[test]
fn a_source_that_meets_the_condition_beside_a_cancel() {
    a_source_that_ends_beside(Source::Opens, Sweep::Cancel);
}

#[test]
fn a_source_that_misses_the_condition_beside_a_cancel() {
    a_source_that_ends_beside(Source::Closes, Sweep::Cancel);
}

#[test]
fn a_source_that_fails_beside_a_cancel() {
    a_source_that_ends_beside(Source::Fails, Sweep::Cancel);
}

#[test]
fn a_source_that_meets_the_condition_beside_the_end() {
    a_source_that_ends_beside(Source::Opens, Sweep::Close);
}

#[test]
fn a_source_that_meets_the_condition_beside_the_timeout_of_its_batch() {
    a_source_that_ends_beside(Source::Opens, Sweep::Timeout);
}

#[test]
fn a_source_that_misses_the_condition_beside_the_timeout_of_its_batch() {
    a_source_that_ends_beside(Source::Closes, Sweep::Timeout);
}

#[test]
fn a_source_that_meets_the_condition_beside_the_timeout_of_its_group() {
    a_source_that_ends_beside(Source::Opens, Sweep::GroupTimeout);
}

#[test]
fn a_source_that_meets_the_condition_of_a_call_that_is_late_at_once() {
    a_source_that_ends_beside(Source::Opens, Sweep::TotalTimeout);
}

/// The last source decides, whichever it is.
#[test]
fn two_sources_that_end_beside_each_other() {
    for (first, second) in [(Source::Opens, Source::Opens), (Source::Opens, Source::Closes)] {
        explore(move || {
            let chained = Chain::new(vec![function(0, false), function(0, false), gated(&[0, 1])], spec(1, 1));
            beside(vec![
                job(&chained, move |chained| chained.end(0, first)),
                job(&chained, move |chained| chained.end(1, second)),
                job(&chained, |chained| {
                    chained.make();
                }),
            ]);
            chained.ends();
            let expected = if second == Source::Opens { Status::Ok } else { Status::Skipped };
            assert_eq!(chained.status(0, 2), expected);
        });
    }
}

#[test]
fn two_sources_that_end_beside_a_cancel() {
    explore_within(2, || {
        let chained = Chain::new(vec![function(0, false), function(0, false), gated(&[0, 1])], spec(1, 1));
        beside(vec![
            job(&chained, |chained| chained.end(0, Source::Opens)),
            job(&chained, |chained| chained.end(1, Source::Opens)),
            job(&chained, |chained| Sweep::Cancel.does(chained)),
        ]);
        chained.ends();
    });
}

/// One sample's outcome ends the group of two: the other's dependent is made or swept.
#[test]
fn a_source_that_ends_beside_a_quorum() {
    explore_within(2, || {
        let delivery = Delivery::quorum(1);
        let chained = Chain::new(vec![function(0, false), gated(&[0])], BatchSpec { delivery, ..spec(2, 2) });
        let source = || job(&chained, |chained| chained.end(0, Source::Opens));
        let dependent = job(&chained, |chained| {
            chained.make();
        });
        beside(vec![source(), source(), dependent]);
        chained.ends();
    });
}

/// If the batch streams, a dependent waits for its values too: whoever comes last decides.
#[test]
fn a_source_that_ends_beside_its_addition_and_a_cancel() {
    for cancelled in [false, true] {
        explore(move || {
            let open = BatchSpec { streamed: true, ..spec(0, 1) };
            let chained = Chain::new(vec![function(0, false), gated(&[0])], open);
            let add = job(&chained, |chained| {
                if let Ok(added) = chained.batch.reserve(&Placement::InOrder(1)) {
                    chained.world.scheduler.add(&chained.batch, &added);
                }
            });
            let source = job(&chained, |chained| chained.end(0, Source::Opens));
            let third = job(&chained, move |chained| {
                if cancelled {
                    Sweep::Cancel.does(chained);
                } else {
                    chained.make();
                }
            });
            beside(vec![add, source, third]);
            chained.world.scheduler.finish(&chained.batch).unwrap();
            chained.ends();
            assert!(cancelled || chained.status(0, 1) == Status::Ok);
        });
    }
}
