//! The values of calls that run in this process: the batch's own Python values.
//!
//! - Values are passed as they are, never copied; a call that gets lists gets its own.
//! - Only an open batch has argument tuples, made as its samples come: each is there whole, or
//!   gone.
//! - Values that are handed out were made on the caller's thread: making Python containers can run
//!   the collector and with it user code, which must not happen above a Rust frame of a lane's
//!   thread.

use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use crate::values::columns::Column;

/// The values of one kind of call of one function, for all samples of a batch.
pub struct PythonValues {
    /// (is constant, the value or the list) of each argument.
    columns: Py<PyList>,
    constants: bool,
    names: Option<Py<PyTuple>>,
    /// One argument tuple per sample.
    tuples: Option<Py<PyList>>,
}

impl PythonValues {
    /// The columns with these indices, called by `names` or by position.
    pub fn new(py: Python<'_>, sources: &[Column], columns: &[usize], names: Option<&[String]>) -> PyResult<Self> {
        let pair = |index: &usize| match &sources[*index] {
            Column::List(list) => (false, list.clone_ref(py).into_any()),
            Column::Const(value) => (true, value.clone_ref(py)),
        };
        let constants = columns.iter().any(|index| matches!(sources[*index], Column::Const(_)));
        let columns = PyList::new(py, columns.iter().map(pair))?.unbind();
        let names = names.map(|names| PyTuple::new(py, names)).transpose()?.map(Bound::unbind);
        Ok(Self { columns, constants, names, tuples: None })
    }

    /// Makes those of a batch that streamed: lists that grow with it, and the tuples too, which are
    /// made as samples come.
    pub fn of_open_batch(columns: Py<PyList>, constants: bool, names: Option<Py<PyTuple>>, tuples: Py<PyList>) -> Self {
        Self { columns, constants, names, tuples: Some(tuples) }
    }

    /// Visits the held objects for the collector.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.columns)?;
        self.tuples.as_ref().map_or(Ok(()), |tuples| visit.call(tuples))
    }

    /// Returns whether some values are the same for all samples.
    pub const fn has_constants(&self) -> bool {
        self.constants
    }

    pub fn names(&self, py: Python<'_>) -> Option<Py<PyTuple>> {
        self.names.as_ref().map(|names| names.clone_ref(py))
    }

    /// All that it holds, in lists.
    pub fn lists(&self, py: Python<'_>) -> impl Iterator<Item = Py<PyList>> {
        let tuples = self.tuples.as_ref().map(|tuples| tuples.clone_ref(py));
        std::iter::once(self.columns.clone_ref(py)).chain(tuples)
    }

    pub fn columns(&self, py: Python<'_>) -> Py<PyList> {
        self.columns.clone_ref(py)
    }

    pub fn tuples(&self, py: Python<'_>) -> Option<Py<PyList>> {
        self.tuples.as_ref().map(|tuples| tuples.clone_ref(py))
    }
}
