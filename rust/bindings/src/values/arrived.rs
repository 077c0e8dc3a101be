//! Captures the columns of a batch when it is submitted, on the caller's thread.
//!
//! - P-1  A captured batch does not change: the package copies the caller's lists (references, not values) and then keeps its hands off them,
//!   text is immutable, all else that goes to a worker is pickled at once.
//! - P-2  Text is not touched under the GIL: where its characters lie is noted, with a reference that keeps them there, and they are
//!   copied when a frame is made.
//! - P-3  For requests a column is texts: those of the batch as they lie, or those that the package made of other values.
//! - P-4  Only the columns that a function uses are captured for it.

use guerdon_core::function::FunctionId;
use guerdon_core::payload::Payload;
use guerdon_core::text::RawText;
use pyo3::prelude::*;

use crate::config::LaneKind;
use crate::values::given::{PyUse, Wants, sources};
use crate::values::rows::Rows;
use crate::values::wire::{Wire, WireCapture};

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
        let mut capture = |wants: &Wants, lane: &LaneKind| {
            let values = match lane {
                LaneKind::Process | LaneKind::Http => Values::Wire(wire.columns(&wants.columns)?),
                LaneKind::Thread | LaneKind::Asyncio => {
                    Values::Rows(Rows::new(py, &sources, &wants.columns, wants.names.as_deref())?)
                }
            };
            PyResult::Ok(Captured { names: wants.names.clone(), values })
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

    fn mixes(&self, function: FunctionId) -> bool {
        self.captured(function, false).is_some_and(|captured| match &captured.values {
            Values::Wire(wire) => !wire.has_constants(),
            Values::Rows(rows) => !rows.has_constants(),
        })
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}
