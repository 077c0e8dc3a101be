//! `LoopQueue`: work for one event loop. Its methods are for the loop's own thread.

use std::os::fd::AsRawFd;
use std::time::Duration;

use guerdon_core::frame::Frame;
use guerdon_inprocess::asyncio_lane::{LoopQueue, Overdue};
use pyo3::prelude::*;

use crate::gil;
use crate::lanes::loop_frame::PyLoopFrame;

#[pyclass(frozen, module = "guerdon._native", name = "LoopQueue")]
pub struct PyLoopQueue {
    pid: u32,
    queue: LoopQueue<Frame>,
}

/// When a loop is to look at its calls again.
#[pyclass(frozen, get_all, module = "guerdon._native")]
pub struct Beat {
    /// None: nothing is in flight.
    nap_s: Option<f64>,
    /// A call is to be cancelled.
    overdue: bool,
}

/// A call for the loop to cancel.
#[pyclass(frozen, get_all, module = "guerdon._native")]
pub struct OverdueCall {
    function: usize,
    frame: u64,
    call: usize,
    /// It ignored its cancellation: it was ended without its coroutine.
    ended: bool,
}

/// Calls one by one: not a list, since making one could run the collector (see
/// `values::python_values`).
#[pyclass(module = "guerdon._native")]
pub struct OverdueCalls(std::vec::IntoIter<Overdue>);

#[pymethods]
impl OverdueCalls {
    const fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&mut self) -> Option<OverdueCall> {
        let Overdue { function, frame, call, ended } = self.0.next()?;
        Some(OverdueCall { function, frame, call, ended })
    }
}

impl PyLoopQueue {
    pub fn new(queue: LoopQueue<Frame>) -> Self {
        Self { pid: std::process::id(), queue }
    }
}

/// The loop has ended, for any reason.
impl Drop for PyLoopQueue {
    fn drop(&mut self) {
        // In a forked child the lane's locks may be held by threads that it lacks.
        if self.pid == std::process::id() {
            self.queue.not_started("its thread ended");
        }
    }
}

#[pymethods]
impl PyLoopQueue {
    fn fileno(&self) -> i32 {
        self.queue.fd().as_raw_fd()
    }

    /// Takes the wake-up. Must be called before anything else: the descriptor stays readable until
    /// then.
    fn drain(&self) {
        self.queue.drain();
    }

    /// The next frame that arrived.
    fn take(&self, py: Python<'_>) -> PyResult<Option<PyLoopFrame>> {
        while let Some(frame) = self.queue.take() {
            if let Some(frame) = PyLoopFrame::new(py, frame)? {
                return Ok(Some(frame));
            }
        }
        Ok(None)
    }

    /// Returns whether the loop is to end.
    #[getter]
    fn ended(&self) -> bool {
        self.queue.is_over()
    }

    /// Shows that the loop turns, and asks when it is to do so again.
    fn beat(&self) -> Beat {
        let beat = self.queue.beat();
        let nap_s = beat.nap_ns.map(|nap_ns| Duration::from_nanos(nap_ns).as_secs_f64());
        Beat { nap_s, overdue: beat.overdue }
    }

    /// The calls to cancel, and those that ignored it; each is reported once.
    fn overdue(&self) -> OverdueCalls {
        OverdueCalls(self.queue.overdue().into_iter())
    }

    /// The loop has turned, as it was asked to report.
    fn turned(&self) {
        self.queue.turned();
    }

    fn setup_begins(&self, function: usize) {
        self.queue.setup_begins(function);
    }

    fn setup_ends(&self, function: usize) {
        self.queue.setup_ends(function);
    }

    #[getter]
    fn blocked(&self) -> bool {
        self.queue.is_blocked()
    }

    fn explain_block(&self) -> bool {
        self.queue.explain_block()
    }

    /// The loop could not be started.
    fn not_started(&self, py: Python<'_>, reason: &str) {
        gil::detached(py, || self.queue.not_started(reason));
    }

    /// The loop has ended.
    fn loop_ended(&self, py: Python<'_>) {
        gil::detached(py, || self.queue.ended());
    }
}
