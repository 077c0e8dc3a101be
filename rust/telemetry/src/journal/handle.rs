//! The journal of one dispatcher, as its engine has it.
//!
//! - It observes batches: whoever completes a group hands it over and goes on.
//! - After `close` rows that still come are dropped and counted.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use guerdon_core::batch::Batch;
use guerdon_core::clock::Clock;
use guerdon_core::observer::BatchObserver;
use guerdon_core::outcome::Note;

use crate::journal::part::PartNames;
use crate::journal::rows::{Constants, FunctionName};
use crate::journal::shared::{AtEnd, CompleteGroups, Counts, Shared};
use crate::journal::texts::TextSource;
use crate::journal::writer::Writer;

/// About what a row takes while it waits, in its batch.
const BYTES_OF_ROW: usize = 128;
/// A thread's name has 15 bytes at most.
const THREAD: &str = "guerdon journal";
/// Batches of one engine, by their bits: more than any makes.
const BATCH_BITS: u32 = 24;

/// Configuration of a journal.
pub struct JournalConfig {
    pub folder: PathBuf,
    pub run: String,
    pub rank: i32,
    pub functions: Vec<FunctionName>,
    /// Columns of texts: `prompt`, `completion`, `column_…`.
    pub texts: Vec<String>,
    /// A JSON object for the metadata of each part: what its rows do not say of the dispatcher.
    pub dispatcher: String,
    /// Bytes of a stream at which the next part begins.
    pub rotate: u64,
    /// Makes a reason and a traceback of a note.
    pub describe: fn(Note) -> (String, Option<String>),
    /// The engine's.
    pub clock: Clock,
}

pub struct Journal {
    shared: Arc<Shared>,
    reads_texts: bool,
    functions: usize,
}

/// Returns the first number of an engine's batches, so that those of two engines of a rank differ:
/// of one process by the count, of a run that was started again by the time.
fn first_batch(now: Duration) -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let seconds = now.as_secs() & ((1 << 28) - 1); // with `BATCH_BITS` exact in a float
    let next = |last: u64| Some(seconds.max(last + 1));
    let before = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).unwrap_or_default();
    seconds.max(before + 1) << BATCH_BITS
}

impl Journal {
    /// Starts the writer. `source` reads texts, where there are columns of them.
    pub fn start(config: JournalConfig, source: Option<Arc<dyn TextSource>>) -> io::Result<Self> {
        let JournalConfig { folder, run, rank, functions, texts, dispatcher, rotate, describe, clock } = config;
        let count = functions.len();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let unix_us = i64::try_from(now.as_micros()).unwrap_or(i64::MAX);
        let epoch_us = unix_us - i64::try_from(clock.now_ns() / 1000).unwrap_or_default();
        let constants = Constants::new(&run, rank, functions, describe, first_batch(now), epoch_us);
        let shared = Arc::new(Shared::new());
        let reads_texts = !texts.is_empty();
        let names = PartNames::new(folder, &run, rank);
        let writer = Writer::new(shared.clone(), source, names, texts, dispatcher, rotate, Arc::new(constants));
        let end = AtEnd(shared.clone());
        thread::Builder::new().name(THREAD.to_owned()).spawn(move || {
            let _end = end;
            writer.run();
        })?;
        Ok(Self { shared, reads_texts, functions: count })
    }

    /// Sets the listener for problems, on the writer's thread.
    pub fn on_trouble(&self, listener: impl Fn(&str) + Send + Sync + 'static) {
        self.shared.problems.listen(listener);
    }

    #[must_use]
    pub fn counts(&self) -> Counts {
        self.shared.counts()
    }

    /// Lets no more rows in; the writer ends by itself when it has written the waiting rows.
    pub fn end(&self) {
        self.shared.queue.end();
    }

    /// Ends, and waits for the writer for at most so long; whether it has ended.
    pub fn close(&self, timeout: Duration) -> bool {
        self.end();
        self.shared.wait_for_end(timeout)
    }
}

impl BatchObserver for Journal {
    fn groups_completed(&self, batch: &Arc<Batch>, groups: &[usize]) {
        let samples = groups.len() * batch.group_size();
        let rows = samples * self.functions;
        let payload = if self.reads_texts { batch.payload() } else { None };
        let mut bytes = rows * BYTES_OF_ROW;
        if payload.is_some() {
            bytes = bytes.saturating_add(samples.saturating_mul(self.shared.text_bytes()));
        }
        self.shared.queue.push(CompleteGroups { batch: batch.clone(), groups: groups.to_vec(), payload }, rows, bytes);
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.end();
    }
}
