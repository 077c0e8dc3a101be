//! Serves one node: sends it frames, processes its reports, and checks its frames.
//!
//! - One task has all frames of the node, so that events of the scheduler, the node and the clock
//!   are handled one after the other.
//! - Frames that wait at a slow node are requested back when another node is low: as soon as that
//!   is detected, if the scheduler has no frames for it.

mod take_back;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use guerdon_core::clock::nanos;
use guerdon_core::frame::Frame;
use guerdon_core::frame_runner::FrameEvent;
use guerdon_core::snapshots::NodeState;
use guerdon_wire::items::Items;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::clock_offset::ClockOffset;
use crate::config::RunsOn;
use crate::inspection::Inspections;
use crate::lane_state::LaneState;
use crate::link::LinkLoss;
use crate::node::{Node, NodeHold, NodeInput, QueuedFrame, TICK};
use crate::node_frame::NodeFrame;
use crate::wire::{PROTOCOL, RunningCall, ToAgent, ToDriver};

/// Interval at which the clocks are compared while there is work.
const PING: Duration = Duration::from_secs(1);
const NONE_LEFT: &str = " No node is left: calls run in workers of this process as long as there is none.";
/// The most warnings of an agent that are passed on.
const MOST_WARNINGS: usize = 100;

enum SessionEnd {
    Lost(LinkLoss),
    /// The node was drained, or the lane closes.
    Gone,
}

/// Marks a node as lost if its session panics; frames would otherwise go to it and come back for
/// ever.
struct SessionGuard(Arc<Node>);

impl Drop for SessionGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.set(NodeState::Lost);
            self.0.link.lost("its session panicked", true);
        }
    }
}

pub(crate) struct Session {
    lane: Arc<LaneState>,
    node: Arc<Node>,
    frames: BTreeMap<u64, NodeFrame>,
    last_id: u64,
    offset: ClockOffset,
    last_message: Instant,
    /// Number of ticks since the last message.
    silent: u32,
    pinged: Instant,
    ticks: u32,
    inspections: Inspections,
    /// Number of warnings of its agent.
    warnings: usize,
}

impl Session {
    pub(crate) fn new(lane: Arc<LaneState>, node: Arc<Node>) -> Self {
        let (frames, offset, now) = (BTreeMap::new(), ClockOffset::default(), Instant::now());
        Self {
            lane,
            node,
            frames,
            last_id: 0,
            offset,
            last_message: now,
            silent: 0,
            pinged: now,
            ticks: 0,
            inspections: Inspections::default(),
            warnings: 0,
        }
    }

    /// Serves the node until its end.
    pub(crate) async fn serve(mut self, mut inputs: mpsc::UnboundedReceiver<NodeInput>) {
        let _served = SessionGuard(self.node.clone());
        let (digest, clock_ns) = (self.lane.config.digest, self.lane.clock.now_ns());
        self.node.link.write(|out| ToAgent::Hello { protocol: PROTOCOL, digest, clock_ns }.write(out));
        let end = self.turns(&mut inputs).await;
        self.end(end, inputs);
    }

    /// Ends its frames, because the node is lost or gone.
    fn end(mut self, end: SessionEnd, mut inputs: mpsc::UnboundedReceiver<NodeInput>) {
        let was = self.node.state();
        self.node.set(NodeState::Lost);
        inputs.close();
        match end {
            SessionEnd::Gone => {
                self.node.link.write(|out| ToAgent::Close.write(out));
                self.node.link.close();
                self.lane.nodes.write().retain(|node| !Arc::ptr_eq(node, &self.node));
                self.frames.clear();
            }
            SessionEnd::Lost(loss) => self.lose(&loss, was),
        }
        self.node.link.forget();
        while let Ok(input) = inputs.try_recv() {
            drop(input); // a frame that was never sent goes back
        }
        self.lane.place_apart();
        self.lane.wake();
    }

    fn lose(&mut self, loss: &LinkLoss, was: NodeState) {
        let Self { lane, node, frames, last_message, .. } = self;
        node.link.lost(&loss.reason, loss.innocent);
        *node.reason.lock() = Some(loss.reason.clone());
        warn!(node = &*node.name, frames = frames.len(), reason = loss.reason, "node lost");
        if !lane.is_closed() && was != NodeState::Draining {
            lane.lost.fetch_add(1, Ordering::Relaxed);
            let what = if was == NodeState::Connecting { "can't be used" } else { "was lost" };
            let last = !lane.has_others(node) && !lane.local_reported.swap(true, Ordering::AcqRel);
            let then = if last { NONE_LEFT } else { "" };
            (lane.config.warn)(format!("Node '{}' {what}: {}.{then}", node.name, loss.reason));
        }
        lane.ledger.tidy();
        // The agent's reports on begun frames may be lost as well: its workers or threads may have
        // had the oldest frames of each function, and a loop all of them.
        let (slots, mut of_function) = (node.slots(), vec![0; lane.functions.len()]);
        let silent_ns = nanos(last_message.elapsed());
        let last_ns = lane.clock.now_ns().saturating_sub(silent_ns);
        let may_have_begun = node.backlog.may_have_begun(slots, silent_ns);
        for (_, mut sent) in std::mem::take(frames) {
            let older = &mut of_function[sent.function()];
            let runs_on = lane.config.runs_on[sent.function()];
            sent.begun |= *older < runs_on.parallelism(slots);
            *older += 1;
            if runs_on == RunsOn::Workers && !sent.begun && *older > may_have_begun {
                continue; // it only waited there, and goes back
            }
            sent.lose(loss, &node.name, &lane.ledger, last_ns, runs_on.is_loop());
        }
    }

