//! A frame of another process, as the owner of the frames in which its calls go to a lane.

use std::sync::Arc;

use super::event::{EndedCell, FrameEvent};
use super::hosted_frame::HostedFrame;
use crate::batch::{Batch, BatchSpec, CompletedCells};
use crate::batch_slice::TakenCalls;
use crate::call::{Call, CallKind, Cause};
use crate::clock::Clock;
use crate::frame::{Frame, FrameOwner, LaneCounts, LaneOwner};
use crate::function::{Function, FunctionId};
use crate::grid::Claim;
use crate::limits::Feedback;
use crate::observer::Telemetry;
use crate::outcome::{Cell, Failure, Note, Outcome, Status, Times};
use crate::report::Usage;

/// The frames' view of the runner.
pub(super) trait HostedOwner: LaneOwner {
    /// Reports an event of a frame.
    fn tell(&self, hosted: &Hosting, event: FrameEvent);

    /// Takes back calls that a lane did not end; `piece_ended` if their piece is gone.
    fn returned(self: Arc<Self>, hosted: &Arc<Hosting>, calls: Vec<Call>, piece_ended: bool);
}

pub(super) struct Hosting {
    runner: Arc<dyn HostedOwner>,
    pub session: u64,
    pub id: u64,
    pub function: FunctionId,
    pub kind: CallKind,
    pub alone: bool,
    /// Samples of one call.
    size: usize,
    /// The batch of the calls; one call covers one group.
    batch: Arc<Batch>,
}

impl Hosting {
    /// The frame, and its calls.
    pub(super) fn new(
        runner: Arc<dyn HostedOwner>,
        batch_id: u64,
        clock: Clock,
        functions: &Arc<[Function]>,
        frame: HostedFrame,
    ) -> Result<(Self, Vec<Call>), String> {
        let HostedFrame { session, id, function, kind, calls, samples: size, alone, suspect, payload, scores } = frame;
        let finish = kind == CallKind::Finish;
        if finish && !functions[function].finish || !finish && kind != CallKind::of(&functions[function]) {
            return Err(format!("a frame of {kind:?} calls of function {function}"));
        }
        let spec = BatchSpec::whole(calls * size, size, payload);
        let batch = Batch::of_one_function(batch_id, clock, functions.clone(), function, spec);
        let batch = batch.map_err(|error| error.to_string())?;
        if let Some(stage) = batch.stage(function) {
            for (sample, score) in scores.into_iter().enumerate() {
                let status = if score.is_some() { Status::Ok } else { Status::Abstained };
                let outcome = Outcome { status, value: score.unwrap_or(f64::NAN), times: Times::default() };
                if let Some(claim) = stage.claim_open(sample, 0) {
                    claim.complete([outcome], |_| {});
                }
            }
        }
        // Each gathered sample is a separate call.
        let step = if kind == CallKind::Gathered { 1 } else { size };
        let call = |first| Call { finish, suspect, ..Call::fresh(first) };
        let calls = (0..calls * size).step_by(step).map(call).collect();
        Ok((Self { runner, session, id, function, kind, alone, size, batch: Arc::new(batch) }, calls))
    }

    /// Returns whether all of it is one call.
    pub(super) fn is_one_call(&self) -> bool {
        matches!(self.kind, CallKind::Batch | CallKind::Gathered)
    }

    pub(super) fn calls(&self) -> usize {
        self.batch.samples() / self.size
    }

    /// Returns the number of the calls' batch for the lanes, which is unique among frames.
    pub(super) fn batch_id(&self) -> u64 {
        self.batch.id()
    }

    /// The number of the call that covers a sample.
    pub(super) fn call_of(&self, sample: usize) -> usize {
        sample / self.size
    }

    pub(super) fn is_open(&self, call: &Call) -> bool {
        self.batch.grid().is_open(call.first, self.function, call.attempt)
    }

    /// Claims a call with all its samples; true if it was open.
    fn close_samples(&self, first: usize) -> bool {
        let Some(claim) = self.batch.grid().claim_open(first, self.function) else { return false };
        let samples = if self.kind == CallKind::Gathered { 1 } else { self.size };
        let outcome = Outcome::without_value(Status::Cancelled, Times::default());
        claim.complete(std::iter::repeat_n(outcome, samples), |_| {});
        true
    }

    /// Closes calls that no lane has, and returns the numbers of those that were open.
    pub(super) fn close(&self, calls: Vec<Call>) -> Vec<usize> {
        let open = calls.into_iter().filter(|call| self.close_samples(call.first));
        let mut open: Vec<usize> = open.map(|call| self.call_of(call.first)).collect();
        open.dedup();
        open
    }

    /// Ends these calls, for which nobody waits.
    pub(super) fn sweep(&self, calls: impl Iterator<Item = usize>) {
        let step = if self.kind == CallKind::Gathered { 1 } else { self.size };
        let samples = self.batch.samples();
        for call in calls.filter(|call| *call < self.calls()) {
            let of = call * self.size..((call + 1) * self.size).min(samples);
            for first in of.step_by(step) {
                self.close_samples(first);
            }
        }
    }

    /// Makes a frame of some of the calls, for their lane.
    pub(super) fn frame(self: &Arc<Self>, clock: Clock, number: u64, calls: Vec<Call>) -> Frame {
        let taken = TakenCalls { batch: self.batch.clone(), calls, others: Vec::new(), alone: self.alone };
        Frame::new(number, self.clone(), clock, self.function, taken)
    }

