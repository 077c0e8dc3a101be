//! Random functions, batches, nodes that come, go and are lost: each cell has one outcome, that of
//! a serial loop.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use guerdon_core::call::CallKind;
use guerdon_core::function::{Function, Policy, Shape};
use guerdon_core::outcome::{Cell, Failure, FailureKind, Status};
use guerdon_core::snapshots::NodeState;
use guerdon_remote::RunsOn;
use guerdon_testkit::{Act, Ask, Script, done, failure, function, paused, serial};
use proptest::prelude::*;

use crate::rig::{NodeSpec, Rig};

/// What becomes of a call is the same wherever and however often it runs; what a lane does with its
/// frame beside that it does once.
#[derive(Clone, Debug)]
struct Faults {
    seed: u64,
    faults: u64,
    longest: Duration,
}

impl Script for Faults {
    fn act(&self, ask: &Ask) -> Act {
        let mut hasher = DefaultHasher::new();
        (self.seed, ask.batch, ask.function, ask.kind == CallKind::Finish, ask.first).hash(&mut hasher);
        let mut draws = fastrand::Rng::with_seed(hasher.finish());
        let after = self.longest.mul_f64(draws.f64().powi(3));
        let unlucky = draws.u64(0..1000) < self.faults;
        let which = draws.u8(0..8);
        if unlucky && ask.handed == 0 {
            match which {
                0 => return Act::Lose { after },
                1 => return Act::Panic,
                2 => return Act::GiveBack,
                _ => {}
            }
        }
        if unlucky {
            match which {
                3 => return Act::Fail { after, failure: failure(FailureKind::Error) },
                4 => {
                    let hopeless = Failure { retryable: false, ..failure(FailureKind::Error) };
                    return Act::Fail { after, failure: hopeless };
                }
                5 => return Act::Crash { after },
                6 => return Act::Hang,
                7 => return Act::Return { after, cells: vec![Cell::Invalid("text".to_owned()); ask.samples] },
                _ => {}
            }
        }
        let score = |sample: usize| ask.scores.get(sample).copied().flatten().unwrap_or(0.0);
        let cell = |sample| match draws.u8(0..9) {
            0 => Cell::Abstained,
            1 => Cell::Value(1e39),
            _ => Cell::Value(draws.f64().mul_add(20.0, score(sample) * 0.5)),
        };
        Act::Return { after, cells: (0..ask.samples).map(cell).collect() }
    }
}

#[derive(Clone, Debug)]
enum Event {
    Kill { innocent: bool },
    Drain,
    Come { workers: usize, delay_us: u64 },
}

#[derive(Clone, Debug)]
struct Plan {
    functions: Vec<Function>,
    runs_on: Vec<RunsOn>,
    batches: Vec<(usize, usize)>,
    nodes: Vec<(usize, u64)>,
    events: Vec<(u64, usize, Event)>,
    faults: Faults,
}

prop_compose! {
    fn functions()(
        shape in prop_oneof![Just(Shape::Sample), Just(Shape::Sample), Just(Shape::Group), Just(Shape::Batch)],
        finish in prop::bool::weighted(0.3),
        isolated in prop::bool::weighted(0.1),
        pinned in prop::bool::weighted(0.2),
        retries in 0..3_u16,
        concurrency in prop_oneof![3 => Just(None), 1 => (1..4_usize).prop_map(Some)],
        timeout_ms in 50..400_u64,
    ) -> Function {
        let plain = function("f", shape);
        let timeout = Duration::from_millis(timeout_ms);
        let policy = Policy { timeout, retries, concurrency, ..plain.policy };
        Function { finish, isolated, pinned, policy, ..plain }
    }
}

fn runs_on() -> impl Strategy<Value = RunsOn> {
    prop_oneof![
        3 => Just(RunsOn::Workers),
        1 => (1..5_usize).prop_map(RunsOn::Threads),
        1 => (1..20_usize).prop_map(RunsOn::Loop),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        any::<bool>().prop_map(|innocent| Event::Kill { innocent }),
        Just(Event::Drain),
        (1..5_usize, 0..3000_u64).prop_map(|(workers, delay_us)| Event::Come { workers, delay_us }),
        (1..5_usize, 0..3000_u64).prop_map(|(workers, delay_us)| Event::Come { workers, delay_us }),
    ]
}

