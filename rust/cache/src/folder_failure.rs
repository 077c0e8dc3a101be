//! Failures of a folder: reported once.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tracing::warn;

type Listener = Box<dyn Fn(&str) + Send + Sync>;

/// Failure of a folder.
#[derive(Default)]
pub(crate) struct FolderFailure {
    reported: Mutex<(Option<String>, Option<Listener>)>,
    /// True if the folder is not used any more.
    over: AtomicBool,
}

impl FolderFailure {
    /// Warns, the first time.
    pub(crate) fn warn(&self, reason: &str) {
        let mut reported = self.reported.lock();
        if reported.0.is_none() {
            warn!("a cache folder can't be used, or only in part");
            reported.0 = Some(reason.to_owned());
            if let Some(listener) = &reported.1 {
                listener(reason);
            }
        }
    }

    /// Warns, and stops all use of the folder.
    pub(crate) fn end(&self, reason: &str) {
        self.over.store(true, Ordering::Relaxed);
        self.warn(reason);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Calls `listener` with the reason of a failure, at once if there was one.
    pub(crate) fn listen(&self, listener: Listener) {
        let mut reported = self.reported.lock();
        if let Some(reason) = &reported.0 {
            listener(reason);
        }
        reported.1 = Some(listener);
    }
}
