//! Requests frames from a node that it has not begun.
//!
//! - Frames of functions with one worker are not requested: the node keeps them.
//! - The answer decides: a frame that has begun goes on, and only its waiting calls come back.

use std::sync::Arc;

use guerdon_core::snapshots::NodeState;

use super::Session;
use crate::config::RunsOn;
use crate::lane_state::LaneState;
use crate::node::Node;
use crate::node_frame::NodeFrame;
use crate::wire::ToAgent;

/// Number of ticks after which a frame that has begun is requested again.
const ASK_AGAIN: u32 = 4;

impl Session {
    /// Requests all frames that have not begun, and the waiting calls of the others.
    pub(super) fn request_all(&mut self) {
        let (again, draining) = (self.ticks.is_multiple_of(ASK_AGAIN), self.node.state() == NodeState::Draining);
        self.request_frames(|lane, _, sent| {
            let pinned = lane.functions[sent.function()].pinned && !draining;
            !pinned && if sent.begun { again } else { !sent.asked_back }
        });
    }

    /// Requests `frames` frames that have not begun.
    pub(super) fn request_to_move(&mut self, frames: usize) {
        let mut left = frames;
        for (id, sent) in self.frames.iter_mut().rev().filter(|(_, sent)| sent.is_movable()).take(frames) {
            left -= 1;
            sent.request_back(true);
            self.node.link.write(|out| ToAgent::TakeBack(*id).write(out));
        }
        self.node.backlog.unclaim(left);
    }

    /// Requests the waiting calls and frames of functions that run in agents, if other nodes would
    /// run them now: otherwise calls would go back and forth.
    pub(super) fn request_for_idle(&mut self) {
        let again = self.ticks.is_multiple_of(ASK_AGAIN);
        if !again && !self.lane.runs_in_agents {
            return;
        }
        let idle = self.lane.has_idle_workers(&self.node);
        self.request_frames(|lane, node, sent| {
            let function = sent.function();
            let of_workers = lane.config.runs_on[function] == RunsOn::Workers;
            let due = if sent.begun { again } else { !of_workers && !sent.asked_back };
            let wanted = || if of_workers { idle } else { lane.is_idle_elsewhere(node, function) };
            due && !lane.functions[function].pinned && wanted()
        });
    }

    /// Requests frames, those sent last first.
    fn request_frames(&mut self, asks: impl Fn(&LaneState, &Arc<Node>, &NodeFrame) -> bool) {
        let Self { lane, node, frames, .. } = self;
        for (id, sent) in frames.iter_mut().rev() {
            if asks(lane, node, sent) {
                sent.request_back(false);
                node.link.write(|out| ToAgent::TakeBack(*id).write(out));
            }
        }
    }
}
