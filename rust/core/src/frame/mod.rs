//! A frame: calls of one function in one batch, on their way through a lane.
//!
//! - F-1  Each call of a frame is ended once: settled, failed, given back, or, when the frame is dropped, taken back by the scheduler.
//! - F-2  Dropping the frame frees its place with the scheduler; so nothing that a lane does, not even a panic, loses a call or a place.
//! - F-3  What came too late (the call was swept, or another attempt is under way) is dropped in silence and counted.
//! - F-4  Samples that were gathered (`scheduler::gather`) are one call to the lane, and the only one of their frame; to the scheduler each sample
//!   is a call of its own, which is claimed, swept and given another attempt by itself.

mod ended;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::batch::Batch;
use crate::call::{Call, CallKind, Cause};
use crate::clock::Clock;
use crate::delivery::Delivery;
use crate::function::{Function, FunctionId};
use crate::grid::Claim;
use crate::limits::{Heard, Permit};
use crate::outcome::{Cell, Failure, Note, Times};
use crate::payload::Payload;
use crate::scheduler::Inner;
use ended::Ended;

/// Calls handed to a lane.
pub struct Frame {
    id: u64,
    scheduler: Arc<Inner>,
    batch: Arc<Batch>,
    payload: Option<Arc<dyn Payload>>,
    function: FunctionId,
    kind: CallKind,
    alone: bool,
    /// As the scheduler knows them (F-4).
    calls: Vec<Call>,
    /// Which calls, as the lane knows them, it has not ended (F-1).
    pending: Vec<bool>,
    /// What the lane has ended and is not settled yet.
    ended: Vec<Ended>,
    /// Recorded by calls that are not settled yet.
    records: BTreeMap<usize, Vec<u8>>,
    run_ns: u64,
    ran: u64,
    /// Of the one call of a frame whose function has a limit.
    permit: Option<Permit>,
    /// Tokens that the call in hand used, where it told.
    tokens: Option<f64>,
}

impl Frame {
    pub(crate) fn new(
        id: u64,
        scheduler: Arc<Inner>,
        batch: Arc<Batch>,
        function: FunctionId,
        mut calls: Vec<Call>,
        alone: bool,
    ) -> Self {
        let finish = calls.first().is_some_and(|call| call.finish);
        let kind = if finish { CallKind::Finish } else { CallKind::of(&batch.functions()[function]) };
        let mut payload = batch.payload();
        if batch.grows() || batch.delivery() != Delivery::Whole {
            let samples = calls.iter().flat_map(|call| batch.covered(kind, call.first)).map(|sample| sample as u32);
            let held =
                payload.as_ref().and_then(|payload| payload.hold(function, finish, &samples.collect::<Vec<_>>()));
            payload = held.or(payload);
            // Of what is open still, the payload had not let go when it was asked.
            let (grid, column) = batch.place(function, finish);
            calls.retain(|call| grid.is_open(call.first, column, call.attempt));
        }
        let pending = vec![true; if kind == CallKind::Gathered { calls.len().min(1) } else { calls.len() }];
        Self {
            id,
            scheduler,
            payload,
            batch,
            function,
            kind,
            alone,
            calls,
            pending,
            ended: Vec::new(),
            records: BTreeMap::new(),
            run_ns: 0,
            ran: 0,
            permit: None,
            tokens: None,
        }
    }

    /// Gives the frame, which has one call, the leave that it runs by.
    pub(crate) fn permitted(mut self, permit: Option<Permit>) -> Self {
        self.permit = permit;
        self
    }

    /// Unique among the engine's frames.
    #[must_use]
    pub const fn id(&self) -> u64 {
        self.id
    }

    #[must_use]
    pub fn function(&self) -> &Function {
        self.scheduler.function(self.function)
    }

    #[must_use]
    pub const fn function_id(&self) -> FunctionId {
        self.function
    }

    #[must_use]
    pub const fn batch(&self) -> &Arc<Batch> {
        &self.batch
    }

    #[must_use]
    pub const fn kind(&self) -> CallKind {
        self.kind
    }

    #[must_use]
    pub fn clock(&self) -> Clock {
        self.scheduler.clock()
    }

    /// Whether the frame must run on a fresh worker with nothing beside or behind it, the worker being retired afterwards.
    #[must_use]
    pub const fn alone(&self) -> bool {
        self.alone
    }

    /// Whether a worker has died with its call in hand before.
    #[must_use]
    pub fn is_suspect(&self) -> bool {
        self.calls.first().is_some_and(|call| call.suspect)
    }

