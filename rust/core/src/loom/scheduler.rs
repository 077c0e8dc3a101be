use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Waker};

use super::batch::{function, spec};
use super::{beside, explore};
use crate::batch::Batch;
use crate::clock::Clock;
use crate::compose::{ComposeLane, Composite};
use crate::frame::Frame;
use crate::function::{Function, FunctionId};
use crate::lane::{CloseFuture, Lane, LaneWaker};
use crate::outcome::{Cell, Failure, FailureKind, Status, Times};
use crate::scheduler::Scheduler;
use crate::sync::Mutex;

pub(super) const RAN: Times = Times { started_ns: 1, run_ns: 1 };

/// A lane that holds the frames it is given, up to its places, until the model takes them out.
pub(super) struct Holding {
    places: usize,
    /// The most calls of a frame.
    calls: usize,
    held: Mutex<Vec<Frame>>,
    /// Someone is in `run`.
    running: AtomicBool,
    /// `run` was entered twice, or without room. Told at the end: the scheduler catches what panics
    /// in `run`.
    overrun: AtomicBool,
    /// Frames that came.
    started: AtomicUsize,
    /// Its calls end on threads that others wait for.
    shares_threads: bool,
}

impl Holding {
    /// Makes places for `places` frames, of `calls` calls each.
    pub(super) fn new(places: usize, calls: usize) -> Self {
        Self {
            places,
            calls,
            held: Mutex::new(Vec::new()),
            running: AtomicBool::new(false),
            overrun: AtomicBool::new(false),
            started: AtomicUsize::new(0),
            shares_threads: false,
        }
    }

    pub(super) fn take(&self) -> Option<Frame> {
        self.held.lock().pop()
    }

    /// A frame of this function.
    pub(super) fn take_of(&self, function: FunctionId) -> Option<Frame> {
        let mut held = self.held.lock();
        let place = held.iter().position(|frame| frame.function_id() == function)?;
        Some(held.swap_remove(place))
    }

    pub(super) fn started(&self) -> usize {
        self.started.load(Ordering::Relaxed)
    }
}

impl Lane for Holding {
    fn attach(&self, _: LaneWaker) {}

    fn room(&self, _: FunctionId) -> usize {
        self.places.saturating_sub(self.held.lock().len())
    }

    fn parallelism(&self, _: FunctionId) -> usize {
        self.places
    }

    fn pool(&self, _: FunctionId) -> usize {
        0
    }

    fn frame_calls(&self, _: FunctionId) -> usize {
        self.calls
    }

    fn shares_threads(&self) -> bool {
        self.shares_threads
    }

    fn run(&self, frame: Frame) {
        self.started.fetch_add(1, Ordering::Relaxed);
        let twice = self.running.swap(true, Ordering::Relaxed);
        let full = {
            let mut held = self.held.lock();
            held.push(frame);
            held.len() > self.places
        };
        self.running.store(false, Ordering::Relaxed);
        if twice || full {
            self.overrun.store(true, Ordering::Relaxed);
        }
    }

    fn close(&self) -> CloseFuture {
        self.held.lock().clear();
        Box::pin(std::future::ready(()))
    }
}

pub(super) struct SchedulerModel {
    pub(super) lane: Arc<Holding>,
    pub(super) scheduler: Scheduler,
    // Only for its handle: the model has no timers that come due.
    _runtime: tokio::runtime::Runtime,
}

impl SchedulerModel {
    pub(super) fn new(places: usize, function: Function) -> Arc<Self> {
        Self::with_frames(places, 1, function)
    }

    /// The lane has `places` places, for frames of `calls` calls.
    fn with_frames(places: usize, calls: usize, function: Function) -> Arc<Self> {
        Self::with_lane(places, calls, false, vec![function])
    }

    pub(super) fn with_functions(places: usize, functions: Vec<Function>) -> Arc<Self> {
        Self::with_lane(places, 1, false, functions)
    }

    fn with_lane(places: usize, calls: usize, shares_threads: bool, functions: Vec<Function>) -> Arc<Self> {
        Self::on(Holding { shares_threads, ..Holding::new(places, calls) }, functions, Vec::new())
    }

