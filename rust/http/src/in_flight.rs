//! A frame in flight: its calls are in different requests, and each is completed by its own index.
//!
//! - Completing a call may hand the lane another frame, on this thread: never call it
//!   with the lock of a queue held.
//! - The frame is dropped with its last call, with no lock held.

use std::sync::Arc;

use guerdon_core::batch::Batch;
use guerdon_core::frame::Frame;
use guerdon_core::in_flight::InFlightCall;
use guerdon_core::limits::{NextRequest, Permit};
use guerdon_core::payload::{Payload, SharedPayload};
use guerdon_core::report::Report;
use parking_lot::Mutex;

use crate::fleet::{HedgePermit, RequestKey};

/// See the module.
pub struct InFlightFrame {
    /// Oldest batch first; within it retries first, so that they are not the batch's last calls.
    pub order: (u64, bool, u64),
    /// Number of calls.
    pub calls: usize,
    /// Slot of its calls, where they are member calls.
    pub slot: usize,
    /// The payload of each share of the frame.
    payloads: Vec<Option<SharedPayload>>,
    /// Written by requests that end, and when the lane closes.
    inner: Mutex<Inner>,
}

struct Inner {
    frame: Option<Frame>,
    /// Calls that have not ended.
    left: usize,
}

impl InFlightFrame {
    pub fn new(frame: Frame) -> Self {
        let first = frame.is_empty() || frame.attempt(0) == 1;
        Self {
            order: (frame.batch().id(), first, frame.id()),
            calls: frame.len(),
            slot: frame.batch().slot(),
            payloads: frame.slices().iter().map(|share| share.payload().cloned()).collect(),
            inner: Mutex::new(Inner { left: frame.len(), frame: Some(frame) }),
        }
    }

    /// Its batch, and the first sample of a call; `None` once its last call has ended.
    pub fn place(&self, call: usize) -> Option<(Arc<Batch>, usize)> {
        let inner = self.inner.lock();
        inner.frame.as_ref().map(|frame| (frame.batch().clone(), frame.first(call)))
    }

    /// Returns whether the call still needs an outcome.
    pub fn is_open(&self, call: usize) -> bool {
        let inner = self.inner.lock();
        inner.frame.as_ref().is_some_and(|frame| frame.is_pending(call) && frame.is_open(call))
    }

    /// The payload of one of its shares.
    pub fn payload(&self, share: usize) -> Option<&dyn Payload> {
        self.payloads.get(share)?.as_deref()
    }

    /// The samples of a call that still need an outcome, in order, each with its share; a gathered
    /// call is reduced to them.
    pub fn samples(&self, call: usize) -> Vec<(usize, u32)> {
        let mut inner = self.inner.lock();
        let Some(frame) = inner.frame.as_mut() else { return Vec::new() };
        frame.leave_out_swept();
        frame.samples_by_slice(call).map(|(share, sample)| (share, sample as u32)).collect()
    }

    /// Returns the identity of a call for the fleet.
    pub fn key(&self, call: usize, waiting: usize) -> RequestKey {
        let inner = self.inner.lock();
        let Some(frame) = inner.frame.as_ref() else { return RequestKey::default() };
        let sample = frame.first(call);
        let (batch, group, group_size) = frame.batch().alike(sample);
        let own_batch = frame.batch().id();
        RequestKey { batch, own_batch, group, sample, group_size, attempt: frame.attempt(call), waiting }
    }

    /// Leave for a second request of a call.
    pub fn second_request(&self) -> Option<HedgePermit> {
        let inner = self.inner.lock();
        let frame = inner.frame.as_ref()?;
        frame.second_request().map(|permit| HedgePermit { permit, clock: frame.clock() })
    }

    /// Reports a request of a call that makes several as answered (`Frame::answered`).
    pub fn answered(&self) -> Option<NextRequest> {
        self.inner.lock().frame.as_mut()?.answered()
    }

    /// Goes on with the permit for the next request.
    pub fn goes_on(&self, permit: Permit) {
        if let Some(frame) = self.inner.lock().frame.as_mut() {
            frame.goes_on(permit);
        }
    }

    /// Completes a call with `end`, which does nothing if the scheduler has completed it.
    pub fn end(&self, end: impl FnOnce(&mut Frame)) {
        let mut inner = self.inner.lock();
        let Some(frame) = inner.frame.as_mut() else { return };
        end(frame);
        inner.left = inner.left.saturating_sub(1);
        let over = if inner.left == 0 { inner.frame.take() } else { None };
        drop(inner);
        drop(over);
    }

    /// Takes the usage of a call, unless its frame is gone.
    pub fn report(&self, call: usize, report: Report) {
        if let Some(frame) = self.inner.lock().frame.as_mut() {
            frame.report(call, report);
        }
    }

    /// A snapshot of the call, for `dump()`.
    pub fn in_flight(&self, call: usize, age_ns: u64) -> Option<InFlightCall> {
        self.inner.lock().frame.as_ref().map(|frame| InFlightCall::call(frame, call, age_ns))
    }
}
