//! The parts of an engine, and their start: what runs its calls, what records and what shows them.
//!
//! - Every part is there, and every warning has its way to Python, before the first call.
//! - A failure to record or show the engine does not keep it from scoring: where it can't start,
//!   the engine goes without it and says why. A journal is: its rows were asked for.

use std::ops::Deref;
use std::sync::Arc;

use guerdon_core::clock::Clock;
use guerdon_core::compose::{ComposeLane, Composite, Criterion};
use guerdon_core::dependents;
use guerdon_core::function::Function;
use guerdon_core::lane::Lane;
use guerdon_core::limits::LimitWarning;
use guerdon_core::observer::Telemetry;
use guerdon_core::scheduler::Scheduler;
use guerdon_core::spending::{Cap, Spending};
use guerdon_http::Callback;
use guerdon_inprocess::supervisor::{Source, SupervisorRequest};
use guerdon_native::NativeLane;
use guerdon_process::ProcessConfig;
use guerdon_telemetry::journal::JournalConfig;
use guerdon_telemetry::timeline::TraceConfig;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde::Deserialize;
use tokio::runtime::Handle;

use crate::config::{FunctionSettings, open_stores};
use crate::gil;
use crate::http;
use crate::journal::EngineJournal;
use crate::lane_kind::LaneKind;
use crate::lanes::Lanes;
use crate::monitor::{Monitor, MonitorConfig, Shown};
use crate::nodes::{self, Here, RemoteSettings};
use crate::process::EngineProcess;
use crate::trace;
use crate::watchdog::{self, WatchdogConfig};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineSettings {
    pub functions: Vec<FunctionSettings>,
    pub workers: ProcessConfig,
    /// Cap on the spending of all functions together.
    pub cap: Option<Cap>,
    pub monitor: Option<MonitorConfig>,
    pub journal: Option<JournalConfig>,
    pub watchdog: Option<WatchdogConfig>,
    pub trace: Option<TraceConfig>,
    /// Nodes run the functions of the process lane, and those that may run anywhere.
    pub remote: Option<RemoteSettings>,
}

pub struct Parts {
    shown: Arc<Shown>,
    pub lanes: Lanes,
    pub journal: Option<EngineJournal>,
    /// Monitor of the running engine.
    pub monitor: Option<Monitor>,
    /// Reason why the timeline is missing.
    pub trace_problem: Option<String>,
}

impl Deref for Parts {
    type Target = Shown;

    fn deref(&self) -> &Shown {
        &self.shown
    }
}

