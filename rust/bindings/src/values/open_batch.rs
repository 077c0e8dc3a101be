//! Payload of the calls of an open batch. Every addition brings the same columns.
//!
//! - An addition is prepared first, with all that can fail or run Python code, and then put in
//!   place under a lock of the batch, so that nobody sees half of it.
//! - Values that no call needs any more are released by the thread that adds, waits or takes a
//!   group: they may have finalizers, which must not run on a thread of a lane.
//! - A frame for workers or requests holds its values; threads and loops find `None` in their
//!   place.

use std::sync::{Arc, OnceLock};

use guerdon_core::function::FunctionId;
use guerdon_core::payload::Payload;
use guerdon_wire::sent_constants::SentConstants;
use guerdon_wire::text::RawText;
use parking_lot::Mutex;
use pyo3::PyTraverseError;
use pyo3::exceptions::PyValueError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use crate::lane_kind::LaneKind;
use crate::values::columns::{ArgumentColumns, Column, PyFunctionColumns, put, sources};
use crate::values::journal_columns::JournalColumns;
use crate::values::python_values::PythonValues;
use crate::values::wire::{WireCapture, WireValues};

/// One sample's values: those of its addition, and its index there.
type Row = (Arc<WireValues>, u32);

/// The values of one kind of call, by sample.
enum SampleValues {
    /// Values for workers and requests. Written by additions and by `forget`.
    Wire(Mutex<Vec<Option<Row>>>),
    /// Values for threads and loops of this process; the tuples, where calls take one sample.
    Python(PythonValues, Option<Py<PyList>>),
}

/// One kind of call of one function.
struct CallValues {
    arguments: ArgumentColumns,
    names: Option<Arc<[String]>>,
    values: SampleValues,
}

/// Facts that the first addition settles.
struct Schema {
    /// Values of each column that stays in this process: its values by sample, unless it is
    /// constant.
    lists: Vec<Option<Py<PyList>>>,
    constant: Vec<bool>,
    /// Values for each function: its calls, and those of its `finish_group`.
    functions: Vec<[CallValues; 2]>,
    /// Columns for the journal. Its writer drops values that it has read.
    journal: JournalColumns,
}

/// The columns of one open batch.
pub struct OpenBatchValues {
    /// Lane of each function, and whether its calls take one sample.
    functions: Vec<(LaneKind, bool)>,
    schema: OnceLock<Schema>,
    /// Tokens of the samples, by function; empty if it counts none. Written by additions.
    tokens: Mutex<Vec<Vec<f64>>>,
}

/// The values of some samples, ready to be put in their places.
pub struct Addition {
    sources: Vec<Column>,
    /// Values for each function and kind of call.
    wires: Vec<[Option<Arc<WireValues>>; 2]>,
    tuples: Vec<Vec<Py<PyTuple>>>,
    tokens: Vec<Option<Vec<f64>>>,
    /// The columns that a journal keeps.
    journal: Vec<Option<usize>>,
}

impl OpenBatchValues {
    pub const fn new(functions: Vec<(LaneKind, bool)>) -> Self {
        Self { functions, schema: OnceLock::new(), tokens: Mutex::new(Vec::new()) }
    }

