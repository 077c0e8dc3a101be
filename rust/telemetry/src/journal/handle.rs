//! The engine's handle on the journal of one dispatcher.
//!
//! - The thread that completes a group hands it over and goes on.
//! - Rows that come after `end` are dropped and counted.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use guerdon_core::batch::Batch;
use guerdon_core::observer::Telemetry;

use crate::background_work::BackgroundWork;
use crate::journal::config::{JournalConfig, JournalSources};
use crate::journal::rows::Constants;
use crate::journal::shared::{CompleteGroups, Counts, WriterGuard, WriterState};
use crate::journal::writer::Writer;

/// Approximate memory of a row while it waits, in its batch.
const BYTES_OF_ROW: usize = 128;

pub struct Journal {
    shared: Arc<WriterState>,
    ended: BackgroundWork,
    reads_texts: bool,
    functions: usize,
}

impl Journal {
    /// Starts the writer.
    pub fn start(config: JournalConfig, sources: JournalSources) -> io::Result<Self> {
        let (reads_texts, functions) = (!config.texts.is_empty(), config.functions.len());
        let constants = Constants::new(&config, &sources);
        let shared = Arc::new(WriterState::new(sources.on_trouble));
        let writer = Writer::new(config, constants, sources.texts, shared.clone());
        let guard = WriterGuard(shared.clone());
        let ended = BackgroundWork::of_thread("guerdon journal", move || {
            let _guard = guard;
            writer.run();
        })?;
        Ok(Self { shared, ended, reads_texts, functions })
    }

    #[must_use]
    pub fn counts(&self) -> Counts {
        self.shared.counts()
    }

    /// Refuses rows from now on. The writer ends when it has written the waiting rows.
    pub fn end(&self) {
        self.shared.queue.end();
    }

    /// Ends, and waits for the writer for at most `timeout`. Returns whether it has ended.
    pub fn close(&self, timeout: Duration) -> bool {
        self.end();
        self.ended.wait(timeout)
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
