//! `ThreadFrame`: a frame in the hands of a Python thread, which starts one call at a time and ends
//! it before the next.

use guerdon_core::frame::Frame;
use guerdon_inprocess::thread_lane::ThreadFrame;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::gil;
use crate::lanes::call_results as results;
use crate::lanes::frame_view::PyFrameView;

#[pyclass(frozen, module = "guerdon._native", name = "ThreadFrame")]
pub struct PyThreadFrame {
    frame: ThreadFrame<Frame>,
    #[pyo3(get)]
    view: Py<PyFrameView>,
}

impl PyThreadFrame {
    /// `None` if nothing is left of the frame.
    pub fn new(py: Python<'_>, frame: ThreadFrame<Frame>) -> PyResult<Option<Self>> {
        let view = frame.read(|frame, _| PyFrameView::of(frame));
        view.map(|view| Ok(Self { frame, view: Py::new(py, view)? })).transpose()
    }
}

/// `start` and what ends a call give how many calls are passed over before the next; None: none is
/// left.
#[pymethods]
impl PyThreadFrame {
    /// Returns whether this thread must run the function's `setup()` first, and report how that
    /// went.
    #[getter]
    const fn setup(&self) -> bool {
        self.frame.in_setup()
    }

    fn setup_done(&self) {
        self.frame.end_setup();
    }

    /// Ends all open calls of the function: without the GIL, since that may take long.
    fn setup_failed(&self, py: Python<'_>, reason: &str, traceback: Option<&str>) {
        gil::detached(py, || self.frame.fail_setup(reason, traceback));
    }

    /// Returns the scores for the running call.
    fn scores<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let scores = self.frame.read(|frame, call| call.map(|call| frame.scores(call))).flatten();
        results::scores(py, scores.unwrap_or_default())
    }

    /// Returns whether the call in hand still counts; once it does not, its values may be gone.
    fn is_open(&self) -> bool {
        self.frame.read(|frame, call| call.is_some_and(|call| frame.is_open(call))).unwrap_or(false)
    }

    /// The samples of the call in hand on gathered ones, as 8 bytes each, its slice in the upper
    /// four, without those that count no more; they may get fewer.
    fn gathered<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let samples = self.frame.read(|frame, call| call.map(|call| results::gathered(frame, call))).flatten();
        results::packed(py, samples.unwrap_or_default().into_iter().map(u64::to_ne_bytes))
    }

    fn start(&self) -> Option<usize> {
        self.frame.start()
    }

    /// Reports tokens of the running call for limits.
    fn used(&self, tokens: f64) {
        self.frame.read(|frame, _| frame.used(tokens));
    }

    fn ok(&self, value: f64) -> Option<usize> {
        self.frame.end(|frame, call, times| frame.complete_soon(call, value, times))
    }

    fn cell(&self, status: u8, value: f64, records: Option<&Bound<'_, PyBytes>>) -> Option<usize> {
        let json = results::json(records);
        self.frame.end(|frame, call, times| {
            if let Some(json) = json {
                frame.record(call, json);
            }
            frame.complete(call, results::cell(status, value), times);
        })
    }

    fn cells(
        &self,
        statuses: &[u8],
        values: &[u8],
        wrong: &Bound<'_, PyList>,
        records: Option<&Bound<'_, PyBytes>>,
    ) -> PyResult<Option<usize>> {
        let cells = results::cells(statuses, values, wrong)?;
        let json = results::json(records);
        Ok(self.frame.end(|frame, call, times| {
            if let Some(json) = json {
                frame.record(call, json);
            }
            frame.complete_many(call, cells, times);
        }))
    }

    fn fail(
        &self,
        reason: String,
        traceback: Option<String>,
        retryable: bool,
        retry_after: Option<f64>,
        answer: Option<u16>,
    ) -> Option<usize> {
        self.frame.fail(results::failure(reason, traceback, retryable, retry_after, answer))
    }
}
