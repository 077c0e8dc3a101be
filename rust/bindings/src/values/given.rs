//! What a batch brings: its columns as they were submitted, and which of them the calls of each function get.
//!
//! - B-1  What the package says of the columns is checked here, before anything is captured: lengths, places, one use a function.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::config::LaneKind;

/// A column with the same value for every sample.
#[pyclass(frozen, module = "guerdon._native", name = "Const")]
pub struct PyConst {
    value: Py<PyAny>,
}

#[pymethods]
impl PyConst {
    #[new]
    const fn new(value: Py<PyAny>) -> Self {
        Self { value }
    }
}

/// Which columns the calls of one function get.
#[pyclass(frozen, module = "guerdon._native", name = "Use")]
pub struct PyUse {
    pub call: Wants,
    pub finish: Wants,
    /// Of each sample, where the function counts them.
    pub tokens: Option<Vec<f64>>,
}

/// Values of one kind of call: their keyword names, if they have any, and the columns they stand in.
#[derive(Clone, PartialEq, Eq)]
pub struct Wants {
    pub names: Option<Vec<String>>,
    pub columns: Vec<usize>,
}

#[pymethods]
impl PyUse {
    #[new]
    #[pyo3(signature = (names, columns, finish_names = Vec::new(), finish_columns = Vec::new(), tokens = None))]
    fn new(
        names: Option<Vec<String>>,
        columns: Vec<usize>,
        finish_names: Vec<String>,
        finish_columns: Vec<usize>,
        tokens: Option<Vec<f64>>,
    ) -> PyResult<Self> {
        let paired = names.as_ref().is_none_or(|names| names.len() == columns.len());
        if !paired || finish_names.len() != finish_columns.len() {
            return Err(PyValueError::new_err("there must be as many names as columns"));
        }
        Ok(Self {
            call: Wants { names, columns },
            finish: Wants { names: Some(finish_names), columns: finish_columns },
            tokens,
        })
    }
}

/// A column as it was submitted.
pub enum Source {
    /// A list that nobody changes (P-1 of `arrived`).
    List(Py<PyList>),
    Const(Py<PyAny>),
}

impl Source {
    pub fn of(column: &Bound<'_, PyAny>, index: usize, samples: usize) -> PyResult<Self> {
        if let Ok(constant) = column.cast::<PyConst>() {
            return Ok(Self::Const(constant.get().value.clone_ref(column.py())));
        }
        let list = column.cast::<PyList>()?;
        if list.len() != samples {
            let problem = format!("column {index} has {} values for {samples} samples", list.len());
            return Err(PyValueError::new_err(problem));
        }
        Ok(Self::List(list.clone().unbind()))
    }
}

/// The columns as they were submitted, for these uses by functions of these lanes.
pub fn sources(
    columns: &[Bound<'_, PyAny>],
    uses: &[PyRef<'_, PyUse>],
    lanes: &[LaneKind],
    samples: usize,
) -> PyResult<Vec<Source>> {
    if uses.len() != lanes.len() {
        return Err(PyValueError::new_err(format!("{} uses for {} functions", uses.len(), lanes.len())));
    }
    if let Some(counts) = uses.iter().filter_map(|one| one.tokens.as_ref()).find(|counts| counts.len() != samples) {
        return Err(PyValueError::new_err(format!("the tokens of {} samples for {samples}", counts.len())));
    }
    let sources = columns
        .iter()
        .enumerate()
        .map(|(index, column)| Source::of(column, index, samples))
        .collect::<PyResult<Vec<_>>>()?;
    let all_used = uses.iter().flat_map(|one| one.call.columns.iter().chain(&one.finish.columns));
    if let Some(index) = all_used.copied().find(|index| *index >= sources.len()) {
        return Err(PyValueError::new_err(format!("there is no column {index}: {} were given", sources.len())));
    }
    Ok(sources)
}