    /// The first function is a composite, on the second lane.
    pub(super) fn with_composite(places: usize, functions: Vec<Function>, composite: Composite) -> Arc<Self> {
        let compose = Arc::new(ComposeLane::new(Clock::start(), vec![Some(composite)]));
        Self::on(Holding::new(places, 1), functions, vec![compose])
    }

    fn on(lane: Holding, functions: Vec<Function>, others: Vec<Arc<dyn Lane>>) -> Arc<Self> {
        let lane = Arc::new(lane);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let lanes: Vec<Arc<dyn Lane>> = [vec![lane.clone() as Arc<dyn Lane>], others].concat();
        let scheduler = Scheduler::start(runtime.handle(), Clock::start(), functions, lanes);
        Arc::new(Self { lane, scheduler, _runtime: runtime })
    }

    pub(super) fn close(&self) {
        let closing = pin!(self.scheduler.close());
        assert!(closing.poll(&mut Context::from_waker(Waker::noop())).is_ready());
        assert!(!self.lane.overrun.load(Ordering::Relaxed), "two threads handed out at once");
    }
}

pub(super) fn failure(kind: FailureKind) -> Failure {
    Failure::new(kind, "failed".to_owned())
}

/// The status of a completed cell, which goes with its note.
fn status(batch: &Batch, sample: usize) -> Status {
    let status = batch.cell(sample, 0).expect("the cell is complete").outcome.status;
    let note = batch.note_of(sample, 0).map(|note| note.reason);
    match status {
        Status::Ok => assert_eq!(note, None),
        Status::Cancelled => assert_eq!(note.as_deref(), Some("stop")),
        Status::Error => assert!(note.is_some_and(|note| note.starts_with("returned"))),
        other => panic!("{other:?}"),
    }
    status
}

/// A frame in hand fails while its batch is cancelled: whoever comes first, the call ends, once, as
/// cancelled.
fn a_failing_attempt_beside_a_cancel(kind: FailureKind, retries: u16) {
    explore(move || {
        let world = SchedulerModel::new(1, function(retries, false));
        let batch = world.scheduler.submit(spec(1, 1)).unwrap();
        let lane = world.clone();
        let fail = Box::new(move || {
            if let Some(mut frame) = lane.lane.take() {
                frame.fail(0, failure(kind), RAN);
            }
        });
        let (other, cancelled) = (world.clone(), batch.clone());
        beside(vec![fail, Box::new(move || other.scheduler.cancel(&cancelled, "stop"))]);
        assert!(batch.is_done(), "the call was lost");
        assert_eq!(batch.take_group(), Some(0));
        assert_eq!(batch.take_group(), None);
        assert_eq!(status(&batch, 0), Status::Cancelled);
        assert_eq!(world.scheduler.open_batches(), 0);
        world.close();
    });
}

#[test]
fn a_retry_beside_a_cancel() {
    a_failing_attempt_beside_a_cancel(FailureKind::Error, 1);
}

#[test]
fn a_crash_beside_a_cancel() {
    a_failing_attempt_beside_a_cancel(FailureKind::Crashed, 0);
}

#[test]
fn a_dropped_frame_beside_a_cancel() {
    explore(|| {
        let world = SchedulerModel::new(1, function(0, false));
        let batch = world.scheduler.submit(spec(1, 1)).unwrap();
        let lane = world.clone();
        let (other, cancelled) = (world.clone(), batch.clone());
        let drop_it = Box::new(move || drop(lane.lane.take()));
        beside(vec![drop_it, Box::new(move || other.scheduler.cancel(&cancelled, "stop"))]);
        assert!(batch.is_done());
        assert_eq!(status(&batch, 0), Status::Cancelled);
        world.close();
    });
}

