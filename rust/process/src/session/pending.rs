//! Events that a session waits for: frames that its worker gives back, a stack that it was asked
//! for.

use tokio::task::JoinHandle;

/// Frames are being taken back.
pub(super) struct PendingReturn {
    pub asked_ns: u64,
    pub collected: bool,
}

/// A pending question for a worker's location.
pub(super) struct StackAnswer {
    pub claim: u64,
    pub answer: AbortOnDrop,
}

/// A task that nobody waits for any more once this is dropped.
pub(super) struct AbortOnDrop(pub JoinHandle<Option<String>>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
