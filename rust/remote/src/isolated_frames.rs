//! Calls with which two nodes were lost: each gets a dedicated node, so that the loss of that node
//! is evidence against the call.
//!
//! - A node that is kept for such calls gets no other frames, and frames that it has not begun are
//!   taken back. Half of the nodes are kept at most, or the only one.
//! - Waiting frames go back to the scheduler when no node is ready, and are dropped when none of
//!   their calls is open. Frames that would run in this very process wait on for a while: their
//!   calls ended two agents, and may end this process too.
//! - Frames are assigned places under the lock, and are sent and dropped without it.

use std::collections::VecDeque;
use std::sync::Arc;

use guerdon_core::frame::Frame;
use guerdon_core::function::FunctionId;
use guerdon_core::snapshots::NodeState;

use crate::node::{Node, NodeHold, NodeInput, QueuedFrame};

/// See the module.
#[derive(Default)]
pub(crate) struct IsolatedFrames {
    waiting: VecDeque<WaitingFrame>,
}

struct WaitingFrame {
    frame: Frame,
    /// True if this process has no workers for the frame: it would run in the process itself.
    in_agents: bool,
}

/// Work to do after the lock is released.
pub(crate) struct Arrangement {
    pub placed: Vec<(Arc<Node>, QueuedFrame)>,
    pub dropped: Vec<Frame>,
    /// True if a node has room again.
    pub freed: bool,
}

impl IsolatedFrames {
    pub(crate) fn has(&self, function: FunctionId) -> bool {
        self.waiting.iter().any(|one| one.frame.function_id() == function)
    }

    pub(crate) fn add(&mut self, frame: Frame, in_agents: bool) {
        self.waiting.push_back(WaitingFrame { frame, in_agents });
    }

    /// Returns whether a frame waits that has no workers in this process.
    pub(crate) fn has_of_agents(&self) -> bool {
        self.waiting.iter().any(|one| one.in_agents)
    }

    /// Removes and returns these frames.
    pub(crate) fn give_up(&mut self) -> Vec<Frame> {
        self.take_out(|one| one.in_agents)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Removes the frames that must not wait any longer.
    fn take_out(&mut self, goes: impl Fn(&WaitingFrame) -> bool) -> Vec<Frame> {
        let (out, stay): (Vec<WaitingFrame>, Vec<WaitingFrame>) =
            std::mem::take(&mut self.waiting).into_iter().partition(goes);
        self.waiting = stay.into();
        out.into_iter().map(|one| one.frame).collect()
    }

    /// Assigns the waiting frames to nodes without others, and keeps as many nodes as needed.
    pub(crate) fn arrange(&mut self, nodes: &[Arc<Node>], closed: bool) -> Arrangement {
        let mut ready: Vec<&Arc<Node>> = nodes.iter().filter(|node| node.state() == NodeState::Ready).collect();
        let dropped = self.take_out(|WaitingFrame { frame, in_agents }| {
            closed || (ready.is_empty() && !in_agents) || !(0..frame.len()).any(|call| frame.is_open(call))
        });
        // Nodes that are kept come first, then those that will be empty soonest.
        ready.sort_by_key(|node| (node.kept() == NodeHold::No, node.frames()));
        let most = (ready.len() / 2).max(1);
        let (mut kept, mut soon, mut freed, mut placed) = (0, 0, false, Vec::new());
        for node in ready {
            let busy = node.frames() > 0;
            if busy && node.kept() == NodeHold::Now {
                kept += 1;
            } else if kept == most || self.waiting.len() == soon {
                freed |= node.kept() != NodeHold::No;
                node.keep(NodeHold::No);
            } else if busy {
                (kept, soon) = (kept + 1, soon + 1);
                if node.kept() == NodeHold::No {
                    node.keep(NodeHold::Soon);
                    node.send(NodeInput::TakeBack);
                }
            } else if let Some(WaitingFrame { frame, .. }) = self.waiting.pop_front() {
                kept += 1;
                node.keep(NodeHold::Now);
                let guard = node.place(&frame);
                placed.push((node.clone(), QueuedFrame { guard, frame, apart: true }));
            }
        }
        Arrangement { placed, dropped, freed }
    }
}
