//! The order of work, seen from a lane.

use std::sync::Arc;
use std::time::Duration;

use guerdon_core::batch::{Batch, BatchSpec};
use guerdon_core::clock::Clock;
use guerdon_core::function::{Function, Policy, Shape};
use guerdon_core::lane::Lane;
use guerdon_core::scheduler::Scheduler;
use guerdon_testkit::{Ask, FakeLane, FrameSeen, HoldingLane, Rig, Room, Samples, done, function, returns, spec};

const MS: Duration = Duration::from_millis(1);

fn sample_function() -> Function {
    function("f", Shape::Sample)
}

/// Runs batches that are submitted at once, one after another; what the lane saw.
async fn frames(
    room: Room,
    functions: Vec<Function>,
    specs: Vec<BatchSpec>,
    run: impl Fn(&Ask) -> Duration + Send + Sync + 'static,
) -> Vec<FrameSeen> {
    let engine = Rig::new(room, functions, move |ask: &Ask| returns(run(ask), ask.samples, 1.0));
    let batches: Vec<Arc<Batch>> = specs.into_iter().map(|spec| engine.submit(spec)).collect();
    for batch in batches {
        assert!(done(&batch).await);
    }
    let frames = engine.log().frames();
    engine.close().await;
    frames
}

#[tokio::test(start_paused = true)]
async fn the_oldest_batch_goes_first() {
    let room = Room { frame_calls: 4, ..Room::default() };
    let frames = frames(room, vec![sample_function(); 2], vec![spec(8, 4), spec(8, 4), spec(8, 4)], |_| MS).await;
    assert!(frames.is_sorted_by_key(|frame| frame.batch), "{frames:?}");
}

#[tokio::test(start_paused = true)]
async fn a_younger_batch_takes_what_the_older_cannot_use() {
    let mut limited = sample_function();
    limited.policy.concurrency = Some(1);
    let batches = vec![spec(2, 1), spec(2, 1)];
    let frames = frames(Room { frame_calls: 1, ..Room::default() }, vec![limited, sample_function()], batches, |ask| {
        if ask.function == 0 { 100 * MS } else { MS }
    })
    .await;
    let last = |batch: u64, function: usize| {
        frames.iter().rposition(|frame| (frame.batch, frame.function) == (batch, function)).unwrap()
    };
    assert!(last(2, 1) < last(1, 0), "{frames:?}");
}

#[tokio::test(start_paused = true)]
async fn functions_of_a_pool_go_through_the_groups_together() {
    let samples = 400;
    let room = Room { places: 2, frame_calls: 4, ..Room::default() };
    // The first is twenty times as expensive, so that the other could run away from it.
    let run = |ask: &Ask| if ask.function == 0 { 20 * MS } else { MS };
    let frames = frames(room, vec![sample_function(); 2], vec![spec(samples / 4, 4)], run).await;
    let mut handed_out = [0; 2];
    let mut apart = 0;
    for frame in &frames {
        handed_out[frame.function] = frame.calls.last().unwrap().0 + 1;
        if handed_out.iter().all(|until| *until < samples) {
            apart = apart.max(handed_out[0].abs_diff(handed_out[1]));
        }
    }
    // Four frames a worker, and the frame that goes over the edge.
    assert!(apart <= 4 * 2 * 4 + 4, "{apart} samples apart");
}

#[tokio::test(start_paused = true)]
async fn a_function_at_its_limit_holds_nobody_back() {
    let samples = 200;
    let mut limited = sample_function();
    limited.policy = Policy { concurrency: Some(1), timeout: Duration::from_secs(600), ..limited.policy };
    let room = Room { places: 4, frame_calls: 1, ..Room::default() };
    let run = |ask: &Ask| if ask.function == 0 { Duration::from_secs(10) } else { MS };
    let frames = frames(room, vec![limited, sample_function()], vec![spec(samples, 1)], run).await;
    let begin = frames[0].at_ns;
    let last = frames.iter().filter(|frame| frame.function == 1).map(|frame| frame.at_ns).max().unwrap();
    assert!(last - begin < 2_000_000_000, "the free function waited {} ns for the limited one", last - begin);
}

#[tokio::test(start_paused = true)]
async fn lanes_do_not_wait_for_each_other() {
    let slow = |ask: &Ask| returns(if ask.function == 0 { Duration::from_secs(1) } else { MS }, ask.samples, 1.0);
    let lanes = [0, 1].map(|_| Arc::new(FakeLane::new(Room { frame_calls: 1, ..Room::default() }, slow)));
    let functions = vec![sample_function(), Function { lane: 1, ..sample_function() }];
    let runtime = tokio::runtime::Handle::current();
    let as_lanes = lanes.iter().map(|lane| lane.clone() as Arc<dyn Lane>).collect();
    let engine = Scheduler::start(&runtime, Clock::start(), functions, as_lanes);
    let batch = engine.submit(spec(100, 4)).unwrap();
    assert!(done(&batch).await);
    let last = lanes[1].log().frames().last().unwrap().at_ns;
    assert!(last - batch.submitted_ns() < 2_000_000_000, "the fast lane went with the slow one");
}

