//! A node as the lane sees it: its capacity, and its frames.
//!
//! - Its workers have as many frames as their backlog allows. Functions that run in its agent have
//!   separate places: two frames for each thread, or as many calls as their loop runs at a time.
//! - A place is free before its frame is dropped, so that the scheduler finds it.
//! - A node that is kept for a call (`apart`) has no room.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use guerdon_core::frame::Frame;
use guerdon_core::function::FunctionId;
use guerdon_core::in_flight::InFlight;
use guerdon_core::snapshots::{AgentStats, NodeSnapshot, NodeState};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::backlog::Backlog;
use crate::config::RunsOn;
use crate::link::Link;

/// Waiting frames for each thread of its agent, in addition to the running one.
const AHEAD: usize = 1;
/// The most calls in a frame for an event loop, few so that little is lost with a message.
pub(crate) const LOOP_CALLS: usize = 16;

/// Reservation of a node for a call that must have it alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum NodeHold {
    No,
    /// Kept, once its other frames have ended.
    Soon,
    /// Kept, with the call.
    Now,
}

/// Request to its session.
pub(crate) enum NodeInput {
    Frame(Box<QueuedFrame>),
    /// Take back the frames that it has not begun.
    TakeBack,
    /// Move this many frames that it has not begun to other nodes.
    Move(usize),
    Drain,
    Close,
    Inspect(std::sync::mpsc::Sender<InFlight>, Duration),
}

/// A frame and its place.
pub(crate) struct QueuedFrame {
    // Fields are dropped in this order.
    pub guard: NodeGuard,
    pub frame: Frame,
    /// True if it has the node alone.
    pub apart: bool,
}

/// A place at a node, free when it is dropped.
pub(crate) struct NodeGuard {
    node: Arc<Node>,
    function: FunctionId,
    /// Number of the frame's calls that were not counted off yet.
    calls: usize,
    bytes: usize,
}

/// Counts of a function's frames at the node.
#[derive(Clone, Copy, Debug, Default)]
struct FunctionCounts {
    frames: usize,
    calls: usize,
}

pub(crate) struct Node {
    pub name: Arc<str>,
    pub link: Arc<Link>,
    inbox: mpsc::UnboundedSender<NodeInput>,
    /// Written by its session.
    state: AtomicU8,
    /// Written under the lock of `IsolatedFrames`.
    kept: AtomicU8,
    slots: AtomicUsize,
    /// Number of its frames. Written by `NodeGuard`.
    frames: AtomicUsize,
    calls: AtomicUsize,
    bytes: AtomicUsize,
    /// Number of these frames that its workers run.
    for_workers: AtomicUsize,
    by_function: Mutex<Vec<FunctionCounts>>,
    runs_on: Vec<RunsOn>,
    pub backlog: Backlog,
    pub ended: AtomicU64,
    pub reason: Mutex<Option<String>>,
    pub stats: Mutex<AgentStats>,
}

impl Node {
    pub(crate) fn new(name: &str, runs_on: &[RunsOn]) -> (Arc<Self>, mpsc::UnboundedReceiver<NodeInput>) {
        let (inbox, inputs) = mpsc::unbounded_channel();
        let link = Link::new(name);
        let node = Self {
            name: link.name().clone(),
            link,
            inbox,
            state: AtomicU8::new(NodeState::Connecting as u8),
            kept: AtomicU8::new(NodeHold::No as u8),
            slots: AtomicUsize::new(0),
            frames: AtomicUsize::new(0),
            calls: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            for_workers: AtomicUsize::new(0),
            by_function: Mutex::new(vec![FunctionCounts::default(); runs_on.len()]),
            runs_on: runs_on.to_vec(),
            backlog: Backlog::default(),
            ended: AtomicU64::new(0),
            reason: Mutex::default(),
            stats: Mutex::default(),
        };
        (Arc::new(node), inputs)
    }

    pub(crate) fn state(&self) -> NodeState {
        NodeState::of(self.state.load(Ordering::Acquire))
    }

    pub(crate) fn set(&self, state: NodeState) {
        self.state.store(state as u8, Ordering::Release);
    }

    pub(crate) fn kept(&self) -> NodeHold {
        match self.kept.load(Ordering::Acquire) {
            0 => NodeHold::No,
            1 => NodeHold::Soon,
            _ => NodeHold::Now,
        }
    }

    pub(crate) fn keep(&self, kept: NodeHold) {
        self.kept.store(kept as u8, Ordering::Release);
    }

    pub(crate) fn slots(&self) -> usize {
        self.slots.load(Ordering::Acquire)
    }

    pub(crate) fn ready(&self, slots: usize) {
        self.slots.store(slots, Ordering::Release);
        self.set(NodeState::Ready);
    }

    pub(crate) fn frames(&self) -> usize {
        self.frames.load(Ordering::Acquire)
    }

    /// Number of idle workers.
    pub(crate) fn idle(&self) -> usize {
        if self.state() == NodeState::Ready { self.slots().saturating_sub(self.for_workers()) } else { 0 }
    }

    /// Number of frames for its workers.
    pub(crate) fn for_workers(&self) -> usize {
        self.for_workers.load(Ordering::Acquire)
    }

