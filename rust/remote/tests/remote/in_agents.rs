//! Functions that run in agents, on threads and event loops.

use std::time::Duration;

use guerdon_core::function::{Function, Policy, Shape};
use guerdon_core::outcome::{Cell, Status};
use guerdon_remote::RunsOn;
use guerdon_testkit::{Act, Ask, done, function};
use tokio::time::Instant;

use crate::rig::{MS, NodeSpec, Rig, all_ok, one, takes};

fn rig(functions: Vec<Function>, runs_on: Vec<RunsOn>, takes_each: Duration) -> Rig {
    Rig::with(functions, takes(takes_each), move |config| config.runs_on = runs_on)
}

#[tokio::test(start_paused = true)]
async fn a_loop_of_each_node_has_as_many_calls_as_it_runs() {
    let rig = rig(one(), vec![RunsOn::Loop(32)], 50 * MS);
    rig.add_all(&["a", "b"], NodeSpec::new(1));
    tokio::time::sleep(5 * MS).await;
    let start = Instant::now();
    let batch = rig.submit(1, 1280, 1);
    let mut most = 0;
    while !batch.is_done() {
        most = most.max(rig.lane.nodes().iter().map(|node| node.calls).max().unwrap_or(0));
        tokio::time::sleep(MS).await;
    }
    all_ok(&batch).await;
    assert_eq!(most, 32);
    // 64 at a time, 20 times 50 ms.
    assert!(start.elapsed() <= 1200 * MS, "{:?}", start.elapsed());
    assert!(!rig.loop_log_of("a").calls().is_empty() && rig.log_of("a").calls().is_empty());
    rig.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_function_has_no_more_calls_than_its_concurrency_over_all_nodes() {
    let one = function("f", Shape::Sample);
    let policy = Policy { concurrency: Some(10), ..one.policy.clone() };
    let rig = rig(vec![Function { policy, ..one }], vec![RunsOn::Loop(10)], 20 * MS);
    rig.add_all(&["a", "b", "c"], NodeSpec::new(1));
    tokio::time::sleep(5 * MS).await;
    let batch = rig.submit(1, 100, 1);
    while !batch.is_done() {
        let calls: usize = rig.lane.nodes().iter().map(|node| node.calls).sum();
        assert!(calls <= 10, "{calls}");
        tokio::time::sleep(MS).await;
    }
    rig.close().await;
}

#[tokio::test(start_paused = true)]
async fn workers_and_threads_do_not_take_each_others_places() {
    let both = vec![function("f", Shape::Sample), function("g", Shape::Sample)];
    let rig = rig(both, vec![RunsOn::Workers, RunsOn::Threads(1)], 10 * MS);
    rig.add("a", NodeSpec { frame_calls: 1, ..NodeSpec::new(4) });
    tokio::time::sleep(5 * MS).await;
    let batch = rig.submit(1, 100, 1);
    tokio::time::sleep(20 * MS).await;
    let frames = rig.lane.nodes()[0].frames;
    assert!((1 + 4..=2 + 4 * 3).contains(&frames), "{frames}");
    assert!(done(&batch).await);
    rig.close().await;
}

#[tokio::test(start_paused = true)]
async fn waiting_frames_go_to_a_node_without_the_function() {
    for runs_on in [RunsOn::Threads(4), RunsOn::Loop(64)] {
        let rig = rig(one(), vec![runs_on], 40 * MS);
        rig.add("a", NodeSpec { frame_calls: 1, ..NodeSpec::new(2) });
        tokio::time::sleep(5 * MS).await;
        let batch = rig.submit(1, 200, 1);
        tokio::time::sleep(20 * MS).await;
        rig.add("b", NodeSpec { frame_calls: 1, ..NodeSpec::new(2) });
        all_ok(&batch).await;
        assert_eq!(batch.retries_of(0), 0);
        let of = |name| rig.log_of(name).calls().len() + rig.loop_log_of(name).calls().len();
        assert!(of("b") > 20, "{} and {}", of("a"), of("b"));
        rig.close().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_drained_node_ends_what_it_has_begun_and_gives_the_rest_back() {
    for runs_on in [RunsOn::Threads(4), RunsOn::Loop(64)] {
        let rig = rig(one(), vec![runs_on], 40 * MS);
        rig.add_all(&["a", "b"], NodeSpec { frame_calls: 1, ..NodeSpec::new(2) });
        tokio::time::sleep(5 * MS).await;
        let batch = rig.submit(1, 200, 1);
        tokio::time::sleep(20 * MS).await;
        assert!(rig.lane.drain("a"));
        tokio::time::sleep(150 * MS).await;
        assert_eq!(rig.lane.nodes().iter().map(|node| &*node.name).collect::<Vec<_>>(), ["b"]);
        all_ok(&batch).await;
        assert_eq!(batch.retries_of(0), 0);
        rig.close().await;
    }
}

/// Fault: the node is lost whose loop runs many calls at a time (`node="any"`)
/// Sees: each of them is made once more elsewhere
#[tokio::test(start_paused = true)]
async fn calls_of_a_lost_loop_run_elsewhere() {
    let rig = rig(one(), vec![RunsOn::Loop(32)], 50 * MS);
    rig.add_all(&["a", "b"], NodeSpec::new(1));
    tokio::time::sleep(5 * MS).await;
    let batch = rig.submit(1, 200, 1);
    tokio::time::sleep(20 * MS).await;
    assert!(rig.kill("a", false));
    all_ok(&batch).await;
    assert_eq!(batch.retries_of(0), 32);
    rig.close().await;
}

/// Fault: two nodes are lost under a call that would run in the trainer's process next
/// Sees: it waits for a node, then it is `crashed`: what ended two agents does not end the trainer
#[tokio::test(start_paused = true)]
async fn call_that_may_have_ended_two_agents_does_not_run_here() {
    for (runs_on, here) in [(RunsOn::Threads(4), false), (RunsOn::Loop(4), false), (RunsOn::Workers, true)] {
        let rig = Rig::with(
            one(),
            |_: &Ask| Act::Return { after: MS, cells: vec![Cell::Value(0.0)] },
            |config| config.runs_on = vec![runs_on],
        );
        let _ = rig.overrides.set(Box::new(|node, _| (!node.is_empty()).then_some(Act::Hang)));
        rig.add_all(&["a", "b"], NodeSpec::new(1));
        tokio::time::sleep(5 * MS).await;
        let (start, batch) = (Instant::now(), rig.submit(1, 1, 1));
        for _ in 0..2 {
            tokio::time::sleep(50 * MS).await;
            let nodes = rig.lane.nodes();
            let has = nodes.iter().find(|node| node.calls > 0).unwrap();
            assert!(rig.kill(&has.name, false));
        }
        assert!(done(&batch).await);
        assert!(start.elapsed() < Duration::from_secs(40));
        let outcome = batch.cell(0, 0).unwrap().outcome;
        assert_eq!(outcome.status, if here { Status::Ok } else { Status::Crashed });
        assert_eq!(rig.local.log().calls().is_empty(), !here);
        rig.close().await;
    }
}

/// Fault: an agent warns without end
/// Sees: a hundred of its warnings, with its name
#[tokio::test(start_paused = true)]
async fn warnings_of_an_agent_have_its_name_and_a_bound() {
    let rig = rig(one(), vec![RunsOn::Threads(4)], MS);
    rig.add("a", NodeSpec::new(1));
    tokio::time::sleep(5 * MS).await;
    (0..200).for_each(|number| rig.warn("a", &format!("warning {number}")));
    tokio::time::sleep(20 * MS).await;
    let warnings = rig.warnings.lock().clone();
    assert_eq!((warnings.len(), &*warnings[0]), (100, "Node 'a': warning 0"));
    rig.close().await;
}
