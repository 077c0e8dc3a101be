//! A frame: calls of one function on their way through a lane.
//!
//! - Each call ends once: completed, failed, given back or, when the frame is dropped, taken back.
//! - Dropping a frame frees its place with the scheduler, so a panic in a lane loses no call.
//! - An outcome that comes too late is dropped and counted.
//! - Gathered samples are one call to the lane, the only one of their frame; each is a separate
//!   call for the scheduler, with its own attempts and its own batch.
//! - A frame that gave back all its calls frees its place, even if a lane still holds the frame.

mod call_trace;
mod completion;
mod ended;
mod owner;
mod reports;
mod trace;
mod values;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::batch::Batch;
use crate::batch_slice::{BatchSlice, TakenCalls};
use crate::call::{Call, CallKind};
use crate::clock::Clock;
use crate::function::{Function, FunctionId};
use crate::limits::{History, Permit};
use crate::outcome::Status;
use crate::payload::SharedPayload;
use crate::report::NamedExtra;
use call_trace::FrameTrace;
use ended::EndedCalls;
pub(crate) use owner::{FrameOwner, LaneOwner};

/// Calls handed to a lane.
pub struct Frame {
    id: u64,
    owner: Arc<dyn FrameOwner>,
    clock: Clock,
    function: FunctionId,
    kind: CallKind,
    alone: bool,
    /// Never empty.
    slices: Vec<BatchSlice>,
    /// True for each call that has not ended; the index is the lane's.
    pending: Vec<bool>,
    /// Calls that the lane has ended and that are not completed yet.
    ended: EndedCalls,
    /// Recorded by calls that are not completed yet.
    records: BTreeMap<usize, Vec<u8>>,
    /// Reported by calls that have not ended yet.
    extra: BTreeMap<usize, Vec<(usize, NamedExtra)>>,
    run_ns: u64,
    ran: u64,
    /// Permit of the one call of a frame whose function has a limit.
    permit: Option<Permit>,
    /// Tokens that the running call used, if it reported them.
    tokens: Option<f64>,
    /// True if the failed endpoint is one of several of which others are up.
    others_up: bool,
    /// Number of calls that the scheduler counts as with the lane.
    lane_counts: LaneCounts,
    /// Calls that ended and were not reported, and how many are reported together. If calls run one
    /// after the other, the end of the frame reports all.
    unreported: usize,
    report_every: usize,
    /// Present if the engine has a tracer.
    trace: Option<Box<FrameTrace>>,
}

/// Calls of a function that are with the lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LaneCounts {
    pub frames: usize,
    pub calls: usize,
    /// Frames of cheap calls, none of which has turned out slow.
    pub cheap: usize,
}

impl Frame {
    pub(crate) fn new(
        id: u64,
        owner: Arc<dyn FrameOwner>,
        clock: Clock,
        function: FunctionId,
        taken: TakenCalls,
    ) -> Self {
        let (alone, finish) = (taken.alone, taken.calls.first().is_some_and(|call| call.finish));
        let kind = if finish { CallKind::Finish } else { CallKind::of(&taken.batch.functions()[function]) };
        let slices = BatchSlice::all(taken, function, kind);
        let calls: usize = slices.iter().map(|slice| slice.calls.len()).sum();
        let pending = vec![true; if kind == CallKind::Gathered { calls.min(1) } else { calls }];
        let lane_counts = LaneCounts { frames: 1, calls: pending.len(), cheap: 0 };
        let trace = owner.tracer().map(FrameTrace::new);
        Self {
            id,
            owner,
            clock,
            function,
            kind,
            alone,
            slices,
            pending,
            ended: EndedCalls::default(),
            records: BTreeMap::new(),
            extra: BTreeMap::new(),
            run_ns: 0,
            ran: 0,
            permit: None,
            tokens: None,
            others_up: false,
            lane_counts,
            unreported: 0,
            report_every: usize::MAX,
            trace,
        }
    }

    /// Makes the frame report its calls as they end, `every` of them together.
    pub(crate) fn reporting(mut self, every: Option<usize>) -> Self {
        self.report_every = every.unwrap_or(usize::MAX);
        self
    }

