//! Lanes whose calls run side by side, as on an event loop: the scheduler's order holds for what
//! waits.

use std::time::Duration;

use guerdon_core::batch::Batch;
use guerdon_core::call::CallKind;
use guerdon_core::function::{Function, Shape};
use guerdon_core::outcome::FailureKind;
use guerdon_core::scheduler::Scheduler;
use guerdon_testkit::{Act, Ask, Rig, Room, Script, done, failure, function, returns, spec};

const SECOND: Duration = Duration::from_secs(1);
const SECOND_NS: u64 = 1_000_000_000;
const WIDTH: usize = 256;

/// An engine of one function, `WIDTH` calls of it at a time.
fn world(function: Function, script: impl Script) -> Rig {
    let room = Room { places: usize::MAX, at_once: true, width: Some(WIDTH), ..Room::default() };
    Rig::new(room, vec![function], script)
}

async fn first_group(batch: &Batch, engine: &Scheduler) -> (usize, u64) {
    loop {
        if let Some(group) = batch.take_group() {
            return (group, engine.clock().now_ns() - batch.submitted_ns());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_group_does_not_wait_for_the_backlog() {
    let finish = Function { finish: true, ..function("f", Shape::Sample) };
    let engine = world(finish, |ask: &Ask| {
        let after = if ask.kind == CallKind::Finish { Duration::ZERO } else { SECOND };
        returns(after, ask.samples, 1.0)
    });
    let batch = engine.submit(spec(512, 8));
    let (group, after_ns) = first_group(&batch, &engine).await;
    assert!(done(&batch).await);
    engine.close().await;
    let all_ns = batch.elapsed_ns();
    // Its calls end after one second.
    assert!(group < WIDTH / 8 && after_ns < 2_200_000_000, "group {group} came after {after_ns} ns");
    assert!(all_ns < 17_500_000_000, "4096 calls, 256 at a time, took {all_ns} ns");
}

#[tokio::test(start_paused = true)]
async fn a_retry_goes_before_the_backlog_of_a_newer_batch() {
    let mut retried = function("f", Shape::Sample);
    retried.policy.retries = 1;
    let engine = world(retried, |ask: &Ask| {
        if ask.batch == 1 && ask.attempt == 1 && ask.first < 8 {
            return Act::Fail { after: SECOND, failure: failure(FailureKind::Error) };
        }
        returns(SECOND, ask.samples, 1.0)
    });
    let older = engine.submit(spec(32, 8));
    let newer = engine.submit(spec(256, 8));
    assert!(done(&older).await && done(&newer).await);
    let calls = engine.log().calls();
    let began = calls.iter().map(|call| call.started_ns).min().unwrap();
    let again = calls.iter().filter(|call| call.attempt == 2).map(|call| call.started_ns).max().unwrap();
    // Failed after one second, deferred for 0.2 s at most, then there is a place each second.
    assert!(again - began < 3 * SECOND_NS + SECOND_NS / 2, "retried {} ns after the start", again - began);
    engine.close().await;
}

#[tokio::test(start_paused = true)]
async fn the_lane_has_what_it_runs_and_little_more() {
    let engine = world(function("f", Shape::Sample), |ask: &Ask| returns(SECOND, ask.samples, 1.0));
    let batch = engine.submit(spec(512, 8));
    for second in 1..=14_u32 {
        tokio::time::sleep(SECOND).await;
        let handed: usize = engine.log().frames().iter().map(|frame| frame.calls.len()).sum();
        let ended = engine.log().calls().len();
        assert!(handed - ended <= 2 * WIDTH, "{} with the lane after {second} s", handed - ended);
        assert!(handed - ended >= WIDTH, "{} with the lane after {second} s", handed - ended);
    }
    assert!(done(&batch).await);
    assert_eq!(engine.log().peak(0), WIDTH);
    engine.close().await;
}

#[tokio::test(start_paused = true)]
async fn cheap_calls_come_in_few_frames() {
    let engine = world(function("f", Shape::Sample), |ask: &Ask| returns(Duration::ZERO, ask.samples, 1.0));
    for _ in 0..2 {
        engine.run(spec(512, 8)).await;
    }
    engine.close().await;
    let frames = engine.log().frames();
    let second = frames.iter().filter(|frame| frame.batch == 2).count();
    assert!(second <= 8, "{second} frames of a batch of 4096 calls");
}

#[tokio::test(start_paused = true)]
async fn returned_or_lost_frames_are_counted_once() {
    let engine = world(function("f", Shape::Sample), |ask: &Ask| match (ask.first % 7, ask.handed) {
        (0, 0) => Act::GiveBack,
        (1, 0) => Act::Fail { after: Duration::ZERO, failure: failure(FailureKind::Error) },
        _ => returns(Duration::from_millis(3), ask.samples, 1.0),
    });
    for _ in 0..3 {
        engine.run(spec(256, 8)).await;
    }
    assert!(engine.log().peak(0) <= WIDTH);
    engine.close().await;
}
