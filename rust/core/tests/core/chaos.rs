//! Random functions, batches, faults and cancels on fake lanes: what always holds
//! (docs/internals/promises.md), checked against a serial loop.

use std::sync::Arc;
use std::time::Duration;

use guerdon_core::batch::{Batch, BatchSpec};
use guerdon_core::call::CallKind;
use guerdon_core::clock::{Clock, nanos};
use guerdon_core::function::{Function, Policy, Shape};
use guerdon_core::lane::Lane;
use guerdon_core::outcome::Status;
use guerdon_core::scheduler::Scheduler;
use guerdon_testkit::{CallSeen, Chaos, ExpectedCell, FakeLane, Log, Room, done, function, paused, serial, spec};
use proptest::prelude::*;

/// The clock's grain under tokio, and what may be seen late because of it.
const GRAIN_NS: u64 = 2_000_000;
/// A fake lane looks this often whether its call is still open.
const TICK_NS: u64 = 20_000_000;

#[derive(Clone, Debug)]
struct Plan {
    functions: Vec<Function>,
    /// Per lane: places, calls a frame, at once, take back after ms.
    lanes: [(usize, usize, bool, Option<u64>); 2],
    batches: Vec<BatchPlan>,
    chaos: Chaos,
}

#[derive(Clone, Debug)]
struct BatchPlan {
    groups: usize,
    group_size: usize,
    submit_ms: u64,
    budget_ms: Option<u64>,
    cancel_ms: Option<u64>,
}

prop_compose! {
    fn functions()(
        shape in prop_oneof![Just(Shape::Sample), Just(Shape::Sample), Just(Shape::Group), Just(Shape::Batch)],
        finish in prop::bool::weighted(0.3),
        isolated in prop::bool::weighted(0.15),
        lane in 0..2_usize,
        retries in 0..4_u16,
        concurrency in prop::option::weighted(0.25, 1..4_usize),
        timeout_ms in 20..400_u64,
        deadline_ms in prop::option::weighted(0.25, 1..3000_u64),
    ) -> Function {
        let plain = function("f", shape);
        let policy = Policy {
            timeout: Duration::from_millis(timeout_ms),
            total_timeout: deadline_ms.map(Duration::from_millis),
            retries,
            concurrency,
            limit: None,
            ..plain.policy
        };
        Function { finish, isolated, lane, policy, ..plain }
    }
}

prop_compose! {
    fn batches()(
        groups in 0..12_usize,
        group_size in 1..6_usize,
        submit_ms in 0..400_u64,
        budget_ms in prop::option::weighted(0.25, 1..4000_u64),
        cancel_ms in prop::option::weighted(0.25, 0..2000_u64),
    ) -> BatchPlan {
        BatchPlan { groups, group_size, submit_ms, budget_ms, cancel_ms }
    }
}

