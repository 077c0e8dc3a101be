//! State that the writer's thread shares with the threads that complete groups, and with the
//! handle.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use guerdon_core::batch::Batch;
use guerdon_core::payload::SharedPayload;

use crate::journal::problems::{Problem, ProblemListener, ProblemReports};
use crate::journal::texts::TextColumn;
use crate::queue::{Bounds, Queue};

/// Bounds of waiting rows.
const MOST_ROWS: usize = 1 << 20;
const MOST_BYTES: usize = 256 << 20;
/// Assumed size of a sample's texts until some were read.
const BYTES_OF_TEXTS: u64 = 4096;

/// Rows written so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub rows: u64,
    pub dropped: u64,
    pub bytes: u64,
}

/// Groups of one batch that are complete.
pub(crate) struct CompleteGroups {
    pub batch: Arc<Batch>,
    pub groups: Vec<usize>,
    /// Present if texts are written.
    pub payload: Option<SharedPayload>,
}

/// See the module.
pub(crate) struct WriterState {
    pub queue: Queue<CompleteGroups>,
    pub problems: ProblemReports,
    /// Rows and bytes on disk, and rows that the disk did not take. Written by the writer.
    pub rows: AtomicU64,
    pub bytes: AtomicU64,
    pub lost: AtomicU64,
    /// Approximate bytes of a sample's texts. Written by the writer.
    text_bytes: AtomicU64,
}

impl WriterState {
    pub(crate) fn new(on_trouble: ProblemListener) -> Self {
        Self {
            queue: Queue::new(Bounds { rows: MOST_ROWS, bytes: MOST_BYTES }),
            problems: ProblemReports::new(on_trouble),
            rows: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            text_bytes: AtomicU64::new(BYTES_OF_TEXTS),
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counts { rows: of(&self.rows), dropped: of(&self.lost) + self.queue.dropped(), bytes: of(&self.bytes) }
    }

    /// Returns the approximate bytes of a sample's texts.
    pub(crate) fn text_bytes(&self) -> usize {
        usize::try_from(self.text_bytes.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
    }

    /// Updates the bytes of a sample's texts, which the bound of the queue depends on.
    pub(crate) fn measure(&self, columns: &[TextColumn], samples: usize) {
        let bytes: usize = columns.iter().flat_map(|column| &column.values).flatten().map(String::len).sum();
        let mean = (bytes / samples.max(1)) as u64;
        let known = self.text_bytes.load(Ordering::Relaxed);
        self.text_bytes.store((known + mean).div_ceil(2), Ordering::Relaxed);
    }
}

/// Guard on the writer's thread: ends the queue however the thread ends, and reports a panic.
pub(crate) struct WriterGuard(pub Arc<WriterState>);

impl Drop for WriterGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.problems.report(Problem::Writer, || "its thread failed, and nothing more is written".to_owned());
        }
        self.0.queue.end();
    }
}
