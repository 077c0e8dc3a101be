//! A monitor's view of the engine, and the server for that view.
//!
//! - The monitor holds the engine weakly: one that is gone is shown no more.
//! - Nothing here takes the GIL but to make the settings.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use guerdon_core::lane;
use guerdon_core::observer::Telemetry;
use guerdon_core::scheduler::Scheduler;
use guerdon_core::settings::optional_path;
use guerdon_core::snapshots::EndpointSnapshot;
use guerdon_http::HttpLane;
use guerdon_inprocess::supervisor::SupervisorQueue;
use guerdon_remote::RemoteLane;
use guerdon_telemetry::journal::Journal;
use guerdon_telemetry::metrics::{
    Call, Endpoint, FAMILIES, Figures, Function, Identity, Sample, Server, Snapshot, Source, State, Tallies, metrics,
    samples, unix_seconds,
};
use guerdon_telemetry::timeline::Recorder;
use pyo3::prelude::*;
use serde::Deserialize;
use tokio::runtime::Handle;

use crate::config::{FunctionSettings, Stores};
use crate::gil;
use crate::process::EngineProcess;
use crate::stacks::StackReader;

/// Settings of the package for a monitor: a `guerdon._insight.monitor.settings.MonitorConfig`.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MonitorConfig {
    rank: u32,
    host: String,
    python: String,
    program: String,
    #[serde(deserialize_with = "optional_path")]
    socket: Option<PathBuf>,
    address: Option<SocketAddr>,
    /// The functions that send requests: name, number, and the path added to their addresses.
    fleets: Vec<(String, usize, String)>,
    /// Facts about each function: whether it sends requests, whether these use tokens, and whether
    /// they have a price.
    judges: Vec<(bool, bool, bool)>,
    /// Facts about each code reward: its name, the level that holds, the layers that do, and the
    /// others.
    isolations: Vec<[String; 4]>,
}

/// Every metric: name, kind, labels, meaning.
#[pyfunction]
pub fn metric_families() -> Vec<(&'static str, &'static str, Vec<&'static str>, &'static str)> {
    FAMILIES.iter().map(|one| (one.name, one.kind, one.labels.to_vec(), one.help)).collect()
}

/// Counters of worker processes for an engine without any.
const NO_WORKERS: [(&str, u64); 4] = [("workers", 0), ("worker_restarts", 0), ("worker_loads", 0), ("kills", 0)];

/// The parts of an engine that are shown.
pub struct Shown {
    pub scheduler: Arc<Scheduler>,
    pub supervisor: Arc<SupervisorQueue>,
    /// Reader of stacks of this process's calls, for the live state.
    pub stacks: Arc<StackReader>,
    pub process: EngineProcess,
    /// Lane for calls on nodes.
    pub remote: Option<Arc<RemoteLane>>,
    pub http: Arc<HttpLane>,
    /// The cache folders of its functions.
    pub stores: Stores,
    pub journal: Option<Arc<Journal>>,
    /// Recorder of its timeline.
    pub recorder: Option<Arc<Recorder>>,
}

impl Shown {
    /// Counters since the start, by name.
    pub fn stats(&self) -> BTreeMap<&'static str, u64> {
        let mut stats = BTreeMap::from(NO_WORKERS);
        stats.extend(self.scheduler.lanes().iter().flat_map(|lane| lane.counters()));
        stats.insert("late_outcomes", self.scheduler.late_outcomes());
        stats.insert("open_batches", self.scheduler.open_batches() as u64);
        if !self.stores.is_empty() {
            let counts: Vec<_> = self.stores.values().map(|store| store.counts()).collect();
            stats.insert("cache_bytes", counts.iter().map(|counts| counts.bytes).sum());
            stats.insert("cache_dropped", counts.iter().map(|counts| counts.dropped).sum());
        }
        if let Some(journal) = &self.journal {
            let counts = journal.counts();
            let named =
                [("journal_rows", counts.rows), ("journal_dropped", counts.dropped), ("journal_bytes", counts.bytes)];
            stats.extend(named);
        }
        stats.extend(self.recorder.as_ref().map(|recorder| ("trace_dropped", recorder.dropped())));
        stats
    }
}

/// Facts about a function from its configuration.
struct FunctionFacts {
    name: String,
    lane: &'static str,
    pure: bool,
    cached: bool,
}

/// See the module.
struct EngineView {
    shown: Weak<Shown>,
    functions: Vec<FunctionFacts>,
    config: MonitorConfig,
}

impl EngineView {
    fn snapshot_of(&self, shown: &Shown) -> Snapshot {
        let scheduler = &shown.scheduler;
        let counts = scheduler.call_counts().into_iter().zip(scheduler.usage());
        let now = scheduler.calls_in_flight().into_iter().zip(scheduler.open_breakers());
        let functions = self.functions.iter().enumerate().zip(counts.zip(now));
        let functions = functions.map(|((index, known), ((counts, usage), (in_flight, breaker_open)))| {
            let (judge, tokens, priced) = self.config.judges.get(index).copied().unwrap_or_default();
            Function {
                name: known.name.clone(),
                lane: known.lane,
                in_flight,
                usage: judge.then_some(usage),
                tokens,
                priced,
                cache: known.pure.then_some(counts),
                cached: known.cached,
                breaker_open,
            }
        });
        let endpoints = self.config.fleets.iter().flat_map(|(name, function, path)| {
            shown.http.endpoints(*function).into_iter().map(move |one| endpoint(name, path, one))
        });
        Snapshot {
            functions: functions.collect(),
            endpoints: endpoints.collect(),
            isolations: self.config.isolations.clone(),
            nodes: shown.remote.as_ref().map(|lane| lane.nodes()).unwrap_or_default(),
            stats: shown.stats(),
        }
    }
}

