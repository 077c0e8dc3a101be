//! Rubrics, whose columns share one member, on a fake lane and a paused clock.

use std::sync::Arc;
use std::time::Duration;

use guerdon_core::batch::{Batch, BatchSpec};
use guerdon_core::clock::Clock;
use guerdon_core::compose::{ComposeLane, Composite, Criterion};
use guerdon_core::delivery::Delivery;
use guerdon_core::function::{Comparison, Condition, Function, FunctionId, Policy, RunIf, Shape};
use guerdon_core::lane::Lane;
use guerdon_core::limits::{Limit, Rules};
use guerdon_core::open_batch::Placement;
use guerdon_core::outcome::{Answer, Cell, Failure, FailureKind, Status};
use guerdon_core::report::Extra;
use guerdon_core::scheduler::Scheduler;
use guerdon_testkit::{Act, Ask, FakeLane, Rig, Room, Script, done, failure, function, seeds, spec};

const COLUMNS: usize = 3;
const JUDGE: FunctionId = COLUMNS;

/// A rubric of three columns, whose judge is asked once for all, or `in_turn` for each.
fn rig(in_turn: bool, judge: Policy, room: Room, script: impl Script) -> Rig {
    rig_of([const { None }; COLUMNS], in_turn, judge, room, script)
}

/// Like `rig`, with a total timeout for each column.
fn rig_of(bounds: [Option<Duration>; COLUMNS], in_turn: bool, judge: Policy, room: Room, script: impl Script) -> Rig {
    let columns: Arc<[FunctionId]> = (0..COLUMNS).collect();
    let criterion = |place| Criterion { function: JUDGE, columns: columns.clone(), place, in_turn };
    let composites: Vec<_> = (0..COLUMNS).map(|place| Some(Composite::Criterion(criterion(place)))).collect();
    let column = |(place, total_timeout)| Function {
        lane: 1,
        member_calls: criterion(place).calls(),
        policy: Policy { total_timeout, ..policy() },
        ..function(&format!("rubric/{place}"), Shape::Sample)
    };
    let mut functions: Vec<Function> = bounds.into_iter().enumerate().map(column).collect();
    let member = Function { member_of: Some(0), columns, policy: judge, ..function("rubric", Shape::Sample) };
    functions.push(member);
    let (lane, clock) = (Arc::new(FakeLane::new(room, script)), Clock::start());
    let lanes: Vec<Arc<dyn Lane>> = vec![lane.clone(), Arc::new(ComposeLane::new(clock, composites))];
    let engine = Scheduler::start(&tokio::runtime::Handle::current(), clock, functions, lanes);
    Rig { engine, lane }
}

fn policy() -> Policy {
    function("any", Shape::Sample).policy
}

/// The slot of a call in the first batch of criteria that are asked for in turn.
fn slot(ask: &Ask) -> usize {
    usize::try_from(ask.batch - 2).unwrap()
}

/// Scores: the sample in tens, and the place.
fn scores(ask: &Ask, in_turn: bool) -> Vec<Cell> {
    let score = |place| Cell::Value((10 * ask.first + place) as f64);
    if in_turn { vec![score(slot(ask))] } else { (0..COLUMNS).map(score).collect() }
}

fn answers(in_turn: bool) -> impl Script {
    move |ask: &Ask| Act::Return { after: Duration::from_millis(100), cells: scores(ask, in_turn) }
}

fn outcome(batch: &Batch, sample: usize, column: usize) -> (Status, f64) {
    let outcome = batch.cell(sample, column).unwrap().outcome;
    (outcome.status, outcome.value)
}

