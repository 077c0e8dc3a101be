//! The numbers of an engine at one moment, and its work that is not done.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use guerdon_core::batch::Batch;
use guerdon_core::in_flight::InFlight;
use guerdon_core::report::Usage;
use guerdon_core::scheduler::CallCounts;
use guerdon_core::snapshots::{EndpointSnapshot, NodeSnapshot};
use serde::Serialize;

/// Reads an engine for the server.
pub trait Source: Send + Sync + 'static {
    /// Returns the numbers now, without waiting; `None` once the engine is gone.
    fn snapshot(&self) -> Option<Snapshot>;

    /// Returns the work that is not done, with stacks if `stacks` is set. May wait for about
    /// `within`.
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
    /// Version of Python.
    pub python: String,
    /// Path of the program, as it was started.
    pub program: String,
    /// Unix time.
    pub started: f64,
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
    /// Isolation of each code reward's programs: the function, the level, the active layers and the
    /// missing layers, the last two separated by commas.
    pub isolations: Vec<[String; 4]>,
    /// Nodes of the engine's remote lane, if it has one.
    pub nodes: Vec<NodeSnapshot>,
    /// Counters by their names in `Dispatcher.stats`.
    pub stats: BTreeMap<&'static str, u64>,
}

/// Figures of one function.
#[derive(Clone, Debug)]
pub struct Function {
    pub name: String,
    pub lane: &'static str,
    /// Calls that a lane has.
    pub in_flight: usize,
    /// Usage, of a judge or a reward service.
    pub usage: Option<Usage>,
    /// True if the usage is counted in tokens.
    pub tokens: bool,
    /// True if the function has a price.
    pub priced: bool,
    /// Counts of a pure function; without a cache folder only `shared` has a meaning.
    pub cache: Option<CallCounts>,
    /// True if the function has a cache folder.
    pub cached: bool,
    /// True if the circuit breaker of its limit is open; `None` without a limit.
    pub breaker_open: Option<bool>,
}

/// One endpoint of a judge or reward service.
#[derive(Clone, Debug, Serialize)]
pub struct Endpoint {
    /// The function, and for a panel a slash and the member's name.
    pub function: String,
    /// Its name in a label.
    #[serde(skip)]
    pub label: String,
    #[serde(flatten)]
    pub state: EndpointSnapshot,
}

/// Work of an engine that is not done.
#[derive(Default)]
pub struct State {
    pub batches: Vec<Arc<Batch>>,
    pub calls: Vec<Call>,
    /// The worker processes, by their ids.
    pub workers: Vec<i32>,
}

/// A call in flight, with the name and the lane of its function.
pub struct Call {
    pub function: String,
    pub lane: &'static str,
    pub in_flight: InFlight,
}
