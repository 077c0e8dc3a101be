//! Problems of a journal, reported once.

use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::Mutex;

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

type ProblemListener = Box<dyn Fn(&str) + Send + Sync>;

/// Tells each kind of trouble once.
#[derive(Default)]
pub(crate) struct ProblemReports {
    /// The kinds that were reported.
    reported: AtomicU8,
    /// Written once, before there are rows.
    listener: Mutex<Option<ProblemListener>>,
    /// Problems from the time without a listener.
    unheard: Mutex<Vec<String>>,
}

impl ProblemReports {
    /// Sets the listener, on the writer's thread.
    pub(crate) fn listen(&self, listener: impl Fn(&str) + Send + Sync + 'static) {
        for reason in std::mem::take(&mut *self.unheard.lock()) {
            listener(&reason);
        }
        *self.listener.lock() = Some(Box::new(listener));
    }

    pub(crate) fn tell(&self, kind: Problem, reason: impl FnOnce() -> String) {
        if self.reported.fetch_or(kind as u8, Ordering::Relaxed) & kind as u8 != 0 {
            return;
        }
        match &*self.listener.lock() {
            Some(listener) => listener(&reason()),
            None => self.unheard.lock().push(reason()),
        }
    }
}