    /// Ends all calls because the function can't run.
    pub(super) fn break_off(&self, why: Note) {
        self.sweep(0..self.calls());
        self.runner.tell(self, FrameEvent::Broken(why));
    }

    /// Returns the cell of a sample, as a lane reports it.
    fn cell(&self, sample: usize) -> Option<(Cell, Times)> {
        let (outcome, _) = self.batch.grid().read(sample, self.function)?;
        let why = || self.batch.note_of(sample, self.function).map(|note| note.reason).unwrap_or_default();
        let cell = match outcome.status {
            Status::Ok => Cell::Value(outcome.value),
            Status::Abstained => Cell::Abstained,
            Status::Error => Cell::Invalid(why()),
            status => Cell::Reported(Box::new((status, why()))),
        };
        Some((cell, outcome.times))
    }

    /// Reports how calls of one sample ended; calls with a record are reported one by one.
    fn report_samples(&self, samples: Vec<usize>) {
        let mut plain = Vec::with_capacity(samples.len());
        for call in samples {
            let Some((cell, times)) = self.cell(call) else { continue };
            match self.batch.take_record(self.function, call) {
                None => plain.push(EndedCell { call, cell, times }),
                record => self.runner.tell(self, FrameEvent::Call { call, cells: vec![cell], record, times }),
            }
        }
        if !plain.is_empty() {
            self.runner.tell(self, FrameEvent::Cells(plain));
        }
    }

    fn report_call(&self, call: usize) {
        let first = call * self.size;
        let (cells, times): (Vec<Cell>, Vec<Times>) =
            (first..first + self.size).filter_map(|sample| self.cell(sample)).unzip();
        let times = times.into_iter().find(|times| times.started_ns != 0).unwrap_or_default();
        let record = self.batch.take_record(self.function, first);
        self.runner.tell(self, FrameEvent::Call { call, cells, record, times });
    }
}

/// Calls of a frame that has not ended, to identify those in flight.
pub struct HostedCalls(pub(super) Arc<Hosting>);

impl HostedCalls {
    /// The number of the frame in its session.
    #[must_use]
    pub fn frame(&self) -> u64 {
        self.0.id
    }

    /// Returns the index of the call that covers a sample.
    #[must_use]
    pub fn call_of(&self, sample: usize) -> usize {
        self.0.call_of(sample)
    }
}

impl LaneOwner for Hosting {
    fn tracer(&self) -> Option<&Arc<dyn Telemetry>> {
        None
    }

    fn find_work(self: Arc<Self>, brief: bool) {
        self.runner.clone().find_work(brief);
    }
}

impl FrameOwner for Hosting {
    fn completed(self: Arc<Self>, _: &Arc<Batch>, _: FunctionId, _: bool, completed: CompletedCells) {
        if self.kind == CallKind::Sample {
            self.report_samples(completed.groups);
        } else {
            completed.groups.into_iter().for_each(|call| self.report_call(call));
        }
    }

    fn attempt_failed(
        self: Arc<Self>,
        _: &Arc<Batch>,
        _: FunctionId,
        call: Call,
        claim: Claim<'_>,
        failure: Failure,
        times: Times,
    ) {
        let samples = if self.kind == CallKind::Gathered { 1 } else { self.size };
        let outcome = Outcome::without_value(failure.kind.status(), times);
        claim.complete(std::iter::repeat_n(outcome, samples), |_| {});
        let record = self.batch.take_record(self.function, call.first);
        let call = self.call_of(call.first);
        self.runner.tell(&self, FrameEvent::Failed { call, failure, record, times });
    }

    fn gathered_failed(
        self: Arc<Self>,
        _: FunctionId,
        claimed: Vec<(&Arc<Batch>, Call, Claim<'_>)>,
        failure: Failure,
        _: bool,
        times: Times,
    ) {
        if claimed.is_empty() {
            return; // all of it was swept
        }
        let outcome = Outcome::without_value(failure.kind.status(), times);
        claimed.into_iter().for_each(|(_, _, claim)| claim.complete([outcome], |_| {}));
        self.runner.tell(&self, FrameEvent::Failed { call: 0, failure, record: None, times });
    }

    fn end_function(self: Arc<Self>, _: &Arc<Batch>, _: FunctionId, cause: &Cause) {
        if let Cause::Broken(why) = cause {
            self.break_off(why.clone());
        }
    }

    fn note_endpoint_error(&self, _: FunctionId, _: Feedback, _: &str) {}

    fn frame_ended(self: Arc<Self>, _: FunctionId, unfinished: Vec<(u64, Vec<Call>)>, _: LaneCounts, _: u64, _: u64) {
        let calls = unfinished.into_iter().flat_map(|(_, calls)| calls).collect();
        self.runner.clone().returned(&self, calls, true);
        self.find_work(false);
    }

    fn given_back(self: Arc<Self>, _: FunctionId, calls: Vec<(u64, Vec<Call>)>, _: LaneCounts) {
        let calls = calls.into_iter().flat_map(|(_, calls)| calls).collect();
        self.runner.clone().returned(&self, calls, false);
        self.find_work(false);
    }

    fn calls_ended(self: Arc<Self>, _: FunctionId, _: usize, _: u64, _: u64) {}

    fn observe(&self, _: FunctionId, run_ns: u64) {
        self.runner.tell(self, FrameEvent::Observed(run_ns));
    }

    fn count_usage(&self, _: FunctionId, _: Usage) {}

    fn count_late(&self) {}

    fn used_elsewhere(&self, tokens: f64) {
        self.runner.tell(self, FrameEvent::Used(tokens));
    }
}
