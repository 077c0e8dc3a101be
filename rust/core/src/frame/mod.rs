//! A frame: calls of one function on their way through a lane, all of one batch unless they were gathered.
//!
//! - F-1  Each call of a frame is ended once: settled, failed, given back, or, when the frame is dropped, taken back by the scheduler.
//! - F-2  Dropping the frame frees its place with the scheduler; so nothing that a lane does, not even a panic, loses a call or a place.
//! - F-3  What came too late (the call was swept, or another attempt is under way) is dropped in silence and counted.
//! - F-4  Samples that were gathered (`scheduler::gather`) are one call to the lane, and the only one of their frame; to the scheduler each sample
//!   is a call of its own, which is claimed, swept and given another attempt by itself, in its own batch.
//! - F-5  A frame has a slice of each of its batches, in an order that does not change, and at least one. In a call they stand one behind the other.
//! - F-6  A frame that gave all its calls back before one of them ended counts no more, though a lane may still hold it: its place and its
//!   leave are others'.

mod ended;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::batch::Batch;
use crate::batch_slice::BatchSlice;
use crate::call::{Call, CallKind, Cause};
use crate::clock::Clock;
use crate::function::{Function, FunctionId};
use crate::grid::Claim;
use crate::limits::{Feedback, Permit};
use crate::outcome::{Cell, Failure, Note, Times, Traceback};
use crate::payload::Payload;
use crate::scheduler::{Inner, Taken};
use crate::timeout_messages::no_setup;
use ended::Ended;

/// Calls handed to a lane.
pub struct Frame {
    id: u64,
    scheduler: Arc<Inner>,
    function: FunctionId,
    kind: CallKind,
    alone: bool,
    /// Never empty (F-5).
    slices: Vec<BatchSlice>,
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
    /// It has a place with the scheduler (F-6).
    counts: bool,
}

