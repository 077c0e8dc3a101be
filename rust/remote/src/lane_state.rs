//! State that the sessions of a lane's nodes share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use guerdon_core::clock::Clock;
use guerdon_core::frame::Frame;
use guerdon_core::function::{Function, FunctionId};
use guerdon_core::lane::{Lane, LaneWaker};
use guerdon_core::outcome::{Failure, FailureKind, Times};
use guerdon_core::snapshots::NodeState;
use parking_lot::{Mutex, RwLock};
use tokio::runtime::Handle;

use crate::balance::{self, Load};
use crate::config::{RemoteConfig, RunsOn};
use crate::isolated_frames::{Arrangement, IsolatedFrames};
use crate::loss::{self, LossLedger};
use crate::node::{LOOP_CALLS, Node, NodeGuard, NodeHold, NodeInput, QueuedFrame};

/// Number of searches for nodes until waiting frames are given up.
const LOOKS: u32 = 10;

pub(crate) struct LaneState {
    pub runtime: Handle,
    pub clock: Clock,
    pub functions: Vec<Function>,
    pub config: RemoteConfig,
    /// True if some functions run in agents, without workers.
    pub runs_in_agents: bool,
    /// Set by `attach`.
    pub waker: OnceLock<LaneWaker>,
    /// Lost nodes stay until one of their name comes again. Written by `RemoteLane` and by
    /// sessions.
    pub nodes: RwLock<Vec<Arc<Node>>>,
    /// The node of each function with one worker. Written by `run`.
    pinned: Mutex<Vec<Weak<Node>>>,
    pub ledger: LossLedger,
    /// Number of lost nodes. Written by sessions.
    pub lost: AtomicU64,
    /// Held while a frame is assigned a place.
    pub apart: Mutex<IsolatedFrames>,
    /// Held while the frames to move are chosen.
    balancing: Mutex<()>,
    /// Runs calls in this process when no node is left.
    local: OnceLock<Arc<dyn Lane>>,
    local_wanted: AtomicBool,
    /// True while a task gives up frames that no node takes.
    gives_up: AtomicBool,
    /// Held while `local` is made.
    making_local: Mutex<()>,
    /// True after the warning that calls run in this process.
    pub local_reported: AtomicBool,
    /// Written by `end_local`.
    closed: AtomicBool,
}

impl LaneState {
    pub(crate) fn new(runtime: Handle, clock: Clock, functions: &[Function], config: RemoteConfig) -> Self {
        Self {
            runtime,
            clock,
            functions: functions.to_vec(),
            runs_in_agents: config.runs_on.iter().any(|on| *on != RunsOn::Workers),
            config,
            waker: OnceLock::new(),
            nodes: RwLock::default(),
            pinned: Mutex::new(functions.iter().map(|_| Weak::new()).collect()),
            ledger: LossLedger::default(),
            lost: AtomicU64::new(0),
            apart: Mutex::default(),
            balancing: Mutex::default(),
            local: OnceLock::new(),
            local_wanted: AtomicBool::new(false),
            gives_up: AtomicBool::new(false),
            making_local: Mutex::default(),
            local_reported: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        }
    }

    pub(crate) fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn local(&self) -> Option<&Arc<dyn Lane>> {
        self.local.get()
    }

    /// The node of a function that has one worker.
    fn pinned_node(&self, function: FunctionId) -> Option<Arc<Node>> {
        self.pinned.lock()[function].upgrade().filter(|node| node.state() == NodeState::Ready)
    }

    fn pins(&self, function: FunctionId) -> bool {
        self.functions[function].pinned && !self.functions[function].isolated
    }

    /// Number of a function's frames that would be taken now.
    pub(crate) fn room(self: &Arc<Self>, function: FunctionId) -> usize {
        let (mut room, mut calls, mut any) = (0, 0, false);
        let concurrent = self.config.runs_on[function].is_loop();
        for node in &*self.nodes.read() {
            any |= matches!(node.state(), NodeState::Connecting | NodeState::Ready);
            room += node.room(function, self.config.node_bytes);
            if concurrent {
                calls += node.calls_of(function);
            }
        }
        if !any {
            return self.local_or_wanted().map_or(0, |local| local.room(function));
        }
        if concurrent {
            return room.min(self.left_of_concurrency(function, calls));
        }
        if self.pins(function) {
            // The same node even while it drains: the worker of another node would be a second one.
            let node = self.pinned.lock()[function].upgrade();
            let busy = node.is_some_and(|node| node.state() != NodeState::Lost && node.frames_of(function) > 0);
            return room.min(usize::from(!busy && !self.apart.lock().has(function)));
        }
        room
    }

    /// Returns the number of further calls of a function that its `concurrency` allows over all
    /// nodes.
    fn left_of_concurrency(&self, function: FunctionId, calls: usize) -> usize {
        self.functions[function].policy.concurrency.map_or(usize::MAX, |most| most.saturating_sub(calls))
    }

