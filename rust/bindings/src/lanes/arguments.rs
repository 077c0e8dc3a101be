//! The arguments of the calls of one frame, found in what its batch is made of, whether that came as a whole or grows.

use std::sync::Arc;

use guerdon_core::batch::Batch;
use guerdon_core::call::CallKind;
use guerdon_core::frame::Frame;
use guerdon_core::function::FunctionId;
use guerdon_core::payload::Payload;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use crate::values::arrived::Arrived;
use crate::values::growing::GrowingPayload;
use crate::values::rows::Rows;

/// The arguments of the calls of one frame; outlives it.
pub struct Arguments {
    batch: Arc<Batch>,
    /// Of each share of the frame.
    payloads: Vec<Option<Arc<dyn Payload>>>,
    function: FunctionId,
    kind: CallKind,
}

impl Arguments {
    pub fn of(frame: &Frame) -> Self {
        Self {
            batch: frame.batch().clone(),
            payloads: frame.slices().iter().map(|share| share.payload().cloned()).collect(),
            function: frame.function_id(),
            kind: frame.kind(),
        }
    }

    fn rows(&self, share: usize) -> PyResult<&Rows> {
        let (function, finish) = (self.function, self.kind == CallKind::Finish);
        let payload = self.payloads.get(share).and_then(Option::as_ref).map(|payload| payload.as_any());
        let rows = payload.and_then(|payload| match payload.downcast_ref::<Arrived>() {
            Some(arrived) => arrived.rows(function, finish),
            None => payload.downcast_ref::<GrowingPayload>()?.0.rows(function, finish),
        });
        rows.ok_or_else(|| PyRuntimeError::new_err("these calls were not captured for a lane of this process"))
    }

    pub const fn function(&self) -> FunctionId {
        self.function
    }

    pub const fn kind(&self) -> &'static str {
        match self.kind {
            CallKind::Sample => "sample",
            CallKind::Gathered => "gathered",
            CallKind::Group => "group",
            CallKind::Batch => "batch",
            CallKind::Finish => "finish",
        }
    }

    pub fn samples(&self) -> usize {
        self.batch.samples()
    }

    /// Samples of one call; how many were gathered, their call says.
    pub fn size(&self) -> usize {
        match self.kind {
            CallKind::Sample | CallKind::Gathered => 1,
            CallKind::Group | CallKind::Finish => self.batch.group_size(),
            CallKind::Batch => self.batch.samples(),
        }
    }

    pub fn names(&self, py: Python<'_>) -> PyResult<Option<Py<PyTuple>>> {
        Ok(self.rows(0)?.names(py))
    }

    pub fn columns(&self, py: Python<'_>, share: usize) -> PyResult<Py<PyList>> {
        Ok(self.rows(share)?.columns(py))
    }

    pub fn tuples(&self, py: Python<'_>) -> PyResult<Option<Py<PyList>>> {
        Ok(self.rows(0)?.tuples(py))
    }
}
