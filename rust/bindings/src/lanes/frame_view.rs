//! `FrameView`: what Python sees of a frame, on every lane of this process: its calls and where
//! their arguments stand. It outlives the frame.

use std::sync::Arc;

use guerdon_core::batch::Batch;
use guerdon_core::call::CallKind;
use guerdon_core::frame::Frame;
use guerdon_core::function::FunctionId;
use guerdon_core::payload::SharedPayload;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use crate::lanes::call_results::packed;
use crate::values::open_batch::OpenBatchPayload;
use crate::values::python_values::PythonValues;
use crate::values::whole_batch::WholeBatchPayload;

/// The first sample of each call.
enum Firsts {
    /// Each call takes one sample, and they follow one another.
    From(usize),
    Each(Vec<u64>),
}

#[pyclass(frozen, module = "guerdon._native", name = "FrameView")]
pub struct PyFrameView {
    batch: Arc<Batch>,
    /// Of each slice of the frame.
    payloads: Vec<Option<SharedPayload>>,
    function: FunctionId,
    kind: CallKind,
    calls: usize,
    firsts: Firsts,
}

impl PyFrameView {
    pub fn of(frame: &Frame) -> Self {
        let calls = frame.len();
        let first = if calls == 0 { 0 } else { frame.first(0) };
        let in_line = calls > 0 && (0..calls).all(|call| frame.first(call) == first + call && frame.size(call) == 1);
        let firsts = if in_line {
            Firsts::From(first)
        } else {
            Firsts::Each((0..calls).map(|call| frame.first(call) as u64).collect())
        };
        Self {
            batch: frame.batch().clone(),
            payloads: frame.slices().iter().map(|slice| slice.payload().cloned()).collect(),
            function: frame.function_id(),
            kind: frame.kind(),
            calls,
            firsts,
        }
    }

    fn values(&self, slice: usize) -> PyResult<&PythonValues> {
        let (function, finish) = (self.function, self.kind == CallKind::Finish);
        let payload = self.payloads.get(slice).and_then(Option::as_ref).map(|payload| payload.as_any());
        let rows = payload.and_then(|payload| match payload.downcast_ref::<WholeBatchPayload>() {
            Some(arrived) => arrived.rows(function, finish),
            None => payload.downcast_ref::<OpenBatchPayload>()?.0.rows(function, finish),
        });
        rows.ok_or_else(|| PyRuntimeError::new_err("these calls were not captured for a lane of this process"))
    }
}

#[pymethods]
impl PyFrameView {
    #[getter]
    const fn function(&self) -> usize {
        self.function
    }

    #[getter]
    const fn kind(&self) -> &'static str {
        match self.kind {
            CallKind::Sample => "sample",
            CallKind::Gathered => "gathered",
            CallKind::Group => "group",
            CallKind::Batch => "batch",
            CallKind::Finish => "finish",
        }
    }

    /// Number of calls.
    #[getter]
    const fn calls(&self) -> usize {
        self.calls
    }

    /// The first sample of all, if each call takes one and they follow one another.
    #[getter]
    const fn first(&self) -> Option<usize> {
        if let Firsts::From(first) = self.firsts { Some(first) } else { None }
    }

    /// The first sample of each call, where `first` does not say it.
    #[getter]
    fn firsts<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let firsts = if let Firsts::Each(firsts) = &self.firsts { firsts.as_slice() } else { &[] };
        packed(py, firsts.iter().map(|first| first.to_ne_bytes()))
    }

    /// Samples of the batch.
    #[getter]
    fn samples(&self) -> usize {
        self.batch.samples()
    }

    /// Samples of one call; how many were gathered, their call says.
    #[getter]
    fn size(&self) -> usize {
        match self.kind {
            CallKind::Sample | CallKind::Gathered => 1,
            CallKind::Group | CallKind::Finish => self.batch.group_size(),
            CallKind::Batch => self.batch.samples(),
        }
    }

    #[getter]
    fn names(&self, py: Python<'_>) -> PyResult<Option<Py<PyTuple>>> {
        Ok(self.values(0)?.names(py))
    }

    #[getter]
    fn columns(&self, py: Python<'_>) -> PyResult<Py<PyList>> {
        Ok(self.values(0)?.columns(py))
    }

    /// Of a call on samples of several batches: the columns of one of them.
    fn columns_of(&self, py: Python<'_>, slice: usize) -> PyResult<Py<PyList>> {
        Ok(self.values(slice)?.columns(py))
    }

    #[getter]
    fn rows(&self, py: Python<'_>) -> PyResult<Option<Py<PyList>>> {
        Ok(self.values(0)?.tuples(py))
    }
}
