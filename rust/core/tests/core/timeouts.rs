//! Timeouts, cancellation and retries, to the millisecond of a paused clock.

use std::time::Duration;

use guerdon_core::batch::{Batch, BatchSpec};
use guerdon_core::function::{Function, Policy, Shape};
use guerdon_core::outcome::{Cell, Failure, FailureKind, Status};
use guerdon_testkit::{Act, Ask, Rig, Room, done, failure, function, returns, spec};

const MS: Duration = Duration::from_millis(1);
const GRAIN: Duration = Duration::from_millis(2);

fn with(policy: impl FnOnce(&mut Policy)) -> Function {
    let mut function = function("f", Shape::Sample);
    policy(&mut function.policy);
    function
}

fn one_at_a_time() -> Room {
    Room { places: 1, frame_calls: 1, ..Room::default() }
}

fn value(after: Duration) -> Act {
    returns(after, 1, 1.0)
}

fn took(batch: &Batch) -> Duration {
    Duration::from_nanos(batch.elapsed_ns())
}

fn status(batch: &Batch, sample: usize) -> (Status, u16) {
    let cell = batch.cell(sample, 0).expect("the cell is complete");
    (cell.outcome.status, cell.attempts)
}

fn reason(batch: &Batch, sample: usize) -> String {
    batch.note_of(sample, 0).expect("a failed cell has a note").reason
}

#[tokio::test(start_paused = true)]
async fn a_total_timeout_counts_the_queue_and_spares_what_was_in_time() {
    let function = with(|policy| policy.total_timeout = Some(250 * MS));
    let engine = Rig::new(one_at_a_time(), vec![function], |_: &Ask| value(100 * MS));
    let batch = engine.run(spec(4, 1)).await;
    assert_eq!(
        [0, 1, 2, 3].map(|sample| status(&batch, sample).0),
        [Status::Ok, Status::Ok, Status::Timeout, Status::Timeout]
    );
    assert_eq!(reason(&batch, 2), "total timeout");
    assert!(took(&batch) >= 250 * MS && took(&batch) <= 250 * MS + GRAIN, "{:?}", took(&batch));
}

#[tokio::test(start_paused = true)]
async fn a_total_timeout_ends_its_function_alone_and_a_batch_timeout_ends_all() {
    let functions = vec![with(|policy| policy.total_timeout = Some(50 * MS)), with(|_| {})];
    let engine = Rig::new(Room::default(), functions, |_: &Ask| Act::Hang);
    let batch = engine.run(BatchSpec { batch_timeout_ns: Some(150_000_000), ..spec(1, 1) }).await;
    assert!(took(&batch) >= 150 * MS && took(&batch) <= 150 * MS + GRAIN, "{:?}", took(&batch));
    let whys = [0, 1].map(|function| batch.note_of(0, function).unwrap().reason);
    assert_eq!(whys, ["total timeout", "batch timeout"]);
}

