//! What is left of nodes, sessions and lanes when they end while others begin.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use guerdon_core::clock::Clock;
use guerdon_core::frame::Frame;
use guerdon_core::function::{Function, FunctionId, Shape};
use guerdon_core::lane::{CloseFuture, Lane, LaneWaker};
use guerdon_core::outcome::Status;
use guerdon_core::scheduler::Scheduler;
use guerdon_core::snapshots::NodeState;
use guerdon_remote::{RemoteConfig, RemoteLane};
use guerdon_testkit::{done, function};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::rig::{DIGEST, MS, NodeSpec, Rig, one, takes};

/// A lane that counts how often it was closed.
#[derive(Default)]
struct CloseCounter(AtomicUsize);

impl Lane for CloseCounter {
    fn attach(&self, _: LaneWaker) {}

    fn room(&self, _: FunctionId) -> usize {
        0
    }

    fn parallelism(&self, _: FunctionId) -> usize {
        1
    }

    fn pool(&self, _: FunctionId) -> usize {
        0
    }

    fn frame_calls(&self, _: FunctionId) -> usize {
        1
    }

    fn run(&self, _: Frame) {}

    fn close(&self) -> CloseFuture {
        self.0.fetch_add(1, Ordering::SeqCst);
        Box::pin(async {})
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_of_this_process_that_are_made_beside_close_are_closed() {
    let local = Arc::<CloseCounter>::default();
    let closing = Arc::<Mutex<Option<std::thread::JoinHandle<CloseFuture>>>>::default();
    let lane_of = Arc::<Mutex<Option<Arc<RemoteLane>>>>::default();
    let (made, ends, of) = (local.clone(), closing.clone(), lane_of.clone());
    let make = move || {
        let lane = of.lock().clone().unwrap();
        *ends.lock() = Some(std::thread::spawn(move || lane.close()));
        std::thread::sleep(50 * MS);
        made.clone() as Arc<dyn Lane>
    };
    let config = RemoteConfig::new(DIGEST, 1, Box::new(make));
    let lane = RemoteLane::new(Handle::current(), Clock::start(), &one(), config);
    *lane_of.lock() = Some(lane.clone());
    let scheduler = Scheduler::start(&Handle::current(), Clock::start(), one(), vec![lane.clone()]);
    assert_eq!(lane.room(0), 0, "there is no node: one is made here");
    let closed = loop {
        if let Some(closing) = closing.lock().take() {
            break closing;
        }
        tokio::time::sleep(MS).await;
    };
    closed.join().unwrap().await;
    assert_eq!(local.0.load(Ordering::SeqCst), 1);
    scheduler.close().await;
    lane_of.lock().take();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_come_beside_close_do_not_hold_it_up() {
    for _ in 0..200 {
        let make = || Arc::<CloseCounter>::default() as Arc<dyn Lane>;
        let lane =
            RemoteLane::new(Handle::current(), Clock::start(), &one(), RemoteConfig::new(DIGEST, 1, Box::new(make)));
        let adding = lane.clone();
        let adds =
            std::thread::spawn(move || (0..8).map(|name| adding.add_node(&format!("n{name}"))).collect::<Vec<_>>());
        // No agent ever answers: only `close` ends these sessions.
        tokio::time::timeout(Duration::from_secs(5), lane.close()).await.expect("it waits for a node that came late");
        let links = adds.join().unwrap();
        assert!(links.iter().flatten().all(|link| link.is_closed()), "a link was left open");
    }
}

/// Fault: this process is stopped for longer than a node may say nothing
/// Sees: nothing: no node counts as lost
#[tokio::test(start_paused = true)]
async fn a_driver_that_was_stopped_takes_no_node_for_lost() {
    let rig = Rig::new(one(), takes(5 * MS));
    rig.add_all(&["a", "b", "c", "d"], NodeSpec::new(2));
    for number in 1..30 {
        let batch = rig.submit(number, 100, 1);
        tokio::time::sleep(20 * MS).await;
        tokio::time::advance(Duration::from_secs(40)).await;
        assert!(done(&batch).await);
    }
    assert_eq!(*rig.warnings.lock(), Vec::<String>::new());
    rig.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_session_panics_is_lost() {
    let panic = |_: &str, _: &[u8]| std::panic::resume_unwind(Box::new("by test"));
    let rig = Rig::with(one(), takes(5 * MS), |config| config.print = Arc::new(panic));
    rig.add_all(&["a", "b"], NodeSpec::new(2));
    let batch = rig.submit(1, 100, 1);
    tokio::time::sleep(20 * MS).await;
    rig.print("a", b"line");
    assert!(done(&batch).await);
    assert!((0..100).all(|sample| batch.cell(sample, 0).unwrap().outcome.status == Status::Ok));
    assert_eq!(rig.lane.nodes().iter().filter(|node| node.state == NodeState::Lost).count(), 1);
    rig.close().await;
}

/// Fault: nodes with ever other names are lost
/// Sees: 64 of them are remembered
#[tokio::test(start_paused = true)]
async fn lost_nodes_are_remembered_up_to_a_bound() {
    let rig = Rig::new(one(), takes(MS));
    for number in 0..100 {
        rig.add(&format!("n{number}"), NodeSpec::new(1));
        tokio::time::sleep(5 * MS).await;
        rig.kill(&format!("n{number}"), true);
        tokio::time::sleep(5 * MS).await;
    }
    let nodes = rig.lane.nodes();
    assert!(nodes.len() <= 66 && &*nodes.last().unwrap().name == "n99", "{}", nodes.len());
    rig.close().await;
}

#[tokio::test(start_paused = true)]
async fn it_is_warned_again_when_all_nodes_are_lost_again() {
    let rig = Rig::new(one(), takes(5 * MS));
    for number in 1..3 {
        rig.add("a", NodeSpec::new(1));
        tokio::time::sleep(5 * MS).await;
        let batch = rig.submit(number, 20, 1);
        tokio::time::sleep(20 * MS).await;
        rig.kill("a", false);
        assert!(done(&batch).await);
    }
    let none_left = |warning: &&String| warning.contains("No node is left");
    assert_eq!(rig.warnings.lock().iter().filter(none_left).count(), 2, "{:?}", rig.warnings.lock());
    // The one engine of a host does not come again.
    assert!(rig.warnings.lock().iter().all(|warning| !warning.contains("until one comes")));
    rig.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_function_with_one_worker_has_one_while_its_node_drains() {
    let functions = vec![Function { pinned: true, ..function("f", Shape::Sample) }];
    let rig = Rig::new(functions, takes(200 * MS));
    rig.add("a", NodeSpec { frame_calls: 1, ..NodeSpec::new(2) });
    tokio::time::sleep(5 * MS).await;
    let batch = rig.submit(1, 10, 1);
    tokio::time::sleep(20 * MS).await;
    rig.add("b", NodeSpec::new(2));
    assert!(rig.lane.drain("a"));
    tokio::time::sleep(20 * MS).await;
    assert_eq!((rig.frames_at("a"), rig.frames_at("b")), (1, 0));
    assert!(done(&batch).await);
    assert!(!rig.log_of("b").calls().is_empty());
    rig.close().await;
}