#[tokio::test(start_paused = true)]
async fn the_longest_goes_first_within_the_window() {
    let room = Room { places: 1, frame_calls: 1, ..Room::default() };
    let run = |ask: &Ask| MS * [5, 40, 10][ask.function];
    let batches = vec![spec(2, 1), spec(2, 1)];
    let frames = frames(room, vec![sample_function(); 3], batches, run).await;
    let second: Vec<usize> = frames.iter().filter(|frame| frame.batch == 2).map(|frame| frame.function).collect();
    assert_eq!(second[..2], [1, 1], "{second:?}");
}

#[tokio::test(start_paused = true)]
async fn nobody_is_passed_over_for_ever() {
    let room = Room { places: 1, frame_calls: 1, ..Room::default() };
    let run = |ask: &Ask| MS * [100, 90, 1][ask.function];
    let frames = frames(room, vec![sample_function(); 3], vec![spec(60, 1)], run).await;
    let order: Vec<usize> = frames.iter().map(|frame| frame.function).collect();
    let all_wait = order.len() * 2 / 3;
    for function in 0..3 {
        let turns: Vec<usize> = (0..all_wait).filter(|at| order[*at] == function).collect();
        let longest = turns.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
        assert!(longest <= 3 + 3, "function {function} waited {longest} frames: {order:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn frames_are_sized_by_expected_cost() {
    let room = Room { places: 1, frame_calls: 64, ..Room::default() };
    let run = |ask: &Ask| if ask.function == 0 { Duration::ZERO } else { 10 * MS };
    let frames = frames(room, vec![sample_function(); 2], vec![spec(1024, 1)], run).await;
    let sizes = |function: usize| -> Vec<usize> {
        frames.iter().filter(|frame| frame.function == function).map(|frame| frame.calls.len()).collect()
    };
    let (cheap, costly) = (sizes(0), sizes(1));
    assert!(cheap[0] <= 8, "nothing was known of it: {cheap:?}");
    assert!(cheap.contains(&64), "{cheap:?}");
    assert!(costly[1..].iter().all(|size| *size == 1), "{costly:?}");
}

#[tokio::test(start_paused = true)]
async fn a_frame_holds_no_more_bytes_than_its_lane_takes() {
    let room = Room { places: 1, frame_calls: 64, frame_bytes: 1000, ..Room::default() };
    let with = |bytes: usize| BatchSpec { payload: Box::new(Samples { bytes }), ..spec(64, 4) };
    let functions = vec![sample_function(), function("g", Shape::Group)];
    let frames = frames(room, functions, vec![with(10), with(100), with(5000)], |_| Duration::ZERO).await;
    let sizes = frames.iter().map(|frame| (frame.batch, frame.function, frame.calls.len())).collect::<Vec<_>>();
    let most = |batch: u64, function: usize| {
        sizes.iter().filter(|size| (size.0, size.1) == (batch, function)).map(|size| size.2).max().unwrap()
    };
    assert_eq!([most(2, 0), most(2, 1), most(3, 0), most(3, 1)], [10, 2, 1, 1], "{sizes:?}");
    assert!(most(1, 0) > 10);
}

#[tokio::test(start_paused = true)]
async fn returned_calls_are_spread_out() {
    let room = Room { places: 4, frame_calls: 16, take_back: 20 * MS, ..Room::default() };
    // One call is slow, in the first frame of the second batch.
    let run = |ask: &Ask| if ask.batch == 2 && ask.first == 0 { 300 * MS } else { MS / 2 };
    let frames = frames(room, vec![sample_function()], vec![spec(64, 1), spec(64, 1)], run).await;
    let slow = frames.iter().find(|frame| frame.batch == 2 && frame.calls[0].0 == 0).unwrap();
    let behind: Vec<usize> = slow.calls[1..].iter().map(|call| call.0).collect();
    assert!(behind.len() >= 2, "{slow:?}");
    let again: Vec<&FrameSeen> =
        frames.iter().filter(|frame| frame.at_ns > slow.at_ns && behind.contains(&frame.calls[0].0)).collect();
    assert!(again.len() >= 2, "{again:?}");
    assert!(again.iter().all(|frame| frame.at_ns - slow.at_ns < 100_000_000), "they waited for the slow one");
}

#[tokio::test(start_paused = true)]
async fn cheap_calls_take_no_more_places_than_keep_the_cores_busy() {
    let Rig { engine, lane } = Rig::on(HoldingLane::with_cores(64, 1, 6), vec![sample_function(); 2]);
    let first = engine.submit(spec(1, 1)).unwrap();
    while lane.complete() {} // their cost is known
    assert!(done(&first).await);
    let batch = engine.submit(spec(50, 1)).unwrap();
    assert_eq!(lane.held(), 6, "of both functions together");
    let mut slow = lane.take().unwrap();
    slow.note_slow();
    assert_eq!(lane.held(), 6, "another one goes in place of a slow one");
    drop(slow);
    assert_eq!(lane.held(), 6, "its end makes no place for a second one");
    while lane.complete() {}
    assert!(done(&batch).await);
}