    /// Number of calls.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.pending.len()
    }

    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// The scheduler's calls that are one to the lane (F-4).
    fn of(&self, call: usize) -> &[Call] {
        if self.kind == CallKind::Gathered { &self.calls } else { std::slice::from_ref(&self.calls[call]) }
    }

    /// The samples that a call covers, in its order.
    pub fn samples(&self, call: usize) -> impl Iterator<Item = usize> {
        self.of(call).iter().flat_map(|one| self.batch.covered(self.kind, one.first))
    }

    /// The first sample that a call covers.
    #[must_use]
    pub fn first(&self, call: usize) -> usize {
        self.of(call).first().map_or(0, |one| one.first)
    }

    /// How many samples a call covers.
    #[must_use]
    pub fn size(&self, call: usize) -> usize {
        match self.kind {
            CallKind::Gathered => self.calls.len(),
            _ => self.batch.covered(self.kind, self.first(call)).len(),
        }
    }

    /// The number of this attempt of a call, from 1; of gathered samples that of the first.
    #[must_use]
    pub fn attempt(&self, call: usize) -> u16 {
        self.of(call).first().map_or(1, |one| one.attempt)
    }

    /// Whether the lane has not ended the call yet.
    #[must_use]
    pub fn is_pending(&self, call: usize) -> bool {
        self.pending[call]
    }

    /// Whether an outcome of the call would still count, for one sample at least; false once the scheduler swept it.
    #[must_use]
    pub fn is_open(&self, call: usize) -> bool {
        self.of(call).iter().any(|one| self.counts(one))
    }

    fn counts(&self, call: &Call) -> bool {
        let (grid, column) = self.batch.place(self.function, call.finish);
        grid.is_open(call.first, column, call.attempt)
    }

    /// Leaves samples out of a call on gathered ones that count no more: what it is made of may be gone.
    pub fn leave_out_swept(&mut self) {
        if self.kind == CallKind::Gathered {
            let mut calls = std::mem::take(&mut self.calls);
            calls.retain(|call| self.counts(call));
            self.calls = calls;
        }
    }

    /// What the batch's calls are made of. Only a batch that is done has none, and no call of it is open then.
    #[must_use]
    pub const fn payload(&self) -> Option<&Arc<dyn Payload>> {
        self.payload.as_ref()
    }

    /// Keyword names of the values, `None` for values by position.
    #[must_use]
    pub fn names(&self) -> Option<&[String]> {
        self.payload.as_ref()?.names(self.function, self.kind == CallKind::Finish)
    }

    /// The values of these calls in wire form.
    pub fn encode(&self, calls: Range<usize>, out: &mut Vec<u8>) {
        let samples: Vec<u32> = calls.flat_map(|call| self.samples(call)).map(|sample| sample as u32).collect();
        if let Some(payload) = &self.payload {
            payload.encode(self.function, self.kind == CallKind::Finish, &samples, out);
        }
    }

    /// The scores that a `finish_group` call shapes, `None` where there is none.
    #[must_use]
    pub fn scores(&self, call: usize) -> Vec<Option<f64>> {
        let stage = self.batch.stage(self.function);
        let score = |sample| {
            let (outcome, _) = stage?.read(sample, 0)?;
            (outcome.status == crate::outcome::Status::Ok).then_some(outcome.value)
        };
        self.samples(call).map(score).collect()
    }

    /// Ends a call of one sample.
    pub fn settle(&mut self, call: usize, cell: Cell, times: Times) {
        if self.kind == CallKind::Sample {
            self.end(call, [cell], times);
        } else {
            self.settle_many(call, vec![cell], times);
        }
    }

    /// Ends a call of several samples; one cell each.
    pub fn settle_many(&mut self, call: usize, cells: Vec<Cell>, times: Times) {
        let expected = self.size(call);
        if cells.len() == expected {
            self.end(call, cells, times);
        } else {
            let reason = format!("returned {} values for {expected} samples", cells.len());
            let kind = crate::outcome::FailureKind::Error;
            let failure = Failure { kind, reason, traceback: None, retryable: false, retry_after: None, answer: None };
            self.fail(call, failure, times);
        }
    }

    fn end(&mut self, call: usize, cells: impl IntoIterator<Item = Cell>, times: Times) {
        if !std::mem::take(&mut self.pending[call]) {
            return;
        }
        self.count(times);
        self.leave(Heard::Answer);
        let record = self.records.remove(&call);
        if self.kind == CallKind::Gathered {
            self.end_gathered(cells, record, times);
            return;
        }
        let this = self.calls[call];
        let (grid, column) = self.batch.place(self.function, this.finish);
        if let Some(claim) = grid.claim(this.first, column, this.attempt) {
            if let Some(json) = record {
                Inner::keep_record(&self.batch, self.function, this.first, Vec::new(), json);
            }
            self.scheduler.settle(&self.batch, self.function, this, claim, cells, times);
        } else {
            self.scheduler.count_late();
        }
    }

    fn end_gathered(&self, cells: impl IntoIterator<Item = Cell>, record: Option<Vec<u8>>, times: Times) {
        let claimed = self.claim_gathered();
        if let Some(json) = record.filter(|_| claimed.iter().any(Option::is_some)) {
            let samples: Vec<usize> = self.samples(0).collect();
            Inner::keep_record(&self.batch, self.function, self.first(0), samples, json);
        }
        for ((call, claim), cell) in self.calls.iter().zip(claimed).zip(cells) {
            if let Some(claim) = claim {
                self.scheduler.settle(&self.batch, self.function, *call, claim, [cell], times);
            }
        }
    }

    /// The claims on gathered samples, `None` where it was too late (F-3).
    fn claim_gathered(&self) -> Vec<Option<Claim<'_>>> {
        let (grid, column) = self.batch.place(self.function, false);
        let claim = |call: &Call| {
            let claim = grid.claim(call.first, column, call.attempt);
            if claim.is_none() {
                self.scheduler.count_late();
            }
            claim
        };
        self.calls.iter().map(claim).collect()
    }

    /// Ends an attempt that failed; the scheduler says whether there is another.
    pub fn fail(&mut self, call: usize, failure: Failure, times: Times) {
        if !std::mem::take(&mut self.pending[call]) {
            return;
        }
        self.count(times);
        let heard = Heard::of(&failure);
        let dead = self.leave(heard) && heard == Heard::Sick;
        self.scheduler.blame(self.function, heard, &failure.reason);
        let all = if self.kind == CallKind::Gathered { 0..self.calls.len() } else { call..call + 1 };
        for one in self.calls[all].iter_mut().filter(|_| dead) {
            one.excused = one.excused.saturating_add(1);
        }
        self.records.remove(&call);
        if self.kind == CallKind::Gathered && self.calls.len() != 1 {
            let claimed = self.calls.iter().zip(self.claim_gathered());
            let claimed = claimed.filter_map(|(call, claim)| Some((*call, claim?))).collect();
            self.scheduler.gathered_failed(&self.batch, self.function, claimed, failure, dead, times);
            return;
        }
        let this = self.calls[call];
        let (grid, column) = self.batch.place(self.function, this.finish);
        if let Some(claim) = grid.claim(this.first, column, this.attempt) {
            self.scheduler.attempt_failed(&self.batch, self.function, this, claim, failure, times);
        } else {
            self.scheduler.count_late();
        }
    }

    /// The function's `setup()` failed: all its open cells in this batch do.
    pub fn fail_setup(&mut self, reason: String, traceback: Option<String>) {
        let cause = Cause::Broken(Note { reason, traceback });
        self.scheduler.end_open(&self.batch, Some(self.function), &cause);
    }

    /// Gives calls that were not started back to the scheduler, as they are.
    pub fn give_back(&mut self, calls: Range<usize>) {
        let mut back = Vec::new();
        for call in calls {
            if std::mem::take(&mut self.pending[call]) {
                back.extend_from_slice(self.of(call));
            }
        }
        if !back.is_empty() {
            self.scheduler.given_back(&self.batch, self.function, back);
        }
    }

    /// Keeps what a call recorded until it is settled.
    pub fn record(&mut self, call: usize, json: Vec<u8>) {
        self.records.insert(call, json);
    }

    /// Tells how many tokens a call used, before it is ended: for limits on tokens.
    pub fn used(&mut self, tokens: f64) {
        self.tokens = Some(tokens);
    }

    /// Tells the function's limit how its call ended; true if its endpoint is taken for dead.
    fn leave(&mut self, heard: Heard) -> bool {
        let tokens = self.tokens.take();
        // Most calls have no permit: they are spared the look at the clock.
        self.permit.take().is_some_and(|permit| permit.end(self.clock().now_ns(), heard, tokens))
    }

    /// Tells how long the call in hand has been running, so that the next frames are sized for it.
    pub fn observe(&mut self, run_ns: u64) {
        self.scheduler.observe(self.function, run_ns);
    }

    fn count(&mut self, times: Times) {
        if times.started_ns != 0 {
            self.run_ns = self.run_ns.saturating_add(times.run_ns);
            self.ran += 1;
        }
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        self.settle_ended();
        let open = (0..self.pending.len()).filter(|call| self.pending[*call]);
        let unfinished: Vec<Call> = open.flat_map(|call| self.of(call)).copied().collect();
        // A permit that was not used is given back before there is another look for work.
        drop(self.permit.take());
        self.scheduler.frame_ended(&self.batch, self.function, unfinished, self.run_ns, self.ran);
    }
}
