//! A frame in the hands of the lane: its calls are on their way in different requests, and each is ended by its own index.
//!
//! - F-1  The frame is dropped with its last call, with no lock held (L-6 of lanes).
//! - F-2  Ending a call may hand the lane another frame, on this thread: whoever has the lock of a place must not take that of a frame.

use std::sync::Arc;

use guerdon_core::doing::Doing;
use guerdon_core::frame::Frame;
use guerdon_core::payload::Payload;
use parking_lot::Mutex;

/// See the module.
pub struct Held {
    /// Oldest batch first; in it what is tried again, so that its last attempts are not the batch's last calls.
    pub order: (u64, bool, u64),
    /// Calls in it.
    pub calls: usize,
    /// What the calls are made of, of each share of the frame.
    payloads: Vec<Option<Arc<dyn Payload>>>,
    /// Written by requests that end, and by the lane's end.
    inner: Mutex<Inner>,
}

struct Inner {
    frame: Option<Frame>,
    /// Calls that have not ended.
    left: usize,
}

impl Held {
    pub fn new(frame: Frame) -> Self {
        let first = frame.is_empty() || frame.attempt(0) == 1;
        Self {
            order: (frame.batch().id(), first, frame.id()),
            calls: frame.len(),
            payloads: frame.shares().iter().map(|share| share.payload().cloned()).collect(),
            inner: Mutex::new(Inner { left: frame.len(), frame: Some(frame) }),
        }
    }

    /// Whether an outcome of the call would still count.
    pub fn is_open(&self, call: usize) -> bool {
        let inner = self.inner.lock();
        inner.frame.as_ref().is_some_and(|frame| frame.is_pending(call) && frame.is_open(call))
    }

    /// What the calls of one of its shares are made of.
    pub fn payload(&self, share: usize) -> Option<&dyn Payload> {
        self.payloads.get(share)?.as_deref()
    }

    /// The samples of a call that still count, in its order, each with the number of its share; of gathered ones no others are part of it from then
    /// on.
    pub fn samples(&self, call: usize) -> Vec<(usize, u32)> {
        let mut inner = self.inner.lock();
        let Some(frame) = inner.frame.as_mut() else { return Vec::new() };
        frame.leave_out_swept();
        frame.places(call).map(|(share, sample)| (share, sample as u32)).collect()
    }

    /// Ends a call: `end` says how, or nothing where the scheduler has ended it.
    pub fn end(&self, end: impl FnOnce(&mut Frame)) {
        let mut inner = self.inner.lock();
        let Some(frame) = inner.frame.as_mut() else { return };
        end(frame);
        inner.left = inner.left.saturating_sub(1);
        let over = if inner.left == 0 { inner.frame.take() } else { None };
        drop(inner);
        drop(over);
    }

    /// The call, for people.
    pub fn doing(&self, call: usize, age_ns: u64) -> Option<Doing> {
        self.inner.lock().frame.as_ref().map(|frame| Doing::call(frame, call, age_ns))
    }
}
