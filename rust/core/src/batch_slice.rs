//! The calls of one batch in a frame, and their values.
//!
//! A batch that frees values early gives the slice the values of its calls; the slice then keeps
//! only calls that were still open afterwards. A batch may end while its calls are taken. Its
//! values and names are then gone, so it gets no slice if the frame has others.

use std::sync::Arc;

use crate::batch::Batch;
use crate::call::{Call, CallKind};
use crate::function::FunctionId;
use crate::grid::{Claim, Grid};
use crate::payload::SharedPayload;

/// Calls that were taken out of their queues, for one frame.
pub(crate) struct TakenCalls {
    pub batch: Arc<Batch>,
    pub calls: Vec<Call>,
    /// Calls of other batches, which were gathered with them.
    pub others: Vec<(Arc<Batch>, Vec<Call>)>,
    /// The frame is to run alone.
    pub alone: bool,
}

impl TakenCalls {
    /// Returns the batches, each with its calls.
    pub(crate) fn by_batch(&self) -> impl Iterator<Item = (&Arc<Batch>, &[Call])> {
        let others = self.others.iter().map(|(batch, calls)| (batch, &calls[..]));
        std::iter::once((&self.batch, &self.calls[..])).chain(others)
    }
}

/// Calls of one batch, with the scheduler's indexes, and their values.
pub struct BatchSlice {
    batch: Arc<Batch>,
    payload: Option<SharedPayload>,
    pub(crate) calls: Vec<Call>,
}

impl BatchSlice {
    /// Makes the slices of a frame, at least one.
    pub(crate) fn all(taken: TakenCalls, function: FunctionId, kind: CallKind) -> Vec<Self> {
        let TakenCalls { batch, calls, others, .. } = taken;
        let slice = |(batch, calls)| Self::new(batch, function, kind, calls);
        let mut slices: Vec<Self> = std::iter::once((batch, calls)).chain(others).map(slice).collect();
        if slices.iter().any(|slice| !slice.calls.is_empty()) {
            slices.retain(|slice| !slice.calls.is_empty());
        }
        slices
    }

    fn new(batch: Arc<Batch>, function: FunctionId, kind: CallKind, mut calls: Vec<Call>) -> Self {
        let mut payload = batch.payload();
        // The calls of a function in other batches end together, and the queue is closed.
        let spec = &batch.functions()[function];
        let gated = spec.run_if.is_some() || spec.pure;
        if batch.is_streamed() || batch.delivery().can_be_early() || gated {
            let samples = calls.iter().flat_map(|call| batch.covered(kind, call.first)).map(|sample| sample as u32);
            let finish = kind == CallKind::Finish;
            payload = payload.map(|payload| payload.hold(function, finish, &samples.collect::<Vec<_>>()));
            // Checked after the payload is held: a call that ended before may have no values there.
            let (grid, column) = batch.place(function, finish);
            calls.retain(|call| grid.is_open(call.first, column, call.attempt));
        }
        if payload.is_none() {
            calls.clear(); // none of them is open
        }
        Self { batch, payload, calls }
    }

    #[must_use]
    pub const fn batch(&self) -> &Arc<Batch> {
        &self.batch
    }

    /// Returns the values of the calls; `None` only for a batch that is done, none of whose calls
    /// is open.
    #[must_use]
    pub const fn payload(&self) -> Option<&SharedPayload> {
        self.payload.as_ref()
    }

    fn grid(&self, function: FunctionId, call: &Call) -> (&Grid, FunctionId) {
        self.batch.place(function, call.finish)
    }

    /// Returns whether an outcome of a call would still be written.
    pub(crate) fn counts(&self, function: FunctionId, call: &Call) -> bool {
        let (grid, column) = self.grid(function, call);
        grid.is_open(call.first, column, call.attempt)
    }

    /// Returns the right to end a call, if the call is still open.
    pub(crate) fn claim(&self, function: FunctionId, call: &Call) -> Option<Claim<'_>> {
        let (grid, column) = self.grid(function, call);
        grid.claim(call.first, column, call.attempt)
    }

    /// Drops calls that are not open any more.
    pub(crate) fn leave_out_swept(&mut self, function: FunctionId) {
        let mut calls = std::mem::take(&mut self.calls);
        calls.retain(|call| self.counts(function, call));
        self.calls = calls;
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use std::any::Any;
    use std::time::Duration;

    use super::*;
    use crate::batch::BatchSpec;
    use crate::clock::Clock;
    use crate::function::{Function, Policy, Shape};
    use crate::outcome::{Outcome, Status, Times};
    use crate::payload::Payload;

    struct NamedPayload([String; 1]);

    impl Payload for NamedPayload {
        fn names(&self, _: FunctionId, _: bool) -> Option<&[String]> {
            Some(&self.0)
        }

        fn as_any(&self) -> &dyn Any {
            self
        }
    }

    fn batch(id: u64) -> std::io::Result<Arc<Batch>> {
        let function = Function::new("f", Shape::Sample, Policy::new(Duration::from_secs(1)));
        let spec = BatchSpec::whole(1, 1, Box::new(NamedPayload(["text".to_owned()])));
        Ok(Arc::new(Batch::new(id, Clock::start(), [function].into(), &Arc::default(), spec)?))
    }

    #[test]
    fn a_batch_that_ended_meanwhile_has_no_slice() {
        let (ended, alive) = (batch(1).unwrap(), batch(2).unwrap());
        let outcome = Outcome::without_value(Status::Cancelled, Times::default());
        ended.grid().claim_open(0, 0).unwrap().complete([outcome], |_| {});
        assert!(ended.announce(&[0]) && ended.release().is_some());
        let of = |batch: &Arc<Batch>, others| TakenCalls {
            batch: batch.clone(),
            calls: vec![Call::fresh(0)],
            others,
            alone: false,
        };
        let others = vec![(alive.clone(), vec![Call::fresh(0)])];
        let slices = BatchSlice::all(of(&ended, others), 0, CallKind::Gathered);
        let names = slices[0].payload().and_then(|payload| payload.names(0, false)).map(<[String]>::len);
        assert_eq!((slices.len(), slices[0].batch().id(), names), (1, 2, Some(1)));
        // A batch without open calls has one empty slice.
        let slices = BatchSlice::all(of(&ended, Vec::new()), 0, CallKind::Gathered);
        assert!(slices.len() == 1 && slices[0].calls.is_empty());
    }
}
