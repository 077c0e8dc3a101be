//! Configuration of the remote lane.

use std::sync::Arc;
use std::time::Duration;

use guerdon_core::lane::{CloseFuture, Lane};

use crate::wire::Digest;

/// Makes the lane that runs calls in this process when no node is left.
pub type LocalLane = Box<dyn Fn() -> Arc<dyn Lane> + Send + Sync>;
/// Takes the sentence of a warning.
pub type Warn = Arc<dyn Fn(String) + Send + Sync>;
/// Takes lines that a node's workers printed, with its name; never waits.
pub type Print = Arc<dyn Fn(&str, &[u8]) + Send + Sync>;
/// Waits for a moment until the output so far is written.
pub type LastWords = Box<dyn Fn() -> CloseFuture + Send + Sync>;

/// Executor of a function's calls on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RunsOn {
    /// The node's workers, which all such functions share.
    #[default]
    Workers,
    /// This many threads of its agent, each with one frame at a time.
    Threads(usize),
    /// An event loop of its agent, with this many calls at a time.
    Loop(usize),
}

impl RunsOn {
    /// Returns the number of frames that make progress at a time, with this number of workers.
    pub(crate) const fn parallelism(self, workers: usize) -> usize {
        match self {
            Self::Workers => workers,
            Self::Threads(width) | Self::Loop(width) => width,
        }
    }

    pub(crate) const fn is_loop(self) -> bool {
        matches!(self, Self::Loop(_))
    }
}

/// See the module.
pub struct RemoteConfig {
    /// Digest of the functions: an agent with other functions is refused.
    pub digest: Digest,
    /// The most calls in one frame, per function.
    pub frame_calls: Vec<usize>,
    /// Executor of each function.
    pub runs_on: Vec<RunsOn>,
    /// The most bytes in one frame.
    pub frame_bytes: usize,
    /// The most bytes that a node holds.
    pub node_bytes: usize,
    /// A node that sends nothing for this long is lost.
    pub silence: Duration,
    pub local: LocalLane,
    pub warn: Warn,
    pub print: Print,
    pub last_words: LastWords,
}

impl RemoteConfig {
    /// Frames of 64 calls or 256 KB, 16 MB per node, half a minute of silence; no warnings.
    #[must_use]
    pub fn new(digest: Digest, functions: usize, local: LocalLane) -> Self {
        Self {
            digest,
            frame_calls: vec![64; functions],
            runs_on: vec![RunsOn::default(); functions],
            frame_bytes: 256 << 10,
            node_bytes: 16 << 20,
            silence: Duration::from_secs(30),
            local,
            warn: Arc::new(|_| {}),
            print: Arc::new(|_, _| {}),
            last_words: Box::new(|| Box::pin(async {})),
        }
    }
}