    /// Captures the values of `count` samples.
    pub fn prepare(
        &self,
        py: Python<'_>,
        columns: &[Bound<'_, PyAny>],
        uses: &[PyRef<'_, PyFunctionColumns>],
        count: usize,
        dumps: &Bound<'_, PyAny>,
        journal: Vec<Option<usize>>,
    ) -> PyResult<Addition> {
        let lanes: Vec<LaneKind> = self.functions.iter().map(|(lane, _)| *lane).collect();
        let sources = sources(columns, uses, &lanes, count)?;
        let schema = match self.schema.get() {
            Some(schema) => schema,
            None => {
                // Made before it is set: another thread may get here meanwhile, and would wait for
                // it attached.
                let made = self.schema_of(py, &sources, uses, &journal)?;
                self.schema.get_or_init(|| made)
            }
        };
        schema.check(&sources, uses)?;
        let wired = schema.functions.iter().flatten().filter(|kind| matches!(kind.values, SampleValues::Wire(_)));
        let calls = wired.map(|kind| kind.arguments.columns.as_slice());
        let mut wire = WireCapture::new(py, &sources, count, dumps, calls);
        let (mut wires, mut tuples) = (Vec::new(), Vec::new());
        for kinds in &schema.functions {
            let mut captured = [None, None];
            for (kind, captured) in kinds.iter().zip(&mut captured) {
                if matches!(kind.values, SampleValues::Wire(_)) {
                    *captured = Some(Arc::new(wire.columns(&kind.arguments.columns, &kind.arguments.second)?));
                }
            }
            wires.push(captured);
            tuples.push(match &kinds[0].values {
                SampleValues::Python(_, Some(_)) => tuples_of(py, &sources, &kinds[0].arguments.columns, count)?,
                _ => Vec::new(),
            });
        }
        let tokens = uses.iter().map(|one| one.tokens.clone()).collect();
        Ok(Addition { sources, wires, tuples, tokens, journal })
    }

    fn schema_of(
        &self,
        py: Python<'_>,
        sources: &[Column],
        uses: &[PyRef<'_, PyFunctionColumns>],
        journal: &[Option<usize>],
    ) -> PyResult<Schema> {
        // Columns that functions of this process get stay: what leaves it is kept as bytes.
        let stays = |column: &usize| {
            let users = uses.iter().zip(&self.functions).filter(|(_, (lane, _))| !lane.takes_bytes());
            users
                .map(|(one, _)| one)
                .any(|one| one.call.columns.contains(column) || one.finish.columns.contains(column))
        };
        let lists: Vec<Option<Py<PyList>>> = sources
            .iter()
            .enumerate()
            .map(|(column, source)| {
                (matches!(source, Column::List(_)) && stays(&column)).then(|| PyList::empty(py).unbind())
            })
            .collect();
        let rows = |arguments: &ArgumentColumns, one_by_one: bool| {
            let pair = |index: &usize| match &sources[*index] {
                Column::Const(value) => (true, value.clone_ref(py)),
                Column::List(_) => {
                    (false, lists[*index].as_ref().map_or_else(|| py.None(), |list| list.clone_ref(py).into_any()))
                }
            };
            let constants = arguments.columns.iter().any(|index| matches!(sources[*index], Column::Const(_)));
            let columns = PyList::new(py, arguments.columns.iter().map(pair))?.unbind();
            let names = arguments.names.as_deref().map(|names| PyTuple::new(py, names)).transpose()?.map(Bound::unbind);
            let tuples = PyList::empty(py).unbind();
            let kept = one_by_one.then(|| tuples.clone_ref(py));
            PyResult::Ok(SampleValues::Python(PythonValues::of_open_batch(columns, constants, names, tuples), kept))
        };
        let kind = |arguments: &ArgumentColumns, lane: LaneKind, one_by_one: bool| {
            let values = match lane {
                LaneKind::Process | LaneKind::Http | LaneKind::Native | LaneKind::Compose => {
                    SampleValues::Wire(Mutex::default())
                }
                LaneKind::Thread | LaneKind::Asyncio => rows(arguments, one_by_one)?,
            };
            let names = arguments.names.as_deref().map(Arc::from);
            PyResult::Ok(CallValues { arguments: arguments.clone(), names, values })
        };
        let functions = uses.iter().zip(&self.functions).map(|(one, (lane, one_by_one))| {
            Ok([kind(&one.call, *lane, *one_by_one)?, kind(&one.finish, *lane, false)?])
        });
        let functions = functions.collect::<PyResult<Vec<_>>>()?;
        let constant = sources.iter().map(|source| matches!(source, Column::Const(_))).collect();
        let journal = JournalColumns::of(py, sources, journal, |_| PyList::empty(py).unbind());
        Ok(Schema { lists, constant, functions, journal })
    }

    /// Puts values in their places.
    pub fn put(&self, py: Python<'_>, addition: &Addition, samples: &[usize]) -> PyResult<()> {
        let (Some(schema), Some(most)) = (self.schema.get(), samples.iter().max()) else { return Ok(()) };
        for (list, source) in schema.lists.iter().zip(&addition.sources) {
            if let (Some(list), Column::List(values)) = (list, source) {
                put(list.bind(py), values.bind(py).iter(), samples)?;
            }
        }
        schema.journal.put(py, &addition.sources, &addition.journal, samples)?;
        let mut known = self.tokens.lock();
        known.resize_with(addition.tokens.len(), Vec::new);
        for (known, counts) in known.iter_mut().zip(&addition.tokens) {
            let Some(counts) = counts else { continue };
            known.resize(known.len().max(most + 1), 0.0);
            samples.iter().zip(counts).for_each(|(sample, count)| known[*sample] = *count);
        }
        drop(known);
        for (kinds, (wires, tuples)) in schema.functions.iter().zip(addition.wires.iter().zip(&addition.tuples)) {
            for (kind, wire) in kinds.iter().zip(wires) {
                if let (SampleValues::Wire(rows), Some(wire)) = (&kind.values, wire) {
                    let mut rows = rows.lock();
                    let length = rows.len().max(most + 1);
                    rows.resize(length, None);
                    for (index, sample) in samples.iter().enumerate() {
                        rows[*sample] = Some((wire.clone(), index as u32));
                    }
                }
            }
            if let SampleValues::Python(_, Some(list)) = &kinds[0].values {
                let tuples = tuples.iter().map(|tuple| tuple.bind(py).as_any().clone());
                put(list.bind(py), tuples, samples)?;
            }
        }
        Ok(())
    }

    /// Returns its columns for the journal.
    pub fn journal(&self) -> Option<&JournalColumns> {
        self.schema.get().map(|schema| &schema.journal)
    }

    /// Lets the values of these samples go.
    pub fn forget(&self, py: Python<'_>, samples: std::ops::Range<usize>) -> PyResult<()> {
        let Some(schema) = self.schema.get() else { return Ok(()) };
        let empty = |list: &Py<PyList>| {
            let list = list.bind(py);
            let end = samples.end.min(list.len());
            (samples.start..end).try_for_each(|sample| list.set_item(sample, py.None()))
        };
        schema.lists.iter().flatten().try_for_each(empty)?;
        for kind in schema.functions.iter().flatten() {
            match &kind.values {
                SampleValues::Python(_, tuples) => tuples.iter().try_for_each(empty)?,
                SampleValues::Wire(rows) => {
                    let mut rows = rows.lock();
                    let end = samples.end.min(rows.len());
                    let gone: Vec<_> =
                        rows.get_mut(samples.start..end).unwrap_or_default().iter_mut().map(Option::take).collect();
                    drop(rows);
                    drop(gone);
                }
            }
        }
        Ok(())
    }

    /// Shows the collector the Python values; those that leave the process are bytes or strings.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        let Some(schema) = self.schema.get() else { return Ok(()) };
        schema.lists.iter().flatten().try_for_each(|list| visit.call(list))?;
        schema.functions.iter().flatten().try_for_each(|kind| match &kind.values {
            SampleValues::Python(rows, tuples) => {
                rows.traverse(visit)?;
                tuples.as_ref().map_or(Ok(()), |tuples| visit.call(tuples))
            }
            SampleValues::Wire(_) => Ok(()),
        })?;
        schema.journal.traverse(visit)
    }

    /// The Python values that it holds, in lists.
    pub fn lists(&self, py: Python<'_>) -> Vec<Py<PyList>> {
        let Some(schema) = self.schema.get() else { return Vec::new() };
        let own = schema.lists.iter().flatten().map(|list| list.clone_ref(py));
        let rows = schema.functions.iter().flatten().flat_map(|kind| match &kind.values {
            SampleValues::Python(values, tuples) => {
                values.lists(py).chain(tuples.as_ref().map(|tuples| tuples.clone_ref(py))).collect()
            }
            SampleValues::Wire(_) => Vec::new(),
        });
        own.chain(rows).chain(schema.journal.lists(py)).collect()
    }

    fn kind(&self, function: FunctionId, finish: bool) -> Option<&CallValues> {
        self.schema.get()?.functions.get(function).map(|kinds| &kinds[usize::from(finish)])
    }

    /// The Python values of a function of the thread or asyncio lane.
    pub fn rows(&self, function: FunctionId, finish: bool) -> Option<&PythonValues> {
        match &self.kind(function, finish)?.values {
            SampleValues::Python(rows, _) => Some(rows),
            SampleValues::Wire(_) => None,
        }
    }
}

impl Schema {
    fn check(&self, sources: &[Column], uses: &[PyRef<'_, PyFunctionColumns>]) -> PyResult<()> {
        let constant: Vec<bool> = sources.iter().map(|source| matches!(source, Column::Const(_))).collect();
        let same = |(one, kinds): (&PyRef<'_, PyFunctionColumns>, &[CallValues; 2])| {
            one.call == kinds[0].arguments && one.finish == kinds[1].arguments
        };
        if constant == self.constant && uses.iter().zip(&self.functions).all(same) {
            Ok(())
        } else {
            Err(PyValueError::new_err("these samples bring other columns than those before them"))
        }
    }
}

/// One argument tuple per sample.
fn tuples_of(py: Python<'_>, sources: &[Column], columns: &[usize], count: usize) -> PyResult<Vec<Py<PyTuple>>> {
    let tuple = |row: usize| {
        let value = |index: &usize| match &sources[*index] {
            Column::Const(value) => Ok(value.clone_ref(py)),
            Column::List(list) => list.bind(py).get_item(row).map(Bound::unbind),
        };
        let values = columns.iter().map(value).collect::<PyResult<Vec<_>>>()?;
        PyTuple::new(py, values).map(Bound::unbind)
    };
    (0..count).map(tuple).collect()
}

/// `OpenBatchValues` as the core knows it.
pub struct OpenBatchPayload(pub Arc<OpenBatchValues>);

impl Payload for OpenBatchPayload {
    fn names(&self, function: FunctionId, finish: bool) -> Option<&[String]> {
        self.0.kind(function, finish)?.names.as_deref()
    }

    fn bytes(&self, function: FunctionId, sample: u32) -> usize {
        let Some(CallValues { values: SampleValues::Wire(rows), .. }) = self.0.kind(function, false) else { return 0 };
        rows.lock().get(sample as usize).and_then(Option::as_ref).map_or(0, |(wire, row)| wire.bytes(*row))
    }

    fn tokens(&self, function: FunctionId, sample: u32) -> Option<f64> {
        self.0.tokens.lock().get(function)?.get(sample as usize).copied()
    }

    fn mixes(&self, function: FunctionId) -> bool {
        let schema = self.0.schema.get();
        let columns = self.0.kind(function, false).map(|kind| &kind.arguments.columns);
        schema.zip(columns).is_some_and(|(schema, columns)| !columns.iter().any(|column| schema.constant[*column]))
    }

    fn hold(&self, function: FunctionId, finish: bool, samples: &[u32]) -> Option<Box<dyn Payload>> {
        let kind = self.0.kind(function, finish)?;
        let SampleValues::Wire(rows) = &kind.values else { return None };
        let rows = rows.lock();
        let row = |sample: &u32| Some((*sample, rows.get(*sample as usize)?.clone()?));
        let mut held: Vec<(u32, Row)> = samples.iter().filter_map(row).collect();
        drop(rows);
        held.sort_unstable_by_key(|(sample, _)| *sample);
        Some(Box::new(FrameRows { names: kind.names.clone(), rows: held }))
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

/// The values of one frame's calls, by sample.
struct FrameRows {
    names: Option<Arc<[String]>>,
    rows: Vec<(u32, Row)>,
}

impl FrameRows {
    fn row(&self, sample: u32) -> Option<(&WireValues, u32)> {
        let index = self.rows.binary_search_by_key(&sample, |(held, _)| *held).ok()?;
        let (wire, row) = &self.rows[index].1;
        Some((wire, *row))
    }
}

impl Payload for FrameRows {
    fn names(&self, _: FunctionId, _: bool) -> Option<&[String]> {
        self.names.as_deref()
    }

    fn encode(&self, _: FunctionId, _: bool, samples: &[u32], sent: &mut SentConstants, out: &mut Vec<u8>) {
        let rows: Vec<_> = samples.iter().filter_map(|sample| self.row(*sample)).collect();
        WireValues::encode_from(&rows, sent, out);
    }

    fn encode_pairs(
        &self,
        _: FunctionId,
        pairs: &[(u32, u32)],
        second_columns: &[usize],
        sent: &mut SentConstants,
        out: &mut Vec<u8>,
    ) {
        let row = |(first, second): &(u32, u32)| Some((self.row(*first)?, self.row(*second)?));
        let rows: Vec<_> = pairs.iter().filter_map(row).collect();
        WireValues::encode_pairs_from(&rows, second_columns, sent, out);
    }

    fn modules(&self, _: FunctionId, _: bool, each: &mut dyn FnMut(&str)) {
        let same = |one: &(u32, Row), other: &(u32, Row)| Arc::ptr_eq(&one.1.0, &other.1.0);
        self.rows.chunk_by(same).for_each(|rows| rows[0].1.0.modules(each));
    }

    fn identity(&self, _: FunctionId, sample: u32, out: &mut Vec<u8>) -> bool {
        self.row(sample).is_some_and(|(wire, row)| wire.identity(row, out))
    }

    fn text(&self, _: FunctionId, column: usize, sample: u32) -> Option<RawText<'_>> {
        self.row(sample).and_then(|(wire, row)| wire.text(column, row))
    }

    fn bytes(&self, _: FunctionId, _: u32) -> usize {
        0 // a frame that is made asks nobody how large it is
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}
