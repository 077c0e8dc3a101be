//! Dependents on fake lanes and a paused clock: against a serial loop, and one rule at a time.

use std::sync::Arc;
use std::time::Duration;

use guerdon_core::batch::{Batch, BatchSpec};
use guerdon_core::delivery::Delivery;
use guerdon_core::function::{Comparison, Condition, Function, Gather, OnFailure, Policy, RunIf, Shape};
use guerdon_core::open_batch::Placement;
use guerdon_core::outcome::{Cell, FailureKind, Status};
use guerdon_testkit::{
    Act, Ask, Chaos, Log, Rig, Room, done, failure, function, paused, returns, seconds, serial, spec, statuses,
};
use proptest::prelude::*;
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::Error;

fn sample(name: &str) -> Function {
    function(name, Shape::Sample)
}

fn condition(source: usize, operator: &str, bound: f32) -> Condition {
    let comparison = Comparison::deserialize(IntoDeserializer::<Error>::into_deserializer(operator)).unwrap();
    Condition { source, comparison, bound }
}

fn gated(function: Function, conditions: &[Condition], otherwise: f32) -> Function {
    Function { run_if: Some(Arc::new(RunIf { conditions: conditions.into(), otherwise })), ..function }
}

/// First samples of a function's calls, in the order of their starts.
fn calls(rig: &Rig, function: usize) -> Vec<usize> {
    let mut calls = rig.log().calls();
    calls.sort_by_key(|call| call.started_ns);
    calls.iter().filter(|call| call.function == function).map(|call| call.first).collect()
}

fn value(seconds: f64, value: f64) -> Act {
    returns(Duration::from_secs_f64(seconds), 1, value)
}

use Status::{Abstained, Cancelled, Ok as Scored, Skipped, Timeout};

