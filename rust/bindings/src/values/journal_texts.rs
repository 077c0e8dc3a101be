//! Texts and chosen columns of a journal, read out of batches on the writer's thread.
//!
//! - Under the GIL only the addresses of strings are noted: the batch, which the writer holds,
//!   keeps them there. Other values become JSON in Python.
//! - The writer attaches to Python only here, and not any more once that was forbidden: the
//!   interpreter is about to end then.

use std::sync::Arc;
use std::time::Duration;

use guerdon_core::payload::SharedPayload;
use guerdon_telemetry::journal::{Kind, TextColumn, TextSource};
use guerdon_wire::text::RawText;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

use crate::gil;
use crate::values::columns::Column;
use crate::values::open_batch::OpenBatchPayload;
use crate::values::released::ReleasedValues;
use crate::values::text::Note;
use crate::values::whole_batch::WholeBatchPayload;

/// One column as it was read under the GIL.
enum ColumnTexts {
    Strings(Vec<Option<Note>>),
    Json(Vec<Option<String>>),
}

/// Reads the texts of one engine's batches.
pub struct JournalTexts {
    encode: Py<PyAny>,
    released: Arc<ReleasedValues>,
    /// True while the writer may attach to Python. Held while it does.
    allowed: Mutex<bool>,
}

impl JournalTexts {
    pub fn new(encode: Py<PyAny>, released: Arc<ReleasedValues>) -> Self {
        Self { encode, released, allowed: Mutex::new(true) }
    }

    /// Keeps the writer away from Python from now on. Waits for it if it is there, but not for
    /// ever: a value may run user code.
    pub fn forbid(&self, timeout: Duration) {
        if let Some(mut allowed) = self.allowed.try_lock_for(timeout) {
            *allowed = false;
        }
    }

    /// One column of these samples; none for a column that the batch lacks, and of samples that
    /// never came to an open batch.
    fn column(&self, py: Python<'_>, column: Option<&Column>, samples: &[u32]) -> PyResult<ColumnTexts> {
        let value = |sample: &u32| match column {
            Some(Column::Const(value)) => Ok(value.bind(py).clone()),
            Some(Column::List(list)) if (*sample as usize) < list.bind(py).len() => {
                list.bind(py).get_item(*sample as usize)
            }
            _ => Ok(py.None().into_bound(py)),
        };
        let mut notes = Vec::with_capacity(samples.len());
        for sample in samples {
            let value = value(sample)?;
            if value.is_none() {
                notes.push(None);
            } else if let Ok(text) = value.cast::<PyString>() {
                notes.push(Some(Note::of(text)?));
            } else {
                break;
            }
        }
        if notes.len() == samples.len() {
            return Ok(ColumnTexts::Strings(notes));
        }
        let values = samples.iter().map(value).collect::<PyResult<Vec<_>>>()?;
        self.encode.bind(py).call1((PyList::new(py, values)?,))?.extract().map(ColumnTexts::Json)
    }

    fn columns(&self, py: Python<'_>, payload: &SharedPayload, samples: &[u32]) -> PyResult<Vec<ColumnTexts>> {
        let values = payload.as_any();
        if let Some(whole) = values.downcast_ref::<WholeBatchPayload>() {
            let columns = whole.journal().0.iter();
            return columns.map(|column| self.column(py, column.as_ref(), samples)).collect();
        }
        let Some(journal) = values.downcast_ref::<OpenBatchPayload>().and_then(|open| open.0.journal()) else {
            return Ok(Vec::new());
        };
        journal.0.iter().map(|column| self.column(py, column.as_ref(), samples)).collect()
    }

    /// Drops values of an open batch: what was read need not be kept.
    fn let_go(&self, py: Python<'_>, payload: &SharedPayload, samples: &[u32]) -> PyResult<()> {
        let open = payload.as_any().downcast_ref::<OpenBatchPayload>();
        if let Some(journal) = open.and_then(|open| open.0.journal()) {
            self.released.keep_list(&journal.forget(py, samples)?);
        }
        Ok(())
    }

    /// Runs `work` with the GIL, unless that was forbidden or fails.
    fn attached<T>(&self, work: impl FnOnce(Python<'_>) -> PyResult<T>) -> Option<T> {
        let allowed = self.allowed.lock();
        if *allowed { gil::attached_writer(work)?.ok() } else { None }
    }
}

impl TextSource for JournalTexts {
    fn read(&self, payload: &SharedPayload, samples: &[u32]) -> Option<Vec<TextColumn>> {
        let read = self.attached(|py| self.columns(py, payload, samples))?;
        let texts = |read: ColumnTexts| match read {
            ColumnTexts::Json(values) => TextColumn { kind: Kind::Json, values },
            ColumnTexts::Strings(notes) => {
                let text = |note: Note| {
                    // The bytes lie where `payload` noted them, and it keeps them alive.
                    let raw: RawText<'_> = note.raw();
                    raw.to_text()
                };
                TextColumn { kind: Kind::Text, values: notes.into_iter().map(|note| note.map(text)).collect() }
            }
        };
        let columns = read.into_iter().map(texts).collect();
        if payload.as_any().is::<OpenBatchPayload>() {
            self.attached(|py| self.let_go(py, payload, samples));
        }
        Some(columns)
    }
}
