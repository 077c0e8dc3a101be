//! A panic below the scheduler ends the calls that it was about, and no others.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use guerdon_core::batch::{Batch, BatchSpec};
use guerdon_core::call::CallKind;
use guerdon_core::clock::Clock;
use guerdon_core::frame::Frame;
use guerdon_core::frame_runner::{FrameEvent, FrameListener, FrameRunner, HostedFrame};
use guerdon_core::function::{Function, FunctionId, Gather, Shape};
use guerdon_core::lane::{CloseFuture, Lane, LaneWaker};
use guerdon_core::outcome::Status;
use guerdon_core::payload::Payload;
use guerdon_core::scheduler::Scheduler;
use guerdon_testkit::{InstantLane, Samples, done, function, paused, spec};
use tokio::runtime::Handle;

/// As a panic, without its message on stderr.
fn panic_now(why: &'static str) -> ! {
    resume_unwind(Box::new(why))
}

/// Runs calls at once, but for one function, whose room it can't tell.
struct Broken(FunctionId);

impl Lane for Broken {
    fn attach(&self, _: LaneWaker) {}

    fn room(&self, function: FunctionId) -> usize {
        if function == self.0 { panic_now("no room is known") } else { 1 }
    }

    fn parallelism(&self, _: FunctionId) -> usize {
        1
    }

    fn pool(&self, _: FunctionId) -> usize {
        0
    }

    fn frame_calls(&self, _: FunctionId) -> usize {
        4
    }

    fn frame_bytes(&self) -> usize {
        1000
    }

    fn run(&self, frame: Frame) {
        InstantLane { frame_calls: 4 }.run(frame);
    }

    fn close(&self) -> CloseFuture {
        Box::pin(std::future::ready(()))
    }
}

/// Values whose size can't be told.
struct PayloadWithoutSize;

impl Payload for PayloadWithoutSize {
    fn bytes(&self, _: FunctionId, _: u32) -> usize {
        panic_now("no size is known")
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn start(functions: Vec<Function>, lane: impl Lane) -> Scheduler {
    Scheduler::start(&Handle::current(), Clock::start(), functions, vec![Arc::new(lane)])
}

fn statuses(batch: &Batch, function: FunctionId) -> Vec<Status> {
    (0..batch.samples()).map(|sample| batch.cell(sample, function).unwrap().outcome.status).collect()
}

#[test]
fn a_lane_that_panics_over_its_room_breaks_that_function() {
    paused(async {
        let engine = start(vec![function("f", Shape::Sample), function("g", Shape::Sample)], Broken(1));
        for _ in 0..2 {
            let batch = engine.submit(spec(2, 4)).unwrap();
            assert!(done(&batch).await, "nothing is handed out any more");
            assert_eq!(statuses(&batch, 0), [Status::Ok; 8]);
            assert_eq!(statuses(&batch, 1), [Status::Error; 8]);
            let reason = batch.note_of(0, 1).unwrap().reason;
            assert!(reason.contains("no room is known") && reason.contains("report"), "{reason}");
        }
        engine.close().await;
    });
}

#[test]
fn values_that_panic_break_their_batch_alone() {
    paused(async {
        let engine = start(vec![function("f", Shape::Sample)], Broken(9));
        let broken = engine.submit(BatchSpec { payload: Box::new(PayloadWithoutSize), ..spec(2, 4) }).unwrap();
        let sound = engine.submit(spec(2, 4)).unwrap();
        assert!(done(&broken).await && done(&sound).await);
        assert_eq!(statuses(&broken, 0), [Status::Error; 8]);
        assert_eq!(statuses(&sound, 0), [Status::Ok; 8]);
        engine.close().await;
    });
}

/// Says which samples may be gathered, until it panics.
struct PanickingPayload(Arc<AtomicBool>);

impl Payload for PanickingPayload {
    fn mixes(&self, _: FunctionId) -> bool {
        if self.0.load(Ordering::Relaxed) { panic_now("no mixing is known") } else { true }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[test]
fn no_sample_is_lost_where_gathering_panics() {
    paused(async {
        let gather = Some(Gather { max_size: 8, max_wait: Duration::from_millis(5), across: true });
        let engine = start(vec![Function { gather, ..function("f", Shape::Sample) }], Broken(9));
        let panics = Arc::new(AtomicBool::new(true));
        let batches: Vec<Arc<Batch>> = (0..3)
            .map(|_| {
                let payload = Box::new(PanickingPayload(panics.clone()));
                engine.submit(BatchSpec { payload, ..spec(2, 4) }).unwrap()
            })
            .collect();
        for batch in &batches {
            assert!(done(batch).await, "a sample was lost");
        }
        panics.store(false, Ordering::Relaxed);
        let after = engine.submit(BatchSpec { payload: Box::new(PanickingPayload(panics)), ..spec(2, 4) }).unwrap();
        assert!(done(&after).await);
        assert_eq!(statuses(&after, 0), [Status::Ok; 8]);
        engine.close().await;
    });
}

/// Its room can't be told the first time.
#[derive(Default)]
struct BrokenOnce(AtomicBool);

impl Lane for BrokenOnce {
    fn attach(&self, _: LaneWaker) {}

    fn room(&self, _: FunctionId) -> usize {
        if self.0.swap(true, Ordering::SeqCst) { 1 } else { panic_now("no room is known") }
    }

    fn parallelism(&self, _: FunctionId) -> usize {
        1
    }

    fn pool(&self, _: FunctionId) -> usize {
        0
    }

    fn frame_calls(&self, _: FunctionId) -> usize {
        4
    }

    fn run(&self, frame: Frame) {
        InstantLane { frame_calls: 4 }.run(frame);
    }

    fn close(&self) -> CloseFuture {
        Box::pin(std::future::ready(()))
    }
}

struct Deaf;

impl FrameListener for Deaf {
    fn tell(&self, _: u64, _: u64, _: FrameEvent) {}
}

#[test]
fn an_agent_goes_on_after_a_panic_between_two_frames() {
    paused(async {
        let lanes: Vec<Arc<dyn Lane>> = vec![Arc::<BrokenOnce>::default()];
        let functions = vec![function("f", Shape::Sample)];
        let runner = FrameRunner::start(&Handle::current(), Clock::start(), functions, lanes, Arc::new(Deaf));
        let frame = |id| HostedFrame {
            session: 1,
            id,
            function: 0,
            kind: CallKind::Sample,
            calls: 2,
            samples: 1,
            alone: false,
            suspect: false,
            payload: Box::new(Samples { bytes: 4 }),
            scores: Vec::new(),
        };
        let submit = |id| catch_unwind(AssertUnwindSafe(|| runner.submit(frame(id))));
        assert!(submit(1).is_err());
        assert_eq!((submit(2).unwrap(), runner.frames()), (Ok(()), 0), "both frames were run");
    });
}
