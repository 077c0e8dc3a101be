//! Lanes whose calls run side by side, as on an event loop: the scheduler's order holds for what
//! waits.

use std::sync::Arc;
use std::time::Duration;

use guerdon_core::batch::Batch;
use guerdon_core::call::CallKind;
use guerdon_core::clock::Clock;
use guerdon_core::function::{Function, Shape};
use guerdon_core::outcome::{Cell, FailureKind};
use guerdon_core::scheduler::Scheduler;
use guerdon_testkit::{Act, Ask, FakeLane, Room, done, failure, function, paused, spec};

const SECOND: Duration = Duration::from_secs(1);
const SECOND_NS: u64 = 1_000_000_000;
const WIDTH: usize = 256;

struct World {
    engine: Scheduler,
    lane: Arc<FakeLane>,
}

/// An engine of one function, `WIDTH` calls of it at a time.
fn world(function: Function, script: impl Fn(&Ask) -> Act + Send + Sync + 'static) -> World {
    let room = Room { places: usize::MAX, at_once: true, width: Some(WIDTH), ..Room::default() };
    let lane = Arc::new(FakeLane::new(room, script));
    let runtime = tokio::runtime::Handle::current();
    let engine = Scheduler::start(&runtime, Clock::start(), vec![function], vec![lane.clone()]);
    World { engine, lane }
}

fn returns(after: Duration, ask: &Ask) -> Act {
    Act::Return { after, cells: vec![Cell::Value(1.0); ask.samples] }
}

async fn first_group(batch: &Batch, engine: &Scheduler) -> (usize, u64) {
    loop {
        if let Some(group) = batch.take_group() {
            return (group, engine.clock().now_ns() - batch.submitted_ns());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[test]
fn the_first_group_does_not_wait_for_the_backlog() {
    let (group, after_ns, all_ns) = paused(async {
        let finish = Function { finish: true, ..function("f", Shape::Sample) };
        let World { engine, .. } = world(finish, |ask| {
            let after = if ask.kind == CallKind::Finish { Duration::ZERO } else { SECOND };
            returns(after, ask)
        });
        let batch = engine.submit(spec(512, 8)).unwrap();
        let (group, after_ns) = first_group(&batch, &engine).await;
        assert!(done(&batch).await);
        engine.close().await;
        (group, after_ns, batch.elapsed_ns())
    });
    // Its calls end after one second.
    assert!(group < WIDTH / 8 && after_ns < 2_200_000_000, "group {group} came after {after_ns} ns");
    assert!(all_ns < 17_500_000_000, "4096 calls, 256 at a time, took {all_ns} ns");
}

#[test]
fn a_retry_goes_before_the_backlog_of_a_newer_batch() {
    paused(async {
        let mut retried = function("f", Shape::Sample);
        retried.policy.retries = 1;
        let World { engine, lane } = world(retried, |ask| {
            if ask.batch == 1 && ask.attempt == 1 && ask.first < 8 {
                return Act::Fail { after: SECOND, failure: failure(FailureKind::Error) };
            }
            returns(SECOND, ask)
        });
        let older = engine.submit(spec(32, 8)).unwrap();
        let newer = engine.submit(spec(256, 8)).unwrap();
        assert!(done(&older).await && done(&newer).await);
        let calls = lane.log().calls();
        let began = calls.iter().map(|call| call.started_ns).min().unwrap();
        let again = calls.iter().filter(|call| call.attempt == 2).map(|call| call.started_ns).max().unwrap();
        // Failed after one second, deferred for 0.2 s at most, then there is a place each second.
        assert!(again - began < 3 * SECOND_NS + SECOND_NS / 2, "retried {} ns after the start", again - began);
        engine.close().await;
    });
}

#[test]
fn the_lane_has_what_it_runs_and_little_more() {
    paused(async {
        let World { engine, lane } = world(function("f", Shape::Sample), |ask| returns(SECOND, ask));
        let batch = engine.submit(spec(512, 8)).unwrap();
        for second in 1..=14_u32 {
            tokio::time::sleep(SECOND).await;
            let handed: usize = lane.log().frames().iter().map(|frame| frame.calls.len()).sum();
            let ended = lane.log().calls().len();
            assert!(handed - ended <= 2 * WIDTH, "{} with the lane after {second} s", handed - ended);
            assert!(handed - ended >= WIDTH, "{} with the lane after {second} s", handed - ended);
        }
        assert!(done(&batch).await);
        assert_eq!(lane.log().peak(0), WIDTH);
        engine.close().await;
    });
}

#[test]
fn cheap_calls_come_in_few_frames() {
    let frames = paused(async {
        let World { engine, lane } = world(function("f", Shape::Sample), |ask| returns(Duration::ZERO, ask));
        for _ in 0..2 {
            let batch = engine.submit(spec(512, 8)).unwrap();
            assert!(done(&batch).await);
        }
        engine.close().await;
        lane.log().frames()
    });
    let second = frames.iter().filter(|frame| frame.batch == 2).count();
    assert!(second <= 8, "{second} frames of a batch of 4096 calls");
}

#[test]
fn returned_or_lost_frames_are_counted_once() {
    paused(async {
        let World { engine, lane } = world(function("f", Shape::Sample), |ask| match (ask.first % 7, ask.handed) {
            (0, 0) => Act::GiveBack,
            (1, 0) => Act::Fail { after: Duration::ZERO, failure: failure(FailureKind::Error) },
            _ => returns(Duration::from_millis(3), ask),
        });
        for _ in 0..3 {
            let batch = engine.submit(spec(256, 8)).unwrap();
            assert!(done(&batch).await);
        }
        assert!(lane.log().peak(0) <= WIDTH);
        engine.close().await;
    });
}
