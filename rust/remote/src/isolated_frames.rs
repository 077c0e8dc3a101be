//! Calls that two nodes were lost under: each has a node to itself, so that the loss of it tells
//! which call did it.
//!
//! - A node that is kept for them gets no other frames, and those that it has not begun are taken
//!   back. At most half of the nodes are kept, or the only one.
//! - Waiting frames go back to the scheduler when no node is ready, and are dropped when no call of
//!   them is open. Frames that would run in this very process then wait on for a while: whoever
//!   ended two agents may end it too.
//! - Frames are given places under its lock, and are sent and dropped without it.

use std::collections::VecDeque;
use std::sync::Arc;

use guerdon_core::frame::Frame;
use guerdon_core::function::FunctionId;

use crate::node::{Node, NodeHold, NodeInput, NodeState, QueuedFrame};

/// See the module.
#[derive(Default)]
pub(crate) struct IsolatedFrames {
    waiting: VecDeque<WaitingFrame>,
}

struct WaitingFrame {
    frame: Frame,
    /// It has no workers to run in, here.
    in_agents: bool,
}

/// Work to do without the lock.
pub(crate) struct Arrangement {
    pub placed: Vec<(Arc<Node>, QueuedFrame)>,
    pub dropped: Vec<Frame>,
    /// A node has room again.
    pub freed: bool,
}

impl IsolatedFrames {
    pub(crate) fn has(&self, function: FunctionId) -> bool {
        self.waiting.iter().any(|one| one.frame.function_id() == function)
    }

    pub(crate) fn add(&mut self, frame: Frame, in_agents: bool) {
        self.waiting.push_back(WaitingFrame { frame, in_agents });
    }

    /// Returns whether something waits that has no workers here.
    pub(crate) fn has_of_agents(&self) -> bool {
        self.waiting.iter().any(|one| one.in_agents)
    }

    /// Takes that out.
    pub(crate) fn give_up(&mut self) -> Vec<Frame> {
        self.take_out(|one| one.in_agents)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes out the frames that must not wait any longer.
    fn take_out(&mut self, goes: impl Fn(&WaitingFrame) -> bool) -> Vec<Frame> {
        let (out, stay): (Vec<WaitingFrame>, Vec<WaitingFrame>) =
            std::mem::take(&mut self.waiting).into_iter().partition(goes);
        self.waiting = stay.into();
        out.into_iter().map(|one| one.frame).collect()
    }

    /// Gives the waiting frames to nodes without others, and keeps as many as that takes.
    pub(crate) fn arrange(&mut self, nodes: &[Arc<Node>], closed: bool) -> Arrangement {
        let mut ready: Vec<&Arc<Node>> = nodes.iter().filter(|node| node.state() == NodeState::Ready).collect();
        let dropped = self.take_out(|WaitingFrame { frame, in_agents }| {
            closed || (ready.is_empty() && !in_agents) || !(0..frame.len()).any(|call| frame.is_open(call))
        });
        // First those that are kept, then those that are empty soonest.
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
                    node.tell(NodeInput::TakeBack);
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
