//! The parts of an engine, and their start: what runs its calls, what records and what shows them.
//!
//! - Every part is there, and every warning has its way to Python, before the first call.
//! - A failure to record or show the engine does not keep it from scoring: where it can't start,
//!   the engine goes without it and says why. A journal is: its rows were asked for.

use std::io;
use std::sync::Arc;

use guerdon_cache::OutcomeStore;
use guerdon_core::clock::Clock;
use guerdon_core::dependents;
use guerdon_core::function::Function;
use guerdon_core::lane::Lane;
use guerdon_core::limits::LimitWarning;
use guerdon_core::scheduler::Scheduler;
use guerdon_http::HttpLane;
use guerdon_inprocess::asyncio_lane::AsyncioLane;
use guerdon_inprocess::supervisor::{Source, SupervisorQueue, SupervisorRequest};
use guerdon_inprocess::thread_lane::ThreadLane;
use guerdon_native::NativeLane;
use guerdon_remote::RemoteLane;
use guerdon_telemetry::timeline::Recorder;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tokio::runtime::Handle;

use crate::config::FunctionConfig;
use crate::http;
use crate::journal::{EngineJournal, PyJournalConfig};
use crate::lane_kind::LaneKind;
use crate::monitor::{Monitor, MonitorConfig, Shown};
use crate::nodes::{self, Here, RemoteArg};
use crate::process::{EngineProcess, WorkerArgs};
use crate::stacks::StackReader;
use crate::trace::{self, TraceArg};
use crate::values::released::ReleasedValues;
use crate::watchdog::{self, WatchdogOptions};

/// Optional parts of an engine beside its lanes.
pub struct EngineOptions<'a> {
    pub monitor: Option<&'a MonitorConfig>,
    pub journal: Option<&'a PyJournalConfig>,
    pub watchdog: Option<WatchdogOptions>,
    pub trace: Option<TraceArg>,
    pub remote: Option<RemoteArg>,
}

pub struct Parts {
    pub scheduler: Arc<Scheduler>,
    pub process: EngineProcess,
    /// Lane for calls on nodes.
    pub remote: Option<Arc<RemoteLane>>,
    pub supervisor: Arc<SupervisorQueue>,
    pub threads: Arc<ThreadLane>,
    pub loops: Arc<AsyncioLane>,
    pub http: Arc<HttpLane>,
    pub released: Arc<ReleasedValues>,
    /// Reader of stacks of this process's calls, for the live state.
    pub stacks: Arc<StackReader>,
    /// The cache folders of its functions.
    pub stores: Vec<Arc<OutcomeStore>>,
    pub journal: Option<EngineJournal>,
    /// Monitor of the running engine.
    pub monitor: Option<Monitor>,
    /// Recorder of its timeline.
    pub recorder: Option<Arc<Recorder>>,
    /// Reason why the timeline is missing.
    pub trace_problem: Option<String>,
}

impl Parts {
    /// Starts the parts of an engine of these functions.
    pub fn start(
        py: Python<'_>,
        runtime: &Handle,
        functions: &[&FunctionConfig],
        workers: WorkerArgs,
        options: EngineOptions<'_>,
    ) -> PyResult<Self> {
        let EngineOptions { monitor, journal, watchdog, trace, remote } = options;
        let clock = Clock::start();
        let lane_of = |config: &FunctionConfig| match remote {
            Some(_) if config.anywhere => LaneKind::Process.index(),
            _ => config.function.lane,
        };
        let core: Vec<Function> =
            functions.iter().map(|one| Function { lane: lane_of(one), ..one.function.clone() }).collect();
        if let Some(fault) = dependents::fault(&core) {
            return Err(PyValueError::new_err(fault));
        }
        let supervisor = Arc::new(SupervisorQueue::default());
        let threads = Arc::new(ThreadLane::new(runtime, clock, &core, &supervisor));
        let names: Vec<Option<String>> = functions.iter().map(|config| config.event_loop.clone()).collect();
        let loops = Arc::new(AsyncioLane::new(runtime, clock, &core, &names, &supervisor));
        let specs = functions.iter().map(|config| config.http.clone()).collect();
        let compounds = functions.iter().map(|config| config.compound.clone()).collect();
        let http = Arc::new(http::lane(runtime, clock, &core, specs, compounds)?);
        let kernels = functions.iter().map(|config| config.kernel.clone()).collect();
        let native = Arc::new(NativeLane::new(runtime, kernels, native_threads(workers.workers)));
        let mut lanes: Vec<Arc<dyn Lane>> = vec![threads.clone(), loops.clone(), http.clone(), native];
        let process = EngineProcess::default();
        let mut nodes = None;
        if core.iter().any(|function| function.lane == LaneKind::Process.index()) {
            let config = workers.config(functions);
            match remote {
                None => lanes.push(process.start(runtime, clock, &core, LaneKind::Process.index(), config)),
                Some(remote) => {
                    let here = Here { threads: &threads, loops: &loops, process: &process, workers: config };
                    let lane = nodes::lane(runtime, clock, functions, &core, remote, here, &supervisor);
                    lanes.push(lane.clone());
                    nodes = Some(lane);
                }
            }
        }
        let scheduler = Arc::new(Scheduler::start(runtime, clock, core, lanes));
        let mut parts = Self {
            scheduler,
            process,
            remote: nodes,
            released: Arc::new(ReleasedValues::new(supervisor.clone())),
            supervisor,
            threads,
            loops,
            http,
            stacks: Arc::default(),
            stores: distinct(functions.iter().filter_map(|config| config.store.clone())),
            journal: None,
            monitor: None,
            recorder: None,
            trace_problem: None,
        };
        if let Some(options) = watchdog {
            let names = functions.iter().map(|config| config.function.name.to_string()).collect();
            watchdog::start(runtime, &parts.scheduler, &parts.supervisor, names, options);
        }
        match trace.map(|arg| parts.recorder(arg, functions)).transpose() {
            Ok(recorder) => parts.recorder = recorder,
            Err(error) => parts.trace_problem = Some(error.to_string()),
        }
        parts.pass_warnings_on(functions);
        let kept = parts.released.clone();
        parts.scheduler.on_payload_release(move |values| kept.keep(values));
        let journal = journal.map(|config| EngineJournal::start(py, config, clock, &parts.supervisor, &parts.released));
        parts.journal = journal.transpose()?;
        let mut observers = Vec::new();
        if let Some(config) = monitor {
            let (monitor, observer) = Monitor::start(py, runtime, config, functions, &parts.shown());
            parts.monitor = Some(monitor);
            observers.push(observer);
        }
        observers.extend(parts.journal.iter().map(EngineJournal::observer));
        parts.scheduler.observe(observers);
        Ok(parts)
    }

