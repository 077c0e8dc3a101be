//! `FrameView`: what Python sees of a frame, on every lane of this process: its calls and the
//! places of their arguments. It outlives the frame.
//!
//! The values of a frame that came from elsewhere, or was to go elsewhere, are bytes: Python opens
//! them, as making its containers can run user code (see `values::python_values`).

use std::sync::Arc;

use guerdon_core::batch::Batch;
use guerdon_core::call::CallKind;
use guerdon_core::frame::Frame;
use guerdon_core::function::FunctionId;
use guerdon_core::payload::SharedPayload;
use guerdon_wire::sent_constants::SentConstants;
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

/// Values in the wire form.
struct EncodedFrame {
    values: Vec<u8>,
    /// Each ended by a NUL; `None`: by position.
    names: Option<Vec<u8>>,
    /// The samples in the order of their values, each with the number of its slice in the upper
    /// half.
    places: Vec<u64>,
}

impl EncodedFrame {
    fn of(frame: &Frame) -> Self {
        let calls = frame.len();
        let mut values = Vec::new();
        // Values that could not be written can't be read either, which fails the frame.
        let _ = frame.encode(0..calls, &mut SentConstants::none(), &mut values);
        let places = (0..calls).flat_map(|call| frame.samples_by_slice(call));
        let places = places.map(|(slice, sample)| (slice as u64) << 32 | sample as u64).collect();
        let names =
            frame.names().map(|names| names.iter().flat_map(|name| [name.as_bytes(), b"\0"].concat()).collect());
        Self { values, names, places }
    }
}

#[pyclass(frozen, module = "guerdon._native", name = "FrameView")]
pub struct PyFrameView {
    batch: Arc<Batch>,
    /// Values of each slice of the frame.
    payloads: Vec<Option<SharedPayload>>,
    function: FunctionId,
    kind: CallKind,
    calls: usize,
    firsts: Firsts,
    /// Encoded values, if they are not Python values.
    encoded: Option<EncodedFrame>,
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
        let mut view = Self {
            batch: frame.batch().clone(),
            payloads: frame.slices().iter().map(|slice| slice.payload().cloned()).collect(),
            function: frame.function_id(),
            kind: frame.kind(),
            calls,
            firsts,
            encoded: None,
        };
        if view.payloads.first().is_some_and(Option::is_some) && view.python_values(0).is_none() {
            view.encoded = Some(EncodedFrame::of(frame));
        }
        view
    }

    fn python_values(&self, slice: usize) -> Option<&PythonValues> {
        let (function, finish) = (self.function, self.kind == CallKind::Finish);
        let payload = self.payloads.get(slice)?.as_ref()?.as_any();
        match payload.downcast_ref::<WholeBatchPayload>() {
            Some(arrived) => arrived.rows(function, finish),
            None => payload.downcast_ref::<OpenBatchPayload>()?.0.rows(function, finish),
        }
    }

    fn values(&self, slice: usize) -> PyResult<&PythonValues> {
        self.python_values(slice)
            .ok_or_else(|| PyRuntimeError::new_err("these calls were not captured for a lane of this process"))
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

    /// Returns the values in the wire form, if they are not Python values. Then `names`, `columns`
    /// and `rows` are not there.
    #[getter]
    fn encoded<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.encoded.as_ref().map(|encoded| PyBytes::new(py, &encoded.values))
    }

    /// Of these: the keyword names, each ended by a NUL.
    #[getter]
    fn encoded_names<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.encoded.as_ref()?.names.as_ref().map(|names| PyBytes::new(py, names))
    }

    /// Of these: the samples in order, as 8 bytes each, its slice in the upper four.
    #[getter]
    fn places<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let places = self.encoded.as_ref().map(|encoded| encoded.places.as_slice()).unwrap_or_default();
        packed(py, places.iter().map(|place| place.to_ne_bytes()))
    }

    #[getter]
    fn names(&self, py: Python<'_>) -> PyResult<Option<Py<PyTuple>>> {
        Ok(self.values(0)?.names(py))
    }

    #[getter]
    fn columns(&self, py: Python<'_>) -> PyResult<Py<PyList>> {
        Ok(self.values(0)?.columns(py))
    }

    /// Returns the columns of a call on samples of several batches: the columns of one of them.
    fn columns_of(&self, py: Python<'_>, slice: usize) -> PyResult<Py<PyList>> {
        Ok(self.values(slice)?.columns(py))
    }

    #[getter]
    fn rows(&self, py: Python<'_>) -> PyResult<Option<Py<PyList>>> {
        Ok(self.values(0)?.tuples(py))
    }
}
