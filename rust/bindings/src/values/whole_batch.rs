//! Captures the columns of a batch that is submitted whole, on the caller's thread.
//!
//! - A captured batch does not change: lists are copied (references, not values), text is
//!   immutable, all else that goes to a worker is pickled at once.
//! - Text is not copied under the GIL: the address of its characters is noted, with a reference
//!   that keeps them there, and they are copied when a frame is made. Requests get all columns as
//!   texts.
//! - Only the columns that a function uses are captured for it.

use guerdon_core::function::FunctionId;
use guerdon_core::payload::Payload;
use guerdon_wire::sent_constants::SentConstants;
use guerdon_wire::text::RawText;
use pyo3::PyTraverseError;
use pyo3::exceptions::PyException;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::lane_kind::LaneKind;
use crate::values::columns::{ArgumentColumns, PyFunctionColumns, sources};
use crate::values::journal_columns::JournalColumns;
use crate::values::python_values::PythonValues;
use crate::values::wire::{WireCapture, WireValues};

/// The values of one kind of call, as the function's lane arguments them.
enum CapturedValues {
    /// Values for workers and requests: bytes.
    Wire(WireValues),
    /// Values for threads and loops of this process: Python values.
    Python(PythonValues),
}

/// Values for one kind of call of one function.
struct FunctionCapture {
    names: Option<Vec<String>>,
    values: CapturedValues,
}

/// One function's calls, and those of its `finish_group`.
struct FunctionArguments {
    call: FunctionCapture,
    finish: FunctionCapture,
    tokens: Option<Vec<f64>>,
    /// Values that identify calls of a pure function: what tells its samples apart.
    identities: Option<WireValues>,
}

/// The arguments of all calls of a batch.
pub struct WholeBatchPayload {
    functions: Vec<FunctionArguments>,
    journal: JournalColumns,
}

impl WholeBatchPayload {
    /// Captures `columns` for the functions that use them, and those at `journal` for it.
    #[expect(clippy::too_many_arguments, reason = "all that a batch is made of")]
    pub fn capture(
        py: Python<'_>,
        columns: &[Bound<'_, PyAny>],
        uses: &[PyRef<'_, PyFunctionColumns>],
        lanes: &[LaneKind],
        pure: &[bool],
        samples: usize,
        dumps: &Bound<'_, PyAny>,
        journal: &[Option<usize>],
    ) -> PyResult<Self> {
        let sources = sources(columns, uses, lanes, samples)?;
        let wired = uses.iter().zip(lanes).filter(|(_, lane)| lane.takes_bytes());
        let calls = wired.flat_map(|(one, _)| [one.call.columns.as_slice(), one.finish.columns.as_slice()]);
        let mut wire = WireCapture::new(py, &sources, samples, dumps, calls);
        let mut capture = |arguments: &ArgumentColumns, lane: &LaneKind| {
            let values = match lane {
                LaneKind::Process | LaneKind::Http | LaneKind::Native | LaneKind::Compose => {
                    CapturedValues::Wire(wire.columns(&arguments.columns, &arguments.second)?)
                }
                LaneKind::Thread | LaneKind::Asyncio => CapturedValues::Python(PythonValues::new(
                    py,
                    &sources,
                    &arguments.columns,
                    arguments.names.as_deref(),
                )?),
            };
            PyResult::Ok(FunctionCapture { names: arguments.names.clone(), values })
        };
        let calls = uses.iter().map(|one| one.call.columns.as_slice());
        let mut singly = WireCapture::new(py, &sources, samples, dumps, calls).one_by_one();
        let functions = uses
            .iter()
            .zip(lanes)
            .zip(pure)
            .map(|((one, lane), pure)| {
                let (call, finish) = (capture(&one.call, lane)?, capture(&one.finish, lane)?);
                let identities = if *pure { identities(py, &mut singly, &one.call)? } else { None };
                Ok(FunctionArguments { call, finish, tokens: one.tokens.clone(), identities })
            })
            .collect::<PyResult<Vec<_>>>()?;
        Ok(Self { functions, journal: JournalColumns::of(py, &sources, journal, |list| list.clone_ref(py)) })
    }

    /// Returns its columns for the journal.
    pub const fn journal(&self) -> &JournalColumns {
        &self.journal
    }

    /// Shows the collector the Python values; those that leave the process are bytes or strings.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.python_values().try_for_each(|values| values.traverse(visit))?;
        self.journal.traverse(visit)
    }

    fn captured(&self, function: FunctionId, finish: bool) -> Option<&FunctionCapture> {
        self.functions.get(function).map(|arguments| if finish { &arguments.finish } else { &arguments.call })
    }

    /// The Python values of a function of the thread or asyncio lane.
    pub fn rows(&self, function: FunctionId, finish: bool) -> Option<&PythonValues> {
        match &self.captured(function, finish)?.values {
            CapturedValues::Python(rows) => Some(rows),
            CapturedValues::Wire(_) => None,
        }
    }

    fn python_values(&self) -> impl Iterator<Item = &PythonValues> {
        let kinds = self.functions.iter().flat_map(|arguments| [&arguments.call, &arguments.finish]);
        kinds.filter_map(|captured| match &captured.values {
            CapturedValues::Python(rows) => Some(rows),
            CapturedValues::Wire(_) => None,
        })
    }

    /// Returns whether it holds Python values, rather than bytes and strings alone.
    pub fn has_python_values(&self) -> bool {
        self.python_values().next().is_some() || !self.journal.is_empty()
    }

    /// The Python values that it holds, in lists.
    pub fn lists(&self, py: Python<'_>) -> Vec<Py<PyList>> {
        self.python_values().flat_map(|values| values.lists(py)).chain(self.journal.lists(py)).collect()
    }

    fn wire(&self, function: FunctionId, finish: bool) -> Option<&WireValues> {
        match &self.captured(function, finish)?.values {
            CapturedValues::Wire(wire) => Some(wire),
            CapturedValues::Python(_) => None,
        }
    }
}

/// Returns the values that tell the samples of a function apart; `None` where a value can't be
/// pickled: such calls are never alike.
fn identities(
    py: Python<'_>,
    singly: &mut WireCapture<'_, '_>,
    arguments: &ArgumentColumns,
) -> PyResult<Option<WireValues>> {
    match singly.columns(&arguments.columns, &arguments.second) {
        Ok(values) => Ok(Some(values)),
        Err(error) if error.is_instance_of::<PyException>(py) => Ok(None),
        Err(error) => Err(error), // Ctrl-C
    }
}

impl Payload for WholeBatchPayload {
    fn names(&self, function: FunctionId, finish: bool) -> Option<&[String]> {
        self.captured(function, finish)?.names.as_deref()
    }