prop_compose! {
    fn plans()(
        functions in prop::collection::vec(functions(), 1..5),
        workers in (1..4_usize, 1..20_usize, Just(false), prop::option::weighted(0.25, 10..60_u64)),
        other in (1..4_usize, 1..20_usize, any::<bool>(), prop::option::weighted(0.25, 10..60_u64)),
        batches in prop::collection::vec(batches(), 1..4),
        (seed, faults, longest_ms, hangs) in (any::<u64>(), prop_oneof![Just(0), 0..300_u64], 0..300_u64, any::<bool>()),
    ) -> Plan {
        let chaos = Chaos { seed, faults, longest: Duration::from_millis(longest_ms), hangs };
        Plan { functions, lanes: [workers, other], batches, chaos }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_cell_has_one_outcome_and_it_is_the_serial_one(plan in plans()) {
        paused(run(plan));
    }
}

async fn run(plan: Plan) {
    let lanes = plan.lanes.map(|(places, frame_calls, at_once, take_back)| {
        let take_back = take_back.map_or(Duration::MAX, Duration::from_millis);
        let room = Room { places, frame_calls, at_once, take_back, ..Room::default() };
        Arc::new(FakeLane::new(room, plan.chaos.clone()))
    });
    let as_lanes = lanes.iter().map(|lane| lane.clone() as Arc<dyn Lane>).collect();
    let runtime = tokio::runtime::Handle::current();
    let engine = Arc::new(Scheduler::start(&runtime, Clock::start(), plan.functions.clone(), as_lanes));

    let begin = tokio::time::Instant::now();
    let mut sorted = plan.batches.clone();
    sorted.sort_by_key(|batch| batch.submit_ms);
    let mut running = Vec::new();
    for batch_plan in sorted {
        tokio::time::sleep_until(begin + Duration::from_millis(batch_plan.submit_ms)).await;
        let batch_timeout_ns = batch_plan.budget_ms.map(|ms| ms * 1_000_000);
        let spec = BatchSpec { batch_timeout_ns, ..spec(batch_plan.groups, batch_plan.group_size) };
        let batch = engine.submit(spec).unwrap();
        if let Some(ms) = batch_plan.cancel_ms {
            let (engine, batch) = (engine.clone(), batch.clone());
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                engine.cancel(&batch, "stop");
            });
        }
        running.push((batch_plan, batch));
    }
    for (batch_plan, batch) in &running {
        assert!(done(batch).await, "the batch never ends");
        let log = |function: usize| lanes[plan.functions[function].lane].log();
        check_groups(batch);
        check_values(&plan, batch_plan, batch);
        check_bounds(batch_plan, batch, log);
    }
    for (id, function) in plan.functions.iter().enumerate() {
        let most = function.policy.concurrency.unwrap_or(usize::MAX);
        let log = lanes[function.lane].log();
        assert!(log.peak(id) <= most, "{} calls at a time, {most} allowed", log.peak(id));
        check_frames(&log, id, function, plan.lanes[function.lane]);
        check_attempts(&log.calls(), id, function);
    }

    assert_eq!(engine.open_batches(), 0);
    engine.close().await;
    for lane in &lanes {
        assert_eq!(lane.held(), 0, "a place was lost");
    }
    // The cancels still to come hold the engine.
    tokio::time::sleep(Duration::from_secs(5)).await;
    drop(engine);
    tokio::task::yield_now().await;
    for lane in lanes {
        assert_eq!(Arc::strong_count(&lane), 1, "something keeps the engine alive");
    }
}

/// Each group is handed out once.
fn check_groups(batch: &Batch) {
    let mut groups: Vec<usize> = std::iter::from_fn(|| batch.take_group()).collect();
    groups.sort_unstable();
    assert_eq!(groups, (0..batch.groups()).collect::<Vec<_>>());
    assert!(batch.is_exhausted());
}

/// Cells are those of the serial loop; where the scheduler may have cut a call short, they say so
/// and hold no number.
fn check_values(plan: &Plan, batch_plan: &BatchPlan, batch: &Batch) {
    let expected = serial(&plan.functions, batch.id(), batch.samples(), batch.group_size(), &plan.chaos);
    for (sample, row) in expected.iter().enumerate() {
        for (id, expected) in row.iter().enumerate() {
            let function = &plan.functions[id];
            let cell = batch.cell(sample, id).expect("the cell is complete");
            let outcome = cell.outcome;
            let at = format!("sample {sample}, function {id}: {cell:?}, expected {expected:?}");
            assert_eq!(outcome.value.is_nan(), outcome.status != Status::Ok, "{at}");
            assert_eq!(batch.note_of(sample, id).is_some(), outcome.status.is_failure(), "{at}");
            assert!(cell.attempts >= 1 && cell.attempts <= function.policy.retries + 2, "{at}");
            let limits = [
                function.policy.total_timeout.is_some(),
                batch_plan.budget_ms.is_some(),
                batch_plan.cancel_ms.is_some(),
            ];
            let as_in_a_loop = (outcome.status, cell.attempts, outcome.value.to_bits())
                == (expected.status, expected.attempts, expected.value.to_bits());
            if !limits.contains(&true) {
                assert!(as_in_a_loop, "{at}");
            } else if !as_in_a_loop {
                check_cut_short(batch, sample, id, limits, expected);
            }
        }
    }
}

