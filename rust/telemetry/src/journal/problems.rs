//! Problems of a journal, reported once.

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
    /// A defect.
    Writer = 16,
    /// A stream stays one: its rows are there, so that it must not count as lost rows.
    Conversion = 32,
}

pub(crate) type ProblemListener = Box<dyn Fn(&str) + Send + Sync>;

/// Tells each kind of trouble once, on the writer's thread.
pub(crate) struct ProblemReports {
    /// The kinds that were reported.
    reported: AtomicU8,
    listener: ProblemListener,
}

impl ProblemReports {
    pub(crate) const fn new(listener: ProblemListener) -> Self {
        Self { reported: AtomicU8::new(0), listener }
    }

    pub(crate) fn tell(&self, kind: Problem, reason: impl FnOnce() -> String) {
        if self.reported.fetch_or(kind as u8, Ordering::Relaxed) & kind as u8 == 0 {
            (self.listener)(&reason());
        }
    }
}