#[tokio::test(start_paused = true)]
async fn a_lane_stops_what_was_swept_and_an_outcome_that_comes_all_the_same_is_dropped() {
    let function = with(|policy| policy.total_timeout = Some(50 * MS));
    let engine = Rig::new(Room::default(), vec![function], |ask: &Ask| match ask.first {
        0 => Act::Hang,
        _ => Act::Late { after: 400 * MS, cells: vec![Cell::Value(7.0)] },
    });
    let batch = engine.run(spec(2, 1)).await;
    tokio::time::sleep(1000 * MS).await;
    assert_eq!([0, 1].map(|sample| status(&batch, sample)), [(Status::Timeout, 1); 2]);
    assert_eq!(engine.late_outcomes(), 1);
    let hung = engine.log().calls().into_iter().find(|call| call.first == 0).unwrap();
    assert!(Duration::from_nanos(hung.ended_ns - hung.started_ns) <= 80 * MS, "{hung:?}");
    assert_eq!(engine.lane.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_batch_ends_at_once_and_the_next_runs() {
    let engine = Rig::new(Room::default(), vec![with(|_| {})], |ask: &Ask| match ask.batch {
        1 => Act::Hang,
        _ => value(MS),
    });
    let batch = engine.submit(spec(4, 2));
    tokio::time::sleep(10 * MS).await;
    engine.cancel(&batch, "Ctrl-C");
    assert!(batch.is_done());
    assert_eq!((status(&batch, 7), reason(&batch, 7)), ((Status::Cancelled, 1), "Ctrl-C".to_owned()));
    let next = engine.run(spec(4, 2)).await;
    assert_eq!(status(&next, 7), (Status::Ok, 1));
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_waits_is_swept() {
    let function = with(|policy| policy.retries = 5);
    let later = Failure { retry_after: Some(Duration::from_secs(60)), ..failure(FailureKind::Error) };
    let act = move |_: &Ask| Act::Fail { after: MS, failure: later.clone() };
    let engine = Rig::new(Room::default(), vec![function], act);
    let batch = engine.submit(spec(1, 1));
    tokio::time::sleep(Duration::from_secs(30)).await;
    engine.cancel(&batch, "stop");
    assert_eq!(status(&batch, 0), (Status::Cancelled, 2));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(engine.log().calls().len(), 1, "the second attempt was made after all");
}

#[tokio::test(start_paused = true)]
async fn on_a_closed_engine_cells_are_cancelled() {
    let engine = Rig::new(Room::default(), vec![with(|_| {})], |_: &Ask| Act::Hang);
    let open = engine.submit(spec(2, 1));
    engine.close().await;
    let after = engine.submit(spec(2, 1));
    assert!(open.is_done() && after.is_done());
    assert_eq!([&open, &after].map(|batch| status(batch, 1).0), [Status::Cancelled; 2]);
    assert_eq!(engine.lane.held(), 0);
    engine.close().await;
}

#[tokio::test(start_paused = true)]
async fn retries_wait_between_attempts_and_then_the_last_failure_stands() {
    let function = with(|policy| policy.retries = 3);
    let engine = Rig::new(Room::default(), vec![function], |ask: &Ask| match (ask.first, ask.attempt) {
        (0, 3) => value(MS),
        _ => Act::Fail { after: MS, failure: failure(FailureKind::Error) },
    });
    let batch = engine.run(spec(2, 1)).await;
    assert_eq!([0, 1].map(|sample| status(&batch, sample)), [(Status::Ok, 3), (Status::Error, 4)]);
    assert_eq!((reason(&batch, 1).as_str(), batch.note_of(0, 0)), ("Error by script", None));
    assert_eq!(batch.retries_of(0), 5);
    assert!(took(&batch) <= (200 + 400 + 800) * MS + 4 * (MS + GRAIN), "{:?}", took(&batch));
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_worker_died_is_tried_alone_and_its_siblings_are_innocent() {
    let room = Room { places: 1, ..Room::default() };
    let engine = Rig::new(room, vec![with(|_| {})], |ask: &Ask| match ask.first {
        2 => Act::Crash { after: MS },
        _ => value(MS),
    });
    let batch = engine.run(spec(16, 1)).await;
    assert_eq!(status(&batch, 2), (Status::Crashed, 2));
    assert!((0..16).filter(|sample| *sample != 2).all(|sample| status(&batch, sample) == (Status::Ok, 1)));
    let frames = engine.log().frames();
    let alone: Vec<_> = frames.iter().filter(|frame| frame.alone).map(|frame| frame.calls.clone()).collect();
    assert_eq!(alone, [vec![(2, 2)]]);
    assert_eq!(engine.log().calls().len(), 17, "a sibling ran twice");
}

#[tokio::test(start_paused = true)]
async fn the_second_try_does_not_wait_for_the_rest_of_an_event_loops_frame() {
    let room = Room { at_once: true, ..Room::default() };
    let engine =
        Rig::new(room, vec![with(|policy| policy.timeout = 60_000 * MS)], |ask: &Ask| match (ask.first, ask.attempt) {
            (0, 1) => Act::Crash { after: MS },
            (0, _) => value(MS),
            _ => value(30_000 * MS),
        });
    let batch = engine.submit(spec(2, 1));
    tokio::time::sleep(100 * MS).await;
    assert_eq!(status(&batch, 0), (Status::Ok, 2));
    assert!(done(&batch).await);
}

#[tokio::test(start_paused = true)]
async fn there_is_no_attempt_past_the_total_timeout() {
    let function = with(|policy| (policy.retries, policy.total_timeout) = (3, Some(1000 * MS)));
    let later = Failure { retry_after: Some(Duration::from_secs(2)), ..failure(FailureKind::Error) };
    let act = move |_: &Ask| Act::Fail { after: MS, failure: later.clone() };
    let engine = Rig::new(Room::default(), vec![function], act);
    let batch = engine.run(spec(1, 1)).await;
    assert_eq!((status(&batch, 0), reason(&batch, 0)), ((Status::Error, 1), "Error by script".to_owned()));
    assert!(took(&batch) < 10 * MS, "nothing was left to wait for");
}

#[tokio::test(start_paused = true)]
async fn an_idle_engine_does_nothing() {
    let function = with(|policy| (policy.retries, policy.total_timeout) = (3, Some(Duration::from_secs(600))));
    let engine = Rig::new(Room::default(), vec![function], |_: &Ask| value(MS));
    engine.run(spec(16, 4)).await;
    tokio::time::sleep(MS).await;
    let asked = engine.lane.asked();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(engine.lane.asked(), asked, "it looked for work that nobody gave");
}
