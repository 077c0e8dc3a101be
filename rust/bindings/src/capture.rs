//! Captures the columns of a batch when it is submitted, on the caller's thread.
//!
//! - P-1  A captured batch does not change: lists are copied (references, not values), text is immutable, all else that goes to a worker
//!   is pickled at once.
//! - P-2  Text is not touched under the GIL: where its characters lie is noted, with a reference that keeps them there, and they are
//!   copied when a frame is made.
//! - P-3  Only the columns that a function uses are captured for it.

use guerdon_core::function::FunctionId;
use guerdon_core::payload::Payload;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::config::LaneKind;
use crate::lanes::rows::Rows;
use crate::wire::{Wire, WireCapture};

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
    call: Arguments,
    finish: Arguments,
}

/// Values of one kind of call: their keyword names, if they have any, and the columns they stand in.
#[derive(Clone)]
pub struct Arguments {
    pub names: Option<Vec<String>>,
    pub columns: Vec<usize>,
}

#[pymethods]
impl PyUse {
    #[new]
    #[pyo3(signature = (names, columns, finish_names = Vec::new(), finish_columns = Vec::new()))]
    fn new(
        names: Option<Vec<String>>,
        columns: Vec<usize>,
        finish_names: Vec<String>,
        finish_columns: Vec<usize>,
    ) -> PyResult<Self> {
        let paired = names.as_ref().is_none_or(|names| names.len() == columns.len());
        if !paired || finish_names.len() != finish_columns.len() {
            return Err(PyValueError::new_err("there must be as many names as columns"));
        }
        Ok(Self {
            call: Arguments { names, columns },
            finish: Arguments { names: Some(finish_names), columns: finish_columns },
        })
    }
}

/// A column as it was submitted.
pub enum Source {
    /// A copy of the list (P-1).
    List(Py<PyList>),
    Const(Py<PyAny>),
}

impl Source {
    fn of(column: &Bound<'_, PyAny>, index: usize, samples: usize) -> PyResult<Self> {
        if let Ok(constant) = column.cast::<PyConst>() {
            return Ok(Self::Const(constant.get().value.clone_ref(column.py())));
        }
        let list = column.cast::<PyList>()?;
        if list.len() != samples {
            let problem = format!("column {index} has {} values for {samples} samples", list.len());
            return Err(PyValueError::new_err(problem));
        }
        Ok(Self::List(list.get_slice(0, samples).unbind()))
    }
}

/// What one function's calls are made of, where its lane wants it.
enum Captured {
    /// For workers: bytes.
    Wire { call: Wire, finish: Wire },
    /// For threads and loops of this process: Python values.
    Values { call: Rows, finish: Rows },
}

struct FunctionArguments {
    call_names: Option<Vec<String>>,
    finish_names: Option<Vec<String>>,
    captured: Captured,
}

/// The arguments of all calls of a batch.
pub struct Arrived {
    functions: Vec<FunctionArguments>,
}

impl Arrived {
    /// Captures `columns` for the functions that use them.
    pub fn capture(
        py: Python<'_>,
        columns: &[Bound<'_, PyAny>],
        uses: &[PyRef<'_, PyUse>],
        lanes: &[LaneKind],
        samples: usize,
    ) -> PyResult<Self> {
        if uses.len() != lanes.len() {
            return Err(PyValueError::new_err(format!("{} uses for {} functions", uses.len(), lanes.len())));
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
        let mut wire = WireCapture::new(py, &sources, samples);
        let functions = uses
            .iter()
            .zip(lanes)
            .map(|(one, lane)| {
                let captured = match lane {
                    LaneKind::Process => Captured::Wire {
                        call: wire.columns(&one.call.columns)?,
                        finish: wire.columns(&one.finish.columns)?,
                    },
                    LaneKind::Thread | LaneKind::Asyncio => Captured::Values {
                        call: Rows::new(py, &sources, &one.call.columns, one.call.names.as_deref())?,
                        finish: Rows::new(py, &sources, &one.finish.columns, one.finish.names.as_deref())?,
                    },
                };
                let call_names = one.call.names.clone();
                Ok(FunctionArguments { call_names, finish_names: one.finish.names.clone(), captured })
            })
            .collect::<PyResult<Vec<_>>>()?;
        Ok(Self { functions })
    }

    /// The Python values of a function of the thread or asyncio lane.
    pub fn rows(&self, function: FunctionId, finish: bool) -> Option<&Rows> {
        match &self.functions.get(function)?.captured {
            Captured::Values { call, finish: shaped } => Some(if finish { shaped } else { call }),
            Captured::Wire { .. } => None,
        }
    }

    fn wire(&self, function: FunctionId, finish: bool) -> Option<&Wire> {
        match &self.functions.get(function)?.captured {
            Captured::Wire { call, finish: shaped } => Some(if finish { shaped } else { call }),
            Captured::Values { .. } => None,
        }
    }
}

impl Payload for Arrived {
    fn names(&self, function: FunctionId, finish: bool) -> Option<&[String]> {
        let arguments = self.functions.get(function)?;
        let names = if finish { &arguments.finish_names } else { &arguments.call_names };
        names.as_deref()
    }

    fn encode(&self, function: FunctionId, finish: bool, samples: &[u32], out: &mut Vec<u8>) {
        if let Some(columns) = self.wire(function, finish) {
            columns.encode(samples, out);
        }
    }

    fn bytes(&self, function: FunctionId, sample: u32) -> usize {
        self.wire(function, false).map_or(0, |columns| columns.bytes(sample))
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}