    /// Makes the frame count as one of cheap calls.
    pub(crate) fn counted_as_cheap(mut self, cheap: bool) -> Self {
        self.lane_counts.cheap = cheap.into();
        self
    }

    /// Returns the number of calls that the scheduler must count as with the lane.
    pub(crate) const fn lane_counts(&self) -> LaneCounts {
        self.lane_counts
    }

    /// Gives the frame, which has one call, the permit of its call.
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
        &self.batch().functions()[self.function]
    }

    #[must_use]
    pub const fn function_id(&self) -> FunctionId {
        self.function
    }

    /// Returns the slices, one for each of its batches.
    #[must_use]
    pub fn slices(&self) -> &[BatchSlice] {
        &self.slices
    }

    /// The slice of its batch; of gathered samples the first slice.
    fn own(&self) -> &BatchSlice {
        &self.slices[0]
    }

    /// Its batch; of gathered samples the batch of the first slice.
    #[must_use]
    pub fn batch(&self) -> &Arc<Batch> {
        self.own().batch()
    }

    #[must_use]
    pub const fn kind(&self) -> CallKind {
        self.kind
    }

    #[must_use]
    pub const fn clock(&self) -> Clock {
        self.clock
    }

    /// Returns whether the frame must run alone on a fresh worker, which is retired afterwards.
    #[must_use]
    pub const fn alone(&self) -> bool {
        self.alone
    }

    /// Returns whether a worker has died while it ran the frame's call.
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

    /// The scheduler's calls that make up one call of the lane.
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

    /// Returns the number of samples of a call.
    #[must_use]
    pub fn size(&self, call: usize) -> usize {
        match self.kind {
            CallKind::Gathered => self.slices.iter().map(|slice| slice.calls.len()).sum(),
            _ => self.batch().covered(self.kind, self.first(call)).len(),
        }
    }

    /// The number of this attempt of a call, from 1; of gathered samples that of the first sample.
    #[must_use]
    pub fn attempt(&self, call: usize) -> u16 {
        self.of(call).next().map_or(1, |(_, one)| one.attempt)
    }

    /// Returns the results of earlier attempts; of gathered samples, of the sample with most
    /// attempts.
    #[must_use]
    pub fn history(&self, call: usize) -> History {
        let of = |one: &Call| History {
            failed_before: one.has_failed(),
            throttled_before: one.deferred > 0,
            excused: one.excused,
        };
        self.of(call).map(|(_, one)| one).max_by_key(|one| one.attempt).map_or_else(History::default, of)
    }

    /// Returns whether the lane has not ended the call yet.
    #[must_use]
    pub fn is_pending(&self, call: usize) -> bool {
        self.pending[call]
    }

    /// Returns whether an outcome of the call would still be written, for at least one sample;
    /// false after the scheduler swept it.
    #[must_use]
    pub fn is_open(&self, call: usize) -> bool {
        self.of(call).any(|(slice, one)| slice.counts(self.function, one))
    }

    /// Removes samples from a call on gathered samples that are not open any more, because their
    /// values may be gone.
    pub fn leave_out_swept(&mut self) {
        if self.kind == CallKind::Gathered {
            self.slices.iter_mut().for_each(|slice| slice.leave_out_swept(self.function));
        }
    }

    /// Returns the values of the calls; of gathered samples those of the first slice.
    #[must_use]
    pub fn payload(&self) -> Option<&SharedPayload> {
        self.own().payload()
    }

    /// Keyword names of the values, `None` for values by position. All slices have the same.
    #[must_use]
    pub fn names(&self) -> Option<&[String]> {
        self.payload()?.names(self.function, self.kind == CallKind::Finish)
    }

    /// Returns the scores that a `finish_group` call shapes, `None` for missing ones.
    #[must_use]
    pub fn scores(&self, call: usize) -> Vec<Option<f64>> {
        let stage = self.batch().stage(self.function);
        let score = |sample| {
            let (outcome, _) = stage?.read(sample, 0)?;
            (outcome.status == Status::Ok).then_some(outcome.value)
        };
        self.samples(call).map(score).collect()
    }
}
