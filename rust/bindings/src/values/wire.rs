//! The columns of a function that runs in workers: text by reference, all else pickled at
//! submission.
//!
//! Values are pickled once, on the caller's thread, plain ones in blocks of samples and others per
//! sample; a frame carries the blocks that it needs. Encoding a frame takes no lock and needs no
//! GIL.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use guerdon_wire::columns::ColumnsWriter;
use guerdon_wire::sent_constants::SentConstants;
use guerdon_wire::text::{RawText, TextKind};
use pyo3::exceptions::{PyException, PyTypeError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyBytes, PyList};

use crate::values::columns::Column;
use crate::values::text::Texts;

/// The most samples with plain values that are pickled together: enough to share the pickler's
/// start, few enough that a frame of one call carries little else.
const BLOCK_SAMPLES: usize = 16;
/// The size that a block aims not to exceed, in bytes.
const BLOCK_BYTES: usize = 64 * 1024;

/// The values of one function's calls, those of each column at its positions among them.
pub struct WireValues {
    width: usize,
    texts: Vec<(usize, Arc<Texts>)>,
    pickled: Vec<(Vec<usize>, Arc<PickledColumns>)>,
    constants: Option<(Vec<usize>, Arc<Constants>)>,
    /// The modules that unpickling them imports.
    modules: Modules,
}

type Modules = BTreeSet<Arc<str>>;

