//! Calls that end the processes from which workers are forked, among others, on simulated
//! processes. The scheduler, the slots, the frames in flight and the ledger are real.

mod machine;
mod plan;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use guerdon_core::batch::Batch;
use guerdon_core::clock::Clock;
use guerdon_core::function::{Function, Gather, Policy, Shape};
use guerdon_core::outcome::Status;
use guerdon_core::scheduler::Scheduler;
use guerdon_testkit::{done, function, paused, seeds, spec};
use machine::{Machine, SimulatedLane};
use plan::{GATHERED, MS, Plan, Target};
use proptest::prelude::*;
use tokio::time::sleep;

use crate::slots::{SlotState, Slots};

/// Runs a batch; how many processes its calls ended.
async fn run(plan: &Plan) -> (Arc<Batch>, usize) {
    let mut one: Function = function("f", Shape::Sample);
    one.policy = Policy { retries: plan.retries, ..one.policy };
    one.isolated = plan.isolated;
    one.gather = plan.gathered.then_some(Gather { max_size: GATHERED, max_wait: Duration::ZERO, across: false });
    let functions = vec![one];
    let clock = Clock::start();
    let (slots, new_slots) = Slots::new(plan.workers, &functions, |_| true);
    let machine = Machine::new(plan, clock);
    let mut tasks = tokio::task::JoinSet::new();
    for (slot, inbox) in new_slots {
        slot.set(SlotState::Ready);
        tasks.spawn(machine.clone().serve(slot, inbox));
    }
    tasks.spawn(machine.clone().kill_from_outside());
    let lane = Arc::new(SimulatedLane(slots, machine.clone()));
    let scheduler = Scheduler::start(&tokio::runtime::Handle::current(), clock, functions, vec![lane]);
    let batch = scheduler.submit(spec(plan.samples, 1)).unwrap();
    if let Some(after) = plan.cancel_after {
        sleep(after).await;
        scheduler.cancel(&batch, "enough");
    }
    assert!(done(&batch).await, "it never ends: {plan:?}");
    assert_eq!(scheduler.open_batches(), 0);
    scheduler.close().await;
    (batch, machine.ended())
}

/// Every call has one outcome: the poisons are `crashed`, all others have their values.
fn expect_exactly(plan: &Plan) {
    let (batch, ended) = paused(run(plan));
    for sample in 0..plan.samples {
        let reason = batch.note_of(sample, 0).map(|note| note.reason).unwrap_or_default();
        let outcome = batch.cell(sample, 0).expect("each call has an outcome").outcome;
        if plan.poisons.contains(&sample) {
            assert_eq!(outcome.status, Status::Crashed, "sample {sample}: {reason} {plan:?}");
            assert!(reason.contains("which had no other worker"), "sample {sample}: {reason} {plan:?}");
        } else {
            assert_eq!((outcome.status, outcome.value), (Status::Ok, sample as f64), "{sample}: {reason} {plan:?}");
        }
    }
    assert!(ended <= plan.bound(), "{ended} processes were ended: {plan:?}");
}

/// Fault: one to three samples of 200 kill the process that forked their worker, beside 95 others
/// Sees: they are `crashed`, after one loss that others shared and one that they did not; every
/// other call has its value
#[test]
fn those_that_kill_their_parent_have_crashed_and_no_others() {
    for seed in seeds(60, 300) {
        expect_exactly(&Plan::new(seed, Target::Parent, 1 + seed as usize % 3));
    }
}

/// Fault: the same with the loader or the zygote, at any place above the worker
/// Sees: they are `crashed`, after two losses that others shared and one that they did not;
/// every other call has its value
#[test]
fn those_that_kill_the_zygote_have_crashed_and_no_others() {
    for seed in seeds(30, 100) {
        expect_exactly(&Plan::new(seed, Target::Loader, 1 + seed as usize % 3));
        expect_exactly(&Plan::new(seed, Target::Zygote, 1 + seed as usize % 3));
    }
}

/// Fault: the zygote is killed again and again while calls run
/// Sees: nothing: they are tried again
#[test]
fn nobody_has_crashed_by_losses_from_outside() {
    for seed in seeds(30, 100) {
        let mut plan = Plan::new(seed, Target::Parent, 0);
        let mut draws = fastrand::Rng::with_seed(seed);
        plan.kills = (0..6).map(|_| draws.u32(0..9000) * MS).collect();
        expect_exactly(&plan);
    }
}

prop_compose! {
    fn plans()(
        (seed, samples, workers, retries) in (any::<u64>(), 1..120_usize, 1..12_usize, 0..3_u16),
        poisons in prop::collection::btree_set(0..120_usize, 0..4),
        flaky in prop::collection::btree_set(0..120_usize, 0..4),
        target in prop_oneof![Just(Target::Parent), Just(Target::Loader), Just(Target::Zygote)],
        (longest, deadly, load) in (0..400_u32, 0..400_u32, 0..1000_u32),
        kills in prop::collection::vec((0..8000_u32).prop_map(|at| at * MS), 0..4),
        (gathered, isolated) in prop_oneof![3 => Just((false, false)), 1 => Just((true, false)), 1 => Just((false, true))],
        cancel_after in prop::option::weighted(0.2, (0..4000_u32).prop_map(|at| at * MS)),
    ) -> Plan {
        let poisons: BTreeSet<usize> = poisons.into_iter().filter(|poison| *poison < samples).collect();
        let flaky = flaky.difference(&poisons).copied().collect();
        let (longest, deadly_after, load) = (longest * MS, deadly * MS, load * MS);
        Plan {
            seed, samples, workers, poisons, target, flaky, kills, longest, deadly_after, load, retries, gathered,
            isolated, cancel_after,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 100, ..ProptestConfig::default() })]

    /// Events come in any order. A batch that is cancelled amid it ends, too.
    #[test]
    fn poisons_alone_have_crashed(plan in plans()) {
        if plan.cancel_after.is_some() {
            let (batch, ended) = paused(run(&plan));
            prop_assert!(ended <= plan.bound());
            for sample in 0..plan.samples {
                let status = batch.cell(sample, 0).map(|cell| cell.outcome.status);
                let innocent = matches!(status, Some(Status::Ok | Status::Cancelled));
                prop_assert!(innocent || status == Some(Status::Crashed) && plan.poisons.contains(&sample));
            }
        } else {
            expect_exactly(&plan);
        }
    }
}
