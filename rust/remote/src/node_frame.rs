//! A frame at a node, and how its calls end.

use std::sync::Arc;

use guerdon_core::call::CallKind;
use guerdon_core::frame::Frame;
use guerdon_core::frame_runner::{EndedCell, FrameEvent};
use guerdon_core::function::FunctionId;
use guerdon_core::in_flight::{InFlight, InFlightCall, Location, Phase, Stack};
use guerdon_core::loss_ledger::{Charge, LossProgress};
use guerdon_core::outcome::{Cell, Failure, FailureKind, Times, Traceback};

use crate::clock_offset::ClockOffset;
use crate::link::LinkLoss;
use crate::loss::{self, LossLedger};
use crate::node::{Node, NodeGuard, QueuedFrame};
use crate::wire::RunningCall;

/// See the module. Dropping it frees its place and gives back the calls that have not ended.
pub(crate) struct NodeFrame {
    // Dropped before the frame, so that its place is free.
    guard: NodeGuard,
    frame: Frame,
    /// True if it had the node alone.
    apart: bool,
    /// Present until the frame begins, if other nodes may run it.
    movable: Option<Movable>,
    sent_ns: u64,
    /// The time when it began, or when a call of it last ended.
    heard_ns: Option<u64>,
    pub begun: bool,
    /// True if it was requested back, or will end without a request.
    pub asked_back: bool,
    /// Calls that the agent was notified of as swept.
    swept: Vec<bool>,
    /// Total run time of its calls.
    pub run_ns: u64,
}

/// Counts a frame that may move, until it is dropped.
struct Movable {
    node: Arc<Node>,
    claimed: bool,
}

impl Drop for Movable {
    fn drop(&mut self) {
        self.node.backlog.stays();
        self.node.backlog.unclaim(self.claimed.into());
    }
}

/// A message about a call that the frame does not have.
#[derive(Debug)]
pub(crate) struct Violation;

impl NodeFrame {
    pub(crate) fn new(queued: QueuedFrame, sent_ns: u64) -> Self {
        let QueuedFrame { guard, frame, apart } = queued;
        let swept = vec![false; frame.len()];
        Self {
            guard,
            frame,
            apart,
            movable: None,
            sent_ns,
            heard_ns: None,
            begun: false,
            asked_back: false,
            swept,
            run_ns: 0,
        }
    }

    /// Allows other nodes to run the frame until this node has begun it.
    pub(crate) fn may_move(mut self, node: &Arc<Node>) -> Self {
        if !self.apart {
            node.backlog.may_move();
            self.movable = Some(Movable { node: node.clone(), claimed: false });
        }
        self
    }

    /// Returns whether it may be requested back, to run elsewhere.
    pub(crate) const fn is_movable(&self) -> bool {
        self.movable.is_some() && !self.asked_back
    }

    /// Records that it is requested back; `claimed` if it was counted as claimed before.
    pub(crate) fn request_back(&mut self, claimed: bool) {
        self.asked_back = true;
        if let Some(movable) = &mut self.movable
            && !movable.claimed
        {
            movable.claimed = true;
            movable.node.backlog.claim((!claimed).into());
        }
    }

    pub(crate) const fn function(&self) -> FunctionId {
        self.frame.function_id()
    }

    #[cfg(test)]
    pub(crate) const fn is_apart(&self) -> bool {
        self.apart
    }

    /// The first sample of its first call, if that has the node alone and was not swept.
    #[cfg(test)]
    pub(crate) fn alone(&self) -> Option<usize> {
        let open = self.frame.is_pending(0) && self.frame.is_open(0);
        (self.apart && open).then(|| self.frame.first(0))
    }

    fn times(&mut self, times: Times, offset: ClockOffset, now_ns: u64) -> Times {
        if times.started_ns == 0 {
            return Times::default();
        }
        self.run_ns = self.run_ns.saturating_add(times.run_ns);
        let latest_ns = now_ns.saturating_sub(times.run_ns);
        Times { started_ns: offset.to_driver(times.started_ns, self.sent_ns, latest_ns), run_ns: times.run_ns }
    }

