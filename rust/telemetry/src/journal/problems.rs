//! Problems of a journal, each kind of which is reported once.

use std::sync::atomic::{AtomicU8, Ordering};

/// Possible problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    /// The folder refuses writes.
    Disk = 1,
    /// Rows come faster than they can be written.
    Overflow = 2,
    /// Texts could not be read.
    Texts = 4,
    /// The end of a stream of a writer that was killed can't be read.
    Recovery = 8,
    /// The writer's thread panicked.
    Writer = 16,
    /// A stream could not become a Parquet file. Its rows are there, so none counts as lost.
    Conversion = 32,
}

pub(crate) type ProblemListener = Box<dyn Fn(&str) + Send + Sync>;

/// Reports each kind of problem once, on the writer's thread.
pub(crate) struct ProblemReports {
    /// The kinds that were reported.
    reported: AtomicU8,
    listener: ProblemListener,
}

impl ProblemReports {
    pub(crate) const fn new(listener: ProblemListener) -> Self {
        Self { reported: AtomicU8::new(0), listener }
    }

    pub(crate) fn report(&self, kind: Problem, reason: impl FnOnce() -> String) {
        if self.reported.fetch_or(kind as u8, Ordering::Relaxed) & kind as u8 == 0 {
            (self.listener)(&reason());
        }
    }
}