    /// Returns the parts that the monitor shows.
    pub fn shown(&self) -> Shown<'_> {
        let Self { scheduler, supervisor, stacks, process, http, stores, .. } = self;
        let remote = self.remote.as_ref();
        let (journal, recorder) = (self.journal.as_ref().map(EngineJournal::journal), self.recorder.as_ref());
        Shown { scheduler, supervisor, stacks, process, http, stores, journal, recorder, remote }
    }

    /// The recorder of a timeline, which records from now on.
    fn recorder(&self, arg: TraceArg, functions: &[&FunctionConfig]) -> io::Result<Arc<Recorder>> {
        let recorder = trace::recorder(arg, functions, self.scheduler.clock())?;
        trace::start(&recorder, &self.scheduler, self.supervisor.clone())?;
        Ok(recorder)
    }

    /// Passes warnings of endpoints and cache folders on to Python, and to the timeline.
    fn pass_warnings_on(&self, functions: &[&FunctionConfig]) {
        let clock = self.scheduler.clock();
        let warn = || {
            let (recorder, requests) = (self.recorder.clone(), self.supervisor.clone());
            let names: Vec<String> = functions.iter().map(|config| config.function.name.to_string()).collect();
            move |function: usize, warning, reason: &str| {
                if let Some(recorder) = &recorder {
                    trace::endpoint_warning(recorder, clock, function, warning, reason);
                }
                let (source, why) = match warning {
                    LimitWarning::BreakerOpen => (Source::BreakerOpen, reason.to_owned()),
                    LimitWarning::Hangs => (Source::EndpointHangs, reason.to_owned()),
                    LimitWarning::LongRetryAfter(after) => {
                        let why = format!("{} s (Retry-After); last error: {reason}", after.as_secs_f64());
                        (Source::LongRetryAfter, why)
                    }
                };
                requests.push(SupervisorRequest::Trouble { source, place: names[function].clone(), why });
            }
        };
        self.scheduler.on_limit_warning(warn());
        self.http.on_limit_warning(warn());
        let requests = self.supervisor.clone();
        self.http.on_descriptor_shortage(move |shortage| {
            let why = format!("{shortage}: {}", http::ALLOW_MORE);
            requests.push(SupervisorRequest::Trouble { source: Source::Descriptors, place: String::new(), why });
        });
        for store in &self.stores {
            let (requests, folder) = (self.supervisor.clone(), store.folder().display().to_string());
            store.on_trouble(move |reason| {
                let (place, why) = (folder.clone(), reason.to_owned());
                requests.push(SupervisorRequest::Trouble { source: Source::Cache, place, why });
            });
        }
    }
}

/// Returns the number of kernels that run at a time: as many as workers, but not more than there
/// are cores.
fn native_threads(workers: usize) -> usize {
    workers.min(std::thread::available_parallelism().map_or(1, std::num::NonZero::get))
}

/// Each store once.
fn distinct(stores: impl Iterator<Item = Arc<OutcomeStore>>) -> Vec<Arc<OutcomeStore>> {
    let mut distinct: Vec<Arc<OutcomeStore>> = Vec::new();
    for store in stores {
        if !distinct.iter().any(|known| Arc::ptr_eq(known, &store)) {
            distinct.push(store);
        }
    }
    distinct
}