    const fn held(&self, call: usize) -> Result<(), Violation> {
        if call < self.frame.len() { Ok(()) } else { Err(Violation) }
    }

    /// Processes a report of the agent; returns the number of calls that this ended.
    pub(crate) fn take(
        &mut self,
        event: FrameEvent,
        offset: ClockOffset,
        node: &Arc<str>,
        ledger: &LossLedger,
    ) -> Result<u64, Violation> {
        let back = if let FrameEvent::GivenBack(calls) = &event { calls.len() } else { 0 };
        // Counted before the scheduler gets them, because it searches for places then.
        self.guard.count_off(back);
        let ended = self.complete(event, offset, node, ledger)?;
        self.guard.count_off(usize::try_from(ended).unwrap_or(usize::MAX));
        Ok(ended)
    }

    fn complete(
        &mut self,
        event: FrameEvent,
        offset: ClockOffset,
        node: &Arc<str>,
        ledger: &LossLedger,
    ) -> Result<u64, Violation> {
        let now_ns = self.frame.clock().now_ns();
        match event {
            FrameEvent::Begun => {
                self.begun = true;
                self.movable = None;
                self.heard_ns = Some(now_ns);
            }
            FrameEvent::Cells(cells) => {
                self.heard_ns = Some(now_ns);
                let ended = cells.len() as u64;
                for EndedCell { call, cell, times } in cells {
                    self.held(call)?;
                    let times = self.times(times, offset, now_ns);
                    match cell {
                        Cell::Value(value) => self.frame.complete_soon(call, value, times),
                        cell => self.frame.complete(call, cell, times),
                    }
                }
                self.frame.complete_ended();
                return Ok(ended);
            }
            FrameEvent::Call { call, cells, record, times } => {
                self.held(call)?;
                let times = self.times(times, offset, now_ns);
                self.heard_ns = Some(now_ns);
                self.record(call, record);
                match <[Cell; 1]>::try_from(cells) {
                    Ok([cell]) if self.frame.kind() == CallKind::Sample => self.frame.complete(call, cell, times),
                    Ok(cell) => self.frame.complete_many(call, cell.into(), times),
                    Err(cells) => self.frame.complete_many(call, cells, times),
                }
                return Ok(1);
            }
            FrameEvent::Failed { call, mut failure, record, times } => {
                self.held(call)?;
                let times = self.times(times, offset, now_ns);
                self.heard_ns = Some(now_ns);
                self.record(call, record);
                if failure.kind == FailureKind::Crashed && self.frame.is_pending(call) {
                    match ledger.died(&self.frame, call, node) {
                        // Given back, not ended: it is counted where it ends.
                        Charge::GoesBack => {
                            self.guard.count_off(1);
                            self.frame.give_back(call..call + 1);
                            return Ok(0);
                        }
                        Charge::Failed(before) | Charge::Guilty(before) => {
                            failure.reason.push_str(&format!(" on node '{node}'{}", loss::before(&before)));
                        }
                    }
                }
                self.frame.fail(call, failure, times);
                return Ok(1);
            }
            FrameEvent::Broken(note) => match note.traceback {
                Some(Traceback::LastSeen(place)) => self.frame.time_out_setup(Some(place)),
                traceback => {
                    self.frame.fail_setup(note.reason, traceback.map(|stack| stack.text().to_owned()));
                }
            },
            FrameEvent::Used(tokens) => self.frame.used(tokens),
            FrameEvent::Observed(run_ns) => self.frame.observe(run_ns),
            FrameEvent::GivenBack(calls) => {
                calls.iter().try_for_each(|call| self.held(*call))?;
                // Given back together: one by one, each would be handed out as a separate frame.
                self.frame.give_back(calls);
            }
            FrameEvent::Ended => {}
        }
        Ok(0)
    }