#[test]
fn an_outcome_beside_a_cancel() {
    explore(|| {
        let world = SchedulerModel::new(2, function(0, false));
        let batch = world.scheduler.submit(spec(2, 2)).unwrap();
        let complete = |value: f64| {
            let world = world.clone();
            Box::new(move || {
                if let Some(mut frame) = world.lane.take() {
                    frame.complete(0, Cell::Value(value), RAN);
                }
            }) as Box<dyn FnOnce() + Send>
        };
        let (other, cancelled) = (world.clone(), batch.clone());
        let cancel = Box::new(move || other.scheduler.cancel(&cancelled, "stop"));
        beside(vec![complete(1.0), complete(f64::NAN), cancel]);
        assert!(batch.is_done());
        let swept = (0..2).filter(|sample| status(&batch, *sample) == Status::Cancelled).count();
        assert_eq!(world.scheduler.late_outcomes(), swept as u64);
        world.close();
    });
}

/// Two calls of a frame end and are completed together, by the lane or with the frame, while their
/// batch is cancelled.
fn calls_completed_together_beside_a_cancel(by_the_lane: bool) {
    explore(move || {
        let world = SchedulerModel::with_frames(1, 2, function(0, false));
        let batch = world.scheduler.submit(spec(2, 1)).unwrap();
        let lane = world.clone();
        let complete = Box::new(move || {
            let mut frame = lane.lane.take().expect("it was handed out");
            frame.complete_soon(0, 1.0, RAN);
            frame.complete_soon(1, 1.0, RAN);
            if by_the_lane {
                frame.complete_ended();
            }
        });
        let (other, cancelled, consumer) = (world.clone(), batch.clone(), batch.clone());
        let cancel = Box::new(move || other.scheduler.cancel(&cancelled, "stop"));
        let taken = Arc::new(AtomicUsize::new(0));
        let count = taken.clone();
        let consume = Box::new(move || {
            count.fetch_add(usize::from(consumer.take_group().is_some()), Ordering::Relaxed);
        });
        beside(vec![complete, cancel, consume]);
        assert!(batch.is_done());
        let swept = [0, 1].into_iter().filter(|sample| status(&batch, *sample) == Status::Cancelled).count();
        assert_eq!(world.scheduler.late_outcomes(), swept as u64);
        while batch.take_group().is_some() {
            taken.fetch_add(1, Ordering::Relaxed);
        }
        assert_eq!(taken.load(Ordering::Relaxed), 2, "each group is handed out once");
        assert_eq!(world.scheduler.open_batches(), 0);
        world.close();
    });
}

#[test]
fn calls_completed_by_the_lane_beside_a_cancel() {
    calls_completed_together_beside_a_cancel(true);
}

#[test]
fn calls_completed_with_their_frame_beside_a_cancel() {
    calls_completed_together_beside_a_cancel(false);
}

/// The scores of a group come in while its batch is cancelled: its `finish_group` call is made or
/// swept, never both, never neither.
#[test]
fn scores_that_complete_beside_a_cancel() {
    explore(|| {
        let world = SchedulerModel::new(2, function(0, true));
        let batch = world.scheduler.submit(spec(2, 2)).unwrap();
        let mut first = world.lane.take().expect("both were handed out");
        first.complete(0, Cell::Value(f64::NAN), RAN);
        drop(first);
        let lane = world.clone();
        let complete = Box::new(move || {
            if let Some(mut frame) = lane.lane.take() {
                frame.complete(0, Cell::Value(1.0), RAN);
            }
        });
        let (other, cancelled) = (world.clone(), batch.clone());
        beside(vec![complete, Box::new(move || other.scheduler.cancel(&cancelled, "stop"))]);
        assert!(batch.is_done());
        let both = [0, 1].map(|sample| status(&batch, sample));
        assert_eq!(both.iter().filter(|status| **status == Status::Error).count(), 1, "a failed score stays failed");
        world.close();
    });
}