/// The samples of a pair, each with the capture that it came in.
pub type PairRow<'a> = ((&'a WireValues, u32), (&'a WireValues, u32));

/// Columns that are the same for all samples, pickled together.
struct Constants {
    /// Tells the pickle from others: equal ones have the same.
    number: u64,
    pickle: Vec<u8>,
    modules: Modules,
}

/// Columns pickled together.
struct PickledColumns {
    modules: Modules,
    /// First sample of each block.
    starts: Vec<usize>,
    blobs: Vec<Vec<u8>>,
    samples: usize,
}

impl PickledColumns {
    fn place(&self, sample: usize) -> (usize, usize) {
        let block = self.starts.partition_point(|start| *start <= sample).saturating_sub(1);
        (block, sample - self.starts[block])
    }

    fn bytes(&self, sample: usize) -> usize {
        let (block, _) = self.place(sample);
        let end = self.starts.get(block + 1).copied().unwrap_or(self.samples);
        self.blobs[block].len() / (end - self.starts[block]).max(1)
    }
}

impl WireValues {
    /// Writes the values of these samples.
    pub fn encode(&self, samples: &[u32], sent: &mut SentConstants, out: &mut Vec<u8>) {
        let mut writer = ColumnsWriter::new(out, samples.len(), self.width);
        writer.modules(self.modules.iter().map(|name| &**name));
        self.put(&mut writer, samples.len(), |row| samples[row] as usize, |_| true);
        self.put_constants(&mut writer, sent);
    }

    /// Writes the values of pairs of samples, each with the capture that its sample came in;
    /// `second_columns` are the second one's.
    pub fn encode_pairs(
        (first, second): (&Self, &Self),
        pairs: &[(u32, u32)],
        second_columns: &[usize],
        sent: &mut SentConstants,
        out: &mut Vec<u8>,
    ) {
        let mut writer = ColumnsWriter::new(out, pairs.len(), first.width);
        writer.modules(first.modules.union(&second.modules).map(|name| &**name));
        let is_second = |position: usize| second_columns.contains(&position);
        first.put(&mut writer, pairs.len(), |row| pairs[row].0 as usize, |position| !is_second(position));
        second.put(&mut writer, pairs.len(), |row| pairs[row].1 as usize, is_second);
        first.put_constants(&mut writer, sent);
    }

    /// Writes the columns at the positions that are `wanted`, of the sample of each row.
    fn put(
        &self,
        writer: &mut ColumnsWriter<'_>,
        rows: usize,
        sample: impl Fn(usize) -> usize,
        wanted: impl Fn(usize) -> bool,
    ) {
        for (position, texts) in self.texts.iter().filter(|(position, _)| wanted(*position)) {
            if (0..rows).any(|row| texts.raw(sample(row)).kind == TextKind::Utf16) {
                let wide: Vec<(TextKind, Cow<'_, [u8]>)> =
                    (0..rows).map(|row| texts.on_the_wire(sample(row))).collect();
                writer.text(*position, |row| RawText { kind: wide[row].0, bytes: &wide[row].1 });
            } else {
                writer.text(*position, |row| texts.raw(sample(row)));
            }
        }
        // Those of one pickle are of one sample.
        for (positions, pickled) in self.pickled.iter().filter(|(positions, _)| wanted(positions[0])) {
            writer.pickled(positions, |row| pickled.place(sample(row)), |block| &pickled.blobs[block]);
        }
    }

    fn put_constants(&self, writer: &mut ColumnsWriter<'_>, sent: &mut SentConstants) {
        if let Some((positions, constants)) = &self.constants {
            writer.constant(positions, constants.number, &constants.pickle, sent);
        }
    }

    /// Calls `each` with the modules that unpickling them imports.
    pub fn modules(&self, each: &mut dyn FnMut(&str)) {
        self.modules.iter().for_each(|name| each(name));
    }

    /// Writes the values of samples that came in several additions, each with its own `WireValues`
    /// and its index there.
    pub fn encode_from(rows: &[(&Self, u32)], sent: &mut SentConstants, out: &mut Vec<u8>) {
        let Some((first, _)) = rows.first() else { return };
        let same = |one: &(&Self, u32), other: &(&Self, u32)| std::ptr::eq(one.0, other.0);
        let indexes = |rows: &[(&Self, u32)]| rows.iter().map(|(_, row)| *row).collect::<Vec<_>>();
        if rows.iter().all(|row| same(row, &rows[0])) {
            first.encode(&indexes(rows), sent, out);
        } else {
            let pieces = rows.chunk_by(same).map(|piece| (piece[0].0, indexes(piece)));
            ColumnsWriter::new(out, rows.len(), first.width)
                .pieces(pieces, |(wire, rows), out| wire.encode(&rows, sent, out));
        }
    }

    /// `encode_pairs` for samples that came in several additions.
    pub fn encode_pairs_from(
        rows: &[PairRow<'_>],
        second_columns: &[usize],
        sent: &mut SentConstants,
        out: &mut Vec<u8>,
    ) {
        let Some(((first, _), _)) = rows.first() else { return };
        let same = |one: &PairRow<'_>, other: &PairRow<'_>| {
            std::ptr::eq(one.0.0, other.0.0) && std::ptr::eq(one.1.0, other.1.0)
        };
        let mut write = |piece: &[PairRow<'_>], out: &mut Vec<u8>| {
            let pairs: Vec<(u32, u32)> = piece.iter().map(|row| (row.0.1, row.1.1)).collect();
            Self::encode_pairs((piece[0].0.0, piece[0].1.0), &pairs, second_columns, sent, out);
        };
        if rows.iter().all(|row| same(row, &rows[0])) {
            write(rows, out);
        } else {
            ColumnsWriter::new(out, rows.len(), first.width).pieces(rows.chunk_by(same), write);
        }
    }

    /// The text of a sample among the values of a call, if it is one.
    pub fn text(&self, position: usize, sample: u32) -> Option<RawText<'_>> {
        let (_, texts) = self.texts.iter().find(|(found, _)| *found == position)?;
        Some(texts.raw(sample as usize))
    }

    /// Writes what tells a sample's values from those of others; false where values are pickled
    /// together with those of other samples.
    pub fn identity(&self, sample: u32, out: &mut Vec<u8>) -> bool {
        let sample = sample as usize;
        if self.pickled.iter().any(|(_, pickled)| pickled.starts.len() != pickled.samples) {
            return false;
        }
        // All positions: other batches may have their columns in another order.
        let mut put = |positions: &[usize], kind: u8, bytes: &[u8]| {
            out.extend((positions.len() as u64).to_le_bytes());
            positions.iter().for_each(|position| out.extend((*position as u64).to_le_bytes()));
            out.push(kind);
            out.extend((bytes.len() as u64).to_le_bytes());
            out.extend(bytes);
        };
        for (position, texts) in &self.texts {
            let raw = texts.raw(sample);
            put(&[*position], raw.kind as u8, raw.bytes);
        }
        for (positions, pickled) in &self.pickled {
            put(positions, u8::MAX, &pickled.blobs[sample]);
        }
        if let Some((positions, constants)) = &self.constants {
            put(positions, u8::MAX, &constants.pickle);
        }
        true
    }

    /// Returns whether some values are the same for all samples.
    pub const fn has_constants(&self) -> bool {
        self.constants.is_some()
    }

    /// About how many bytes one sample takes.
    pub fn bytes(&self, sample: u32) -> usize {
        let sample = sample as usize;
        let texts: usize = self.texts.iter().map(|(_, texts)| texts.bytes(sample)).sum();
        texts + self.pickled.iter().map(|(_, pickled)| pickled.bytes(sample)).sum::<usize>()
    }
}

/// Captures the columns of several functions; one that many use is noted, or pickled, once.
pub struct WireCapture<'a, 'py> {
    py: Python<'py>,
    sources: &'a [Column],
    samples: usize,
    /// Pickles columns of some samples, a list of lists: together, or each sample alone if
    /// unpickling a value runs code.
    dumps: &'a Bound<'py, PyAny>,
    texts: Vec<Option<Option<Arc<Texts>>>>,
    /// Calls that get a column, by column: columns that the same calls get are pickled together.
    users: Vec<Vec<usize>>,
    pickled: BTreeMap<Vec<usize>, Arc<PickledColumns>>,
    constants: BTreeMap<Vec<usize>, Arc<Constants>>,
    /// The most samples pickled together.
    block: usize,
    /// True if no columns are pickled together.
    singly: bool,
}

/// A column among the values of a call: its index, and its position there.
type PlacedColumn = (usize, usize);

impl<'a, 'py> WireCapture<'a, 'py> {
    /// `calls` has the columns of each kind of call that is captured.
    pub fn new<'c>(
        py: Python<'py>,
        sources: &'a [Column],
        samples: usize,
        dumps: &'a Bound<'py, PyAny>,
        calls: impl Iterator<Item = &'c [usize]>,
    ) -> Self {
        let mut users = vec![Vec::new(); sources.len()];
        for (call, columns) in calls.enumerate() {
            columns.iter().for_each(|column| users[*column].push(call));
        }
        let texts = sources.iter().map(|_| None).collect();
        let (pickled, constants) = (BTreeMap::new(), BTreeMap::new());
        Self { py, sources, samples, dumps, texts, users, pickled, constants, block: BLOCK_SAMPLES, singly: false }
    }

    /// Has each value pickled by itself, so that equal ones have equal bytes, whatever other
    /// functions and columns there are.
    pub const fn one_by_one(mut self) -> Self {
        self.block = 1;
        self.singly = true;
        self
    }

    /// Returns the columns at these indexes, one per value of a call; in calls on pairs of samples
    /// those at the positions `second` are the second one's.
    pub fn columns(&mut self, columns: &[usize], second: &[usize]) -> PyResult<WireValues> {
        let (mut texts, mut constants): (_, Vec<PlacedColumn>) = (Vec::new(), Vec::new());
        let mut lists: BTreeMap<(bool, Vec<usize>), Vec<PlacedColumn>> = BTreeMap::new();
        for (position, column) in columns.iter().copied().enumerate() {
            match &self.sources[column] {
                Column::Const(_) => constants.push((column, position)),
                Column::List(list) => match self.text(column, list.bind(self.py))? {
                    Some(text) => texts.push((position, text)),
                    None => {
                        let with = if self.singly { vec![column] } else { self.users[column].clone() };
                        lists.entry((second.contains(&position), with)).or_default().push((column, position));
                    }
                },
            }
        }
        let pickled = lists.into_values().map(|mut together| {
            together.sort_unstable();
            let (columns, positions): (Vec<usize>, Vec<usize>) = together.into_iter().unzip();
            Ok((positions, self.pickled(columns)?))
        });
        let pickled = pickled.collect::<PyResult<Vec<_>>>()?;
        constants.sort_unstable();
        let (same, positions): (Vec<usize>, Vec<usize>) = constants.into_iter().unzip();
        let constants = if same.is_empty() { None } else { Some((positions, self.constants(same)?)) };
        let of_pickled = pickled.iter().flat_map(|(_, pickled)| &pickled.modules);
        let of_constants = constants.iter().flat_map(|(_, constants)| &constants.modules);
        let modules = of_pickled.chain(of_constants).cloned().collect();
        Ok(WireValues { width: columns.len(), texts, pickled, constants, modules })
    }

    /// These columns, which are the same for all samples, pickled together.
    fn constants(&mut self, columns: Vec<usize>) -> PyResult<Arc<Constants>> {
        if let Some(known) = self.constants.get(&columns) {
            return Ok(known.clone());
        }
        let value = |column: &usize| match &self.sources[*column] {
            Column::Const(value) => value.bind(self.py).clone(),
            Column::List(list) => list.bind(self.py).clone().into_any(),
        };
        let diagnose = |error| unpicklable(&value(&columns[0]), columns[0], None, error);
        let mut modules = Modules::new();
        let pickle = self.dumps_one(columns.iter().map(value), &mut modules).map_err(diagnose)?;
        let mut hasher = DefaultHasher::new();
        pickle.hash(&mut hasher);
        let constants = Arc::new(Constants { number: hasher.finish(), pickle, modules });
        self.constants.insert(columns, constants.clone());
        Ok(constants)
    }

    fn text(&mut self, column: usize, list: &Bound<'py, PyList>) -> PyResult<Option<Arc<Texts>>> {
        if self.texts[column].is_none() {
            self.texts[column] = Some(Texts::of(list)?.map(Arc::new));
        }
        Ok(self.texts[column].clone().flatten())
    }

    /// These columns pickled together, in blocks; a block that came out too large makes the next
    /// ones smaller.
    fn pickled(&mut self, columns: Vec<usize>) -> PyResult<Arc<PickledColumns>> {
        if let Some(known) = self.pickled.get(&columns) {
            return Ok(known.clone());
        }
        let list = |column: &usize| match &self.sources[*column] {
            Column::List(list) => Some((*column, list.bind(self.py))),
            Column::Const(_) => None,
        };
        let lists: Vec<(usize, &Bound<'py, PyList>)> = columns.iter().filter_map(list).collect();
        let (mut starts, mut blobs, mut modules) = (Vec::new(), Vec::new(), Modules::new());
        let (mut at, mut size) = (0, self.block);
        while at < self.samples {
            let end = (at + size).min(self.samples);
            let block = PyList::new(self.py, lists.iter().map(|(_, list)| list.get_slice(at, end)))?;
            let pickles = self.dumps(&block, &mut modules).map_err(|error| self.diagnose(&lists, at..end, error))?;
            match pickles.as_slice() {
                [together] => {
                    if together.len() > BLOCK_BYTES {
                        size = (size / 2).max(1);
                    }
                    starts.push(at);
                }
                singly => starts.extend((at..end).take(singly.len())),
            }
            blobs.extend(pickles);
            at = end;
        }
        let pickled = Arc::new(PickledColumns { modules, starts, blobs, samples: self.samples });
        self.pickled.insert(columns, pickled.clone());
        Ok(pickled)
    }

    /// The error of a block, with the value that can't be pickled.
    fn diagnose(&self, lists: &[(usize, &Bound<'py, PyList>)], samples: std::ops::Range<usize>, error: PyErr) -> PyErr {
        if !error.is_instance_of::<PyException>(self.py) {
            return error; // Ctrl-C is nobody's fault
        }
        for (column, list) in lists {
            for sample in samples.clone() {
                if let Ok(value) = list.get_item(sample)
                    && let Err(error) = self.dumps_one(std::iter::once(value.clone()), &mut Modules::new())
                {
                    return unpicklable(&value, *column, Some(sample), error);
                }
            }
        }
        error
    }

    /// These columns of some samples: one pickle, or one per sample. Adds the modules that
    /// unpickling them imports.
    fn dumps(&self, columns: &Bound<'py, PyList>, modules: &mut Modules) -> PyResult<Vec<Vec<u8>>> {
        let (pickles, names): (Bound<'py, PyList>, Vec<PyBackedStr>) = self.dumps.call1((columns,))?.extract()?;
        names.iter().for_each(|name| _ = modules.contains(&**name) || modules.insert(Arc::from(&**name)));
        pickles.iter().map(|pickle| Ok(pickle.cast::<PyBytes>()?.as_bytes().to_vec())).collect()
    }

    /// These values, as columns of one sample.
    fn dumps_one(&self, values: impl Iterator<Item = Bound<'py, PyAny>>, modules: &mut Modules) -> PyResult<Vec<u8>> {
        let columns = values.map(|value| PyList::new(self.py, [value])).collect::<PyResult<Vec<_>>>()?;
        Ok(self.dumps(&PyList::new(self.py, columns)?, modules)?.concat())
    }
}

/// `TypeError(message, column, sample)`: the package, which knows the columns by name, makes a
/// sentence of it.
fn unpicklable(value: &Bound<'_, PyAny>, column: usize, sample: Option<usize>, error: PyErr) -> PyErr {
    let py = value.py();
    if !error.is_instance_of::<PyException>(py) {
        return error;
    }
    let kind = value.get_type().name().map_or_else(|_| "object".to_owned(), |name| name.to_string());
    let raised = PyTypeError::new_err((format!("a {kind} can't be pickled: {}", error.value(py)), column, sample));
    raised.set_cause(py, Some(error));
    raised
}
