//! `LoopFrame`: a frame in the hands of an event loop, where many of its calls run at a time.

use guerdon_core::frame::Frame;
use guerdon_inprocess::asyncio_lane::{LoopFrame, Next};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::gil;
use crate::lanes::call_results as results;
use crate::lanes::frame_view::PyFrameView;

#[pyclass(frozen, module = "guerdon._native", name = "LoopFrame")]
pub struct PyLoopFrame {
    pid: u32,
    frame: LoopFrame<Frame>,
    #[pyo3(get)]
    view: Py<PyFrameView>,
}

impl PyLoopFrame {
    /// `None` if nothing is left of the frame.
    pub fn new(py: Python<'_>, frame: LoopFrame<Frame>) -> PyResult<Option<Self>> {
        let view = frame.read(|frame| PyFrameView::of(frame));
        let Some(view) = view else { return Ok(None) };
        match Py::new(py, view) {
            Ok(view) => Ok(Some(Self { pid: std::process::id(), frame, view })),
            Err(error) => {
                frame.give_back_rest();
                Err(error)
            }
        }
    }
}

/// A loop that drops a frame early was interrupted before it could run the calls.
impl Drop for PyLoopFrame {
    fn drop(&mut self) {
        if self.pid == std::process::id() {
            self.frame.give_back_rest();
        }
    }
}

/// Something about the loop's turns comes with the next call, or before it.
#[pyclass(frozen, get_all, module = "guerdon._native")]
pub struct Turn {
    /// The call that has begun; None: the loop is to turn before the next one.
    call: Option<usize>,
    /// The runner has run calls since the last turn: others go first.
    long: bool,
    /// The loop is to call `LoopQueue.turned` when it turns next.
    report: bool,
}

/// Next step of a runner: the index of its next call, None, or, now and then, a `Turn`.
pub struct NextCall(Next);

impl<'py> IntoPyObject<'py> for NextCall {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let turn = match self.0 {
            Next::Call { index, report: false } => return Ok(index.into_pyobject(py)?.into_any()),
            Next::Nothing => return Ok(py.None().into_bound(py)),
            Next::Call { index, report } => Turn { call: Some(index), long: false, report },
            Next::Turn { long, report } => Turn { call: None, long, report },
        };
        Ok(Bound::new(py, turn)?.into_any())
    }
}

#[pymethods]
impl PyLoopFrame {
    #[getter]
    fn id(&self) -> u64 {
        self.frame.id()
    }

    fn scores<'py>(&self, py: Python<'py>, call: usize) -> Bound<'py, PyBytes> {
        results::scores(py, self.frame.read(|frame| frame.scores(call)).unwrap_or_default())
    }

    /// Ends all open calls of the function: without the GIL, since that may take long.
    fn setup_failed(&self, py: Python<'_>, reason: String, traceback: Option<String>) {
        gil::detached(py, || self.frame.fail_setup(reason, traceback));
    }

    /// Returns whether a call still counts; once it does not, its values may be gone.
    fn is_open(&self, call: usize) -> bool {
        self.frame.read(|frame| call < frame.len() && frame.is_open(call)).unwrap_or(false)
    }

    /// The samples of a call on gathered ones, as 8 bytes each, its slice in the upper four,
    /// without those that count no more; they may get fewer.
    fn gathered<'py>(&self, py: Python<'py>, call: usize) -> Bound<'py, PyBytes> {
        let samples = self.frame.read(|frame| results::gathered(frame, call)).unwrap_or_default();
        results::packed(py, samples.into_iter().map(u64::to_ne_bytes))
    }

    fn start(&self) -> NextCall {
        NextCall(self.frame.start())
    }

    /// Reports tokens for limits, under which a frame has one call.
    fn used(&self, tokens: f64) {
        self.frame.read(|frame| frame.used(tokens));
    }

    fn ok(&self, call: usize, value: f64) -> NextCall {
        NextCall(self.frame.end(call, None, |frame, times| frame.complete(call, results::cell(0, value), times)))
    }

    fn cell(&self, call: usize, status: u8, value: f64, records: Option<&Bound<'_, PyBytes>>) -> NextCall {
        let json = results::json(records);
        NextCall(self.frame.end(call, None, |frame, times| {
            if let Some(json) = json {
                frame.record(call, json);
            }
            frame.complete(call, results::cell(status, value), times);
        }))
    }

    fn cells(
        &self,
        call: usize,
        statuses: &[u8],
        values: &[u8],
        wrong: &Bound<'_, PyList>,
        records: Option<&Bound<'_, PyBytes>>,
    ) -> PyResult<NextCall> {
        let cells = results::cells(statuses, values, wrong)?;
        let json = results::json(records);
        Ok(NextCall(self.frame.end(call, None, |frame, times| {
            if let Some(json) = json {
                frame.record(call, json);
            }
            frame.complete_many(call, cells, times);
        })))
    }

    fn fail(
        &self,
        call: usize,
        reason: String,
        traceback: Option<String>,
        retryable: bool,
        retry_after: Option<f64>,
        answer: Option<u16>,
    ) -> NextCall {
        let failure = results::failure(reason, traceback.clone(), retryable, retry_after, answer);
        NextCall(self.frame.end(call, traceback, |frame, times| frame.fail(call, failure, times)))
    }
}
