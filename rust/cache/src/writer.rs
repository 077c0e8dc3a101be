//! The thread that writes to the folder, and the queue of its jobs.
//!
//! - The queue is bounded; outcomes for which it has no room are dropped and counted.
//! - Waiting jobs are written together. The thread ends with the last sender of the queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use guerdon_core::outcome_cache::{KeptOutcome, OutcomeKey};
use parking_lot::Mutex;
use rusqlite::ErrorCode;

use crate::database::{Database, describe};
use crate::entry;
use crate::folder_failure::FolderFailure;
use crate::last_use::now_ms;
use crate::memory::weight;

/// The most entries that wait, and their bytes.
const WAITING: usize = 8192;
const WAITING_BYTES: u64 = 64 << 20;
/// The most entries of one transaction, and their bytes.
const TOGETHER: usize = 1024;
const TOGETHER_BYTES: u64 = 256 << 10;
/// Time that the first job waits for others.
const SOON: Duration = Duration::from_millis(20);
/// Time without writes after the disk was full.
const PAUSE: Duration = Duration::from_secs(30);

enum Job {
    Keep(OutcomeKey, Arc<KeptOutcome>),
    Used(OutcomeKey),
}

/// Sending end of the job queue.
pub(crate) struct Writer {
    /// `None` once it was closed.
    jobs: Mutex<Option<SyncSender<Job>>>,
    /// Closed at the end of the thread.
    ended: Mutex<Receiver<()>>,
    counts: Arc<WriteCounts>,
}

#[derive(Default)]
pub(crate) struct WriteCounts {
    /// Bytes that wait. Written by both sides.
    waiting: AtomicU64,
    /// Outcomes that were not kept on disk. Written by both sides.
    dropped: AtomicU64,
}

impl Writer {
    /// Starts the thread; `None` if the system allows no thread.
    pub(crate) fn start(database: Database, failure: Arc<FolderFailure>) -> Option<Self> {
        let (jobs, queue) = sync_channel(WAITING);
        let (running, ended) = sync_channel(0);
        let counts = Arc::new(WriteCounts::default());
        let thread = Thread { database, queue, counts: counts.clone(), failure, paused_until: None };
        let run = move || {
            thread.run();
            drop(running);
        };
        std::thread::Builder::new().name("guerdon-cache".to_owned()).spawn(run).ok()?;
        Some(Self { jobs: Mutex::new(Some(jobs)), ended: Mutex::new(ended), counts })
    }

    pub(crate) fn keep(&self, key: OutcomeKey, outcome: Arc<KeptOutcome>) {
        let bytes = weight(&outcome);
        let waiting = self.counts.waiting.fetch_add(bytes, Ordering::Relaxed);
        if waiting + bytes > WAITING_BYTES || !self.send(Job::Keep(key, outcome)) {
            self.counts.waiting.fetch_sub(bytes, Ordering::Relaxed);
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn used(&self, key: OutcomeKey) {
        self.send(Job::Used(key));
    }

    fn send(&self, job: Job) -> bool {
        match self.jobs.lock().as_ref().map(|jobs| jobs.try_send(job)) {
            Some(Ok(())) => true,
            Some(Err(TrySendError::Full(_) | TrySendError::Disconnected(_))) | None => false,
        }
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.counts.dropped.load(Ordering::Relaxed)
    }

    /// Makes the thread write the waiting entries, for at most `within`.
    pub(crate) fn close(&self, within: Duration) {
        self.jobs.lock().take();
        let _ = self.ended.lock().recv_timeout(within);
    }
}

struct Thread {
    database: Database,
    queue: Receiver<Job>,
    counts: Arc<WriteCounts>,
    failure: Arc<FolderFailure>,
    paused_until: Option<Instant>,
}

impl Thread {
    fn run(mut self) {
        let (mut entries, mut used) = (Vec::new(), Vec::new());
        while let Ok(first) = self.queue.recv() {
            let until = Instant::now() + SOON;
            let mut bytes = self.take(first, &mut entries, &mut used);
            while entries.len() + used.len() < TOGETHER && bytes < TOGETHER_BYTES {
                match self.queue.recv_timeout(until.saturating_duration_since(Instant::now())) {
                    Ok(job) => bytes += self.take(job, &mut entries, &mut used),
                    Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
                }
            }
            self.write(&entries, &used);
            entries.clear();
            used.clear();
        }
    }

    fn take(&self, job: Job, entries: &mut Vec<(OutcomeKey, Vec<u8>)>, used: &mut Vec<OutcomeKey>) -> u64 {
        match job {
            Job::Used(key) => {
                used.push(key);
                0
            }
            Job::Keep(key, outcome) => {
                self.counts.waiting.fetch_sub(weight(&outcome), Ordering::Relaxed);
                let content = entry::encode(&key, &outcome);
                let bytes = content.len() as u64;
                if bytes > self.database.largest() {
                    self.drop_some(1);
                    return 0;
                }
                entries.push((key, content));
                bytes
            }
        }
    }

    fn drop_some(&self, entries: usize) {
        self.counts.dropped.fetch_add(entries as u64, Ordering::Relaxed);
    }

    fn write(&mut self, entries: &[(OutcomeKey, Vec<u8>)], used: &[OutcomeKey]) {
        let is_paused = self.paused_until.is_some_and(|until| Instant::now() < until);
        if is_paused || self.failure.is_over() {
            self.drop_some(entries.len());
            return;
        }
        let Err(error) = self.database.write(entries, used, now_ms()) else {
            self.paused_until = None;
            return;
        };
        self.drop_some(entries.len());
        match error.sqlite_error_code() {
            // Other processes write: these entries are dropped.
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {}
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => self.failure.end(&describe(&error)),
            _ => {
                self.paused_until = Some(Instant::now() + PAUSE);
                self.failure.warn(&format!("{}; what is in it is still found", describe(&error)));
            }
        }
    }
}
