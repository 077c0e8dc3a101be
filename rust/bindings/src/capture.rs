//! Captures the columns of a batch when it is submitted, on the caller's thread.
//!
//! - P-1  A captured batch does not change: lists are copied (references, not values), text is immutable, all else that goes to a worker
//!   is pickled at once.
//! - P-2  Text is not touched under the GIL: where its characters lie is noted, with a reference that keeps them there, and they are
//!   copied when a frame is made.
//! - P-3  For requests a column is texts: those of the batch as they lie, or those that the package made of other values.
//! - P-4  Only the columns that a function uses are captured for it.

use guerdon_core::function::FunctionId;
use guerdon_core::payload::Payload;
use guerdon_core::process::columns::RawText;
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
    pub call: Arguments,
    pub finish: Arguments,
    /// Of each sample, where the function counts them.
    pub tokens: Option<Vec<f64>>,
}

/// Values of one kind of call: their keyword names, if they have any, and the columns they stand in.
#[derive(Clone, PartialEq, Eq)]
pub struct Arguments {
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
            call: Arguments { names, columns },
            finish: Arguments { names: Some(finish_names), columns: finish_columns },
            tokens,
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
    pub fn of(column: &Bound<'_, PyAny>, index: usize, samples: usize) -> PyResult<Self> {
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

/// The values of one kind of call, as the function's lane wants them.
enum Values {
    /// For workers and requests: bytes.
    Wire(Wire),
    /// For threads and loops of this process: Python values.
    Rows(Rows),
}

/// What one kind of call of one function is made of.
struct Captured {
    names: Option<Vec<String>>,
    values: Values,
}

/// One function's calls, and those of its `finish_group`.
struct FunctionArguments {
    call: Captured,
    finish: Captured,
    tokens: Option<Vec<f64>>,
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
        dumps: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let sources = sources(columns, uses, lanes, samples)?;
        let mut wire = WireCapture::new(py, &sources, samples, dumps);
        let mut capture = |arguments: &Arguments, lane: &LaneKind| {
            let values = match lane {
                LaneKind::Process | LaneKind::Http => Values::Wire(wire.columns(&arguments.columns)?),
                LaneKind::Thread | LaneKind::Asyncio => {
                    Values::Rows(Rows::new(py, &sources, &arguments.columns, arguments.names.as_deref())?)
                }
            };
            PyResult::Ok(Captured { names: arguments.names.clone(), values })
        };
        let functions = uses
            .iter()
            .zip(lanes)
            .map(|(one, lane)| {
                let (call, finish) = (capture(&one.call, lane)?, capture(&one.finish, lane)?);
                Ok(FunctionArguments { call, finish, tokens: one.tokens.clone() })
            })
            .collect::<PyResult<Vec<_>>>()?;
        Ok(Self { functions })
    }

    fn captured(&self, function: FunctionId, finish: bool) -> Option<&Captured> {
        self.functions.get(function).map(|arguments| if finish { &arguments.finish } else { &arguments.call })
    }

    /// The Python values of a function of the thread or asyncio lane.
    pub fn rows(&self, function: FunctionId, finish: bool) -> Option<&Rows> {
        match &self.captured(function, finish)?.values {
            Values::Rows(rows) => Some(rows),
            Values::Wire(_) => None,
        }
    }

    fn wire(&self, function: FunctionId, finish: bool) -> Option<&Wire> {
        match &self.captured(function, finish)?.values {
            Values::Wire(wire) => Some(wire),
            Values::Rows(_) => None,
        }
    }
}

impl Payload for Arrived {
    fn names(&self, function: FunctionId, finish: bool) -> Option<&[String]> {
        self.captured(function, finish)?.names.as_deref()
    }

    fn encode(&self, function: FunctionId, finish: bool, samples: &[u32], out: &mut Vec<u8>) {
        if let Some(columns) = self.wire(function, finish) {
            columns.encode(samples, out);
        }
    }

    fn bytes(&self, function: FunctionId, sample: u32) -> usize {
        self.wire(function, false).map_or(0, |columns| columns.bytes(sample))
    }

    fn text(&self, function: FunctionId, column: usize, sample: u32) -> Option<RawText<'_>> {
        self.wire(function, false)?.text(column, sample)
    }

    fn tokens(&self, function: FunctionId, sample: u32) -> Option<f64> {
        self.functions.get(function)?.tokens.as_ref()?.get(sample as usize).copied()
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}
