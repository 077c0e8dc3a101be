//! Calls that take their nodes with them: they alone have crashed, after three nodes at most.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use guerdon_core::batch::Batch;
use guerdon_core::function::{Policy, Shape};
use guerdon_core::outcome::{Cell, Status};
use guerdon_remote::RunsOn;
use guerdon_testkit::{Act, Ask, done, function, paused, seeds};
use proptest::prelude::*;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::rig::{MS, NodeSpec, Rig, one};

/// What is to go wrong.
#[derive(Clone, Debug)]
struct Plan {
    seed: u64,
    samples: usize,
    /// Workers of each node.
    nodes: Vec<usize>,
    poisons: BTreeSet<usize>,
    /// The longest that a call takes, that a poison takes to act, and an agent to come back.
    longest: Duration,
    deadly_after: Duration,
    back_after: Duration,
    /// Nodes that are lost for other reasons, and when.
    losses: Vec<(Duration, usize)>,
    retries: u16,
    runs_on: RunsOn,
}

impl Plan {
    fn new(seed: u64, poisons: &[usize]) -> Self {
        let mut draws = fastrand::Rng::with_seed(seed);
        Self {
            seed,
            samples: 200,
            nodes: (0..3).map(|_| draws.usize(2..6)).collect(),
            poisons: poisons.iter().copied().collect(),
            longest: draws.u32(0..40) * MS,
            deadly_after: draws.u32(0..4) * draws.u32(0..10) * MS,
            back_after: draws.u32(1..400) * MS,
            losses: Vec::new(),
            retries: 0,
            runs_on: RunsOn::Workers,
        }
    }
}

enum Event {
    Lost(String),
    Back(String),
}

/// Runs a batch; how many nodes were lost.
async fn run(plan: &Plan) -> (Arc<Batch>, usize) {
    let (seed, longest) = (plan.seed, plan.longest);
    let mut one = function("f", Shape::Sample);
    one.policy = Policy { retries: plan.retries, ..one.policy };
    let poisons = plan.poisons.clone();
    let script = move |ask: &Ask| {
        if poisons.contains(&ask.first) {
            return Act::Crash { after: MS };
        }
        let after = longest.mul_f64(fastrand::Rng::with_seed(seed ^ ask.first as u64).f64().powi(2));
        Act::Return { after, cells: vec![Cell::Value(ask.first as f64)] }
    };
    let rig = Rig::with(vec![one], script, |config| config.runs_on = vec![plan.runs_on]);
    let (kill, mut kills) = mpsc::unbounded_channel();
    let (poisons, deadly) = (plan.poisons.clone(), kill.clone());
    let _ = rig.overrides.set(Box::new(move |node, ask| {
        poisons.contains(&ask.first).then(|| {
            let _ = deadly.send(node.to_owned());
            Act::Hang
        })
    }));
    let spec = |name: &str| NodeSpec::new(plan.nodes[name[1..].parse::<usize>().unwrap()]);
    for number in 0..plan.nodes.len() {
        let name = format!("n{number}");
        rig.add(&name, spec(&name));
    }
    tokio::time::sleep(10 * MS).await;
    let (start, batch) = (Instant::now(), rig.submit(1, plan.samples, 1));
    let mut events: Vec<(Instant, Event)> =
        plan.losses.iter().map(|(at, node)| (start + *at, Event::Lost(format!("n{node}")))).collect();
    let mut lost = 0;
    let mut look = start;
    while !batch.is_done() {
        assert!(start.elapsed() < Duration::from_secs(600), "it never ends: {:?} {:?}", rig.lane.nodes(), plan);
        events.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
        let due = events.last().map_or(look, |(at, _)| (*at).min(look));
        tokio::select! {
            Some(name) = kills.recv() => events.push((Instant::now() + plan.deadly_after, Event::Lost(name))),
            () = sleep_until(due) => look = Instant::now() + 5 * MS,
        }
        while events.last().is_some_and(|(at, _)| *at <= Instant::now()) {
            match events.pop() {
                Some((at, Event::Lost(name))) if rig.kill(&name, false) => {
                    lost += 1;
                    events.push((at + plan.back_after, Event::Back(name)));
                }
                Some((_, Event::Back(name))) => rig.add(&name, spec(&name)),
                _ => {}
            }
            events.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
        }
    }
    assert_eq!(rig.scheduler.open_batches(), 0);
    rig.close().await;
    (batch, lost)
}

fn expect_exactly(plan: &Plan, batch: &Batch) {
    for sample in 0..plan.samples {
        let outcome = batch.cell(sample, 0).unwrap().outcome;
        let wanted = if plan.poisons.contains(&sample) { Status::Crashed } else { Status::Ok };
        let reason = batch.note_of(sample, 0).map(|note| note.reason);
        assert_eq!(outcome.status, wanted, "sample {sample}: {reason:?} {plan:?}");
    }
}

