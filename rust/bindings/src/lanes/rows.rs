//! The arguments of calls that run in this process: the batch's own Python values.
//!
//! - A-1  Values are passed as they are, never copied; lists are copied when a call gets a list, so that a function may change it.
//! - A-2  Only a batch that grows has argument tuples, made as its samples come: each is there as a whole, or gone. The calls of other batches
//!   read the columns.
//! - A-3  What is handed out here was made on the caller's thread: making Python containers can run the collector and with it user code,
//!   which must not happen on top of a Rust frame of a lane's thread (N-1).

use std::sync::Arc;

use guerdon_core::batch::Batch;
use guerdon_core::frame::Frame;
use guerdon_core::function::FunctionId;
use guerdon_core::payload::Payload;
use guerdon_core::scheduler::CallKind;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use crate::capture::{Arrived, Source};
use crate::growing::GrowingPayload;

/// The values of one kind of call of one function, for all samples of a batch.
pub struct Rows {
    /// (is constant, the value or the list) of each argument.
    columns: Py<PyList>,
    names: Option<Py<PyTuple>>,
    /// One argument tuple per sample.
    tuples: Option<Py<PyList>>,
}

impl Rows {
    /// The columns with these indices, called by `names` or by position.
    pub fn new(py: Python<'_>, sources: &[Source], columns: &[usize], names: Option<&[String]>) -> PyResult<Self> {
        let pair = |index: &usize| match &sources[*index] {
            Source::List(list) => (false, list.clone_ref(py).into_any()),
            Source::Const(value) => (true, value.clone_ref(py)),
        };
        let columns = PyList::new(py, columns.iter().map(pair))?.unbind();
        let names = names.map(|names| PyTuple::new(py, names)).transpose()?.map(Bound::unbind);
        Ok(Self { columns, names, tuples: None })
    }

    /// Of a batch that grows: lists that grow with it, and the tuples too, which are made as samples come.
    pub fn growing(columns: Py<PyList>, names: Option<Py<PyTuple>>, tuples: Py<PyList>) -> Self {
        Self { columns, names, tuples: Some(tuples) }
    }
}

/// The arguments of the calls of one frame; outlives it.
pub struct Arguments {
    batch: Arc<Batch>,
    payload: Option<Arc<dyn Payload>>,
    function: FunctionId,
    kind: CallKind,
}

impl Arguments {
    pub fn of(frame: &Frame) -> Self {
        Self {
            batch: frame.batch().clone(),
            payload: frame.payload().cloned(),
            function: frame.function_id(),
            kind: frame.kind(),
        }
    }

    fn rows(&self) -> PyResult<&Rows> {
        let (function, finish) = (self.function, self.kind == CallKind::Finish);
        let payload = self.payload.as_ref().map(|payload| payload.as_any());
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
        Ok(self.rows()?.names.as_ref().map(|names| names.clone_ref(py)))
    }

    pub fn columns(&self, py: Python<'_>) -> PyResult<Py<PyList>> {
        Ok(self.rows()?.columns.clone_ref(py))
    }

    pub fn tuples(&self, py: Python<'_>) -> PyResult<Option<Py<PyList>>> {
        Ok(self.rows()?.tuples.as_ref().map(|tuples| tuples.clone_ref(py)))
    }
}