/// A score that failed keeps its note unless the sweep has completed its cell before, whose note
/// must then stay.
#[test]
fn a_score_that_fails_beside_a_cancel() {
    explore(|| {
        let world = SchedulerModel::new(2, function(0, true));
        let batch = world.scheduler.submit(spec(2, 2)).unwrap();
        world.lane.take().expect("both were handed out").complete(0, Cell::Value(1.0), RAN);
        let lane = world.clone();
        let complete = Box::new(move || {
            if let Some(mut frame) = lane.lane.take() {
                frame.complete(0, Cell::Value(f64::NAN), RAN);
            }
        });
        let (other, cancelled) = (world.clone(), batch.clone());
        beside(vec![complete, Box::new(move || other.scheduler.cancel(&cancelled, "stop"))]);
        assert!(batch.is_done());
        let both = [0, 1].map(|sample| status(&batch, sample));
        assert!(both.contains(&Status::Cancelled), "{both:?}");
        world.close();
    });
}

#[test]
fn no_work_waits_while_a_lane_has_room() {
    explore(|| {
        let world = SchedulerModel::new(1, function(0, false));
        let batch = world.scheduler.submit(spec(4, 1)).unwrap();
        let complete = || {
            let world = world.clone();
            Box::new(move || {
                if let Some(mut frame) = world.lane.take() {
                    frame.complete(0, Cell::Value(1.0), RAN);
                }
            }) as Box<dyn FnOnce() + Send>
        };
        beside(vec![complete(), complete()]);
        let mut completed = (0..4).filter(|sample| batch.cell(*sample, 0).is_some()).count();
        while completed < 4 {
            let mut frame = world.lane.take().expect("work waits, and the lane has room");
            frame.complete(0, Cell::Value(1.0), RAN);
            completed += 1;
        }
        assert!(batch.is_done());
        world.close();
    });
}

/// Calls end on threads that hand out one frame at most: the rest has been left to `keep_time`,
/// which was notified.
#[test]
fn work_left_by_a_shared_thread_is_reported() {
    explore(|| {
        let world = SchedulerModel::with_lane(2, 1, true, vec![function(0, false)]);
        let batch = world.scheduler.submit(spec(5, 1)).unwrap();
        let complete = || {
            let world = world.clone();
            Box::new(move || {
                if let Some(mut frame) = world.lane.take() {
                    frame.complete(0, Cell::Value(1.0), RAN);
                }
            }) as Box<dyn FnOnce() + Send>
        };
        let timekeeper = world.clone();
        beside(vec![
            complete(),
            complete(),
            Box::new(move || {
                timekeeper.scheduler.keep_time_once();
            }),
        ]);
        while !batch.is_done() {
            while world.scheduler.keep_time_once() {}
            let mut frame = world.lane.take().expect("work waits, the lane has room, and nobody was told");
            frame.complete(0, Cell::Value(1.0), RAN);
        }
        world.close();
    });
}

/// Batches come while calls of another end, and one is cancelled: each batch that has calls to hand
/// out is in the set that is searched.
#[test]
fn batches_that_come_beside_an_outcome() {
    explore(|| {
        let world = SchedulerModel::new(1, function(0, false));
        let first = world.scheduler.submit(spec(2, 1)).unwrap();
        let complete = |world: &SchedulerModel| {
            let frame = world.lane.take();
            let some = frame.is_some();
            if let Some(mut frame) = frame {
                frame.complete(0, Cell::Value(1.0), RAN);
            }
            some
        };
        let (ends, submits, cancels) = (world.clone(), world.clone(), world.clone());
        beside(vec![
            Box::new(move || {
                complete(&ends);
            }),
            Box::new(move || drop(submits.scheduler.submit(spec(1, 1)).unwrap())),
            Box::new(move || cancels.scheduler.cancel(&first, "stop")),
        ]);
        while complete(&world) {}
        assert_eq!(world.scheduler.open_batches(), 0, "a batch was not looked at");
        world.close();
    });
}

#[test]
fn a_batch_submitted_beside_the_end_is_cancelled() {
    explore(|| {
        let world = SchedulerModel::new(1, function(0, false));
        let (submitter, closer) = (world.clone(), world.clone());
        let submit = Box::new(move || drop(submitter.scheduler.submit(spec(1, 1)).unwrap()));
        beside(vec![submit, Box::new(move || closer.close())]);
        assert_eq!(world.scheduler.open_batches(), 0);
        world.close();
    });
}
