//! What becomes of calls whose node is lost, silent, slow or drained.

use std::time::Duration;

use guerdon_core::batch::BatchSpec;
use guerdon_core::outcome::{Cell, Status};
use guerdon_core::snapshots::NodeState;
use guerdon_testkit::{Act, Ask, Unwritable, done};

use crate::rig::{MS, NodeSpec, Rig, all_ok, one, takes};

/// Fault: a node is lost with frames in hand
/// Sees: a warning; what it had runs elsewhere
#[tokio::test(start_paused = true)]
async fn frames_of_a_lost_node_run_elsewhere() {
    let rig = Rig::new(one(), takes(5 * MS));
    rig.add_all(&["a", "b"], NodeSpec::new(4));
    let batch = rig.submit(1, 400, 1);
    tokio::time::sleep(50 * MS).await;
    assert!(rig.kill("a", false));
    all_ok(&batch).await;
    let retries = batch.retries_of(0);
    assert!((1..=12).contains(&retries), "{retries} calls are charged with the loss, one a frame");
    assert_eq!(*rig.warnings.lock(), ["Node 'a' was lost: killed."]);
    assert_eq!(rig.lane.nodes().iter().filter(|node| node.state == NodeState::Lost).count(), 1);
    rig.add("a", NodeSpec::new(4));
    let batch = rig.submit(2, 40, 1);
    all_ok(&batch).await;
    rig.close().await;
}

/// Fault: the arguments of a call can't be written
/// Sees: that call fails; the node goes on
#[tokio::test(start_paused = true)]
async fn a_frame_that_cannot_be_written_costs_no_node() {
    let rig = Rig::new(one(), takes(5 * MS));
    rig.add("a", NodeSpec::new(1));
    for number in 0..2 {
        let damaged = rig.scheduler.submit(BatchSpec::whole(1, 1, Box::new(Unwritable))).unwrap();
        assert!(done(&damaged).await);
        assert_eq!(damaged.shown(0, 0).1, Status::Error);
        assert!(damaged.note_of(0, 0).unwrap().reason.contains("could not be written"));
        let batch = rig.submit(number, 4, 1);
        all_ok(&batch).await;
    }
    assert_eq!(*rig.warnings.lock(), [""; 0]);
    rig.close().await;
}

/// Fault: a node is preempted
/// Sees: no call is charged with an attempt
#[tokio::test(start_paused = true)]
async fn nobody_is_charged_with_a_node_that_was_preempted() {
    let rig = Rig::new(one(), takes(5 * MS));
    rig.add_all(&["a", "b"], NodeSpec::new(4));
    let batch = rig.submit(1, 400, 1);
    tokio::time::sleep(50 * MS).await;
    assert!(rig.kill("a", true));
    all_ok(&batch).await;
    assert_eq!(batch.retries_of(0), 0);
    rig.close().await;
}

/// Fault: a call kills its worker at one node after the other
/// Sees: it is `crashed` after two, which are named
#[tokio::test(start_paused = true)]
async fn a_worker_that_dies_is_named_with_its_nodes() {
    let rig = Rig::new(one(), |_: &Ask| Act::Crash { after: MS });
    rig.add_all(&["a", "b"], NodeSpec::new(1));
    let batch = rig.submit(1, 1, 1);
    assert!(done(&batch).await);
    let reason = batch.note_of(0, 0).unwrap().reason;
    assert!(reason.ends_with(" on node 'b' (before that on 'a')"), "the second time elsewhere: {reason}");
    rig.close().await;
}

/// Fault: a node says nothing any more
/// Sees: it counts as lost; its calls run elsewhere
#[tokio::test(start_paused = true)]
async fn a_silent_node_is_lost_in_bounded_time() {
    let rig = Rig::with(one(), takes(5 * MS), |config| config.silence = 1000 * MS);
    rig.add_all(&["a", "b"], NodeSpec::new(2));
    let batch = rig.submit(1, 100, 1);
    tokio::time::sleep(20 * MS).await;
    rig.stop("a");
    let start = tokio::time::Instant::now();
    all_ok(&batch).await;
    assert!(start.elapsed() < 2500 * MS, "{:?}", start.elapsed());
    assert!(rig.warnings.lock()[0].starts_with("Node 'a' was lost: it said nothing for 1 s"));
    rig.kill("a", true);
    rig.close().await;
}

