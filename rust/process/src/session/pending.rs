//! Events that a session waits for: frames that its worker gives back, and a requested stack.

use tokio::task::JoinHandle;

/// Frames are being taken back.
pub(super) struct PendingReturn {
    pub asked_ns: u64,
    pub collected: bool,
}

/// A pending request for a worker's stack.
pub(super) struct StackAnswer {
    pub claim: u64,
    pub answer: AbortOnDrop,
}

/// A task that is aborted when this is dropped, because nobody waits for it then.
pub(super) struct AbortOnDrop(pub JoinHandle<Option<String>>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