    /// The most calls in a frame of a function that runs in agents.
    pub(crate) fn frame_calls_in_agents(&self, function: FunctionId) -> usize {
        let (mut free, mut calls, mut any) = (0, 0, false);
        for node in &*self.nodes.read() {
            any |= matches!(node.state(), NodeState::Connecting | NodeState::Ready);
            free = free.max(node.free_on_loop(function));
            calls += node.calls_of(function);
        }
        match self.local() {
            Some(local) if !any => local.frame_calls(function),
            _ if self.config.runs_on[function].is_loop() => {
                free.min(self.left_of_concurrency(function, calls)).clamp(1, LOOP_CALLS)
            }
            _ => self.config.frame_calls.get(function).copied().unwrap_or(1),
        }
    }

    /// Returns whether another node has no calls of a function that runs in agents, and would take
    /// some.
    pub(crate) fn is_idle_elsewhere(&self, than: &Arc<Node>, function: FunctionId) -> bool {
        let nodes = self.nodes.read();
        let mut others = nodes.iter().filter(|node| !Arc::ptr_eq(node, than));
        others.any(|node| node.frames_of(function) == 0 && node.room(function, self.config.node_bytes) > 0)
    }

    /// Makes nodes give frames that have not begun to nodes that are low. Must be called after the
    /// scheduler has handed out its frames, which come first.
    pub(crate) fn balance(&self) {
        let nodes = self.nodes.read();
        let takes = |node: &Arc<Node>| node.takes_frames(self.config.node_bytes);
        if !nodes.iter().any(|node| takes(node) && node.is_low()) {
            return;
        }
        let _balancing = self.balancing.lock();
        let load = |node: &Arc<Node>| Load {
            workers: node.slots().max(1),
            frames: node.for_workers().saturating_sub(node.backlog.claimed()),
            low: if takes(node) { node.backlog.low(node.slots()) } else { 0 },
            unclaimed: if node.state() == NodeState::Lost { 0 } else { node.backlog.unclaimed() },
        };
        let there = nodes.iter().filter(|node| node.state() != NodeState::Lost);
        let on_the_way = there.map(|node| node.backlog.claimed()).sum();
        let gives = balance::moves(nodes.iter().map(load).collect(), on_the_way);
        for (node, frames) in nodes.iter().zip(gives).filter(|(_, frames)| *frames > 0) {
            node.backlog.claim(frames);
            node.send(NodeInput::Move(frames));
        }
    }

    /// Returns whether another node has idle workers.
    pub(crate) fn has_idle_workers(&self, than: &Arc<Node>) -> bool {
        let nodes = self.nodes.read();
        let mut others = nodes.iter().filter(|node| !Arc::ptr_eq(node, than));
        others.any(|node| node.takes_frames(self.config.node_bytes) && node.idle() > 0)
    }

    /// Returns whether calls have another node than this one, or will have soon.
    pub(crate) fn has_others(&self, than: &Arc<Node>) -> bool {
        let nodes = self.nodes.read();
        let mut others = nodes.iter().filter(|node| !Arc::ptr_eq(node, than));
        others.any(|node| matches!(node.state(), NodeState::Connecting | NodeState::Ready))
    }

    /// Number of workers of all nodes.
    pub(crate) fn parallelism(&self, function: FunctionId) -> usize {
        let nodes = self.nodes.read();
        let ready = nodes.iter().filter(|node| node.state() == NodeState::Ready);
        let slots: usize = ready.map(|node| self.config.runs_on[function].parallelism(node.slots())).sum();
        match self.local() {
            _ if slots > 0 && self.pins(function) => 1,
            Some(local) if slots == 0 => local.parallelism(function),
            _ => slots.max(1),
        }
    }

    /// Puts a frame where it runs soonest. If no node has room, dropping the frame gives it back.
    pub(crate) fn run(self: &Arc<Self>, frame: Frame) {
        let ready = self.nodes.read().iter().any(|node| node.state() == NodeState::Ready);
        let in_agents = self.config.runs_on[frame.function_id()] != RunsOn::Workers;
        if (ready || in_agents) && self.ledger.losses(&frame) >= loss::APART_AFTER {
            self.apart.lock().add(frame, in_agents);
            if in_agents {
                self.end_without_nodes();
            }
            self.place_apart();
            return;
        }
        if let Some((node, guard)) = self.place(&frame) {
            node.put(QueuedFrame { guard, frame, apart: false });
        } else if let Some(local) = self.local().filter(|_| !ready) {
            local.run(frame);
        }
    }