/// Fault: no node ever answers
/// Sees: one warning; calls run in workers of this process
#[tokio::test(start_paused = true)]
async fn a_node_that_never_answers_is_lost_and_calls_run_here() {
    let rig = Rig::with(one(), takes(MS), |config| config.silence = 500 * MS);
    let _link = rig.lane.add_node("a").unwrap();
    assert!(rig.lane.add_node("a").is_none(), "the name is taken");
    let batch = rig.submit(1, 10, 1);
    all_ok(&batch).await;
    let warnings = rig.warnings.lock().clone();
    assert!(warnings.len() == 1 && warnings[0].starts_with("Node 'a' can't be used: it said nothing"), "{warnings:?}");
    assert!(!rig.local.log().calls().is_empty());
    rig.close().await;
}

/// Fault: a node is drained
/// Sees: nothing: what it has not begun runs elsewhere, and no call is made twice
#[tokio::test(start_paused = true)]
async fn a_drained_node_ends_what_it_began_and_goes() {
    let rig = Rig::new(one(), takes(5 * MS));
    rig.add_all(&["a", "b"], NodeSpec { frame_calls: 1, ..NodeSpec::new(2) });
    let batch = rig.submit(1, 200, 1);
    tokio::time::sleep(30 * MS).await;
    assert!(rig.lane.drain("a") && !rig.lane.drain("c"));
    tokio::time::sleep(30 * MS).await;
    let ran = rig.log_of("a").calls().len();
    assert_eq!(rig.lane.nodes().iter().map(|node| &*node.name).collect::<Vec<_>>(), ["b"]);
    all_ok(&batch).await;
    assert_eq!((rig.log_of("a").calls().len(), batch.retries_of(0)), (ran, 0));
    assert!(rig.warnings.lock().is_empty());
    rig.close().await;
}

/// Fault: calls stall at one node
/// Sees: nothing: what waits behind them goes to another
#[tokio::test(start_paused = true)]
async fn frames_at_a_stalled_node_are_taken_back() {
    // One call of a's two workers takes an hour; what is behind it goes to b.
    let slow = |ask: &Ask| Act::Return {
        after: if ask.first < 2 { 3_600_000 * MS } else { 5 * MS },
        cells: vec![Cell::Value(ask.first as f64)],
    };
    let mut functions = one();
    functions[0].policy.timeout = Duration::from_secs(2);
    let rig = Rig::new(functions, slow);
    rig.add("a", NodeSpec::new(2));
    tokio::time::sleep(5 * MS).await;
    let batch = rig.submit(1, 60, 1);
    tokio::time::sleep(5 * MS).await;
    rig.add("b", NodeSpec::new(2));
    let ended = || (2..60).all(|sample| batch.cell(sample, 0).is_some());
    let start = tokio::time::Instant::now();
    while !ended() {
        tokio::time::sleep(5 * MS).await;
    }
    assert!(start.elapsed() < 700 * MS, "{:?}", start.elapsed());
    assert!(done(&batch).await);
    rig.close().await;
}

/// Fault: a batch is cancelled while nodes run its calls
/// Sees: the nodes are free again
#[tokio::test(start_paused = true)]
async fn a_cancelled_batch_ends_its_calls_at_the_agents() {
    let rig = Rig::new(one(), takes(3_600_000 * MS));
    rig.add("a", NodeSpec::new(4));
    let batch = rig.submit(1, 100, 1);
    tokio::time::sleep(50 * MS).await;
    assert!(rig.frames_at("a") > 0);
    rig.scheduler.cancel(&batch, "stop");
    assert!(batch.is_done());
    tokio::time::sleep(200 * MS).await;
    assert_eq!(rig.frames_at("a"), 0);
    assert_eq!(rig.lane.nodes()[0].frames, 0);
    rig.close().await;
}

#[tokio::test(start_paused = true)]
async fn times_are_those_of_the_drivers_clock() {
    let rig = Rig::new(one(), takes(40 * MS));
    rig.add("a", NodeSpec { delay: 10 * MS, ..NodeSpec::new(1) });
    tokio::time::sleep(50 * MS).await;
    let start_ns = rig.scheduler.clock().now_ns();
    let batch = rig.submit(1, 1, 1);
    assert!(done(&batch).await);
    let times = batch.cell(0, 0).unwrap().outcome.times;
    assert!(times.run_ns.abs_diff(40_000_000) < 3_000_000, "{times:?}");
    assert!((start_ns + 10_000_000).abs_diff(times.started_ns) < 5_000_000, "{times:?} after {start_ns}");
    rig.close().await;
}
