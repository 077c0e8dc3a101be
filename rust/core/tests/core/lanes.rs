//! What a lane may do wrong without harm to anything but its own call, and bad batches.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use guerdon_core::batch::{Batch, BatchSpec};
use guerdon_core::delivery::Delivery;
use guerdon_core::frame::Frame;
use guerdon_core::function::{Function, FunctionId, Shape};
use guerdon_core::in_flight::{InFlight, InFlightCall, Location, Phase, Stack};
use guerdon_core::lane::{CloseFuture, Lane, LaneWaker, in_flight_elsewhere};
use guerdon_core::outcome::{Cell, Failure, FailureKind, Status, Times, Traceback};
use guerdon_core::scheduler::Scheduler;
use guerdon_testkit::{Act, Ask, InlineLane, Rig, Room, done, failure, function, paused, returns, spec};
use parking_lot::Mutex;

const RAN: Times = Times { started_ns: 1, run_ns: 1 };

/// A lane that holds frames for the test to take.
#[derive(Default)]
struct Holding {
    frames: Mutex<Vec<Frame>>,
    places: AtomicUsize,
    waker: Mutex<Option<LaneWaker>>,
    /// A frame in whose calls some have ended.
    ended: Mutex<Option<Frame>>,
    /// What its processes say they have in hand.
    in_hand: Vec<InFlight>,
    /// One of them never answers: what it was asked with.
    silent: Option<Mutex<Vec<Sender<InFlight>>>>,
}

impl Lane for Holding {
    fn attach(&self, waker: LaneWaker) {
        *self.waker.lock() = Some(waker);
    }

    fn room(&self, _: FunctionId) -> usize {
        self.places.load(Ordering::SeqCst) - self.frames.lock().len()
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
        self.frames.lock().push(frame);
    }

    fn complete_ended(&self) {
        self.ended.lock().iter_mut().for_each(Frame::complete_ended);
    }

    fn ask_in_flight(&self, _: Duration, answer: &Sender<InFlight>) {
        self.in_hand.iter().for_each(|one| answer.send(one.clone()).unwrap());
        self.silent.iter().for_each(|kept| kept.lock().push(answer.clone()));
    }

    fn close(&self) -> CloseFuture {
        let frames = std::mem::take(&mut *self.frames.lock());
        drop(frames);
        Box::pin(std::future::ready(()))
    }
}

/// An engine with a lane that holds one frame.
fn holding(functions: Vec<Function>) -> (Scheduler, Arc<Holding>) {
    let lane = Arc::new(Holding { places: AtomicUsize::new(1), ..Holding::default() });
    let Rig { engine, lane } = Rig::on(lane, functions);
    (engine, lane)
}

impl Holding {
    fn take(&self) -> Frame {
        self.frames.lock().pop().expect("a frame was handed out")
    }
}

