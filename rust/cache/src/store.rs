//! The store of one folder: memory in front, the database behind it.
//!
//! - A search takes no lock that a write holds, and keeping an outcome never waits.
//! - The first fault gives a warning, later ones none. A folder that can't be used, or is damaged,
//!   is not used any more; outcomes in memory are still found.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use guerdon_core::outcome_cache::{KeptOutcome, OutcomeCache, OutcomeKey};
use parking_lot::Mutex;
use rusqlite::ErrorCode;

use crate::database::{Database, describe};
use crate::entry;
use crate::folder_failure::FolderFailure;
use crate::last_use::now_ms;
use crate::memory::Memory;
use crate::writer::Writer;

/// Milliseconds after which a used entry is marked as used in the folder again.
const MARK_MS: i64 = 60_000;
/// Number of idle connections for reading.
const READERS: usize = 4;

/// Counts of a store since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Bytes that the outcomes of all processes take in the folder.
    pub bytes: u64,
    /// Outcomes that were not written: too large, or too many for the disk.
    pub dropped: u64,
}

/// The outcomes in one folder.
pub struct OutcomeStore {
    folder: PathBuf,
    memory: Memory,
    /// `None` where the folder can't be used.
    writer: Option<Writer>,
    /// Idle connections for reading. Written by readers.
    readers: Mutex<Vec<Database>>,
    failure: Arc<FolderFailure>,
}

impl OutcomeStore {
    /// Opens a folder, which is created if it does not exist, and keeps it within `bytes` bytes.
    #[must_use]
    pub fn open(folder: &Path, bytes: u64) -> Self {
        let failure = Arc::new(FolderFailure::default());
        let writer = match Database::create(folder, bytes) {
            Ok(database) => {
                let writer = Writer::start(database, failure.clone());
                if writer.is_none() {
                    failure.end("there can be no thread that writes it");
                }
                writer
            }
            Err(reason) => {
                failure.end(&reason);
                None
            }
        };
        Self { folder: folder.to_owned(), memory: Memory::new(bytes), writer, readers: Mutex::default(), failure }
    }

    /// Calls `listener` once with the failure of the folder, if it ever fails; at once if it has
    /// failed.
    pub fn on_failure(&self, listener: impl Fn(&str) + Send + Sync + 'static) {
        self.failure.listen(Box::new(listener));
    }

    #[must_use]
    pub fn counts(&self) -> Counts {
        let bytes = self.with_reader(|reader| reader.bytes()).unwrap_or_default();
        Counts { bytes, dropped: self.writer.as_ref().map_or(0, Writer::dropped) }
    }

    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes the waiting entries, for at most `within`. Later outcomes are not written.
    pub fn close(&self, within: Duration) {
        if let Some(writer) = &self.writer {
            writer.close(within);
        }
    }

    /// Returns the result of `read`; `None` if the folder is not used, or is busy.
    fn with_reader<T>(&self, read: impl FnOnce(&mut Database) -> rusqlite::Result<T>) -> Option<T> {
        if self.writer.is_none() || self.failure.is_over() {
            return None;
        }
        let idle = self.readers.lock().pop();
        let done = idle.map_or_else(|| Database::reader(&self.folder), Ok).and_then(|mut reader| {
            let found = read(&mut reader)?;
            let mut readers = self.readers.lock();
            if readers.len() < READERS {
                readers.push(reader);
            }
            Ok(found)
        });
        match done {
            Ok(found) => Some(found),
            Err(error) => {
                if !matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)) {
                    self.failure.end(&describe(&error));
                }
                None
            }
        }
    }

    fn mark(&self, key: OutcomeKey) {
        if let Some(writer) = &self.writer {
            writer.used(key);
        }
    }

    /// Searches the disk for outcomes that memory lacks.
    fn find_on_disk(&self, keys: &[OutcomeKey], found: &mut [Option<Arc<KeptOutcome>>]) {
        let missing: Vec<usize> = (0..keys.len()).filter(|index| found[*index].is_none()).collect();
        if missing.is_empty() {
            return;
        }
        let wanted: Vec<OutcomeKey> = missing.iter().map(|index| keys[*index]).collect();
        let Some(rows) = self.with_reader(|reader| reader.read(&wanted)) else { return };
        let now_ms = now_ms();
        for (index, row) in missing.into_iter().zip(rows) {
            let Some(row) = row else { continue };
            // The outcome of a damaged entry is computed and kept again.
            let Some(outcome) = entry::decode(&keys[index], &row.content) else { continue };
            let outcome = Arc::new(outcome);
            let marked = now_ms.saturating_sub(row.used_ms) > MARK_MS;
            if marked {
                self.mark(keys[index]);
            }
            let marked_ms = if marked { now_ms } else { row.used_ms };
            self.memory.keep(keys[index], outcome.clone(), marked_ms);
            found[index] = Some(outcome);
        }
    }
}

impl OutcomeCache for OutcomeStore {
    fn find(&self, keys: &[OutcomeKey]) -> Vec<Option<Arc<KeptOutcome>>> {
        let now_ms = now_ms();
        let in_memory = |key: &OutcomeKey| {
            let entry = self.memory.find(key)?;
            let marked = entry.marked_ms.load(Ordering::Relaxed);
            if now_ms.saturating_sub(marked) > MARK_MS {
                entry.marked_ms.store(now_ms, Ordering::Relaxed);
                self.mark(*key);
            }
            Some(entry.outcome.clone())
        };
        let mut found: Vec<_> = keys.iter().map(in_memory).collect();
        self.find_on_disk(keys, &mut found);
        found
    }

    fn keep(&self, key: OutcomeKey, outcome: Arc<KeptOutcome>) {
        self.memory.keep(key, outcome.clone(), now_ms());
        if let Some(writer) = &self.writer {
            writer.keep(key, outcome);
        }
    }
}
