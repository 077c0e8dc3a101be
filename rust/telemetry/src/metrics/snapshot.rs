//! Data shown: the numbers of an engine at one moment, and its calls in flight.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use guerdon_core::batch::Batch;
use guerdon_core::report::Usage;
use serde::Serialize;

/// An engine, as the server sees it.
pub trait Source: Send + Sync + 'static {
    /// The numbers now; `None` once the engine is gone. It waits for nobody.
    fn snapshot(&self) -> Option<Snapshot>;

    /// Returns the calls in flight now, with stacks if `stacks` is set. Called where waiting is
    /// allowed, and takes no longer than `within` by much.
    fn state(&self, stacks: bool, within: Duration) -> State;
}

/// Identity of the process and its dispatcher.
#[derive(Clone, Debug, Serialize)]
pub struct Identity {
    pub version: &'static str,
    pub pid: u32,
    /// Rank of this process in the training, from 0.
    pub rank: u32,
    pub host: String,
    /// The version of Python.
    pub python: String,
    /// The program, as it was called.
    pub program: String,
    /// Unix time.
    #[serde(serialize_with = "unix_time")]
    pub started: SystemTime,
}

pub fn unix_time<S: serde::Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(unix_seconds(*time))
}

#[must_use]
pub fn unix_seconds(time: SystemTime) -> f64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// Numbers of an engine.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub functions: Vec<Function>,
    pub endpoints: Vec<Endpoint>,
    /// Isolation of each code reward's programs: the function, the level, and the layers that hold
    /// and those that are missing, with commas between them.
    pub isolations: Vec<[String; 4]>,
    /// Nodes of an engine whose calls run on some.
    pub nodes: Vec<Node>,
    /// By name: as `Dispatcher.stats` has them.
    pub stats: BTreeMap<&'static str, u64>,
}

/// Figures of one function.
#[derive(Clone, Debug)]
pub struct Function {
    pub name: String,
    pub lane: &'static str,
    /// Calls that a lane has.
    pub in_flight: usize,
    /// Usage of judges and reward services.
    pub usage: Option<Usage>,
    /// True if that is counted in tokens.
    pub tokens: bool,
    /// True if a price is known for it.
    pub priced: bool,
    /// Cache of pure functions.
    pub cache: Option<Cache>,
    /// State of a limit's breaker: whether its circuit breaker is open.
    pub breaker_open: Option<bool>,
}

/// Samples whose calls need not be made, and those looked up in vain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cache {
    pub shared: u64,
    pub hits: u64,
    pub misses: u64,
    /// True if outcomes are kept in a folder: else only `shared` means something.
    #[serde(skip)]
    pub kept: bool,
}

/// One endpoint of a judge or reward service.
#[derive(Clone, Debug, Serialize)]
pub struct Endpoint {
    /// The function, of a panel with the member's name behind a slash.
    pub function: String,
    /// Its name in a label.
    #[serde(skip)]
    pub place: String,
    pub url: String,
    pub address: Option<String>,
    pub weight: f64,
    pub breaker: &'static str,
    pub in_flight: usize,
    pub answered: u64,
    pub failed: u64,
    pub deferred: u64,
    pub p50_s: Option<f64>,
}

/// A node that calls run on.
#[derive(Clone, Debug, Serialize)]
pub struct Node {
    pub name: String,
    /// `connecting`, `ready`, `draining` or `lost`.
    pub state: &'static str,
    /// Its workers.
    pub slots: usize,
    /// Frames, calls and their bytes that it has.
    pub frames: usize,
    pub calls: usize,
    pub bytes: usize,
    /// Calls that it has ended.
    pub ended: u64,
    /// Why it was lost.
    pub reason: Option<String>,
    /// Counters of its workers and threads, as it last said.
    pub stats: BTreeMap<&'static str, u64>,
}

/// Work of an engine that is not done.
#[derive(Clone, Default)]
pub struct State {
    pub batches: Vec<Arc<Batch>>,
    pub calls: Vec<Call>,
    pub workers: Vec<Worker>,
}

/// A call in flight.
#[derive(Clone, Debug, Serialize)]
pub struct Call {
    pub function: String,
    pub lane: &'static str,
    pub batch: u64,
    /// Its first sample, and how many it has.
    pub sample: usize,
    pub samples: usize,
    pub attempt: u16,
    pub phase: &'static str,
    pub seconds: f64,
    /// Its place: the worker's pid, a thread or loop, a server.
    pub place: String,
    pub stack: Option<String>,
    /// Reason why there is no stack.
    pub no_stack: Option<String>,
}

/// A worker process.
#[derive(Clone, Debug, Serialize)]
pub struct Worker {
    pub pid: i32,
    pub rss_bytes: Option<u64>,
    /// Function of its call.
    pub function: Option<String>,
    pub sample: Option<usize>,
    pub seconds: Option<f64>,
}
