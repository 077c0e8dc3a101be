//! `ThreadSlot`: the place of one thread of the thread lane, from when it was asked for to its end.
//!
//! The thread runs as long as it is held. When it is dropped, or the thread that asked it for work
//! ends, the thread has ended for the lane, for any reason, and at any place: a function never
//! waits for a thread that has ended.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use guerdon_inprocess::thread_lane::{Death, ThreadLane};
use pyo3::prelude::*;

use crate::gil;
use crate::lanes::thread_frame::PyThreadFrame;

thread_local! {
    /// End of a thread that asked for work. Python may keep its own objects when a thread ends at a
    /// bad moment; this goes with the thread.
    static ENDS: RefCell<Option<Ends>> = const { RefCell::new(None) };
}

struct SlotState {
    pid: u32,
    lane: Arc<ThreadLane>,
    function: usize,
    thread: u64,
    /// It takes no more work, and: its last call was made. Each is written once.
    left: AtomicBool,
    over: AtomicBool,
}

/// Ends a thread when it is dropped, unless it has ended.
struct Ends(Arc<SlotState>);

#[pyclass(frozen, module = "guerdon._native")]
pub struct ThreadSlot(Ends);

impl SlotState {
    fn leave(&self, death: Option<Death<'_>>) -> bool {
        !self.left.swap(true, Ordering::AcqRel) && self.lane.pool().leave(self.function, self.thread, death)
    }

    fn end(&self) {
        self.leave(None);
        if !self.over.swap(true, Ordering::AcqRel) {
            self.lane.pool().thread_ended();
        }
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        // In a forked child the lane's locks may be held by threads that it lacks.
        if self.0.pid == std::process::id() {
            self.0.end();
        }
    }
}

impl ThreadSlot {
    pub fn new(lane: Arc<ThreadLane>, function: usize, thread: u64) -> Self {
        let (left, over) = (AtomicBool::new(false), AtomicBool::new(false));
        Self(Ends(Arc::new(SlotState { pid: std::process::id(), lane, function, thread, left, over })))
    }
}

#[pymethods]
impl ThreadSlot {
    #[getter]
    fn function(&self) -> usize {
        self.0.0.function
    }

    /// The thread's number.
    #[getter]
    fn thread(&self) -> u64 {
        self.0.0.thread
    }

    /// Waits for work; None when this thread must end.
    fn next_frame(&self, py: Python<'_>, ident: u64) -> PyResult<Option<PyThreadFrame>> {
        let slot = &self.0.0;
        ENDS.with_borrow_mut(|ends| {
            ends.get_or_insert_with(|| Ends(slot.clone()));
        });
        while let Some(frame) = gil::detached(py, || slot.lane.next_frame(slot.function, slot.thread, ident)) {
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
        let death = reason.map(|reason| Death { reason, traceback });
        gil::detached(py, || self.0.0.leave(death))
    }

    /// The thread has ended: its last call here.
    fn end(&self, py: Python<'_>) {
        gil::detached(py, || self.0.0.end());
    }
}