    fn encode(&self, function: FunctionId, finish: bool, samples: &[u32], sent: &mut SentConstants, out: &mut Vec<u8>) {
        if let Some(columns) = self.wire(function, finish) {
            columns.encode(samples, sent, out);
        }
    }

    fn encode_pairs(
        &self,
        function: FunctionId,
        pairs: &[(u32, u32)],
        second_columns: &[usize],
        sent: &mut SentConstants,
        out: &mut Vec<u8>,
    ) {
        if let Some(columns) = self.wire(function, false) {
            WireValues::encode_pairs((columns, columns), pairs, second_columns, sent, out);
        }
    }

    fn modules(&self, function: FunctionId, finish: bool, each: &mut dyn FnMut(&str)) {
        if let Some(columns) = self.wire(function, finish) {
            columns.modules(each);
        }
    }

    fn bytes(&self, function: FunctionId, sample: u32) -> usize {
        self.wire(function, false).map_or(0, |columns| columns.bytes(sample))
    }

    fn text(&self, function: FunctionId, column: usize, sample: u32) -> Option<RawText<'_>> {
        self.wire(function, false)?.text(column, sample)
    }

    fn identity(&self, function: FunctionId, sample: u32, out: &mut Vec<u8>) -> bool {
        let identities = self.functions.get(function).and_then(|arguments| arguments.identities.as_ref());
        identities.is_some_and(|identities| identities.identity(sample, out))
    }

    fn tokens(&self, function: FunctionId, sample: u32) -> Option<f64> {
        self.functions.get(function)?.tokens.as_ref()?.get(sample as usize).copied()
    }

    fn mixes(&self, function: FunctionId) -> bool {
        self.captured(function, false).is_some_and(|captured| match &captured.values {
            CapturedValues::Wire(wire) => !wire.has_constants(),
            CapturedValues::Python(rows) => !rows.has_constants(),
        })
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}
