//! A panic below the scheduler ends the calls that it was about, and no others.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
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
use guerdon_testkit::{Rig, Samples, done, function, instant_lane, spec, statuses};
use tokio::runtime::Handle;

/// Panics without a message on stderr.
fn panic_now(why: &'static str) -> ! {
    resume_unwind(Box::new(why))
}

/// Runs calls at once; the room of one function can't be told for a number of times.
struct Broken {
    function: FunctionId,
    panics: AtomicUsize,
}

impl Broken {
    fn new(function: FunctionId, panics: usize) -> Arc<Self> {
        Arc::new(Self { function, panics: AtomicUsize::new(panics) })
    }
}

impl Lane for Broken {
    fn attach(&self, _: LaneWaker) {}

    fn room(&self, function: FunctionId) -> usize {
        let left = |left: usize| left.checked_sub(1);
        let panics =
            function == self.function && self.panics.fetch_update(Ordering::SeqCst, Ordering::SeqCst, left).is_ok();
        if panics { panic_now("no room is known") } else { 1 }
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
        instant_lane(4).run(frame);
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

#[tokio::test(start_paused = true)]
async fn a_lane_that_panics_over_its_room_breaks_that_function() {
    let engine = Rig::on(Broken::new(1, usize::MAX), vec![function("f", Shape::Sample), function("g", Shape::Sample)]);
    for _ in 0..2 {
        let batch = engine.run(spec(2, 4)).await;
        assert_eq!(statuses(&batch, 0), [Status::Ok; 8]);
        assert_eq!(statuses(&batch, 1), [Status::Error; 8]);
        let reason = batch.note_of(0, 1).unwrap().reason;
        assert!(reason.contains("no room is known") && reason.contains("report"), "{reason}");
    }
    engine.close().await;
}

#[tokio::test(start_paused = true)]
async fn values_that_panic_break_their_batch_alone() {
    let engine = Rig::on(Broken::new(0, 0), vec![function("f", Shape::Sample)]);
    let broken = engine.submit(BatchSpec { payload: Box::new(PayloadWithoutSize), ..spec(2, 4) });
    let sound = engine.submit(spec(2, 4));
    assert!(done(&broken).await && done(&sound).await);
    assert_eq!(statuses(&broken, 0), [Status::Error; 8]);
    assert_eq!(statuses(&sound, 0), [Status::Ok; 8]);
    engine.close().await;
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

#[tokio::test(start_paused = true)]
async fn no_sample_is_lost_where_gathering_panics() {
    let gather = Some(Gather { max_size: 8, max_wait: Duration::from_millis(5), across: true });
    let engine = Rig::on(Broken::new(0, 0), vec![Function { gather, ..function("f", Shape::Sample) }]);
    let panics = Arc::new(AtomicBool::new(true));
    let batches: Vec<Arc<Batch>> = (0..3)
        .map(|_| {
            let payload = Box::new(PanickingPayload(panics.clone()));
            engine.submit(BatchSpec { payload, ..spec(2, 4) })
        })
        .collect();
    for batch in &batches {
        assert!(done(batch).await, "a sample was lost");
    }
    panics.store(false, Ordering::Relaxed);
    let after = engine.run(BatchSpec { payload: Box::new(PanickingPayload(panics)), ..spec(2, 4) }).await;
    assert_eq!(statuses(&after, 0), [Status::Ok; 8]);
    engine.close().await;
}

struct Deaf;

impl FrameListener for Deaf {
    fn tell(&self, _: u64, _: u64, _: FrameEvent) {}
}

#[tokio::test(start_paused = true)]
async fn an_agent_goes_on_after_a_panic_between_two_frames() {
    let lanes: Vec<Arc<dyn Lane>> = vec![Broken::new(0, 1)];
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
}
