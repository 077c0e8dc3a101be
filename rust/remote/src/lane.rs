//! The remote lane's implementation of `Lane`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::time::Duration;

use guerdon_core::clock::Clock;
use guerdon_core::frame::Frame;
use guerdon_core::function::{Function, FunctionId, Shape};
use guerdon_core::in_flight::InFlight;
use guerdon_core::lane::{CallsRun, CloseFuture, Lane, LaneWaker};
use guerdon_core::snapshots::{NodeSnapshot, NodeState};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::config::{RemoteConfig, RunsOn};
use crate::lane_state::LaneState;
use crate::link::Link;
use crate::node::{Node, NodeInput};
use crate::session::Session;

/// The pool of functions whose calls have a fresh worker each. Functions that don't share workers
/// (pinned functions, and functions of agents) have separate pools after it.
const ALONE: usize = 1;
/// Largest number of lost nodes that are kept for display.
const MOST_LOST: usize = 64;

/// Runs calls on other nodes, and in this process when none is left.
pub struct RemoteLane {
    state: Arc<LaneState>,
    /// The sessions. Taken by `close`.
    sessions: Mutex<Option<JoinSet<()>>>,
}

impl RemoteLane {
    /// Makes a lane without nodes.
    #[must_use]
    pub fn new(runtime: Handle, clock: Clock, functions: &[Function], config: RemoteConfig) -> Arc<Self> {
        let state = Arc::new(LaneState::new(runtime, clock, functions, config));
        Arc::new(Self { state, sessions: Mutex::new(Some(JoinSet::new())) })
    }

    /// Adds a node, and returns this end of the link to its agent. `None` if a node has the name.
    #[must_use]
    pub fn add_node(&self, name: &str) -> Option<Arc<Link>> {
        let state = &self.state;
        let (node, inputs) = Node::new(name, &state.config.runs_on);
        let link = node.link.clone();
        // Held until the session is added, so that `close` finds the sessions of all nodes.
        let mut sessions = self.sessions.lock();
        let Some(sessions) = sessions.as_mut() else {
            link.close();
            return Some(link);
        };
        {
            let mut nodes = state.nodes.write();
            if nodes.iter().any(|node| &*node.name == name && node.state() != NodeState::Lost) {
                return None;
            }
            let lost = nodes.iter().filter(|node| node.state() == NodeState::Lost).count();
            let mut over = lost.saturating_sub(MOST_LOST);
            nodes.retain(|node| {
                let oldest = node.state() == NodeState::Lost && over > 0;
                over -= usize::from(oldest);
                &*node.name != name && !oldest
            });
            nodes.push(node.clone());
        }
        let state = state.clone();
        sessions.spawn_on(async move { Session::new(state, node).serve(inputs).await }, &self.state.runtime);
        while sessions.try_join_next().is_some() {}
        Some(link)
    }

    /// Sends a node no more frames, and takes back those that it has not begun; false if the name
    /// is unknown.
    pub fn drain(&self, name: &str) -> bool {
        let nodes = self.state.nodes.read();
        let node = nodes.iter().find(|node| &*node.name == name && node.state() != NodeState::Lost);
        node.is_some_and(|node| {
            node.send(NodeInput::Drain);
            true
        })
    }

    /// Returns all nodes; lost ones until a node of their name comes.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeSnapshot> {
        self.state.nodes.read().iter().map(|node| node.snapshot()).collect()
    }
}

impl Lane for RemoteLane {
    fn attach(&self, waker: LaneWaker) {
        let _ = self.state.waker.set(waker);
    }

    fn room(&self, function: FunctionId) -> usize {
        self.state.room(function)
    }

    fn parallelism(&self, function: FunctionId) -> usize {
        self.state.parallelism(function)
    }

    fn pool(&self, id: FunctionId) -> usize {
        match &self.state.functions[id] {
            _ if self.state.config.runs_on[id] != RunsOn::Workers => ALONE + 1 + id,
            function if function.isolated => ALONE,
            function if function.pinned => ALONE + 1 + id,
            _ => 0,
        }
    }

    fn frame_calls(&self, id: FunctionId) -> usize {
        let function = &self.state.functions[id];
        if self.state.config.runs_on[id] != RunsOn::Workers {
            return self.state.frame_calls_in_agents(id);
        }
        let alone = function.isolated || function.shape == Shape::Batch;
        if alone { 1 } else { self.state.config.frame_calls.get(id).copied().unwrap_or(1) }
    }

    fn calls_run(&self, id: FunctionId) -> CallsRun {
        if self.state.config.runs_on[id].is_loop() { CallsRun::Concurrent } else { CallsRun::InTurn }
    }

    fn frame_bytes(&self) -> usize {
        self.state.config.frame_bytes
    }

    fn run(&self, frame: Frame) {
        self.state.run(frame);
    }

    fn ask_in_flight(&self, within: Duration, answer: &Sender<InFlight>) {
        for node in &*self.state.nodes.read() {
            node.send(NodeInput::Inspect(answer.clone(), within));
        }
        if let Some(local) = self.state.local() {
            local.ask_in_flight(within, answer);
        }
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let local = self.state.local().map(|local| local.counters());
        let lost = self.state.lost.load(Ordering::Relaxed);
        local.into_iter().flatten().chain([("nodes_lost", lost)]).collect()
    }

    fn close(&self) -> CloseFuture {
        let local = self.state.end_local().map(|local| local.close());
        self.state.place_apart();
        let sessions = {
            let mut sessions = self.sessions.lock();
            for node in &*self.state.nodes.read() {
                node.send(NodeInput::Close);
            }
            sessions.take()
        };
        let state = self.state.clone();
        Box::pin(async move {
            if let Some(mut sessions) = sessions {
                while sessions.join_next().await.is_some() {}
            }
            if let Some(local) = local {
                local.await;
            }
            (state.config.last_words)().await;
        })
    }
}