impl Source for EngineView {
    fn snapshot(&self) -> Option<Snapshot> {
        self.shown.upgrade().map(|shown| self.snapshot_of(&shown))
    }

    fn state(&self, stacks: bool, within: Duration) -> State {
        let Some(shown) = self.shown.upgrade() else { return State::default() };
        let (lanes, clock) = (shown.scheduler.lanes(), shown.scheduler.clock());
        let seen = match stacks {
            true => shown.stacks.look(&shown.supervisor, lanes, clock, within),
            false => lane::in_flight(lanes, clock.now_ns()),
        };
        let calls = seen.into_iter().map(|one| {
            let FunctionFacts { name, lane, .. } = &self.functions[one.call.function];
            Call { function: name.clone(), lane, in_flight: one }
        });
        let workers = shown.process.get().map(|lane| lane.worker_pids()).unwrap_or_default();
        State { batches: shown.scheduler.unfinished_batches(), calls: calls.collect(), workers }
    }
}

/// An endpoint of a function, without the path that is added to its addresses.
fn endpoint(function: &str, path: &str, state: EndpointSnapshot) -> Endpoint {
    let (base, query) = state.url.split_once('?').map_or((&*state.url, None), |(base, query)| (base, Some(query)));
    let base = base.strip_suffix(path).unwrap_or(base);
    let url = query.map_or_else(|| base.to_owned(), |query| format!("{base}?{query}"));
    let label = state.address.map_or_else(|| url.clone(), |address| format!("{url} ({address})"));
    Endpoint { function: function.to_owned(), label, state: EndpointSnapshot { url, ..state } }
}

/// A place where something is served, and the reason why it is not.
pub type Place = (Option<String>, Option<String>);

fn place<T>(served: Option<&io::Result<T>>, name: impl FnOnce(&T) -> String) -> Place {
    match served {
        None => (None, None),
        Some(Ok(place)) => (Some(name(place)), None),
        Some(Err(error)) => (None, Some(error.to_string())),
    }
}

/// Counters, and the server that shows them.
pub struct Monitor {
    server: Server,
    identity: Identity,
    view: Arc<EngineView>,
    tallies: Arc<Tallies>,
}

impl Monitor {
    /// Starts it, and gives what must see the groups of the engine.
    pub fn start(
        py: Python<'_>,
        runtime: &Handle,
        config: &MonitorConfig,
        functions: &[FunctionSettings],
        shown: &Arc<Shown>,
    ) -> (Self, Arc<dyn Telemetry>) {
        let tallies = Arc::new(Tallies::new(shown.scheduler.clock(), functions.len()));
        if config.address.is_some() {
            tallies.count();
        }
        let known = |one: &FunctionSettings| FunctionFacts {
            name: one.function.name.to_string(),
            lane: one.lane.word,
            pure: one.function.pure,
            cached: one.cache.is_some(),
        };
        let functions = functions.iter().map(known).collect();
        let view = EngineView { shown: Arc::downgrade(shown), functions, config: config.clone() };
        let identity = Identity {
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            rank: config.rank,
            host: config.host.clone(),
            python: config.python.clone(),
            program: config.program.clone(),
            started: unix_seconds(SystemTime::now()),
        };
        let (socket, address) = (config.socket.clone(), config.address);
        let view = Arc::new(view);
        // It waits for a thread that forks, which may need the GIL.
        let (shown, counted) = (view.clone(), tallies.clone());
        let server = gil::detached(py, || Server::start(runtime, socket, address, identity.clone(), shown, counted));
        (Self { server, identity, view, tallies: tallies.clone() }, tallies)
    }

    /// The metrics now, counted from the first time that anybody asks.
    pub fn samples(&self) -> Vec<Sample> {
        self.figures(samples)
    }

    /// The same as text, in OpenMetrics or in Prometheus' own format.
    pub fn text(&self, open_metrics: bool) -> String {
        self.figures(|figures| metrics(figures, open_metrics))
    }

    fn figures<T: Default>(&self, read: impl FnOnce(Figures<'_>) -> T) -> T {
        self.tallies.count();
        let Some(snapshot) = self.view.snapshot() else { return T::default() };
        read(Figures { identity: &self.identity, snapshot: &snapshot, tallies: &self.tallies.read() })
    }

    /// The address of the metrics.
    pub fn address(&self) -> Place {
        place(self.server.address.as_ref(), ToString::to_string)
    }

    /// The socket of the live state.
    pub fn socket(&self) -> Place {
        place(self.server.socket.as_ref(), |path| path.display().to_string())
    }

    /// Ends it; waits for some milliseconds at most.
    pub fn stop(&self) {
        self.server.stop();
    }
}