/// Fault: a sample kills the agent of each node that it comes to
/// Sees: it is `crashed` after three nodes, which are named; no other sample is
#[tokio::test(start_paused = true)]
async fn one_poison_and_it_alone_has_crashed() {
    for seed in seeds(40, 200) {
        let plan = Plan::new(seed, &[50 + seed as usize % 100]);
        let (batch, lost) = run(&plan).await;
        expect_exactly(&plan, &batch);
        assert!(lost <= 4, "{lost} nodes were lost {plan:?}");
    }
}

/// Fault: a sample ends the agents whose threads or event loops run it (`node="any"`)
/// Sees: it is `crashed` after four nodes at most, which are named; no other sample is
#[tokio::test(start_paused = true)]
async fn one_poison_in_an_agent_and_it_alone_has_crashed() {
    for seed in seeds(20, 60) {
        for runs_on in [RunsOn::Threads(4), RunsOn::Loop(16)] {
            let plan = Plan { runs_on, ..Plan::new(seed, &[50 + seed as usize % 100]) };
            let (batch, lost) = run(&plan).await;
            expect_exactly(&plan, &batch);
            assert!(lost <= 4, "{lost} nodes were lost {plan:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn two_poisons_and_they_alone_have_crashed() {
    for seed in seeds(30, 100) {
        let plan = Plan::new(seed, &[20, 21 + seed as usize]);
        let (batch, lost) = run(&plan).await;
        expect_exactly(&plan, &batch);
        assert!(lost <= 8, "{lost} nodes were lost {plan:?}");
    }
}

/// Fault: nodes are lost twice under the same calls, for reasons of their own
/// Sees: the calls are made elsewhere; none is `crashed`
#[tokio::test(start_paused = true)]
async fn nobody_has_crashed_by_the_loss_of_two_nodes() {
    for seed in seeds(30, 100) {
        let mut plan = Plan::new(seed, &[]);
        plan.longest = 60 * MS;
        plan.losses = vec![(20 * MS, 0), (20 * MS + seed as u32 * MS, 1)];
        let (batch, lost) = run(&plan).await;
        expect_exactly(&plan, &batch);
        assert_eq!(lost, 2);
    }
}

/// Fault: a node is lost before it was heard of what it began, three times
/// Sees: the call that it had is `crashed`, and names the nodes
#[tokio::test(start_paused = true)]
async fn a_node_that_is_lost_before_it_says_what_it_began() {
    let rig = Rig::new(one(), |_: &Ask| Act::Hang);
    rig.add("a", NodeSpec::new(1));
    tokio::time::sleep(5 * MS).await;
    let batch = rig.submit(1, 1, 1);
    for (node, then) in [("a", "b"), ("b", "c"), ("c", "d")] {
        rig.add(then, NodeSpec::new(1));
        // The frame is there, and nothing of it comes back any more.
        rig.stop(node);
        tokio::time::sleep(20 * MS).await;
        rig.kill(node, false);
        tokio::time::sleep(20 * MS).await;
    }
    assert!(done(&batch).await);
    let reason = batch.note_of(0, 0).unwrap().reason;
    assert_eq!(reason, "node 'c' was lost under it: killed (before that on 'a', 'b')");
    assert_eq!(batch.cell(0, 0).unwrap().outcome.status, Status::Crashed);
    rig.close().await;
}

/// Its worker dies once, after a node was lost under it: that is not a second death. It goes back,
/// and is counted where it ends.
#[tokio::test(start_paused = true)]
async fn a_worker_that_dies_once_after_a_node_was_lost() {
    let rig = Rig::new(one(), |_: &Ask| Act::Return { after: MS, cells: vec![Cell::Value(1.0)] });
    let died = AtomicBool::new(false);
    let _ = rig.overrides.set(Box::new(move |node, _| match node {
        "a" => Some(Act::Hang),
        _ => (!died.swap(true, Ordering::Relaxed)).then_some(Act::Crash { after: MS }),
    }));
    rig.add("a", NodeSpec::new(1));
    tokio::time::sleep(5 * MS).await;
    let batch = rig.submit(1, 1, 1);
    tokio::time::sleep(20 * MS).await;
    rig.add("b", NodeSpec::new(1));
    rig.kill("a", false);
    assert!(done(&batch).await);
    assert_eq!(batch.cell(0, 0).unwrap().outcome.status, Status::Ok);
    let b = rig.lane.nodes().into_iter().find(|node| &*node.name == "b").unwrap();
    assert_eq!((b.ended, b.calls), (1, 0));
    rig.close().await;
}

#[tokio::test(start_paused = true)]
async fn frames_waiting_for_their_own_node_go_with_their_batch() {
    let rig = Rig::new(one(), |_: &Ask| Act::Hang);
    for name in ["a", "b"] {
        rig.add(name, NodeSpec::new(4));
        tokio::time::sleep(5 * MS).await;
    }
    let batch = rig.submit(1, 8, 1);
    tokio::time::sleep(20 * MS).await;
    for name in ["a", "b"] {
        rig.kill(name, false);
        tokio::time::sleep(20 * MS).await;
        rig.add(name, NodeSpec::new(4));
        tokio::time::sleep(20 * MS).await;
    }
    rig.add("c", NodeSpec::new(4));
    rig.kill("a", false);
    rig.kill("b", false);
    tokio::time::sleep(50 * MS).await;
    // Each of the eight was lost twice at least: one is in hand, by itself, and others wait.
    assert_eq!(rig.frames_at("c"), 1);
    rig.scheduler.cancel(&batch, "stop");
    assert!(batch.is_done());
    tokio::time::sleep(200 * MS).await;
    assert_eq!((rig.frames_at("c"), rig.lane.nodes().iter().map(|node| node.frames).sum::<usize>()), (0, 0));
    let batch = rig.submit(2, 1, 1);
    tokio::time::sleep(50 * MS).await;
    assert_eq!(rig.frames_at("c"), 1, "it takes others again");
    rig.scheduler.cancel(&batch, "stop");
    rig.close().await;
}

prop_compose! {
    fn plans()(
        (seed, samples, retries) in (any::<u64>(), 1..120_usize, 0..2_u16),
        nodes in prop::collection::vec(1..6_usize, 1..4),
        poisons in prop::collection::btree_set(0..120_usize, 0..4),
        (longest, deadly, back) in (0..60_u32, 0..40_u32, 1..600_u32),
        one_loss in prop::option::of((0..300_u32, 0..4_usize)),
    ) -> Plan {
        let poisons = poisons.into_iter().filter(|poison| *poison < samples).collect();
        let losses = one_loss.into_iter().map(|(at, node)| (at * MS, node % nodes.len())).collect();
        let (longest, deadly_after, back_after) = (longest * MS, deadly * MS, back * MS);
        Plan { seed, samples, nodes, poisons, longest, deadly_after, back_after, losses, retries, runs_on: RunsOn::Workers }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

    /// A call that is not to blame has crashed only where a node was lost for another reason while
    /// it had that to itself.
    #[test]
    fn poisons_alone_have_crashed(plan in plans()) {
        paused(async {
            let (batch, lost) = run(&plan).await;
            if plan.losses.is_empty() {
                expect_exactly(&plan, &batch);
            }
            assert!(lost <= 4 * plan.poisons.len() + plan.losses.len(), "{lost} nodes were lost {plan:?}");
        });
    }
}

/// Nodes of 8 workers come and go for as long as the batch takes; five calls kill theirs.
async fn chaos(samples: usize) -> (usize, usize) {
    let mut plan = Plan::new(7, &[samples / 7, samples / 3, samples / 2, samples - 3, samples - 2]);
    let mut draws = fastrand::Rng::with_seed(11);
    (plan.samples, plan.nodes, plan.longest, plan.back_after) = (samples, vec![8; 3], 20 * MS, 30 * MS);
    // Ten milliseconds a call on 24 workers, about.
    plan.losses =
        (0..samples / 200).map(|at| (at as u32 * 80 * MS + draws.u32(0..80) * MS, draws.usize(0..3))).collect();
    let (batch, lost) = run(&plan).await;
    let crashed: Vec<usize> =
        (0..samples).filter(|sample| batch.cell(*sample, 0).unwrap().outcome.status != Status::Ok).collect();
    assert!(plan.poisons.iter().all(|poison| crashed.contains(poison)), "{crashed:?}");
    // An innocent call has crashed only with a node that it had to itself, lost for another reason.
    assert!(crashed.len() <= plan.poisons.len() + lost / 10, "{} of {lost}", crashed.len());
    assert!((0..samples).all(|sample| {
        let outcome = batch.cell(sample, 0).unwrap().outcome;
        matches!(outcome.status, Status::Crashed) || outcome.value == sample as f64
    }));
    (crashed.len(), lost)
}

/// Fault: nodes are lost at random, several times a second, and some calls kill theirs
/// Sees: every cell has one outcome; those of the killers are `crashed`
#[test]
fn chaos_of_ten_thousand_cells() {
    let start = std::time::Instant::now();
    let (crashed, lost) = paused(chaos(10_000));
    println!("{crashed} of 10000 cells crashed, {lost} nodes were lost, in {:?}", start.elapsed());
}

#[test]
#[ignore = "soak"]
fn chaos_of_a_hundred_thousand_cells() {
    let start = std::time::Instant::now();
    let (crashed, lost) = paused(chaos(100_000));
    println!("{crashed} of 100000 cells crashed, {lost} nodes were lost, in {:?}", start.elapsed());
}
