//! A lane that does what a test does, and an engine with one function that gathers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use guerdon_core::batch::{Batch, BatchSpec};
use guerdon_core::call::CallKind;
use guerdon_core::frame::Frame;
use guerdon_core::function::{Function, FunctionId, Gather, Policy, Shape};
use guerdon_core::lane::{CloseFuture, Lane, LaneWaker};
use guerdon_core::open_batch::Placement;
use guerdon_core::outcome::{Cell, Times};
use guerdon_core::scheduler::Scheduler;
use guerdon_testkit::{Rig, function, spec};
use parking_lot::Mutex;

pub const RAN: Times = Times { started_ns: 1, run_ns: 1 };
pub const WAIT: Duration = Duration::from_millis(50);

/// A lane that holds one frame for the test to take.
#[derive(Default)]
pub struct Holding {
    frame: Mutex<Option<Frame>>,
    blocked: AtomicBool,
    panics: AtomicBool,
}

impl Lane for Holding {
    fn attach(&self, _: LaneWaker) {}

    fn room(&self, _: FunctionId) -> usize {
        usize::from(!self.blocked.load(Ordering::Relaxed) && self.frame.lock().is_none())
    }

    fn parallelism(&self, _: FunctionId) -> usize {
        1
    }

    fn pool(&self, _: FunctionId) -> usize {
        0
    }

    fn frame_calls(&self, _: FunctionId) -> usize {
        usize::MAX
    }

    fn run(&self, frame: Frame) {
        if self.panics.swap(false, Ordering::Relaxed) {
            drop(frame);
            std::panic::resume_unwind(Box::new("asked for")); // without its message
        }
        *self.frame.lock() = Some(frame);
    }

    fn close(&self) -> CloseFuture {
        drop(self.take());
        Box::pin(std::future::ready(()))
    }
}

impl Holding {
    pub fn take(&self) -> Option<Frame> {
        self.frame.lock().take()
    }

    /// Has no room until `unblock`.
    pub fn block(&self) {
        self.blocked.store(true, Ordering::Relaxed);
    }

    pub fn unblock(&self) {
        self.blocked.store(false, Ordering::Relaxed);
    }

    /// Panics at the next frame.
    pub fn panic_next(&self) {
        self.panics.store(true, Ordering::Relaxed);
    }

    /// Takes the frame that is there; its samples.
    pub fn call(&self) -> (Frame, Vec<usize>) {
        let frame = self.take().expect("a frame was handed out");
        assert_eq!((frame.kind(), frame.len()), (CallKind::Gathered, 1));
        let samples: Vec<usize> = frame.samples(0).collect();
        assert_eq!((frame.size(0), frame.first(0)), (samples.len(), samples[0]));
        (frame, samples)
    }

    /// Takes the frame that is there; its samples, each with its batch.
    pub fn mixed(&self) -> (Frame, Vec<(u64, usize)>) {
        let (frame, _) = self.call();
        let samples = places(&frame);
        (frame, samples)
    }
}

pub fn gathering(max_size: usize, policy: impl FnOnce(&mut Policy)) -> (Scheduler, Arc<Holding>) {
    engine(max_size, |function| policy(&mut function.policy))
}

pub fn engine(max_size: usize, change: impl FnOnce(&mut Function)) -> (Scheduler, Arc<Holding>) {
    let gather = Some(Gather { max_size, max_wait: WAIT, across: true });
    let mut spec = Function { gather, ..function("f", Shape::Sample) };
    change(&mut spec);
    let Rig { engine, lane } = Rig::on(Arc::<Holding>::default(), vec![spec]);
    (engine, lane)
}

pub fn open(engine: &Scheduler, max_pending: Option<usize>) -> Arc<Batch> {
    engine.submit(BatchSpec { samples: 0, group_size: 2, streamed: true, max_pending, ..spec(0, 1) }).unwrap()
}

pub fn add(engine: &Scheduler, batch: &Arc<Batch>, samples: usize) {
    let added = batch.reserve(&Placement::InOrder(samples)).unwrap();
    engine.add(batch, &added);
}

pub fn give(frame: &mut Frame, samples: &[usize]) {
    frame.complete_many(0, samples.iter().map(|sample| Cell::Value(*sample as f64)).collect(), RAN);
}

/// An engine whose only place is taken by a batch of one sample: what comes after it waits.
pub fn occupied(max_size: usize) -> (Scheduler, Arc<Holding>, Frame) {
    let (engine, lane) = gathering(max_size, |_| {});
    let frame = occupy(&engine, &lane);
    (engine, lane, frame)
}

pub fn occupy(engine: &Scheduler, lane: &Holding) -> Frame {
    engine.submit(spec(1, 1)).unwrap();
    let frame = lane.take().expect("the lane was empty");
    // The lane seems to have the frame still: calls that are submitted now find no room.
    lane.block();
    frame
}

pub fn free(lane: &Holding, mut frame: Frame) {
    lane.unblock();
    give_worth(&mut frame);
}

/// The samples of a frame, each with its batch.
pub fn places(frame: &Frame) -> Vec<(u64, usize)> {
    let slice = |slice: usize| frame.slices()[slice].batch().id();
    frame.samples_by_slice(0).map(|(number, sample)| (slice(number), sample)).collect()
}

/// What a sample of a batch is worth.
pub fn worth((batch, sample): (u64, usize)) -> f64 {
    (batch * 1000 + sample as u64) as f64
}

/// Ends a call: each sample has its worth.
pub fn give_worth(frame: &mut Frame) {
    let cells = places(frame).into_iter().map(|place| Cell::Value(worth(place))).collect();
    frame.complete_many(0, cells, RAN);
}

pub async fn sleep(time: Duration) {
    tokio::time::sleep(time).await;
}
