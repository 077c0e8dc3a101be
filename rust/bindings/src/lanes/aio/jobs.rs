//! A frame in the hands of an event loop: many of its calls run at a time, and each is ended by its own index.
//!
//! - J-1  A call is ended once: by its coroutine, or by the watch at `timeout + grace`.
//! - J-2  A call that was told to stop, or ran past its timeout, timed out, whatever it brought afterwards.
//! - J-3  The frame is dropped with its last call.
//! - J-4  A loop that has run calls for `TURN_NS` without turning gets no other call, from any of its runners, until it has turned. That is
//!   known, not guessed: after `MARK_NS` it is asked to show its next turn.

use std::sync::Arc;

use guerdon_core::frame::Frame;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use crate::lanes::aio::event_loop::Loop;
use crate::lanes::aio::flight::Held;
use crate::lanes::arguments::Arguments;
use crate::lanes::report;

#[pyclass(frozen, module = "guerdon._native")]
pub struct Jobs {
    held: Arc<Held>,
    arguments: Arguments,
}

impl Jobs {
    pub fn new(owner: Arc<Loop>, generation: u64, frame: Frame) -> Self {
        let arguments = Arguments::of(&frame);
        Self { held: Arc::new(Held::new(owner, generation, frame)), arguments }
    }

    pub const fn held(&self) -> &Arc<Held> {
        &self.held
    }
}

#[pymethods]
impl Jobs {
    #[getter]
    fn id(&self) -> u64 {
        self.held.id()
    }

    #[getter]
    const fn function(&self) -> usize {
        self.arguments.function()
    }

    #[getter]
    const fn kind(&self) -> &'static str {
        self.arguments.kind()
    }

    /// Number of calls.
    #[getter]
    fn calls(&self) -> usize {
        self.held.inner.lock().frame.as_ref().map_or(0, Frame::len)
    }

    /// First sample of each call.
    #[getter]
    fn firsts<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let firsts = report::firsts(self.held.inner.lock().frame.as_ref());
        report::packed(py, firsts.into_iter())
    }

    /// First sample of all, if each call takes one and they follow one another.
    #[getter]
    fn line(&self) -> Option<usize> {
        report::line(self.held.inner.lock().frame.as_ref())
    }

    #[getter]
    fn samples(&self) -> usize {
        self.arguments.samples()
    }

    #[getter]
    fn size(&self) -> usize {
        self.arguments.size()
    }

    #[getter]
    fn names(&self, py: Python<'_>) -> PyResult<Option<Py<PyTuple>>> {
        self.arguments.names(py)
    }

    #[getter]
    fn columns(&self, py: Python<'_>) -> PyResult<Py<PyList>> {
        self.arguments.columns(py, 0)
    }

    /// Of a call on samples of several batches: the columns of one of them.
    fn columns_of(&self, py: Python<'_>, share: usize) -> PyResult<Py<PyList>> {
        self.arguments.columns(py, share)
    }

    #[getter]
    fn rows(&self, py: Python<'_>) -> PyResult<Option<Py<PyList>>> {
        self.arguments.tuples(py)
    }

    fn scores<'py>(&self, py: Python<'py>, call: usize) -> Bound<'py, PyBytes> {
        let scores = self.held.inner.lock().frame.as_ref().map_or_else(Vec::new, |frame| frame.scores(call));
        report::scores(py, scores)
    }

    fn setup_failed(&self, reason: String, traceback: Option<String>) {
        let mut inner = self.held.inner.lock();
        let Some(mut frame) = self.held.take_frame(&mut inner) else { return };
        inner.start_no_more();
        drop(inner);
        self.held.owner.let_go(&self.held);
        frame.fail_setup(reason, traceback);
    }

    /// Whether a call still counts; once it does not, its values may be gone.
    fn is_open(&self, call: usize) -> bool {
        self.held.inner.lock().frame.as_ref().is_some_and(|frame| call < frame.len() && frame.is_open(call))
    }

    /// The samples of a call on gathered ones, as 8 bytes each, its share in the upper four, without those that count no
    /// more; they may get fewer.
    fn gathered<'py>(&self, py: Python<'py>, call: usize) -> Bound<'py, PyBytes> {
        let samples = report::gathered(self.held.inner.lock().frame.as_mut(), Some(call));
        report::packed(py, samples.into_iter().map(u64::to_ne_bytes))
    }

    fn next(&self) -> isize {
        let now_ns = self.held.owner.clock.now_ns();
        self.held.advance(self.held.inner.lock(), now_ns, None)
    }

    /// For limits on tokens, under which a frame has one call.
    fn used(&self, tokens: f64) {
        if let Some(frame) = self.held.inner.lock().frame.as_mut() {
            frame.used(tokens);
        }
    }

    fn ok(&self, call: usize, value: f64) -> isize {
        self.held.end(call, None, |frame, times| frame.complete(call, report::cell(0, value), times))
    }

    fn cell(&self, call: usize, status: u8, value: f64, records: Option<&Bound<'_, PyBytes>>) -> isize {
        let json = report::json(records);
        self.held.end(call, None, |frame, times| {
            if let Some(json) = json {
                frame.record(call, json);
            }
            frame.complete(call, report::cell(status, value), times);
        })
    }

    fn cells(
        &self,
        call: usize,
        statuses: &[u8],
        values: &[u8],
        wrong: &Bound<'_, PyList>,
        records: Option<&Bound<'_, PyBytes>>,
    ) -> PyResult<isize> {
        let cells = report::cells(statuses, values, wrong)?;
        let json = report::json(records);
        Ok(self.held.end(call, None, |frame, times| {
            if let Some(json) = json {
                frame.record(call, json);
            }
            frame.complete_many(call, cells, times);
        }))
    }

    fn fail(
        &self,
        call: usize,
        reason: String,
        traceback: Option<String>,
        retryable: bool,
        retry_after: Option<f64>,
        answer: Option<u16>,
    ) -> isize {
        let failure = report::failure(reason, traceback.clone(), retryable, retry_after, answer);
        self.held.end(call, traceback, |frame, times| frame.fail(call, failure, times))
    }
}
