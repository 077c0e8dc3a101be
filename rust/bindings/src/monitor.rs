//! A monitor's view of the engine, and the server for that view.
//!
//! - The monitor holds the engine weakly: one that is gone is shown no more.
//! - Nothing here takes the GIL but to make the settings.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use guerdon_core::clock::seconds;
use guerdon_core::in_flight::{InFlight, Location};
use guerdon_core::lane;
use guerdon_core::observer::Telemetry;
use guerdon_core::scheduler::Scheduler;
use guerdon_core::settings::optional_path;
use guerdon_http::{EndpointSnapshot, HttpLane};
use guerdon_inprocess::supervisor::SupervisorQueue;
use guerdon_remote::{NodeSnapshot, RemoteLane};
use guerdon_telemetry::journal::Journal;
use guerdon_telemetry::metrics::{
    Cache, Call, Endpoint, FAMILIES, Figures, Function, Identity, Listen, Node, Sample, Server, Snapshot, Source,
    State, Tallies, Worker, metrics, samples,
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
    FAMILIES.iter().map(|one| (one.name, one.kind.word(), one.labels.to_vec(), one.help)).collect()
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
    kept: bool,
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
            let cache = Cache { shared: counts.shared, hits: counts.hits, misses: counts.misses, kept: known.kept };
            Function {
                name: known.name.clone(),
                lane: known.lane,
                in_flight,
                usage: judge.then_some(usage),
                tokens,
                priced,
                cache: known.pure.then_some(cache),
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
            nodes: nodes(shown.remote.as_deref()),
            stats: shown.stats(),
        }
    }

    fn call(&self, InFlight { call, location, stack }: InFlight) -> Call {
        let known = &self.functions[call.function];
        let others = call.others.iter().flat_map(|(_, samples)| samples);
        let (stack, no_stack) = match stack.text() {
            Ok(stack) => (Some(stack), None),
            Err(why) => (None, Some(why)),
        };
        Call {
            function: known.name.clone(),
            lane: known.lane,
            batch: call.batch,
            sample: call.samples.first().map_or(0, |span| span.start),
            samples: call.samples.iter().chain(others).map(ExactSizeIterator::len).sum(),
            attempt: call.attempt,
            phase: call.phase.word(),
            seconds: seconds(call.age_ns),
            place: location.to_string(),
            stack,
            no_stack,
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
        let pids = shown.process.get().map(|lane| lane.worker_pids()).unwrap_or_default();
        let mut workers: BTreeMap<i32, Worker> = pids.into_iter().map(|pid| (pid, idle_worker(pid))).collect();
        let mut calls = Vec::with_capacity(seen.len());
        for one in seen {
            let pid = if let Location::Worker(pid) = one.location { Some(pid) } else { None };
            let call = self.call(one);
            if let Some(pid) = pid {
                let worker = workers.entry(pid).or_insert_with(|| idle_worker(pid));
                worker.function = Some(call.function.clone());
                (worker.sample, worker.seconds) = (Some(call.sample), Some(call.seconds));
            }
            calls.push(call);
        }
        State { batches: shown.scheduler.unfinished_batches(), calls, workers: workers.into_values().collect() }
    }
}

/// An endpoint of a function, without the path that is added to its addresses.
pub fn endpoint(function: &str, path: &str, one: EndpointSnapshot) -> Endpoint {
    let (base, query) = one.url.split_once('?').map_or((&*one.url, None), |(base, query)| (base, Some(query)));
    let base = base.strip_suffix(path).unwrap_or(base);
    let url = query.map_or_else(|| base.to_owned(), |query| format!("{base}?{query}"));
    Endpoint {
        function: function.to_owned(),
        place: one.address.map_or_else(|| url.clone(), |address| format!("{url} ({address})")),
        url,
        address: one.address.map(|address| address.to_string()),
        weight: one.weight,
        breaker: one.breaker,
        in_flight: one.in_flight,
        answered: one.answered,
        failed: one.failed,
        deferred: one.deferred,
        p50_s: one.p50_ns.map(seconds),
    }
}

/// The nodes; those that were lost, until one of their name comes.
pub fn nodes(lane: Option<&RemoteLane>) -> Vec<Node> {
    let node = |one: NodeSnapshot| Node {
        name: one.name.to_string(),
        state: one.state.word(),
        slots: one.slots,
        frames: one.frames,
        calls: one.calls,
        bytes: one.bytes,
        ended: one.ended,
        reason: one.reason,
        stats: one.stats.named().into(),
    };
    lane.map(RemoteLane::nodes).unwrap_or_default().into_iter().map(node).collect()
}

fn idle_worker(pid: i32) -> Worker {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse().ok());
    let rss_bytes = kib.map(|kib: u64| kib.saturating_mul(1024));
    Worker { pid, rss_bytes, function: None, sample: None, seconds: None }
}

/// Counters, and the server that shows them.
pub struct Monitor {
    server: Server,
    identity: Identity,
    view: Arc<EngineView>,
    tallies: Arc<Tallies>,
    /// Why the metrics, and the live state, are not served where they should be.
    pub metrics_problem: Option<String>,
    pub socket_problem: Option<String>,
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
            kept: one.cache.is_some(),
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
            started: SystemTime::now(),
        };
        let listen = Listen { socket: config.socket.clone(), address: config.address };
        let view = Arc::new(view);
        // It waits for a thread that forks, which may need the GIL.
        let (server, problems) =
            gil::detached(py, || Server::start(runtime, &listen, identity.clone(), view.clone(), tallies.clone()));
        let text = |problem: Option<std::io::Error>| problem.map(|error| error.to_string());
        let (metrics_problem, socket_problem) = (text(problems.address), text(problems.socket));
        (Self { server, identity, view, tallies: tallies.clone(), metrics_problem, socket_problem }, tallies)
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

    pub fn address(&self) -> Option<String> {
        self.server.address().map(|address| address.to_string())
    }

    pub fn socket(&self) -> Option<String> {
        self.server.socket().map(|path| path.display().to_string())
    }

    /// Ends it; waits for some milliseconds at most.
    pub fn stop(&self) {
        self.server.stop();
    }
}
