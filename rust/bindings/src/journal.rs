//! The journal of an engine, and the streams that killed writers left.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use guerdon_core::clock::Clock;
use guerdon_inprocess::supervisor::{Source, SupervisorQueue, SupervisorRequest};
use guerdon_telemetry::journal::{Journal, JournalConfig, JournalSources, Recovery, TextSource, recover};
use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::gil;
use crate::location;
use crate::values::journal_texts::JournalTexts;
use crate::values::released::ReleasedValues;

/// The longest that `close` waits for a journal's last part. Rows that are not finished then are on
/// disk all the same, for the next reader to finish.
const CLOSE: Duration = Duration::from_secs(10);
/// The longest that it waits for values that the journal is reading.
const CLOSE_TEXTS: Duration = Duration::from_secs(1);

/// Failures after nobody serves the engine's requests.
#[derive(Default)]
struct LateTroubles {
    /// Written by `close`.
    closing: AtomicBool,
    reasons: Mutex<Vec<String>>,
}

/// The journal of an engine, and what reads texts for it.
pub struct EngineJournal {
    journal: Arc<Journal>,
    texts: Arc<JournalTexts>,
    late: Arc<LateTroubles>,
}

impl EngineJournal {
    /// Starts it. `encode(values)` makes JSON of the values of a column.
    pub fn start(
        config: JournalConfig,
        encode: Py<PyAny>,
        clock: Clock,
        requests: &Arc<SupervisorQueue>,
        released: &Arc<ReleasedValues>,
    ) -> std::io::Result<Self> {
        let texts = Arc::new(JournalTexts::new(encode, released.clone()));
        let source = (!config.texts.is_empty()).then(|| texts.clone() as Arc<dyn TextSource>);
        let late = Arc::<LateTroubles>::default();
        let (kept, requests, place) = (late.clone(), requests.clone(), config.folder.display().to_string());
        let on_trouble = move |why: &str| {
            let (place, why) = (place.clone(), why.to_owned());
            if kept.closing.load(Ordering::Acquire) {
                kept.reasons.lock().push(why);
            } else {
                requests.push(SupervisorRequest::Trouble { source: Source::Journal, place, why });
            }
        };
        let on_trouble = Box::new(on_trouble);
        let sources = JournalSources { describe: location::described, on_trouble, clock, texts: source };
        let journal = Arc::new(Journal::start(config, sources)?);
        Ok(Self { journal, texts, late })
    }

    /// Ends it, and waits for its last part.
    pub fn close(&self) {
        self.late.closing.store(true, Ordering::Release);
        self.journal.close(CLOSE);
        self.texts.forbid(CLOSE_TEXTS);
    }

    /// Returns the failures while it was closed.
    pub fn troubles(&self) -> Vec<String> {
        std::mem::take(&mut *self.late.reasons.lock())
    }

    /// Returns the journal, to be counted.
    pub const fn journal(&self) -> &Arc<Journal> {
        &self.journal
    }
}

/// (parts, rows, streams that broke off, bytes of those messages, [(path, why it stays)])
type RecoveredRow = (u64, u64, u64, u64, Vec<(PathBuf, String)>);

/// Makes Parquet files of the streams in a folder whose writers died.
#[pyfunction]
pub fn recover_journal(py: Python<'_>, folder: PathBuf) -> PyResult<RecoveredRow> {
    let Recovery { parts, rows, cut, cut_bytes, left } = gil::detached(py, || recover(&folder))?;
    Ok((parts, rows, cut, cut_bytes, left))
}