#[tokio::test(start_paused = true)]
async fn columns_share_the_calls_of_one_judge() {
    for in_turn in [false, true] {
        let room = Room { places: 1, frame_calls: 1, ..Room::default() };
        let rig = rig(in_turn, policy(), room, answers(in_turn));
        let batch = rig.run(spec(4, 2)).await;
        for (sample, column) in (0..8).flat_map(|sample| (0..COLUMNS).map(move |column| (sample, column))) {
            assert_eq!(outcome(&batch, sample, column), (Status::Ok, (10 * sample + column) as f64));
        }
        let reasons = (0..8).map(|sample| (sample, ("reason".into(), Extra::from("so"))));
        assert_eq!(batch.extra_of(2), reasons.collect::<Vec<_>>());
        let mut calls = rig.log().calls();
        calls.sort_by_key(|call| call.started_ns);
        let made: Vec<(usize, u64)> = calls.iter().map(|call| (call.first, call.batch - 2)).collect();
        let slots = if in_turn { 0..3 } else { 0..1 };
        // A server that has seen the text of a sample gets the next request about it soon.
        let expected: Vec<(usize, u64)> =
            (0..8).flat_map(|sample| slots.clone().map(move |slot| (sample, slot))).collect();
        assert_eq!(made, expected);
        let next = rig.submit(spec(1, 1));
        assert_eq!(next.number(), 2);
        assert!(done(&next).await);
        assert_eq!((rig.open_batches(), rig.lane.held()), (0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_call_fails_the_columns_that_it_scores() {
    for in_turn in [false, true] {
        let script = move |ask: &Ask| match (ask.first, in_turn && slot(ask) != 1) {
            (1, false) => Act::Fail { after: Duration::ZERO, failure: failure(FailureKind::Timeout) },
            _ => Act::Return { after: Duration::from_millis(100), cells: scores(ask, in_turn) },
        };
        let rig = rig(in_turn, Policy { retries: 1, ..policy() }, Room::default(), script);
        let batch = rig.run(spec(3, 1)).await;
        for column in 0..COLUMNS {
            assert_eq!(outcome(&batch, 0, column).0, Status::Ok);
            let fails = !in_turn || column == 1;
            assert_eq!(outcome(&batch, 1, column).0, if fails { Status::Timeout } else { Status::Ok });
            let reason = batch.note_of(1, column).map(|note| note.reason);
            assert_eq!(reason, fails.then(|| "Timeout by script (after 2 attempts)".to_owned()));
        }
        let retries: Vec<u32> = (0..COLUMNS).map(|column| batch.retries_of(column)).collect();
        assert_eq!(retries, if in_turn { [0, 1, 0] } else { [1, 0, 0] }, "each request counts once");
    }
}

#[tokio::test(start_paused = true)]
async fn a_judge_whose_setup_fails_fails_once() {
    let rig = rig(true, policy(), Room { places: 1, ..Room::default() }, |_: &Ask| Act::FailSetup);
    let batch = rig.run(spec(20, 1)).await;
    for (sample, column) in (0..20).flat_map(|sample| (0..COLUMNS).map(move |column| (sample, column))) {
        assert_eq!(outcome(&batch, sample, column).0, Status::Error);
        assert_eq!(batch.note_of(sample, column).unwrap().reason, "setup by script");
    }
    assert_eq!(rig.log().frames().len(), 1);
}

/// The end of one column gives up no call that another waits for; that of the last one does.
#[tokio::test(start_paused = true)]
async fn a_call_ends_with_the_last_column_that_waits_for_it() {
    let second = Duration::from_secs(1);
    let bounds = [Some(second), None, Some(3 * second)];
    let room = Room { places: 64, at_once: true, ..Room::default() };
    let slow = |ask: &Ask| Act::Return { after: Duration::from_secs(2), cells: scores(ask, false) };
    let timely = rig_of(bounds, false, policy(), room, slow);
    let batch = timely.run(spec(2, 1)).await;
    let statuses: Vec<Status> = (0..COLUMNS).map(|column| outcome(&batch, 1, column).0).collect();
    assert_eq!(statuses, [Status::Timeout, Status::Ok, Status::Ok]);

    let long = Policy { timeout: Duration::from_secs(3000), ..policy() };
    let hanging = rig_of([Some(second), Some(2 * second), Some(3 * second)], false, long, room, |_: &Ask| Act::Hang);
    let batch = hanging.submit(spec(2, 1));
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert_eq!(hanging.calls_in_flight()[JUDGE], 2, "the last column waits");
    assert!(done(&batch).await);
    tokio::time::sleep(second).await;
    assert_eq!((hanging.lane.held(), hanging.calls_in_flight()), (0, vec![0; COLUMNS + 1]));
}

/// A column that was swept doesn't request the next call, which a later column waits for in turn.
#[tokio::test(start_paused = true)]
async fn a_column_that_was_swept_requests_no_call_in_turn() {
    let second = Some(Duration::from_secs(1));
    let slow = |ask: &Ask| Act::Return { after: Duration::from_secs(2), cells: scores(ask, true) };
    for (bounds, slots) in [([None, second, second], 1), ([None, second, None], 3)] {
        let rig = rig_of(bounds, true, policy(), Room { places: 64, at_once: true, ..Room::default() }, slow);
        let batch = rig.run(spec(2, 1)).await;
        assert_eq!([0, 1].map(|column| outcome(&batch, 1, column).0), [Status::Ok, Status::Timeout]);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(rig.log().calls().len(), 2 * slots);
        assert_eq!((rig.lane.held(), rig.calls_in_flight()), (0, vec![0; COLUMNS + 1]));
    }
}

/// A column that waits for another function holds the call until it ends, begun or not.
#[tokio::test(start_paused = true)]
async fn a_call_ends_with_a_column_that_never_began() {
    const GATE: FunctionId = 2;
    let second = Duration::from_secs(1);
    let columns: Arc<[FunctionId]> = Arc::new([0, 1]);
    let criterion = |place| Criterion { function: 3, columns: columns.clone(), place, in_turn: false };
    let composites: Vec<_> = (0..2).map(|place| Some(Composite::Criterion(criterion(place)))).collect();
    let long = Policy { timeout: Duration::from_secs(3000), ..policy() };
    let column = |place: usize| Function {
        lane: 1,
        member_calls: criterion(place).calls(),
        ..function(&format!("rubric/{place}"), Shape::Sample)
    };
    let waits = Condition { source: GATE, comparison: Comparison::AtLeast, bound: 0.0 };
    let functions = vec![
        Function { policy: Policy { total_timeout: Some(second), ..policy() }, ..column(0) },
        Function { run_if: Some(Arc::new(RunIf { conditions: [waits].into(), otherwise: f32::NAN })), ..column(1) },
        Function { policy: long.clone(), ..function("gate", Shape::Sample) },
        Function { member_of: Some(0), columns, policy: long, ..function("rubric", Shape::Sample) },
    ];
    let room = Room { places: 64, at_once: true, ..Room::default() };
    let (lane, clock) = (Arc::new(FakeLane::new(room, |_: &Ask| Act::Hang)), Clock::start());
    let lanes: Vec<Arc<dyn Lane>> = vec![lane.clone(), Arc::new(ComposeLane::new(clock, composites))];
    let rig = Rig { engine: Scheduler::start(&tokio::runtime::Handle::current(), clock, functions, lanes), lane };
    let delivery = Delivery::timeout_ns(2_000_000_000);
    let batch = rig.submit(BatchSpec { streamed: true, delivery, ..spec(0, 1) });
    rig.add(&batch, Placement::InOrder(1));
    tokio::time::sleep(second / 2 * 3).await;
    rig.add(&batch, Placement::InOrder(1));
    assert_eq!(outcome(&batch, 0, 0).0, Status::Timeout);
    tokio::time::sleep(second / 4).await;
    assert_eq!(rig.calls_in_flight()[3], 2, "the other column of the first sample has not begun");
    tokio::time::sleep(second / 2).await;
    assert_eq!(outcome(&batch, 0, 1).0, Status::Timeout);
    assert_eq!(rig.calls_in_flight()[3], 1);
    rig.cancel(&batch, "by the test");
    assert!(done(&batch).await);
    tokio::time::sleep(second).await;
    assert_eq!((rig.lane.held(), rig.calls_in_flight()), (0, vec![0; 4]));
}

/// Hostile days: every cell gets its outcome or its own score, and nothing is left behind.
#[tokio::test(start_paused = true)]
async fn no_column_is_lost() {
    for seed in seeds(60, 2000) {
        let mut random = fastrand::Rng::with_seed(seed);
        let in_turn = random.bool();
        let script = move |ask: &Ask| {
            let mut random = fastrand::Rng::with_seed(
                seed ^ (ask.first as u64) << 30 ^ ask.batch << 20 ^ u64::from(ask.attempt) << 8 ^ u64::from(ask.handed),
            );
            let after = Duration::from_millis(random.u64(0..300));
            let place = if in_turn { (ask.batch - 1) as usize % (COLUMNS + 1) - 1 } else { 0 };
            let score = |place| Cell::Value((10 * ask.first + place) as f64);
            let cells = if in_turn { vec![score(place)] } else { (0..COLUMNS).map(score).collect() };
            let later = |status| Failure { answer: Some(Answer::Status(status)), ..failure(FailureKind::Error) };
            match random.u32(0..24) {
                0 => Act::Hang,
                1 if ask.handed < 3 => Act::Lose { after },
                2 => Act::Crash { after },
                3 if ask.handed < 3 => Act::GiveBack,
                4 => Act::FailSetup,
                5..=7 => Act::Fail { after, failure: failure(FailureKind::Error) },
                8..=9 => Act::Fail { after, failure: later(429) },
                10 => Act::Fail { after, failure: later(503) },
                11 => Act::Late { after, cells },
                12 => Act::Panic,
                _ => Act::Return { after, cells },
            }
        };
        let room = Room { places: random.usize(1..5), at_once: random.bool(), ..Room::default() };
        let rules = Rules { concurrency: Some(random.usize(1..5)), ..Rules::default() };
        let limit = random.bool().then(|| Limit { rules, ..Limit::default() });
        let judge = Policy { retries: random.u16(0..3), timeout: Duration::from_secs(2), limit, ..policy() };
        let bounds = [(); COLUMNS].map(|()| random.bool().then(|| Duration::from_millis(random.u64(1..4000))));
        let rig = rig_of(bounds, in_turn, judge, room, script);
        let mut batches = Vec::new();
        for _ in 0..3 {
            let batch_timeout_ns = random.bool().then(|| random.u64(1..4_000_000_000));
            let delivery = match random.u32(0..3) {
                0 => Delivery::quorum(1),
                1 => Delivery::timeout_ns(random.u64(1..3_000_000_000)),
                _ => Delivery::default(),
            };
            batches.push(rig.submit(BatchSpec { batch_timeout_ns, delivery, ..spec(6, 2) }));
            tokio::time::sleep(Duration::from_millis(random.u64(0..500))).await;
        }
        if random.bool() {
            rig.cancel(&batches[0], "by the test");
        }
        for batch in &batches {
            assert!(done(batch).await, "seed {seed}: a call was lost");
            for (sample, column) in (0..6).flat_map(|sample| (0..COLUMNS).map(move |column| (sample, column))) {
                let (status, score) = outcome(batch, sample, column);
                assert!(status != Status::Abstained && status != Status::Skipped, "seed {seed}");
                assert!(status != Status::Ok || score == (10 * sample + column) as f64, "seed {seed}: {score}");
            }
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!((rig.lane.held(), rig.open_batches()), (0, 0), "seed {seed}");
        assert_eq!(rig.calls_in_flight(), vec![0; COLUMNS + 1], "seed {seed}");
    }
}