fn statuses(batch: &Batch) -> Vec<Option<Status>> {
    (0..batch.samples()).map(|sample| batch.cell(sample, 0).map(|cell| cell.outcome.status)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_call_is_ended_once() {
    let (engine, lane) = holding(vec![function("f", Shape::Sample)]);
    let batch = engine.submit(spec(3, 1)).unwrap();
    let mut frame = lane.take();
    frame.complete(0, Cell::Value(1.0), RAN);
    frame.complete(0, Cell::Value(2.0), RAN);
    frame.fail(0, failure(FailureKind::Error), RAN);
    frame.give_back(0..1);
    assert!(!frame.is_pending(0) && frame.is_pending(1));
    assert_eq!(batch.shown(0, 0), (1.0, Status::Ok));
    assert_eq!(engine.late_outcomes(), 0);
    frame.give_back(1..2);
    let again = lane.take();
    assert_eq!((again.len(), again.first(0), again.size(0)), (1, 1, 1));
    drop(frame);
    // The calls that the first frame dropped come in a separate frame.
    assert_eq!(lane.take().first(0), 2);
}

#[test]
fn ended_calls_are_completed_together_soon() {
    const LONG: Times = Times { started_ns: 1, run_ns: 1_000_000 };
    paused(async {
        let (engine, lane) = holding(vec![function("f", Shape::Sample)]);
        let batch = engine.submit(spec(6, 1)).unwrap();
        let mut frame = lane.take();
        assert_eq!(frame.len(), 6);
        frame.complete_soon(0, 1.0, RAN);
        frame.complete_soon(0, 2.0, RAN);
        frame.complete_soon(1, f64::NAN, RAN);
        frame.give_back(0..2);
        assert!(!frame.is_pending(0) && !frame.is_pending(1));
        assert_eq!((statuses(&batch)[..2].to_vec(), batch.take_group()), (vec![None; 2], None));
        frame.complete_ended();
        assert_eq!([batch.take_group(), batch.take_group(), batch.take_group()], [Some(0), Some(1), None]);
        assert_eq!((batch.shown(0, 0), batch.shown(1, 0).1), ((1.0, Status::Ok), Status::Error));
        assert!(batch.note_of(1, 0).unwrap().reason.starts_with("returned NaN"));
        frame.complete_soon(2, 1.0, RAN);
        frame.complete_soon(3, 1.0, LONG);
        assert_eq!(statuses(&batch)[2..4], [Some(Status::Ok); 2]);
        frame.complete_soon(4, 1.0, RAN);
        engine.cancel(&batch, "stop");
        frame.complete_soon(5, 1.0, RAN);
        drop(frame);
        assert_eq!(statuses(&batch)[4..], [Some(Status::Cancelled); 2]);
        assert_eq!((engine.late_outcomes(), engine.open_batches()), (2, 0));
    });
}

#[test]
fn ended_calls_are_completed_before_open_ones_are_ended() {
    fn ends(spec: BatchSpec, policy: impl FnOnce(&mut Function), end: impl AsyncFnOnce(&Scheduler, &Arc<Batch>)) {
        paused(async {
            let mut one = function("f", Shape::Sample);
            policy(&mut one);
            let (engine, lane) = holding(vec![one]);
            let batch = engine.submit(spec).unwrap();
            let mut frame = lane.take();
            frame.complete_soon(0, 1.0, RAN);
            *lane.ended.lock() = Some(frame);
            end(&engine, &batch).await;
            assert!(done(&batch).await);
            assert_eq!(batch.shown(0, 0), (1.0, Status::Ok));
            assert_ne!(batch.shown(1, 0).1, Status::Ok);
            assert_eq!(engine.late_outcomes(), 0);
            *lane.ended.lock() = None;
        });
    }
    ends(spec(2, 1), |_| {}, async |engine, batch| engine.cancel(batch, "stop"));
    ends(spec(2, 1), |_| {}, async |engine, _| engine.close().await);
    ends(BatchSpec { batch_timeout_ns: Some(1_000_000_000), ..spec(2, 1) }, |_| {}, async |_, _| {});
    ends(BatchSpec { delivery: Delivery::timeout_ns(1_000_000_000), ..spec(2, 1) }, |_| {}, async |_, _| {});
    ends(spec(2, 1), |one| one.policy.total_timeout = Some(Duration::from_secs(1)), async |_, _| {});
}

#[tokio::test(start_paused = true)]
async fn dropped_frames_free_their_place_and_lose_no_call() {
    let mut limited = function("f", Shape::Sample);
    limited.policy.concurrency = Some(1);
    let (engine, lane) = holding(vec![limited]);
    let batch = engine.submit(spec(4, 2)).unwrap();
    for _ in 0..10 {
        drop(lane.take());
    }
    let mut frame = lane.take();
    for call in 0..frame.len() {
        assert_eq!(frame.attempt(call), 1);
        frame.complete(call, Cell::Abstained, RAN);
    }
    drop(frame);
    assert_eq!(statuses(&batch), [Some(Status::Abstained); 8]);
    assert_eq!(engine.open_batches(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_frame_that_gave_all_back_counts_no_more_though_it_is_held() {
    let mut limited = function("f", Shape::Sample);
    limited.policy.concurrency = Some(1);
    let (engine, lane) = holding(vec![limited]);
    let batch = engine.submit(spec(2, 1)).unwrap();
    let (mut first, mut held) = (lane.take(), Vec::new());
    for _ in 0..3 {
        let calls = first.len();
        first.give_back(0..1);
        assert!(lane.frames.lock().is_empty(), "its other call is in hand");
        first.give_back(1..calls);
        drop(first);
        let mut second = lane.take();
        second.give_back(0..second.len());
        held.push(second);
        first = lane.take(); // though the second is there
        assert!(lane.frames.lock().is_empty());
    }
    drop(held);
    assert!(lane.frames.lock().is_empty(), "they have no place to free any more");
    for call in 0..first.len() {
        first.complete(call, Cell::Abstained, RAN);
    }
    drop(first);
    assert_eq!(statuses(&batch), [Some(Status::Abstained); 2]);
    assert_eq!(engine.open_batches(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_panics_loses_nothing() {
    let engine = Rig::new(Room::default(), vec![function("f", Shape::Sample)], |ask: &Ask| match ask.handed {
        0 if ask.first % 7 == 3 => Act::Panic,
        _ => returns(Duration::ZERO, 1, 1.0),
    });
    let batch = engine.run(spec(20, 2)).await;
    assert_eq!(statuses(&batch), [Some(Status::Ok); 40]);
}

#[tokio::test(start_paused = true)]
async fn a_lane_that_panics_breaks_its_function_and_nothing_else() {
    let lane = InlineLane::new(usize::MAX, |mut frame: Frame| {
        if frame.function_id() == 0 {
            std::panic::resume_unwind(Box::new("by test"));
        }
        (0..frame.len()).for_each(|call| frame.complete(call, Cell::Value(1.0), RAN));
    });
    let functions = vec![function("f", Shape::Sample), function("g", Shape::Sample)];
    let engine = Rig::on(Arc::new(lane), functions);
    for _ in 0..2 {
        let batch = engine.run(spec(2, 2)).await; // the scheduler still hands out
        assert_eq!(statuses(&batch), [Some(Status::Error); 4]);
        assert_eq!(batch.note_of(3, 0).unwrap().reason, "its lane panicked");
        assert_eq!(batch.shown(3, 1), (1.0, Status::Ok));
    }
}

#[tokio::test(start_paused = true)]
async fn late_items_are_dropped_and_counted() {
    let (engine, lane) = holding(vec![function("f", Shape::Sample)]);
    let batch = engine.submit(spec(2, 1)).unwrap();
    let mut frame = lane.take();
    frame.record(0, b"[]".to_vec());
    engine.cancel(&batch, "stop");
    assert!(!frame.is_open(0) && frame.is_pending(0));
    frame.complete(0, Cell::Value(1.0), RAN);
    frame.fail(1, failure(FailureKind::Crashed), RAN);
    drop(frame);
    assert_eq!(statuses(&batch), [Some(Status::Cancelled); 2]);
    assert_eq!(engine.late_outcomes(), 2);
    assert!(batch.records_of(0).is_empty());
    assert!(lane.frames.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn lists_of_the_wrong_length_fail_all_cells_of_the_call() {
    let (engine, lane) = holding(vec![function("f", Shape::Group)]);
    let batch = engine.submit(spec(3, 2)).unwrap();
    let mut frame = lane.take();
    frame.complete_many(0, vec![Cell::Value(1.0); 3], RAN);
    frame.complete(1, Cell::Value(1.0), RAN);
    frame.complete_many(2, vec![Cell::Value(1.0), Cell::Value(f64::INFINITY)], RAN);
    let error = Some(Status::Error);
    assert_eq!(statuses(&batch), [error, error, error, error, Some(Status::Ok), error]);
    let whys = [0, 2, 5].map(|sample| batch.note_of(sample, 0).unwrap().reason);
    assert_eq!(whys[..2], ["returned 3 values for 2 samples", "returned 1 values for 2 samples"]);
    assert!(whys[2].starts_with("returned inf"), "{}", whys[2]);
}

#[tokio::test(start_paused = true)]
async fn a_setup_that_fails_ends_its_function_in_the_batch() {
    let scored = Function { finish: true, ..function("f", Shape::Sample) };
    let (engine, lane) = holding(vec![scored]);
    let batch = engine.submit(spec(2, 2)).unwrap();
    let mut frame = lane.take();
    frame.complete(0, Cell::Value(1.0), RAN);
    frame.fail(1, Failure { retryable: false, ..failure(FailureKind::Timeout) }, RAN);
    frame.fail_setup("no tokenizer".to_owned(), Some("Traceback".to_owned()));
    assert!(batch.is_done());
    drop(frame);
    let error = Some(Status::Error);
    assert_eq!(statuses(&batch), [error, Some(Status::Timeout), error, error]);
    assert_eq!(batch.note_of(3, 0).unwrap().traceback, Some(Traceback::Raised("Traceback".to_owned())));
    // The group's `finish_group` call had been handed out before.
    assert!(!lane.take().is_open(0));
    assert!(lane.frames.lock().is_empty(), "work of a broken function was handed out");
}

#[tokio::test(start_paused = true)]
async fn a_wake_up_hands_out_what_waits() {
    let (engine, lane) = holding(vec![function("f", Shape::Sample)]);
    lane.places.store(0, Ordering::SeqCst);
    let _batch = engine.submit(spec(2, 1)).unwrap();
    assert!(lane.frames.lock().is_empty());
    lane.places.store(1, Ordering::SeqCst);
    let waker = lane.waker.lock().clone().unwrap();
    waker.wake();
    assert_eq!(lane.take().len(), 2);
    drop(engine);
    waker.wake();
}

#[tokio::test(start_paused = true)]
async fn records_are_kept_for_the_attempt_that_counts_in_sample_order() {
    let mut again = function("f", Shape::Sample);
    again.policy.retries = 1;
    let (engine, lane) = holding(vec![again]);
    let batch = engine.submit(spec(3, 1)).unwrap();
    let mut frame = lane.take();
    for (call, completes) in [(2, true), (1, true), (0, false)] {
        frame.record(call, vec![b'0' + call as u8]);
        if completes {
            frame.complete(call, Cell::Value(1.0), RAN);
        } else {
            frame.fail(call, failure(FailureKind::Error), RAN);
        }
    }
    drop(frame);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut frame = lane.take();
    assert_eq!(frame.attempt(0), 2);
    frame.record(0, b"again".to_vec());
    frame.complete(0, Cell::Value(1.0), RAN);
    let records: Vec<_> = batch.records_of(0).into_iter().map(|record| (record.first, record.json)).collect();
    assert_eq!(records, [(0, b"again".to_vec()), (1, b"1".to_vec()), (2, b"2".to_vec())]);
}

#[tokio::test(start_paused = true)]
async fn batches_that_have_no_grid_are_refused_and_empty_ones_are_done() {
    let (engine, lane) = holding(vec![function("f", Shape::Sample)]);
    for (samples, group_size) in [(5, 2), (1, 0)] {
        let refused = engine.submit(BatchSpec { samples, group_size, ..spec(0, 1) });
        assert!(refused.is_err());
    }
    for group_size in [0, 4] {
        let batch = engine.submit(BatchSpec { group_size, ..spec(0, 1) }).unwrap();
        assert!(batch.is_done() && batch.is_exhausted() && batch.take_group().is_none());
    }
    assert_eq!(engine.open_batches(), 0);
    assert!(lane.frames.lock().is_empty());
}

/// A call that a worker process has had for so long.
fn in_worker(pid: i32, age_ns: u64) -> InFlight {
    let samples = std::iter::once(3..4).collect();
    let call = InFlightCall { function: 0, batch: 1, samples, others: vec![], phase: Phase::Call, attempt: 1, age_ns };
    InFlight { call, location: Location::Worker(pid), stack: Stack::Text(String::new()) }
}

#[test]
fn a_process_that_never_answers_costs_the_bound_and_hides_no_other() {
    let silent = Some(Mutex::default());
    let lanes: [Arc<dyn Lane>; 2] = [
        Arc::new(Holding { in_hand: vec![in_worker(1, 5)], silent, ..Holding::default() }),
        Arc::new(Holding { in_hand: vec![in_worker(2, 9), in_worker(3, 2)], ..Holding::default() }),
    ];
    let (start, within) = (Instant::now(), Duration::from_millis(100));
    assert_eq!(in_flight_elsewhere(&lanes, within), [in_worker(2, 9), in_worker(1, 5), in_worker(3, 2)]);
    assert!(start.elapsed() >= within && start.elapsed() < Duration::from_secs(5));
    let start = Instant::now();
    assert_eq!(in_flight_elsewhere(&lanes[1..], Duration::from_secs(30)), [in_worker(2, 9), in_worker(3, 2)]);
    assert!(start.elapsed() < Duration::from_secs(10));
}