    async fn turns(&mut self, inputs: &mut mpsc::UnboundedReceiver<NodeInput>) -> SessionEnd {
        let timer = tokio::time::sleep(TICK);
        tokio::pin!(timer);
        loop {
            let drained = self.node.state() == NodeState::Draining && self.node.frames() == 0;
            if drained {
                return SessionEnd::Gone;
            }
            let waits = !self.frames.is_empty() || self.node.state() == NodeState::Connecting;
            let end = tokio::select! {
                input = inputs.recv() => match input {
                    Some(NodeInput::Close) | None => Err(SessionEnd::Gone),
                    Some(input) => {
                        self.act_on(input);
                        Ok(())
                    }
                },
                message = self.node.link.receive() => match message {
                    Ok(message) => self.receive(&message).map_err(SessionEnd::Lost),
                    Err(loss) => Err(SessionEnd::Lost(loss)),
                },
                () = &mut timer, if waits => {
                    timer.as_mut().reset(Instant::now() + TICK);
                    self.tick().map_err(SessionEnd::Lost)
                }
            };
            if let Err(end) = end {
                return end;
            }
        }
    }

    fn act_on(&mut self, input: NodeInput) {
        match input {
            NodeInput::Frame(queued) => self.send(*queued),
            NodeInput::TakeBack => self.request_all(),
            NodeInput::Move(frames) => self.request_to_move(frames),
            NodeInput::Drain => {
                self.node.set(NodeState::Draining);
                self.request_all();
            }
            NodeInput::Inspect(answer, within) => {
                // Dropping the senders ends the wait of the requesting tasks.
                if !self.frames.is_empty()
                    && let Some(within) = self.inspections.add(answer, within)
                {
                    self.node.link.write(|out| ToAgent::Inspect(within).write(out));
                }
            }
            NodeInput::Close => {}
        }
    }

    /// Sends a frame, unless its outcome is not needed any more.
    fn send(&mut self, queued: QueuedFrame) {
        let open = (0..queued.frame.len()).any(|call| queued.frame.is_open(call));
        if !open || self.node.state() != NodeState::Ready {
            drop(queued);
            self.lane.look_at(&self.node);
            return;
        }
        if self.frames.is_empty() {
            self.restart_silence();
        }
        self.last_id += 1;
        let function = queued.frame.function_id();
        let for_workers = self.lane.config.runs_on[function] == RunsOn::Workers;
        // Also unwritten if the node was just lost.
        let mut is_damaged = false;
        let write = |out: &mut Vec<u8>| is_damaged = !ToAgent::write_frame(self.last_id, &queued.frame, out);
        // Its workers may wait for the frame, unless enough earlier frames are there; threads and
        // loops always may.
        if !for_workers || self.frames.len() < self.node.backlog.low(self.node.slots()) {
            self.node.link.write(write);
        } else {
            self.node.link.write_soon(write);
        }
        if is_damaged {
            let QueuedFrame { guard, mut frame, .. } = queued;
            drop(guard);
            frame.refuse(Frame::UNWRITTEN.to_owned());
            self.lane.look_at(&self.node);
            return;
        }
        let mut sent = NodeFrame::new(queued, self.lane.clock.now_ns());
        if for_workers && !self.lane.functions[function].pinned {
            sent = sent.may_move(&self.node);
        }
        self.frames.insert(self.last_id, sent);
    }

    fn restart_silence(&mut self) {
        (self.last_message, self.silent) = (Instant::now(), 0);
    }