    fn record(&mut self, call: usize, record: Option<Vec<u8>>) {
        if let Some(json) = record.filter(|_| self.frame.is_pending(call)) {
            self.frame.record(call, json);
        }
    }

    /// Returns calls that nobody waits for any more, and of which the agent was not notified.
    pub(crate) fn newly_swept(&mut self) -> Vec<usize> {
        let Self { frame, swept, .. } = self;
        let new = |call: &usize| !swept[*call] && frame.is_pending(*call) && !frame.is_open(*call);
        let calls: Vec<usize> = (0..frame.len()).filter(new).collect();
        calls.iter().for_each(|call| swept[*call] = true);
        calls
    }

    /// Returns a call of the agent's report, for `dump()`; `None` if the call has ended.
    pub(crate) fn inspected(&self, node: &Arc<str>, of: &RunningCall) -> Option<InFlight> {
        let one = of.phase == Phase::Call && self.frame.kind() != CallKind::Gathered;
        let pending = of.call < self.frame.len() && self.frame.is_pending(of.call);
        let call = match () {
            () if one && pending => InFlightCall::call(&self.frame, of.call, of.age_ns),
            () if one => return None,
            () => InFlightCall::before(&self.frame, of.phase, of.age_ns),
        };
        let location = Location::Node { name: node.clone(), inner: of.place.clone() };
        Some(InFlight { call, location, stack: Stack::found(of.stack.clone()) })
    }

    /// Returns its running call as far as the driver can determine it, without the agent's report.
    pub(crate) fn running_call(&self, node: &Arc<str>) -> Option<InFlight> {
        let call = (0..self.frame.len()).find(|call| self.frame.is_pending(*call)).filter(|_| self.begun)?;
        let age_ns = self.frame.clock().now_ns().saturating_sub(self.heard_ns.unwrap_or(self.sent_ns));
        let call = match self.frame.kind() {
            CallKind::Gathered => InFlightCall::before(&self.frame, Phase::Call, age_ns),
            _ => InFlightCall::call(&self.frame, call, age_ns),
        };
        let location = Location::Node { name: node.clone(), inner: String::new() };
        Some(InFlight { call, location, stack: Stack::Absent("its node did not answer in time".to_owned()) })
    }

    /// Ends the calls of a lost node, whose last message came at `last_ns`: calls that may have run
    /// are charged with the loss, the rest is given back. `concurrent` means that its calls run at
    /// the same time.
    pub(crate) fn lose(
        mut self,
        loss: &LinkLoss,
        node: &Arc<str>,
        ledger: &LossLedger,
        last_ns: u64,
        concurrent: bool,
    ) {
        if loss.innocent {
            return;
        }
        let counts = |call: &usize| self.frame.is_pending(*call) && self.frame.is_open(*call);
        let pending: Vec<usize> = (0..self.frame.len()).filter(counts).collect();
        for (position, call) in pending.into_iter().enumerate() {
            let standing = match position {
                0 if self.apart => LossProgress::Apart,
                _ if self.begun && concurrent => LossProgress::Next,
                // Its calls run one after the other: the first that has not ended may have begun.
                0 if self.begun => LossProgress::Next,
                _ if self.begun => LossProgress::Behind,
                _ => LossProgress::Waited,
            };
            let (before, retryable) = match ledger.lost(&self.frame, call, node, standing) {
                Charge::GoesBack => continue,
                Charge::Failed(before) => (before, true),
                Charge::Guilty(before) => (before, false),
            };
            let reason = format!("node '{node}' was lost under it: {}{}", loss.reason, loss::before(&before));
            let failure = Failure { retryable, ..Failure::new(FailureKind::Crashed, reason) };
            // Counted until its last message, because the time since then is not run time.
            let ran = |since| Times { started_ns: since, run_ns: last_ns.saturating_sub(since) };
            let times = self.heard_ns.filter(|_| position == 0).map_or_else(Times::default, ran);
            self.frame.fail(call, failure, times);
        }
    }
}
