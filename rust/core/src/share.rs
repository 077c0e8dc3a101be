//! What a frame holds of one batch.
//!
//! - H-1  Of a batch that lets go of values the share holds those of its calls, and has only calls that were open after it did: what such a batch
//!   lets go of was settled before.

use std::sync::Arc;

use crate::batch::Batch;
use crate::call::{Call, CallKind};
use crate::delivery::Delivery;
use crate::function::FunctionId;
use crate::grid::{Claim, Grid};
use crate::payload::Payload;

/// Calls of one batch, as the scheduler knows them (F-4 of `frame`), and what they are made of.
pub struct Share {
    batch: Arc<Batch>,
    payload: Option<Arc<dyn Payload>>,
    pub(crate) calls: Vec<Call>,
}

impl Share {
    pub(crate) fn new(batch: Arc<Batch>, function: FunctionId, kind: CallKind, mut calls: Vec<Call>) -> Self {
        let mut payload = batch.payload();
        if batch.grows() || batch.delivery() != Delivery::Whole {
            let samples = calls.iter().flat_map(|call| batch.covered(kind, call.first)).map(|sample| sample as u32);
            let finish = kind == CallKind::Finish;
            let held =
                payload.as_ref().and_then(|payload| payload.hold(function, finish, &samples.collect::<Vec<_>>()));
            payload = held.or(payload);
            // After the payload was asked (H-1).
            let (grid, column) = batch.place(function, finish);
            calls.retain(|call| grid.is_open(call.first, column, call.attempt));
        }
        Self { batch, payload, calls }
    }

    #[must_use]
    pub const fn batch(&self) -> &Arc<Batch> {
        &self.batch
    }

    /// What the batch's calls are made of. Only a batch that is done has none, and no call of it is open then.
    #[must_use]
    pub const fn payload(&self) -> Option<&Arc<dyn Payload>> {
        self.payload.as_ref()
    }

    fn grid(&self, function: FunctionId, call: &Call) -> (&Grid, FunctionId) {
        self.batch.place(function, call.finish)
    }

    /// Whether an outcome of a call would still count.
    pub(crate) fn counts(&self, function: FunctionId, call: &Call) -> bool {
        let (grid, column) = self.grid(function, call);
        grid.is_open(call.first, column, call.attempt)
    }

    /// The right to end a call, if that is not too late.
    pub(crate) fn claim(&self, function: FunctionId, call: &Call) -> Option<Claim<'_>> {
        let (grid, column) = self.grid(function, call);
        grid.claim(call.first, column, call.attempt)
    }

    /// Leaves out calls that count no more.
    pub(crate) fn leave_out_swept(&mut self, function: FunctionId) {
        let mut calls = std::mem::take(&mut self.calls);
        calls.retain(|call| self.counts(function, call));
        self.calls = calls;
    }

    /// Writes the values of these samples in wire form.
    pub(crate) fn encode(&self, function: FunctionId, finish: bool, samples: &[u32], out: &mut Vec<u8>) {
        if let Some(payload) = &self.payload {
            payload.encode(function, finish, samples, out);
        }
    }
}