    /// Returns whether its workers run out of frames soon.
    pub(crate) fn is_low(&self) -> bool {
        self.for_workers() < self.backlog.low(self.slots())
    }

    /// Returns whether it accepts any frames.
    pub(crate) fn takes_frames(&self, most_bytes: usize) -> bool {
        let full = self.bytes.load(Ordering::Acquire) >= most_bytes;
        self.state() == NodeState::Ready && self.kept() == NodeHold::No && !full
    }

    /// Number of a function's frames that it would take now.
    pub(crate) fn room(&self, function: FunctionId, most_bytes: usize) -> usize {
        if !self.takes_frames(most_bytes) {
            return 0;
        }
        match self.runs_on[function] {
            RunsOn::Workers => self.backlog.window(self.slots()).saturating_sub(self.for_workers()),
            RunsOn::Threads(width) => width.saturating_mul(1 + AHEAD).saturating_sub(self.frames_of(function)),
            RunsOn::Loop(_) => self.free_on_loop(function).div_ceil(LOOP_CALLS),
        }
    }

    /// Number of a function's calls that its loop could begin.
    pub(crate) fn free_on_loop(&self, function: FunctionId) -> usize {
        let RunsOn::Loop(width) = self.runs_on[function] else { return 0 };
        if self.state() == NodeState::Ready { width.saturating_sub(self.calls_of(function)) } else { 0 }
    }

    /// Returns its load beyond the frames that run at a time, on the lane that runs a function.
    pub(crate) fn load(&self, function: FunctionId) -> usize {
        let (has, of) = match self.runs_on[function] {
            RunsOn::Workers => (self.for_workers(), self.slots()),
            RunsOn::Threads(width) => (self.frames_of(function), width),
            RunsOn::Loop(width) => (self.calls_of(function), width),
        };
        (has << 10) / of.max(1)
    }

    /// Number of a function's frames that it has.
    pub(crate) fn frames_of(&self, function: FunctionId) -> usize {
        self.by_function.lock()[function].frames
    }

    /// Number of a function's calls that it has.
    pub(crate) fn calls_of(&self, function: FunctionId) -> usize {
        self.by_function.lock()[function].calls
    }

    /// Makes a place for a frame.
    pub(crate) fn place(self: &Arc<Self>, frame: &Frame) -> NodeGuard {
        let (function, calls) = (frame.function_id(), frame.len());
        let slices = frame.slices();
        let samples = (0..calls).flat_map(|call| frame.samples_by_slice(call));
        let size = |(slice, sample): (usize, usize)| {
            slices[slice].payload().map_or(0, |payload| payload.bytes(function, sample as u32))
        };
        let bytes = samples.map(size).sum();
        self.frames.fetch_add(1, Ordering::AcqRel);
        self.calls.fetch_add(calls, Ordering::AcqRel);
        self.bytes.fetch_add(bytes, Ordering::AcqRel);
        if self.runs_on[function] == RunsOn::Workers {
            self.for_workers.fetch_add(1, Ordering::AcqRel);
        }
        let mut counts = self.by_function.lock();
        counts[function].frames += 1;
        counts[function].calls += calls;
        drop(counts);
        NodeGuard { node: self.clone(), function, calls, bytes }
    }

    /// Gives it a frame. A node that has ended drops the frame, which gives it back.
    pub(crate) fn put(&self, queued: QueuedFrame) {
        self.send(NodeInput::Frame(Box::new(queued)));
    }

    pub(crate) fn send(&self, input: NodeInput) {
        // A session that has ended takes no frames.
        let _ = self.inbox.send(input);
    }

    pub(crate) fn snapshot(&self) -> NodeSnapshot {
        NodeSnapshot {
            name: self.name.clone(),
            state: self.state(),
            slots: self.slots(),
            frames: self.frames(),
            calls: self.calls.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            ended: self.ended.load(Ordering::Relaxed),
            reason: self.reason.lock().clone(),
            stats: *self.stats.lock(),
        }
    }
}

impl NodeGuard {
    /// Records that calls of the frame have ended or went back, so that others may take their
    /// places on a loop at once.
    pub(crate) fn count_off(&mut self, calls: usize) {
        if self.node.runs_on[self.function].is_loop() {
            let calls = calls.min(self.calls);
            self.calls -= calls;
            self.node.by_function.lock()[self.function].calls -= calls;
            self.node.calls.fetch_sub(calls, Ordering::AcqRel);
        }
    }
}

impl Drop for NodeGuard {
    fn drop(&mut self) {
        if self.node.runs_on[self.function] == RunsOn::Workers {
            self.node.for_workers.fetch_sub(1, Ordering::AcqRel);
        }
        let mut counts = self.node.by_function.lock();
        counts[self.function].frames -= 1;
        counts[self.function].calls -= self.calls;
        drop(counts);
        self.node.frames.fetch_sub(1, Ordering::AcqRel);
        self.node.calls.fetch_sub(self.calls, Ordering::AcqRel);
        self.node.bytes.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// Interval at which a session checks its frames.
pub(crate) const TICK: Duration = Duration::from_millis(10);