#[tokio::test(start_paused = true)]
async fn a_call_is_made_where_its_condition_holds_and_only_there() {
    let judge = gated(sample("judge"), &[condition(1, "<", 1.0)], 0.25);
    let rig = Rig::wide(vec![judge, sample("correct")], |ask: &Ask| value(1.0, f64::from(ask.first as u32 % 2)));
    let batch = rig.run(spec(2, 4)).await;
    assert_eq!(statuses(&batch, 0), [Scored, Skipped].repeat(4));
    assert_eq!(calls(&rig, 0), [0, 2, 4, 6]);
    assert_eq!(batch.shown(1, 0), (0.25, Skipped));
    assert!(batch.failed().is_empty());
    assert_eq!(seconds(&batch), 2, "the judge begins as each source ends");
    assert_eq!((batch.ready_ns(0, 0) - batch.submitted_ns()) / 1_000_000_000, 1, "its queue time begins there");
    assert_eq!(rig.open_batches(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_condition_sees_what_the_result_shows_of_its_source() {
    let failing = |name, on_failure| {
        let plain = sample(name);
        Function { policy: Policy { on_failure, ..plain.policy }, ..plain }
    };
    let run_if = |source| gated(sample("gated"), &[condition(source, "<", 1.0)], f32::NAN);
    let functions = vec![
        failing("nan", OnFailure::Nan),
        failing("abstains", OnFailure::Abstain),
        failing("number", OnFailure::Value(0.0)),
        sample("none"),
        run_if(0),
        run_if(1),
        run_if(2),
        run_if(3),
        run_if(4),
        gated(sample("after a default"), &[condition(10, "==", 0.5)], f32::NAN),
        gated(sample("default"), &[condition(3, "<", 1.0)], 0.5),
    ];
    let rig = Rig::wide(functions, |ask: &Ask| match ask.function {
        0..=2 => Act::Fail { after: Duration::from_secs(1), failure: failure(FailureKind::Error) },
        3 => Act::Return { after: Duration::from_secs(1), cells: vec![Cell::Abstained] },
        _ => value(1.0, 1.0),
    });
    let batch = rig.run(spec(1, 1)).await;
    let seen: Vec<Status> = (4..11).map(|function| statuses(&batch, function)[0]).collect();
    assert_eq!(seen, [Skipped, Skipped, Scored, Skipped, Skipped, Scored, Skipped]);
    assert_eq!(statuses(&batch, 3), [Abstained]);
}

#[tokio::test(start_paused = true)]
async fn all_conditions_must_hold_once_the_slowest_source_is_there() {
    let both = gated(sample("both"), &[condition(0, ">=", 1.0), condition(1, "!=", 2.0)], f32::NAN);
    let rig = Rig::wide(vec![sample("a"), sample("b"), both], |ask: &Ask| {
        value(if ask.function == 1 { 5.0 } else { 1.0 }, f64::from(ask.first as u32))
    });
    let batch = rig.run(spec(1, 4)).await;
    assert_eq!(statuses(&batch, 2), [Skipped, Scored, Skipped, Scored]);
    assert_eq!(seconds(&batch), 6);
}

#[tokio::test(start_paused = true)]
async fn a_retried_source_is_waited_for_and_asked_once() {
    let plain = sample("flaky");
    let flaky = Function { policy: Policy { retries: 2, ..plain.policy }, ..plain };
    let rig = Rig::wide(vec![flaky, gated(sample("judge"), &[condition(0, ">", 0.0)], f32::NAN)], |ask: &Ask| {
        if ask.function == 0 && ask.attempt < 3 {
            return Act::Fail { after: Duration::from_secs(1), failure: failure(FailureKind::Error) };
        }
        value(1.0, 1.0)
    });
    let batch = rig.run(spec(1, 3)).await;
    assert_eq!((statuses(&batch, 1), calls(&rig, 1).len()), (vec![Scored; 3], 3));
}

#[tokio::test(start_paused = true)]
async fn a_total_timeout_counts_from_when_the_call_became_possible() {
    let plain = gated(sample("judge"), &[condition(0, "==", 1.0)], f32::NAN);
    let total_timeout = Some(Duration::from_secs(3));
    let judge = Function { policy: Policy { total_timeout, ..plain.policy }, ..plain };
    let rig = Rig::wide(vec![sample("slow"), judge], |ask: &Ask| match (ask.function, ask.first) {
        (0, _) => value(10.0, 1.0),
        (_, 0) => value(2.0, 1.0),
        _ => value(4.0, 1.0),
    });
    let batch = rig.run(spec(1, 2)).await;
    assert_eq!(statuses(&batch, 1), [Scored, Timeout]);
    assert_eq!(batch.note_of(1, 1).unwrap().reason, "total timeout");
    assert_eq!(seconds(&batch), 13);
}

#[tokio::test(start_paused = true)]
async fn an_early_delivery_ends_what_waits_for_its_source() {
    let functions = || vec![sample("source"), gated(sample("judge"), &[condition(0, "==", 1.0)], f32::NAN)];
    let script = |ask: &Ask| value(if ask.first == 0 { 1.0 } else { 50.0 }, 1.0);
    for (delivery, ends) in [(Delivery::quorum(1), Cancelled), (Delivery::timeout_ns(5_000_000_000), Timeout)] {
        let rig = Rig::wide(functions(), script);
        let batch = rig.run(BatchSpec { delivery, ..spec(1, 2) }).await;
        assert_eq!((statuses(&batch, 0), statuses(&batch, 1)), (vec![Scored, ends], vec![Scored, ends]));
        assert_eq!(calls(&rig, 1), [0], "no call begins in a group that was delivered");
    }
}

#[tokio::test(start_paused = true)]
async fn samples_that_a_finish_group_never_scored_stay_skipped() {
    let source = sample("source");
    let shaped = Function { finish: true, ..gated(sample("shaped"), &[condition(0, ">", 0.0)], 0.0) };
    let rig = Rig::wide(vec![source, shaped], |ask: &Ask| match ask.scores.len() {
        0 => value(1.0, f64::from(ask.first as u32 % 3)),
        _ => Act::Return {
            after: Duration::from_secs(1),
            cells: ask
                .scores
                .iter()
                .map(|score| score.map_or(Cell::Value(9.0), |one| Cell::Value(one * 10.0)))
                .collect(),
        },
    });
    let batch = rig.run(spec(2, 3)).await;
    let shown: Vec<_> = (0..3).map(|sample| batch.shown(sample, 1)).collect();
    assert_eq!(shown, [(0.0, Skipped), (10.0, Scored), (20.0, Scored)]);
}

#[tokio::test(start_paused = true)]
async fn a_sample_that_was_never_added_is_not_called_for() {
    // Its source is broken, which a gate may take for a number.
    let plain = sample("broken");
    let broken = Function { policy: Policy { on_failure: OnFailure::Value(0.0), ..plain.policy }, ..plain };
    let rig = Rig::wide(vec![broken, gated(sample("judge"), &[condition(0, "<", 1.0)], f32::NAN)], |ask: &Ask| {
        if ask.function == 0 { Act::FailSetup } else { value(1.0, 1.0) }
    });
    let batch = rig.submit(BatchSpec { streamed: true, ..spec(0, 2) });
    for _ in 0..2 {
        rig.add(&batch, Placement::InOrder(1));
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    rig.finish(&batch).unwrap();
    assert!(done(&batch).await);
    assert_eq!((statuses(&batch, 1), calls(&rig, 1)), (vec![Scored; 2], vec![0, 1]));
}

#[tokio::test(start_paused = true)]
async fn gathered_samples_wait_for_those_that_may_still_come() {
    let gather = Some(Gather { max_size: 8, max_wait: Duration::from_secs(60), across: false });
    let judge = Function { gather, ..gated(sample("judge"), &[condition(0, ">", 0.0)], f32::NAN) };
    let rig = Rig::wide(vec![sample("source"), judge], |ask: &Ask| match ask.function {
        0 => value(1.0 + ask.first as f64, f64::from(ask.first as u32 % 2)),
        _ => Act::Return { after: Duration::from_secs(1), cells: vec![Cell::Value(1.0); ask.samples] },
    });
    let batch = rig.run(spec(1, 8)).await;
    assert_eq!(rig.log().frames().iter().filter(|frame| frame.function == 1).count(), 1, "one call on all four");
    assert_eq!(seconds(&batch), 9);
}

#[tokio::test(start_paused = true)]
async fn sources_go_before_what_nothing_waits_for() {
    let judge = gated(sample("judge"), &[condition(2, "<", 9.0)], f32::NAN);
    let functions = vec![sample("other"), judge, sample("source")];
    let room = Room { places: 1, frame_calls: 1, ..Room::default() };
    // The other takes longest, so that it would go first.
    let rig = Rig::new(room, functions, |ask: &Ask| value(if ask.function == 0 { 0.5 } else { 0.1 }, 1.0));
    rig.run(spec(6, 1)).await;
    let calls = rig.log().calls();
    let starts = |function| -> Vec<u64> {
        let of = calls.iter().filter(|call| call.function == function);
        of.map(|call| call.started_ns).collect()
    };
    assert!(starts(2)[1] < starts(0)[2], "the source is behind: {calls:?}");
    assert!(starts(1)[0] < starts(0)[5], "groups are done together: {calls:?}");
}

#[derive(Clone, Debug)]
struct Plan {
    functions: Vec<Function>,
    groups: usize,
    group_size: usize,
    streamed: bool,
    /// Bounds that may end calls from outside: a batch timeout, a cancel, an early delivery.
    budget_ms: Option<u64>,
    cancel_ms: Option<u64>,
    delivery: Delivery,
    room: (usize, usize, bool),
    chaos: Chaos,
}

/// What one function is, and which of those that come before it in `order` it waits for.
type Draft = (u8, bool, u16, u8, Option<u64>, Vec<(usize, usize, i8)>, bool);

fn function_of(draft: &Draft, sources: &[usize]) -> Function {
    let (shape, finish, retries, on_failure, deadline_ms, conditions, defaults) = draft;
    let operators = ["<", "<=", ">", ">=", "==", "!="];
    let conditions: Vec<Condition> = conditions
        .iter()
        .filter(|_| !sources.is_empty())
        .map(|(source, operator, bound)| {
            condition(sources[source % sources.len()], operators[operator % 6], f32::from(*bound))
        })
        .collect();
    let shape = match shape {
        _ if !conditions.is_empty() => Shape::Sample,
        0 => Shape::Group,
        1 => Shape::Batch,
        _ => Shape::Sample,
    };
    let plain = function("f", shape);
    let policy = Policy {
        timeout: Duration::from_millis(200),
        total_timeout: deadline_ms.map(Duration::from_millis),
        retries: *retries,
        on_failure: [OnFailure::Nan, OnFailure::Abstain, OnFailure::Value(0.0)][usize::from(*on_failure % 3)],
        ..plain.policy
    };
    let plain = Function { policy, finish: *finish && shape == Shape::Sample, ..plain };
    let otherwise = if *defaults { 1.0 } else { f32::NAN };
    if conditions.is_empty() { plain } else { gated(plain, &conditions, otherwise) }
}

prop_compose! {
    fn functions()(
        drafts in prop::collection::vec((
            0..8_u8, prop::bool::weighted(0.3), 0..3_u16, 0..3_u8, prop::option::weighted(0.2, 1..1500_u64),
            prop::collection::vec((0..9_usize, 0..9_usize, -8..8_i8), 0..3), any::<bool>(),
        ), 2..6),
        seed in any::<u64>(),
    ) -> Vec<Function> {
        // Any order of the list: a source may stand behind what waits for it.
        let mut order: Vec<usize> = (0..drafts.len()).collect();
        fastrand::Rng::with_seed(seed).shuffle(&mut order);
        let mut made: Vec<Option<Function>> = vec![None; drafts.len()];
        for (place, id) in order.iter().enumerate() {
            let sample = |id: &usize| made[*id].as_ref().is_some_and(|one| one.shape == Shape::Sample);
            let sources: Vec<usize> = order[..place].iter().copied().filter(sample).collect();
            made[*id] = Some(function_of(&drafts[*id], &sources));
        }
        made.into_iter().flatten().collect()
    }
}

prop_compose! {
    fn plans()(
        functions in functions(),
        (groups, group_size, streamed) in (1..8_usize, 1..5_usize, any::<bool>()),
        (budget_ms, cancel_ms) in (prop::option::weighted(0.2, 1..2000_u64), prop::option::weighted(0.2, 0..1500_u64)),
        (quorum, group_ms) in (prop::option::weighted(0.2, 1..4_usize), prop::option::weighted(0.2, 1..1500_u64)),
        room in (1..4_usize, 1..10_usize, any::<bool>()),
        (seed, faults, longest_ms) in (any::<u64>(), prop_oneof![Just(0), 0..300_u64], 0..150_u64),
    ) -> Plan {
        let group_quorum = quorum.map(|wanted| wanted.min(group_size));
        let delivery = Delivery { group_quorum, group_timeout_ns: group_ms.map(|ms| ms * 1_000_000), cancellable: false };
        let chaos = Chaos { seed, faults, longest: Duration::from_millis(longest_ms), hangs: true };
        Plan { functions, groups, group_size, streamed, budget_ms, cancel_ms, delivery, room, chaos }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn gated_cells_are_those_of_a_serial_loop(plan in plans()) {
        paused(run(plan));
    }
}

async fn run(plan: Plan) {
    let (places, frame_calls, at_once) = plan.room;
    let room = Room { places, frame_calls, at_once, ..Room::default() };
    let engine = Arc::new(Rig::new(room, plan.functions.clone(), plan.chaos.clone()));
    let samples = plan.groups * plan.group_size;
    let batch_timeout_ns = plan.budget_ms.map(|ms| ms * 1_000_000);
    let groups = if plan.streamed { 0 } else { plan.groups };
    let whole = spec(groups, plan.group_size);
    let spec = BatchSpec { batch_timeout_ns, delivery: plan.delivery, streamed: plan.streamed, ..whole };
    let batch = engine.submit(spec);
    if let Some(ms) = plan.cancel_ms {
        let (engine, batch) = (engine.clone(), batch.clone());
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            engine.cancel(&batch, "stop");
        });
    }
    if plan.streamed {
        let mut left = samples;
        let mut draws = fastrand::Rng::with_seed(plan.chaos.seed);
        while left > 0 {
            let count = draws.usize(1..=left);
            let Ok(added) = batch.reserve(&Placement::InOrder(count)) else { break };
            engine.engine.add(&batch, &added);
            left -= count;
            tokio::time::sleep(Duration::from_millis(draws.u64(0..80))).await;
        }
        let _ = engine.finish(&batch);
    }
    assert!(done(&batch).await, "the batch never ends");
    if batch.samples() == samples {
        check(&plan, &batch, &engine.log());
    }
    assert_eq!(engine.open_batches(), 0);
    engine.close().await;
}

fn check(plan: &Plan, batch: &Batch, log: &Log) {
    let expected = serial(&plan.functions, batch.id(), batch.samples(), batch.group_size(), &plan.chaos);
    let bounded = plan.budget_ms.is_some()
        || plan.cancel_ms.is_some()
        || plan.delivery != Delivery::default()
        || plan.functions.iter().any(|one| one.policy.total_timeout.is_some());
    for (sample, row) in expected.iter().enumerate() {
        for (id, expected) in row.iter().enumerate() {
            let cell = batch.cell(sample, id).expect("the cell is complete");
            let status = cell.outcome.status;
            let at = format!("sample {sample}, function {id}: {cell:?}, expected {expected:?}");
            if !bounded {
                assert_eq!((status, cell.attempts), (expected.status, expected.attempts), "{at}");
                assert_eq!(cell.outcome.value.to_bits(), expected.value.to_bits(), "{at}");
            }
            assert_eq!(batch.note_of(sample, id).is_some(), status.is_failure(), "{at}");
            let Some(run_if) = &plan.functions[id].run_if else { continue };
            let open = run_if.conditions.iter().all(|one| one.holds(batch.shown(sample, one.source).0));
            assert!(status != Skipped || !open, "skipped with an open run_if: {at}");
            assert!(!status.is_answer() || open, "called behind a closed run_if: {at}");
            let called = log.calls().iter().any(|call| {
                (call.function, call.first, call.batch) == (id, sample, batch.id())
                    && call.kind != guerdon_core::call::CallKind::Finish
            });
            assert!(!called || open, "a call that can't matter was made: {at}");
        }
    }
}
