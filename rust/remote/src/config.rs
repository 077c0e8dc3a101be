//! Configuration of the remote lane.

use std::sync::Arc;
use std::time::Duration;

use guerdon_core::lane::{CloseFuture, Lane};

use crate::wire::Digest;

/// Makes the lane that runs calls here when no node is left.
pub type LocalLane = Box<dyn Fn() -> Arc<dyn Lane> + Send + Sync>;
/// Takes a sentence to warn with.
pub type Warn = Arc<dyn Fn(String) + Send + Sync>;
/// Takes lines that workers of a node printed; never waits.
pub type Print = Arc<dyn Fn(&str, &[u8]) + Send + Sync>;
/// Waits, for a moment, until the output so far is written.
pub type LastWords = Box<dyn Fn() -> CloseFuture + Send + Sync>;

/// Lane that runs the calls of a function at a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RunsOn {
    /// Its workers, which all such functions share.
    #[default]
    Workers,
    /// This many threads of its agent, each with a frame at a time.
    Threads(usize),
    /// An event loop of its agent, with this many calls at a time.
    Loop(usize),
}

impl RunsOn {
    /// Returns the number of frames that make progress there at a time, with this number of
    /// workers.
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
    /// Digest that tells the functions from those of other drivers: an agent that has others is
    /// refused.
    pub digest: Digest,
    /// By function: the most calls in one frame.
    pub frame_calls: Vec<usize>,
    /// By function.
    pub runs_on: Vec<RunsOn>,
    /// The most bytes in one frame.
    pub frame_bytes: usize,
    /// The most bytes that a node holds.
    pub node_bytes: usize,
    /// A node that says nothing for so long is lost.
    pub silence: Duration,
    pub local: LocalLane,
    pub warn: Warn,
    pub print: Print,
    pub last_words: LastWords,
}

impl RemoteConfig {
    /// Frames of 64 calls or 256 KB, 16 MB a node, half a minute of silence; without warnings.
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