    /// Processes a message of the agent.
    fn receive(&mut self, message: &[u8]) -> Result<(), LinkLoss> {
        self.restart_silence();
        let mut items = Items::of(message);
        let mut freed = false;
        while let Some(item) = ToDriver::next(&mut items) {
            let nonsense = |what: String| LinkLoss { reason: format!("it sent {what}"), innocent: false };
            match item.map_err(|error| nonsense(error.to_string()))? {
                ToDriver::Ready { protocol, slots, heard_ns, clock_ns } => {
                    self.ready(protocol, slots)?;
                    self.compare_clocks(heard_ns, clock_ns);
                    self.lane.look_at(&self.node);
                    self.lane.wake();
                }
                ToDriver::Refused(reason) => return Err(LinkLoss { reason, innocent: true }),
                ToDriver::Pong { heard_ns, clock_ns, stats } => {
                    *self.node.stats.lock() = stats;
                    self.compare_clocks(heard_ns, clock_ns);
                }
                ToDriver::Running(calls) => self.inspected(&calls),
                ToDriver::Lines(lines) => (self.lane.config.print)(&self.node.name, &lines),
                ToDriver::Warning(text) => self.warned(&text),
                ToDriver::Frame(id, event) => {
                    freed |= self
                        .event(id, event)
                        .ok_or_else(|| nonsense("a message about a call that it does not have".to_owned()))?;
                }
            }
        }
        if freed {
            self.lane.wake();
        }
        if self.node.is_low() {
            self.lane.balance();
        }
        Ok(())
    }

    fn ready(&self, protocol: u16, slots: u32) -> Result<(), LinkLoss> {
        if protocol != PROTOCOL {
            let reason = format!(
                "it speaks version {protocol} of the agents' protocol, and this process version {PROTOCOL}; install \
                 the same version of guerdon on all nodes"
            );
            return Err(LinkLoss { reason, innocent: true });
        }
        if self.node.state() == NodeState::Connecting {
            debug!(node = &*self.node.name, slots, "node ready");
            self.node.ready(slots.clamp(1, 1 << 16) as usize);
            // A later loss of all nodes is reported again.
            self.lane.local_reported.store(false, Ordering::Release);
        }
        Ok(())
    }

    /// Passes on a warning of the agent's lanes, up to a number of them.
    fn warned(&mut self, text: &str) {
        self.warnings += 1;
        if self.warnings <= MOST_WARNINGS {
            (self.lane.config.warn)(format!("Node '{}': {text}", self.node.name));
        }
    }

    /// Passes on the agent's calls.
    fn inspected(&mut self, calls: &[RunningCall]) {
        let Self { node, frames, inspections, .. } = self;
        let waiting = inspections.answered();
        for one in calls {
            let call = frames.get(&one.frame).and_then(|sent| sent.inspected(&node.name, one));
            waiting.iter().zip(std::iter::repeat(call)).for_each(|(answer, call)| {
                // The requesting task may be gone.
                call.into_iter().for_each(|call| drop(answer.send(call)));
            });
        }
    }

    fn compare_clocks(&mut self, asked_ns: u64, agent_ns: u64) {
        let now_ns = self.lane.clock.now_ns();
        self.offset.learn(asked_ns, now_ns, agent_ns);
        self.node.backlog.round_trip(now_ns.saturating_sub(asked_ns));
    }

    /// Processes an event of a frame. Returns whether further calls may be sent; `None` for an
    /// impossible event.
    fn event(&mut self, id: u64, event: FrameEvent) -> Option<bool> {
        let Some(sent) = self.frames.get_mut(&id) else { return Some(false) };
        if event == FrameEvent::Ended {
            let sent = self.frames.remove(&id)?;
            if sent.run_ns > 0 && self.lane.config.runs_on[sent.function()] == RunsOn::Workers {
                self.node.backlog.frame_ran(sent.run_ns);
            }
            drop(sent);
            self.lane.look_at(&self.node);
            return Some(false);
        }
        let ended = sent.take(event, self.offset, &self.node.name, &self.lane.ledger).ok()?;
        self.node.ended.fetch_add(ended, Ordering::Relaxed);
        Some(ended > 0 && self.lane.config.runs_on[sent.function()].is_loop())
    }

    /// Does the periodic work.
    fn tick(&mut self) -> Result<(), LinkLoss> {
        self.ticks = self.ticks.wrapping_add(1);
        // Counts ticks, which stop while this process is stopped, since no message could have been
        // read then.
        self.silent += 1;
        let silence = self.lane.config.silence;
        if TICK.saturating_mul(self.silent) >= silence {
            return Err(LinkLoss {
                reason: format!("it said nothing for {:.0} s", silence.as_secs_f64()),
                innocent: false,
            });
        }
        if self.pinged.elapsed() >= PING {
            self.pinged = Instant::now();
            let now_ns = self.lane.clock.now_ns();
            self.node.link.write(|out| ToAgent::Ping(now_ns).write(out));
        }
        for answer in self.inspections.overdue() {
            let running_call = self.frames.values().filter_map(|sent| sent.running_call(&self.node.name));
            running_call.for_each(|call| drop(answer.send(call)));
        }
        for (id, sent) in &mut self.frames {
            let swept = sent.newly_swept();
            if !swept.is_empty() {
                self.node.link.write(|out| ToAgent::Sweep(*id, swept).write(out));
            }
        }
        self.lane.look_at(&self.node);
        if self.node.kept() == NodeHold::Soon || self.node.state() == NodeState::Draining {
            self.request_all();
        } else {
            self.request_for_idle();
            self.lane.balance();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