impl Frame {
    pub(crate) fn new(id: u64, scheduler: Arc<Inner>, function: FunctionId, taken: Taken) -> Self {
        let (alone, finish) = (taken.alone, taken.calls.first().is_some_and(|call| call.finish));
        let kind = if finish { CallKind::Finish } else { CallKind::of(scheduler.function(function)) };
        let slices = BatchSlice::all(taken, function, kind);
        let calls: usize = slices.iter().map(|slice| slice.calls.len()).sum();
        let pending = vec![true; if kind == CallKind::Gathered { calls.min(1) } else { calls }];
        Self {
            id,
            scheduler,
            function,
            kind,
            alone,
            slices,
            pending,
            ended: Vec::new(),
            records: BTreeMap::new(),
            run_ns: 0,
            ran: 0,
            permit: None,
            tokens: None,
            counts: true,
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

    /// What it holds of each of its batches (F-5).
    #[must_use]
    pub fn slices(&self) -> &[BatchSlice] {
        &self.slices
    }

    /// The slice of its batch; of gathered samples the first.
    fn own(&self) -> &BatchSlice {
        &self.slices[0]
    }

    /// Its batch; of gathered samples that of the first slice.
    #[must_use]
    pub fn batch(&self) -> &Arc<Batch> {
        self.own().batch()
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
        self.each().next().is_some_and(|(_, call)| call.suspect)
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

    /// The scheduler's calls, each with its slice.
    fn each(&self) -> impl Iterator<Item = (&BatchSlice, &Call)> {
        self.slices.iter().flat_map(|slice| slice.calls.iter().map(move |call| (slice, call)))
    }

    /// The scheduler's calls that are one to the lane (F-4).
    fn of(&self, call: usize) -> impl Iterator<Item = (&BatchSlice, &Call)> {
        let gathered = self.kind == CallKind::Gathered;
        let one = (!gathered).then(|| (self.own(), &self.own().calls[call]));
        one.into_iter().chain(self.each().filter(move |_| gathered))
    }

    /// The samples that a call covers, in its order, each with the number of its slice.
    pub fn samples_by_slice(&self, call: usize) -> impl Iterator<Item = (usize, usize)> {
        let gathered = self.kind == CallKind::Gathered;
        let calls = if gathered { 0..usize::MAX } else { call..call + 1 };
        let slices = self.slices.iter().enumerate().map(move |(number, slice)| {
            let calls = calls.start..calls.end.min(slice.calls.len());
            (number, slice, &slice.calls[calls])
        });
        let samples = |batch: &'_ Batch, first| batch.covered(self.kind, first);
        slices.flat_map(move |(number, slice, calls)| {
            calls.iter().flat_map(move |one| samples(slice.batch(), one.first).map(move |sample| (number, sample)))
        })
    }

    /// The samples that a call covers, in its order, as their batches count them.
    pub fn samples(&self, call: usize) -> impl Iterator<Item = usize> {
        self.samples_by_slice(call).map(|(_, sample)| sample)
    }

    /// The first sample that a call covers.
    #[must_use]
    pub fn first(&self, call: usize) -> usize {
        self.of(call).next().map_or(0, |(_, one)| one.first)
    }

    /// How many samples a call covers.
    #[must_use]
    pub fn size(&self, call: usize) -> usize {
        match self.kind {
            CallKind::Gathered => self.slices.iter().map(|slice| slice.calls.len()).sum(),
            _ => self.batch().covered(self.kind, self.first(call)).len(),
        }
    }

    /// The number of this attempt of a call, from 1; of gathered samples that of the first.
    #[must_use]
    pub fn attempt(&self, call: usize) -> u16 {
        self.of(call).next().map_or(1, |(_, one)| one.attempt)
    }

    /// Whether the lane has not ended the call yet.
    #[must_use]
    pub fn is_pending(&self, call: usize) -> bool {
        self.pending[call]
    }

    /// Whether an outcome of the call would still count, for one sample at least; false once the scheduler swept it.
    #[must_use]
    pub fn is_open(&self, call: usize) -> bool {
        self.of(call).any(|(slice, one)| slice.counts(self.function, one))
    }

    /// Leaves samples out of a call on gathered ones that count no more: what it is made of may be gone.
    pub fn leave_out_swept(&mut self) {
        if self.kind == CallKind::Gathered {
            self.slices.iter_mut().for_each(|slice| slice.leave_out_swept(self.function));
        }
    }

    /// What the calls of its batch are made of; of gathered samples those of the first slice.
    #[must_use]
    pub fn payload(&self) -> Option<&Arc<dyn Payload>> {
        self.own().payload()
    }

    /// Keyword names of the values, `None` for values by position. They are the same in all slices.
    #[must_use]
    pub fn names(&self) -> Option<&[String]> {
        self.payload()?.names(self.function, self.kind == CallKind::Finish)
    }

    /// The scores that a `finish_group` call shapes, `None` where there is none.
    #[must_use]
    pub fn scores(&self, call: usize) -> Vec<Option<f64>> {
        let stage = self.batch().stage(self.function);
        let score = |sample| {
            let (outcome, _) = stage?.read(sample, 0)?;
            (outcome.status == crate::outcome::Status::Ok).then_some(outcome.value)
        };
        self.samples(call).map(score).collect()
    }

    /// Ends a call of one sample.
    pub fn complete(&mut self, call: usize, cell: Cell, times: Times) {
        if self.kind == CallKind::Sample {
            self.end(call, [cell], times);
        } else {
            self.complete_many(call, vec![cell], times);
        }
    }

    /// Ends a call of several samples; one cell each.
    pub fn complete_many(&mut self, call: usize, cells: Vec<Cell>, times: Times) {
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
        self.end_permit(Feedback::Ok);
        let record = self.records.remove(&call);
        if self.kind == CallKind::Gathered {
            self.end_gathered(cells, record, times);
            return;
        }
        let (slice, this) = (self.own(), self.own().calls[call]);
        if let Some(claim) = slice.claim(self.function, &this) {
            if let Some(json) = record {
                Inner::keep_record(slice.batch(), self.function, this.first, Vec::new(), json);
            }
            self.scheduler.complete(slice.batch(), self.function, this, claim, cells, times);
        } else {
            self.scheduler.count_late();
        }
    }

    fn end_gathered(&self, cells: impl IntoIterator<Item = Cell>, record: Option<Vec<u8>>, times: Times) {
        let claimed: Vec<_> = self.each().map(|(slice, call)| self.claim(slice, call)).collect();
        // A function that records is called on samples of one batch (M-7).
        if let Some(json) = record.filter(|_| claimed.iter().any(Option::is_some) && self.slices.len() == 1) {
            let samples: Vec<usize> = self.samples(0).collect();
            Inner::keep_record(self.batch(), self.function, self.first(0), samples, json);
        }
        for (((slice, call), claim), cell) in self.each().zip(claimed).zip(cells) {
            if let Some(claim) = claim {
                self.scheduler.complete(slice.batch(), self.function, *call, claim, [cell], times);
            }
        }
    }

    /// The claim on a gathered sample, `None` where it is too late (F-3).
    fn claim<'a>(&self, slice: &'a BatchSlice, call: &Call) -> Option<Claim<'a>> {
        let claim = slice.claim(self.function, call);
        if claim.is_none() {
            self.scheduler.count_late();
        }
        claim
    }

    /// Ends an attempt that failed; the scheduler says whether there is another.
    pub fn fail(&mut self, call: usize, failure: Failure, times: Times) {
        if !std::mem::take(&mut self.pending[call]) {
            return;
        }
        self.count(times);
        let feedback = Feedback::of(&failure);
        let breaker_open = self.end_permit(feedback) && feedback == Feedback::Unhealthy;
        self.scheduler.note_endpoint_error(self.function, feedback, &failure.reason);
        let gathered = self.kind == CallKind::Gathered;
        for slice in self.slices.iter_mut().filter(|_| breaker_open) {
            let all = if gathered { 0..slice.calls.len() } else { call..call + 1 };
            slice.calls[all].iter_mut().for_each(|one| one.excused = one.excused.saturating_add(1));
        }
        self.records.remove(&call);
        if gathered && self.size(call) != 1 {
            let claimed =
                self.each().filter_map(|(slice, call)| Some((slice.batch(), *call, self.claim(slice, call)?)));
            self.scheduler.gathered_failed(self.function, claimed.collect(), failure, breaker_open, times);
            return;
        }
        let Some((slice, this)) = self.of(call).next() else { return };
        if let Some(claim) = slice.claim(self.function, this) {
            self.scheduler.attempt_failed(slice.batch(), self.function, *this, claim, failure, times);
        } else {
            self.scheduler.count_late();
        }
    }

    /// The function's `setup()` failed: all its open cells in the batches of this frame do.
    pub fn fail_setup(&mut self, reason: String, traceback: Option<String>) {
        self.break_function(Note { reason, traceback: traceback.map(Traceback::Raised) });
    }

    /// The function's `setup()` did not end in time, and was last seen there.
    pub fn time_out_setup(&mut self, last_seen: Option<String>) {
        let reason = no_setup(self.function().policy.setup_timeout);
        self.break_function(Note { reason, traceback: last_seen.map(Traceback::LastSeen) });
    }

    fn break_function(&self, why: Note) {
        let cause = Cause::Broken(why);
        for slice in &self.slices {
            self.scheduler.end_open(slice.batch(), Some(self.function), &cause);
        }
    }

    /// Gives calls that were not started back to the scheduler, as they are.
    pub fn give_back(&mut self, calls: Range<usize>) {
        let calls = calls.filter(|call| std::mem::take(&mut self.pending[*call])).collect::<Vec<_>>();
        if !calls.is_empty() {
            let all = calls.len() == self.pending.len();
            if all {
                self.counts = false;
                drop(self.permit.take());
            }
            self.scheduler.given_back(self.function, self.returning(&calls), all);
        }
    }

    /// These calls as they go back to the scheduler, by batch; nothing for nothing.
    fn returning(&self, calls: &[usize]) -> Vec<(u64, Vec<Call>)> {
        let of = |slice: &BatchSlice| match self.kind {
            CallKind::Gathered => slice.calls.clone(),
            _ => calls.iter().map(|call| slice.calls[*call]).collect(),
        };
        let slices = self.slices.iter().filter(|_| !calls.is_empty());
        slices.map(|slice| (slice.batch().id(), of(slice))).collect()
    }

    /// Keeps what a call recorded until it is settled.
    pub fn record(&mut self, call: usize, json: Vec<u8>) {
        self.records.insert(call, json);
    }

    /// Tells how many tokens a call used, before it is ended: for limits on tokens.
    pub fn used(&mut self, tokens: f64) {
        self.tokens = Some(tokens);
    }

    /// Tells the function's limiter how its call ended; true if the circuit breaker is open.
    fn end_permit(&mut self, feedback: Feedback) -> bool {
        let tokens = self.tokens.take();
        // Most calls have no permit: they are spared the look at the clock.
        self.permit.take().is_some_and(|permit| permit.end(self.clock().now_ns(), feedback, tokens))
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
        self.complete_ended();
        let open: Vec<usize> = (0..self.pending.len()).filter(|call| self.pending[*call]).collect();
        let unfinished = self.returning(&open);
        // A permit that was not used is given back before there is another look for work.
        drop(self.permit.take());
        self.scheduler.frame_ended(self.function, unfinished, self.counts, self.run_ns, self.ran);
    }
}