impl Parts {
    /// Starts the parts of an engine with this configuration. `encode` makes JSON of values for the
    /// journal.
    pub fn start(
        py: Python<'_>,
        runtime: &Handle,
        config: EngineSettings,
        encode: Py<PyAny>,
        callbacks: &[Callback],
    ) -> PyResult<Self> {
        let EngineSettings { functions, mut workers, cap, monitor, journal, watchdog, trace, remote } = config;
        let functions = &functions[..];
        let clock = Clock::start();
        let stores = gil::detached(py, || open_stores(functions));
        let lane_of = |one: &FunctionSettings| match remote {
            Some(_) if one.anywhere => LaneKind::Process.index(),
            _ => one.lane.kind.index(),
        };
        let mut core: Vec<Function> = functions.iter().map(|one| one.function(lane_of(one), &stores)).collect();
        for one in functions {
            if let Some(Composite::Criterion(Criterion { function, columns, .. })) = &one.compose {
                core[*function].columns = columns.clone();
            }
        }
        if let Some(fault) = dependents::fault(&core) {
            return Err(PyValueError::new_err(fault));
        }
        let own = Lanes::new(runtime, clock, &core, functions);
        let cap = cap.map(|cap| Arc::new(Spending::new(cap)));
        let requests = functions.iter().map(|one| one.requests(cap.as_ref(), callbacks)).collect::<PyResult<_>>()?;
        let http = Arc::new(http::lane(runtime, clock, &core, requests)?);
        let kernels = functions.iter().map(FunctionSettings::kernel).collect::<PyResult<_>>()?;
        let native = Arc::new(NativeLane::new(runtime, kernels, native_threads(workers.workers)));
        let composites = functions.iter().map(|config| config.compose.clone()).collect();
        let compose = Arc::new(ComposeLane::new(clock, composites));
        let mut lanes: Vec<Arc<dyn Lane>> = vec![own.threads.clone(), own.loops.clone(), http.clone(), native, compose];
        let process = EngineProcess::default();
        let mut nodes = None;
        if core.iter().any(|function| function.lane == LaneKind::Process.index()) {
            workers.resource_limits = functions.iter().map(|one| one.resource_limits.clone()).collect();
            match &remote {
                None => lanes.push(process.start(runtime, clock, &core, LaneKind::Process.index(), workers)),
                Some(remote) => {
                    let here = Here { lanes: &own, process: &process, workers };
                    let lane = nodes::lane(runtime, clock, functions, &core, remote, here);
                    lanes.push(lane.clone());
                    nodes = Some(lane);
                }
            }
        }
        let scheduler = Arc::new(Scheduler::start(runtime, clock, core, lanes));
        let mut shown = Shown {
            scheduler,
            supervisor: own.supervisor.clone(),
            stacks: own.stacks.clone(),
            process,
            remote: nodes,
            http,
            stores,
            journal: None,
            recorder: None,
        };
        if let Some(config) = watchdog {
            let names = functions.iter().map(|config| config.function.name.to_string()).collect();
            watchdog::start(runtime, &shown.scheduler, &shown.supervisor, names, config);
        }
        let mut trace_problem = None;
        match trace.map(|config| trace::start(config, functions, &shown.scheduler, &shown.supervisor)).transpose() {
            Ok(recorder) => shown.recorder = recorder,
            Err(error) => trace_problem = Some(error.to_string()),
        }
        pass_warnings_on(&shown, functions);
        let kept = own.released.clone();
        shown.scheduler.on_payload_release(move |values| kept.keep(values));
        let journal = journal.map(|config| EngineJournal::start(config, encode, clock, &own.supervisor, &own.released));
        let journal = journal.transpose()?;
        shown.journal = journal.as_ref().map(|journal| journal.journal().clone());
        let shown = Arc::new(shown);
        let (mut monitoring, mut sinks) = (None, Vec::<Arc<dyn Telemetry>>::new());
        if let Some(config) = &monitor {
            let (monitor, observer) = Monitor::start(py, runtime, config, functions, &shown);
            monitoring = Some(monitor);
            sinks.push(observer);
        }
        sinks.extend(shown.journal.iter().map(|journal| journal.clone() as Arc<dyn Telemetry>));
        sinks.extend(shown.recorder.iter().map(|recorder| recorder.clone() as Arc<dyn Telemetry>));
        shown.scheduler.observe(sinks);
        Ok(Self { shown, lanes: own, journal, monitor: monitoring, trace_problem })
    }

    /// Ends the engine; parts that nothing waits for are dropped at once.
    pub fn close_later(self) -> impl Future<Output = ()> + Send + use<> {
        let Self { shown, journal, .. } = self;
        async move {
            shown.scheduler.close().await;
            drop(journal); // after the last cells
        }
    }
}

/// Passes warnings of endpoints and cache folders on to Python, and to the timeline.
fn pass_warnings_on(shown: &Shown, functions: &[FunctionSettings]) {
    let clock = shown.scheduler.clock();
    let warn = || {
        let (recorder, requests) = (shown.recorder.clone(), shown.supervisor.clone());
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
                LimitWarning::AllThrottled(time) => {
                    (Source::AllThrottled, format!("for {:.0} s; last error: {reason}", time.as_secs_f64()))
                }
            };
            requests.push(SupervisorRequest::Trouble { source, place: names[function].clone(), why });
        }
    };
    shown.scheduler.on_limit_warning(warn());
    let requests = shown.supervisor.clone();
    shown.http.on_descriptor_shortage(move |shortage| {
        let why = format!("{shortage}: {}", http::ALLOW_MORE);
        requests.push(SupervisorRequest::Trouble { source: Source::Descriptors, place: String::new(), why });
    });
    for store in shown.stores.values() {
        let (requests, folder) = (shown.supervisor.clone(), store.folder().display().to_string());
        store.on_failure(move |reason| {
            let (place, why) = (folder.clone(), reason.to_owned());
            requests.push(SupervisorRequest::Trouble { source: Source::Cache, place, why });
        });
    }
}

/// Returns the number of kernels that run at a time: as many as workers, but not more than there
/// are cores.
fn native_threads(workers: usize) -> usize {
    workers.min(std::thread::available_parallelism().map_or(1, std::num::NonZero::get))
}
