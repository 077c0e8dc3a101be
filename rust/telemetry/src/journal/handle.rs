//! The journal of one dispatcher, as its engine has it.
//!
//! - It observes batches: whoever completes a group hands it over and goes on.
//! - After `close` rows that still come are dropped and counted.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use guerdon_core::batch::Batch;
use guerdon_core::observer::Telemetry;
use parking_lot::Mutex;

use crate::journal::config::{JournalConfig, JournalSources};
use crate::journal::part::PartNames;
use crate::journal::rows::Constants;
use crate::journal::shared::{AtEnd, CompleteGroups, Counts, WriterState};
use crate::journal::writer::Writer;

/// About what a row takes while it waits, in its batch.
const BYTES_OF_ROW: usize = 128;
/// A thread's name has 15 bytes at most.
const THREAD: &str = "guerdon journal";

pub struct Journal {
    shared: Arc<WriterState>,
    /// Disconnected by the writer's end.
    ended: Mutex<Receiver<()>>,
    reads_texts: bool,
    functions: usize,
}

impl Journal {
    /// Starts the writer.
    pub fn start(config: JournalConfig, sources: JournalSources) -> io::Result<Self> {
        let (reads_texts, functions) = (!config.texts.is_empty(), config.functions.len());
        let (ending, ended) = channel();
        let constants = Constants::new(&config, &sources);
        let JournalConfig { folder, run, rank, texts, dispatcher, rotate, .. } = config;
        let shared = Arc::new(WriterState::new(sources.on_trouble));
        let names = PartNames::new(folder, &run, rank);
        let writer = Writer::new(shared.clone(), sources.texts, names, texts, dispatcher, rotate, constants);
        let end = AtEnd { shared: shared.clone(), _ending: ending };
        thread::Builder::new().name(THREAD.to_owned()).spawn(move || {
            let _end = end;
            writer.run();
        })?;
        Ok(Self { shared, ended: Mutex::new(ended), reads_texts, functions })
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
        self.ended.lock().recv_timeout(timeout) == Err(RecvTimeoutError::Disconnected)
    }
}

impl Telemetry for Journal {
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
