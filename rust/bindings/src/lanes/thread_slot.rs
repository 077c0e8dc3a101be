//! `ThreadSlot`: the place of one thread of the thread lane, from when it was asked for to its end.
//!
//! Whoever holds it is the thread. When it is dropped the thread has ended, whatever it was that
//! ended it, and wherever: no function waits for a thread that is no more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use guerdon_inprocess::thread_lane::{Death, ThreadLane};
use pyo3::prelude::*;

use crate::gil;
use crate::lanes::thread_frame::PyThreadFrame;

#[pyclass(frozen, module = "guerdon._native")]
pub struct ThreadSlot {
    pid: u32,
    lane: Arc<ThreadLane>,
    #[pyo3(get)]
    function: usize,
    /// The thread's number.
    #[pyo3(get)]
    thread: u64,
    /// It takes no more work, and: its last call was made. Written once.
    left: AtomicBool,
    over: AtomicBool,
}

impl ThreadSlot {
    pub fn new(lane: Arc<ThreadLane>, function: usize, thread: u64) -> Self {
        let (left, over) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { pid: std::process::id(), lane, function, thread, left, over }
    }
}

#[pymethods]
impl ThreadSlot {
    /// Waits for work; None when this thread must end.
    fn next_frame(&self, py: Python<'_>, ident: u64) -> PyResult<Option<PyThreadFrame>> {
        while let Some(frame) = gil::detached(py, || self.lane.next_frame(self.function, self.thread, ident)) {
            // None if the watchdog was quicker: then this thread was abandoned.
            if let Some(frame) = PyThreadFrame::new(py, frame)? {
                return Ok(Some(frame));
            }
        }
        Ok(None)
    }

    /// The thread is about to end, because of an exception if there is a reason; True if it must
    /// call the function's `close()` first.
    #[pyo3(signature = (reason = None, traceback = None))]
    fn leave(&self, py: Python<'_>, reason: Option<&str>, traceback: Option<&str>) -> bool {
        if self.left.swap(true, Ordering::Relaxed) {
            return false;
        }
        let death = reason.map(|reason| Death { reason, traceback });
        gil::detached(py, || self.lane.pool().leave(self.function, self.thread, death))
    }

    /// The thread has ended: its last call here.
    fn end(&self, py: Python<'_>) {
        self.leave(py, None, None);
        if !self.over.swap(true, Ordering::Relaxed) {
            gil::detached(py, || self.lane.pool().thread_ended());
        }
    }
}

impl Drop for ThreadSlot {
    fn drop(&mut self) {
        if self.pid != std::process::id() {
            return; // the lane's locks may be held by threads that a forked child lacks
        }
        if !*self.left.get_mut() {
            self.lane.pool().leave(self.function, self.thread, None);
        }
        if !*self.over.get_mut() {
            self.lane.pool().thread_ended();
        }
    }
}
