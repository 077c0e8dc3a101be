//! Columns of a batch that the journal records, kept until the writer has read them.

use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

use crate::values::columns::{Column, put};

/// The columns of a batch that its journal keeps, in the journal's order; `None` for one that the
/// batch lacks. Lists that nobody else knows.
#[derive(Default)]
pub struct JournalColumns(pub Vec<Option<Column>>);

impl JournalColumns {
    /// Those of the columns that were submitted; `list` makes the journal's of a column of them.
    pub fn of(
        py: Python<'_>,
        sources: &[Column],
        wanted: &[Option<usize>],
        list: impl Fn(&Py<PyList>) -> Py<PyList>,
    ) -> Self {
        let column = |index: &Option<usize>| match sources.get((*index)?)? {
            Column::List(submitted) => Some(Column::List(list(submitted))),
            Column::Const(value) => Some(Column::Const(value.clone_ref(py))),
        };
        Self(wanted.iter().map(column).collect())
    }

    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.0.iter().flatten().try_for_each(|column| match column {
            Column::List(list) => visit.call(list),
            Column::Const(value) => visit.call(value),
        })
    }

    /// All that it holds, in lists.
    pub fn lists(&self, py: Python<'_>) -> Vec<Py<PyList>> {
        let list = |column: &Column| match column {
            Column::List(list) => Some(list.clone_ref(py)),
            Column::Const(value) => PyList::new(py, [value]).ok().map(Bound::unbind),
        };
        self.0.iter().flatten().filter_map(list).collect()
    }

    /// Makes those of an open batch: puts values in their places.
    pub fn put(&self, py: Python<'_>, sources: &[Column], wanted: &[Option<usize>], samples: &[usize]) -> PyResult<()> {
        for (column, index) in self.0.iter().zip(wanted) {
            let (Some(Column::List(list)), Some(Column::List(values))) = (column, index.and_then(|at| sources.get(at)))
            else {
                continue;
            };
            put(list.bind(py), values.bind(py).iter(), samples)?;
        }
        Ok(())
    }

    /// Makes those of an open batch: drops the values of these samples; those that are not strings
    /// are returned, for a thread on which user code may run.
    pub fn forget<'py>(&self, py: Python<'py>, samples: &[u32]) -> PyResult<Bound<'py, PyList>> {
        let gone = PyList::empty(py);
        for column in self.0.iter().flatten() {
            let Column::List(list) = column else { continue };
            let list = list.bind(py);
            for sample in samples.iter().map(|sample| *sample as usize).filter(|sample| *sample < list.len()) {
                let value = list.get_item(sample)?;
                if !value.is_none() && !value.is_exact_instance_of::<PyString>() {
                    gone.append(&value)?;
                }
                list.set_item(sample, py.None())?;
            }
        }
        Ok(gone)
    }
}