prop_compose! {
    fn plans()(
        functions in prop::collection::vec((functions(), runs_on()), 1..4),
        batches in prop::collection::vec((1..20_usize, 1..6_usize), 1..3),
        nodes in prop::collection::vec((1..4_usize, 0..5000_u64), 0..4),
        events in prop::collection::vec((0..1500_u64, 0..4_usize, event()), 0..8),
        (seed, faults, longest_ms) in (any::<u64>(), prop_oneof![Just(0), 0..200_u64], 0..120_u64),
    ) -> Plan {
        let faults = Faults { seed, faults, longest: Duration::from_millis(longest_ms) };
        let on = |(function, on): &(Function, RunsOn)| {
            let of_workers = function.pinned || function.isolated || function.shape == Shape::Batch;
            if of_workers { RunsOn::Workers } else { *on }
        };
        let runs_on = functions.iter().map(on).collect();
        let functions = functions.into_iter().map(|(function, _)| function).collect();
        Plan { functions, runs_on, batches, nodes, events, faults }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn every_cell_has_one_outcome_and_it_is_the_serial_one(plan in plans()) {
        paused(run(plan));
    }
}

fn spec(workers: usize, delay_us: u64) -> NodeSpec {
    NodeSpec { delay: Duration::from_micros(delay_us), ..NodeSpec::new(workers) }
}

async fn run(plan: Plan) {
    let rig = Rig::with(plan.functions.clone(), plan.faults.clone(), |config| config.runs_on = plan.runs_on);
    let name = |number: usize| format!("n{number}");
    for (number, (workers, delay_us)) in plan.nodes.iter().enumerate() {
        rig.add(&name(number), spec(*workers, *delay_us));
    }
    let batches: Vec<_> = (1..).zip(&plan.batches).map(|(id, (groups, size))| rig.submit(id, *groups, *size)).collect();
    let begin = tokio::time::Instant::now();
    let mut events = plan.events.clone();
    events.sort_by_key(|(ms, ..)| *ms);
    let mut kills = 0;
    for (ms, number, event) in events {
        tokio::time::sleep_until(begin + Duration::from_millis(ms)).await;
        let there = rig.lane.nodes().iter().any(|node| *node.name == name(number) && node.state != NodeState::Lost);
        match event {
            Event::Kill { innocent } if there => {
                kills += usize::from(rig.kill(&name(number), innocent) && !innocent);
            }
            Event::Drain if there => drop(rig.lane.drain(&name(number))),
            Event::Come { workers, delay_us } if !there => {
                rig.kill(&name(number), true);
                rig.add(&name(number), spec(workers, delay_us));
            }
            _ => {}
        }
    }
    for (id, batch) in (1..).zip(&batches) {
        assert!(done(batch).await, "the batch never ends; {:?}", rig.lane.nodes());
        let mut groups = Vec::new();
        while let Some(group) = batch.take_group() {
            groups.push(group);
        }
        groups.sort_unstable();
        assert_eq!(groups, (0..batch.groups()).collect::<Vec<_>>(), "each group is delivered once");
        let expected = serial(&plan.functions, id, batch.samples(), batch.group_size(), &plan.faults);
        for (sample, row) in expected.iter().enumerate() {
            for (function, wanted) in row.iter().enumerate() {
                let outcome = batch.cell(sample, function).expect("the batch is done").outcome;
                let reason = batch.note_of(sample, function).map(|note| note.reason).unwrap_or_default();
                let lost = reason.contains("was lost under it") && kills > 2
                    || reason.contains("no other came: it is not run in this process") && kills > 1;
                let unlucky = outcome.status == Status::Crashed && lost;
                let same = outcome.status == wanted.status
                    && (outcome.value == wanted.value || outcome.value.is_nan() && wanted.value.is_nan());
                // A call that three nodes were lost under has crashed, or two and none is left,
                // whatever it would have given; what its group is made of then is not the serial
                // loop's either.
                let touched = kills > 1 && plan.functions[function].finish;
                assert!(
                    same || unlucky || touched,
                    "sample {sample}, function {function}: {outcome:?} {reason}, not {wanted:?}"
                );
            }
        }
    }
    assert_eq!(rig.scheduler.open_batches(), 0);
    rig.close().await;
}