    /// Ends the frames that wait for a node and would run in this very process, after a long time
    /// without nodes.
    fn end_without_nodes(self: &Arc<Self>) {
        if self.gives_up.swap(true, Ordering::AcqRel) {
            return;
        }
        let (this, after) = (Arc::downgrade(self), self.config.silence);
        self.runtime.spawn(async move {
            let mut missed = 0;
            loop {
                tokio::time::sleep(after / LOOKS).await;
                let Some(this) = this.upgrade() else { return };
                let any = this
                    .nodes
                    .read()
                    .iter()
                    .any(|node| matches!(node.state(), NodeState::Connecting | NodeState::Ready));
                missed = if any { 0 } else { missed + 1 };
                if missed >= LOOKS {
                    let given_up = this.apart.lock().give_up();
                    given_up.into_iter().for_each(refuse_locally);
                }
                this.gives_up.store(false, Ordering::Release);
                if !this.apart.lock().has_of_agents() || this.gives_up.swap(true, Ordering::AcqRel) {
                    return;
                }
            }
        });
    }

    fn place(&self, frame: &Frame) -> Option<(Arc<Node>, NodeGuard)> {
        let function = frame.function_id();
        let pinned = if self.pins(function) { self.pinned_node(function) } else { None };
        let _placing = self.apart.lock();
        let node = pinned.filter(|node| node.kept() == NodeHold::No).or_else(|| self.choose(frame))?;
        self.pin(function, &node);
        let guard = node.place(frame);
        Some((node, guard))
    }

    /// Assigns places to the frames that wait for a dedicated node. Called when a node is ready, is
    /// lost or has less work, and at intervals.
    pub(crate) fn place_apart(&self) {
        let Arrangement { placed, dropped, freed } = {
            let mut apart = self.apart.lock();
            apart.arrange(&self.nodes.read(), self.is_closed())
        };
        for (node, queued) in placed {
            self.pin(queued.frame.function_id(), &node);
            node.put(queued);
        }
        drop(dropped);
        if freed {
            self.wake();
        }
    }

    /// Calls `place_apart` if the node is kept, or a frame waits.
    pub(crate) fn look_at(&self, node: &Node) {
        if node.kept() != NodeHold::No || !self.apart.lock().is_empty() {
            self.place_apart();
        }
    }

    /// Records the node of a function with one worker.
    fn pin(&self, function: FunctionId, node: &Arc<Node>) {
        if self.pins(function) {
            self.pinned.lock()[function] = Arc::downgrade(node);
        }
    }

    /// Returns the node with the least work for its workers. A suspect goes elsewhere if possible.
    fn choose(&self, frame: &Frame) -> Option<Arc<Node>> {
        let nodes = self.nodes.read();
        let function = frame.function_id();
        let open = nodes.iter().filter(|node| node.room(function, self.config.node_bytes) > 0);
        let suspect = frame.is_suspect();
        let rank = |node: &&Arc<Node>| {
            let known = suspect && self.ledger.was_at(frame, &node.name);
            (known, node.load(function))
        };
        open.min_by_key(rank).cloned()
    }

    /// Returns the lane of this process; the first request for it starts its making.
    fn local_or_wanted(self: &Arc<Self>) -> Option<&Arc<dyn Lane>> {
        if self.local().is_none() && !self.is_closed() && !self.local_wanted.swap(true, Ordering::AcqRel) {
            let this = self.clone();
            // Not on this thread, which holds the scheduler's lock.
            self.runtime.spawn(async move { this.make_local() });
        }
        self.local()
    }

    fn make_local(&self) {
        let Some(waker) = self.waker.get().filter(|_| !self.is_closed()) else { return };
        let why: Vec<String> = self
            .nodes
            .read()
            .iter()
            .filter_map(|node| Some(format!("'{}': {}", node.name, node.reason.lock().as_ref()?)))
            .collect();
        let why = if why.is_empty() { "there is none".to_owned() } else { why.join("; ") };
        if !self.local_reported.swap(true, Ordering::AcqRel) {
            (self.config.warn)(format!(
                "No node is left to run calls ({why}): they run in workers of this process as long as there is none."
            ));
        }
        {
            let _making = self.making_local.lock();
            if self.is_closed() {
                return;
            }
            let local = (self.config.local)();
            local.attach(waker.clone());
            let _ = self.local.set(local);
        }
        waker.wake();
    }

    /// Closes the lane of this process, which is returned if it exists; it is not made any more.
    pub(crate) fn end_local(&self) -> Option<&Arc<dyn Lane>> {
        let _making = self.making_local.lock();
        self.closed.store(true, Ordering::Release);
        self.local()
    }
}

/// Ends a call that was running when two nodes were lost. This process must not run it
/// instead: no worker would protect the process from the call.
fn refuse_locally(mut frame: Frame) {
    let reason =
        "two nodes were lost under it and no other came: it is not run in this process, which might end too".to_owned();
    let failure = Failure { retryable: false, ..Failure::new(FailureKind::Crashed, reason) };
    frame.fail(0, failure, Times::default());
}