fn check_cut_short(
    batch: &Batch,
    sample: usize,
    id: usize,
    [deadline, budget, cancel]: [bool; 3],
    expected: &ExpectedCell,
) {
    let cell = batch.cell(sample, id).expect("the cell is complete");
    let why = batch.note_of(sample, id).map(|note| note.reason);
    let swept = match (cell.outcome.status, why.as_deref()) {
        (Status::Timeout, Some("total timeout")) => deadline,
        (Status::Timeout, Some("batch timeout")) => budget,
        (Status::Cancelled, Some("stop")) => cancel,
        // No attempt could start before the deadline any more.
        (status, _) => expected.failed.get(usize::from(cell.attempts) - 1) == Some(&status),
    };
    // What `finish_group` makes of a group depends on the scores that were delivered early short.
    let shaped = batch.functions()[id].finish;
    assert!(swept || shaped, "sample {sample}, function {id}: {cell:?} {why:?}, expected {expected:?}");
}

/// Budgets and deadlines hold on the batch's clock.
fn check_bounds(batch_plan: &BatchPlan, batch: &Batch, log: impl Fn(usize) -> Arc<Log>) {
    if let Some(ms) = batch_plan.budget_ms {
        assert!(batch.elapsed_ns() <= ms * 1_000_000 + GRAIN_NS, "budget {ms} ms, took {}", batch.elapsed_ns());
    }
    if let Some(ms) = batch_plan.cancel_ms {
        assert!(batch.elapsed_ns() <= ms * 1_000_000 + GRAIN_NS, "cancel {ms} ms, took {}", batch.elapsed_ns());
    }
    for id in 0..batch.functions().len() {
        let Some(expires_ns) = batch.expires_ns(0, id) else { continue };
        for sample in 0..batch.samples() {
            let cell = batch.cell(sample, id).expect("the cell is complete");
            let times = cell.outcome.times;
            assert!(times.started_ns + times.run_ns <= expires_ns + GRAIN_NS, "an answer after the deadline counted");
        }
        for call in log(id).calls().iter().filter(|call| (call.batch, call.function) == (batch.id(), id)) {
            assert!(call.started_ns <= expires_ns + GRAIN_NS, "{call:?} was started after the deadline");
        }
    }
}

/// Frames keep to the lane's size; suspects and isolated calls are alone.
fn check_frames(
    log: &Log,
    id: usize,
    function: &Function,
    (_, frame_calls, at_once, _): (usize, usize, bool, Option<u64>),
) {
    for frame in log.frames().iter().filter(|frame| frame.function == id) {
        assert!(!frame.calls.is_empty());
        assert!(at_once || frame.calls.len() <= frame_calls, "{frame:?}");
        assert!(!frame.alone || frame.calls.len() == 1, "{frame:?}");
        assert!(!function.isolated || frame.alone, "{frame:?}");
    }
}

/// No call runs twice at a time, no attempt runs twice unless it was lost, and none runs past its
/// timeout.
fn check_attempts(calls: &[CallSeen], id: usize, function: &Function) {
    let mut of_function: Vec<&CallSeen> = calls.iter().filter(|call| call.function == id).collect();
    of_function
        .sort_by_key(|call| (call.batch, call.kind == CallKind::Finish, call.first, call.started_ns, call.attempt));
    for call in &of_function {
        let most = nanos(function.policy.timeout) + TICK_NS + GRAIN_NS;
        assert!(call.ended_ns - call.started_ns <= most, "{call:?} ran past its timeout");
    }
    for pair in of_function.windows(2) {
        let (one, next) = (pair[0], pair[1]);
        let same = |call: &CallSeen| (call.batch, call.kind, call.first);
        if same(one) == same(next) {
            assert!(one.ended_ns <= next.started_ns, "{one:?} beside {next:?}");
            assert!((one.attempt, one.handed) < (next.attempt, next.handed), "{one:?} before {next:?}");
        }
    }
}
