//! Data of a batch: its columns as they were submitted, and which of them the calls of each
//! function get. Lengths, indexes and counts are checked here, before anything is captured.

use pyo3::PyTraverseError;
use pyo3::exceptions::PyValueError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::gil;
use crate::lane_kind::LaneKind;

/// A column with the same value for every sample.
#[pyclass(frozen, module = "guerdon._native", name = "Constant")]
pub struct PyConstant {
    value: Py<PyAny>,
}

#[pymethods]
impl PyConstant {
    #[new]
    const fn new(value: Py<PyAny>) -> Self {
        Self { value }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.value)
    }
}

/// Columns that the calls of one function get.
#[pyclass(frozen, module = "guerdon._native", name = "FunctionColumns")]
pub struct PyFunctionColumns {
    pub call: ArgumentColumns,
    pub finish: ArgumentColumns,
    /// Tokens of each sample, if the function counts them.
    pub tokens: Option<Vec<f64>>,
}

/// Values of one kind of call: their keyword names, if they have any, and the indexes of their
/// columns.
#[derive(Clone, PartialEq, Eq)]
pub struct ArgumentColumns {
    pub names: Option<Vec<String>>,
    pub columns: Vec<usize>,
    /// Positions of the second sample's, in calls on pairs of samples.
    pub second: Vec<usize>,
}

#[pymethods]
impl PyFunctionColumns {
    #[new]
    #[pyo3(signature = (names, columns, finish_names = Vec::new(), finish_columns = Vec::new(), tokens = None, second = Vec::new()))]
    fn new(
        names: Option<Vec<String>>,
        columns: Vec<usize>,
        finish_names: Vec<String>,
        finish_columns: Vec<usize>,
        tokens: Option<Vec<f64>>,
        second: Vec<usize>,
    ) -> PyResult<Self> {
        let paired = names.as_ref().is_none_or(|names| names.len() == columns.len());
        if !paired || finish_names.len() != finish_columns.len() {
            return Err(PyValueError::new_err("there must be as many names as columns"));
        }
        Ok(Self {
            call: ArgumentColumns { names, columns, second },
            finish: ArgumentColumns { names: Some(finish_names), columns: finish_columns, second: Vec::new() },
            tokens,
        })
    }
}

/// A column as it was submitted.
pub enum Column {
    /// A copy that nobody else knows, so that nobody changes it: `Texts` reads its strings without
    /// the GIL, and a column class of the caller's may hand out a list that it changes later.
    List(Py<PyList>),
    Const(Py<PyAny>),
}

impl Column {
    pub fn of(column: &Bound<'_, PyAny>, index: usize, samples: usize) -> PyResult<Self> {
        if let Ok(constant) = column.cast::<PyConstant>() {
            return Ok(Self::Const(constant.get().value.clone_ref(column.py())));
        }
        let list = column.cast::<PyList>()?;
        if list.len() != samples {
            let problem = format!("column {index} has {} values for {samples} samples", list.len());
            return Err(PyValueError::new_err(problem));
        }
        let copy = copied(list, samples)?;
        if copy.len() != samples {
            return Err(PyValueError::new_err(format!("column {index} was changed while it was submitted")));
        }
        Ok(Self::List(copy.unbind()))
    }
}

/// A copy of a list, made in pieces: between two of them other threads get the GIL.
fn copied<'py>(list: &Bound<'py, PyList>, samples: usize) -> PyResult<Bound<'py, PyList>> {
    let copy = list.get_slice(0, samples.min(gil::PIECE));
    for start in (gil::PIECE..samples).step_by(gil::PIECE) {
        gil::pass_on(list.py());
        let piece = list.get_slice(start, samples.min(start + gil::PIECE));
        copy.set_slice(start, start, &piece)?;
    }
    Ok(copy)
}

/// Puts values at the places of their samples in a column that grows with its batch.
pub fn put<'py>(
    list: &Bound<'py, PyList>,
    values: impl Iterator<Item = Bound<'py, PyAny>>,
    samples: &[usize],
) -> PyResult<()> {
    let end = samples.iter().max().map_or(0, |most| most + 1);
    (list.len()..end).try_for_each(|_| list.append(list.py().None()))?;
    samples.iter().zip(values).try_for_each(|(sample, value)| list.set_item(*sample, value))
}

/// The columns as they were submitted, for these uses by functions of these lanes.
pub fn sources(
    columns: &[Bound<'_, PyAny>],
    uses: &[PyRef<'_, PyFunctionColumns>],
    lanes: &[LaneKind],
    samples: usize,
) -> PyResult<Vec<Column>> {
    if uses.len() != lanes.len() {
        return Err(PyValueError::new_err(format!("{} uses for {} functions", uses.len(), lanes.len())));
    }
    if let Some(counts) = uses.iter().filter_map(|one| one.tokens.as_ref()).find(|counts| counts.len() != samples) {
        return Err(PyValueError::new_err(format!("the tokens of {} samples for {samples}", counts.len())));
    }
    let sources = columns
        .iter()
        .enumerate()
        .map(|(index, column)| Column::of(column, index, samples))
        .collect::<PyResult<Vec<_>>>()?;
    let all_used = uses.iter().flat_map(|one| one.call.columns.iter().chain(&one.finish.columns));
    if let Some(index) = all_used.copied().find(|index| *index >= sources.len()) {
        return Err(PyValueError::new_err(format!("there is no column {index}: {} were given", sources.len())));
    }
    Ok(sources)
}
