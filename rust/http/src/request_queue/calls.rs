//! Waiting calls, and the call of each request: kept under the lock of a queue.
//!
//! - Each call is taken by one request, the oldest batch's first.
//! - The number of requests is at most that of those that may be in flight, and no more begin than
//!   calls wait.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::fleet::Fleet;
use crate::in_flight::InFlightFrame;

/// A call: its frame, and its index in that.
pub type Call = (Arc<InFlightFrame>, usize);

/// See the module.
pub struct Calls {
    /// Calls that no request has taken, by frame. Written by frames that arrive and by requests
    /// that take them.
    waiting: BTreeMap<(u64, bool, u64), WaitingFrame>,
    /// Requests in flight. Written by themselves.
    tasks: BTreeMap<u64, RequestTask>,
    /// Calls in `waiting`, and tasks without a call: counted, since each arrival asks.
    left: usize,
    idle: usize,
    last: u64,
    /// Taken by `close`.
    fleet: Option<Arc<Fleet>>,
}

struct WaitingFrame {
    frame_ref: Arc<InFlightFrame>,
    next: usize,
}

/// A request in flight, or about to be.
pub struct RequestTask {
    pub call: Option<Call>,
    pub started_ns: u64,
    /// Server of the request. Written by the request.
    pub server: Arc<Mutex<Arc<str>>>,
    /// Notified when its call was completed meanwhile; one for each request.
    pub stop: Arc<Notify>,
    /// For `close`.
    abort: Option<AbortHandle>,
}

impl RequestTask {
    fn new() -> Self {
        let server = Arc::new(Mutex::new("".into()));
        Self { call: None, started_ns: 0, server, stop: Arc::default(), abort: None }
    }
}

/// A call that a request has taken, and the fleet to send it through.
pub struct TakenCall {
    pub call: Call,
    pub stop: Arc<Notify>,
    pub fleet: Arc<Fleet>,
    /// Calls that wait behind it.
    pub waiting: usize,
    pub server: Arc<Mutex<Arc<str>>>,
}

impl Calls {
    pub const fn new(fleet: Arc<Fleet>) -> Self {
        Self { waiting: BTreeMap::new(), tasks: BTreeMap::new(), left: 0, idle: 0, last: 0, fleet: Some(fleet) }
    }

    /// The fleet, until the queue is closed.
    pub const fn fleet(&self) -> Option<&Arc<Fleet>> {
        self.fleet.as_ref()
    }

    pub const fn is_closed(&self) -> bool {
        self.fleet.is_none()
    }

    /// Adds the calls of a frame.
    pub fn add(&mut self, frame_ref: Arc<InFlightFrame>) {
        self.left += frame_ref.calls;
        self.waiting.insert(frame_ref.order, WaitingFrame { frame_ref, next: 0 });
    }

    /// Begins as many requests as calls need, while there are less than `limit`.
    pub fn begin(&mut self, limit: usize) -> RangeInclusive<u64> {
        // One that has no call yet is about to take one.
        let wanted = self.left.saturating_sub(self.idle);
        let free = limit.saturating_sub(self.tasks.len());
        let first = self.last + 1;
        self.last += wanted.min(free) as u64;
        let begun = first..=self.last;
        self.idle += wanted.min(free);
        self.tasks.extend(begun.clone().map(|task| (task, RequestTask::new())));
        begun
    }

    /// A request has been spawned.
    pub fn spawned(&mut self, task: u64, abort: AbortHandle) {
        if let Some(task) = self.tasks.get_mut(&task) {
            task.abort = Some(abort);
        }
    }

    /// Has a request take the next call, at `started_ns`.
    pub fn take(&mut self, task: u64, started_ns: impl FnOnce() -> u64) -> Option<TakenCall> {
        let fleet = self.fleet.clone()?;
        let call = self.next()?;
        let (stop, waiting) = (Arc::new(Notify::new()), self.left);
        let task = self.tasks.get_mut(&task)?;
        (task.call, task.stop, task.started_ns) = (Some(call.clone()), stop.clone(), started_ns());
        let server = task.server.clone();
        self.idle -= 1;
        Some(TakenCall { call, stop, fleet, waiting, server })
    }

    /// The next call that no request has taken.
    fn next(&mut self) -> Option<Call> {
        loop {
            let mut entry = self.waiting.first_entry()?;
            let WaitingFrame { frame_ref, next } = entry.get_mut();
            if *next < frame_ref.calls {
                let call = (frame_ref.clone(), *next);
                *next += 1;
                self.left -= 1;
                return Some(call);
            }
            entry.remove();
        }
    }

    /// A request has no call any more, and is about to take another.
    pub fn is_idle(&mut self, task: u64) {
        if let Some(task) = self.tasks.get_mut(&task) {
            task.call = None;
            self.idle += 1;
        }
    }

    /// A request has ended; the call that it still had.
    pub fn end(&mut self, task: u64) -> Option<Call> {
        let task = self.tasks.remove(&task);
        self.idle -= usize::from(task.as_ref().is_some_and(|task| task.call.is_none()));
        task.and_then(|task| task.call)
    }

    /// Requests, with and without a call.
    pub fn tasks(&self) -> impl Iterator<Item = &RequestTask> {
        self.tasks.values()
    }

    pub fn is_busy(&self) -> bool {
        !self.tasks.is_empty() || !self.waiting.is_empty()
    }

    /// Returns whether it is closed, and the last request has ended.
    pub fn is_gone(&self) -> bool {
        self.is_closed() && self.tasks.is_empty()
    }

    /// Takes out all; what is not a request is to be dropped without the lock.
    pub fn close(&mut self) -> (Vec<AbortHandle>, impl Sized + use<>) {
        let tasks = self.tasks.values().filter_map(|task| task.abort.clone()).collect();
        (tasks, (std::mem::take(&mut self.waiting), self.fleet.take()))
    }
}
