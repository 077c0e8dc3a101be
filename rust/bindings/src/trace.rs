//! The timeline of an engine, and what a recorded one holds.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use guerdon_core::clock::Clock;
use guerdon_core::in_flight::InFlightCall;
use guerdon_core::limits::LimitWarning;
use guerdon_core::scheduler::Scheduler;
use guerdon_core::tracer::{Executor, Moment, TraceEvent, Tracer};
use guerdon_http::HttpLane;
use guerdon_inprocess::asyncio_lane::AsyncioLane;
use guerdon_inprocess::supervisor::{SupervisorQueue, SupervisorRequest};
use guerdon_inprocess::thread_lane::ThreadLane;
use guerdon_native::NativeLane;
use guerdon_telemetry::timeline::{FunctionSummary, OpenCall, Recorder, RecorderSources, Summary, TraceConfig};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::config::FunctionConfig;
use crate::gil;

/// File, bytes, seconds of the shortest call that is told by itself, and the process's name.
pub type TraceArg = (PathBuf, u64, f64, String);

/// The lanes of this process, which are asked what runs. The recorder must not keep them alive.
#[derive(Clone)]
pub struct TracedLanes {
    pub threads: Weak<ThreadLane>,
    pub loops: Weak<AsyncioLane>,
    pub http: Weak<HttpLane>,
    pub native: Weak<NativeLane>,
}

impl TracedLanes {
    fn open_calls(&self, clock: Clock) -> Vec<OpenCall> {
        let now_ns = clock.now_ns();
        let open = |executor: Executor, call: InFlightCall| OpenCall {
            executor,
            function: call.function,
            batch: call.batch,
            first: call.samples.first().map_or(0, |samples| samples.start),
            attempt: call.attempt,
            started_ns: now_ns.saturating_sub(call.age_ns),
        };
        let mut calls = Vec::new();
        if let Some(threads) = self.threads.upgrade() {
            calls.extend(threads.inspect(now_ns).into_iter().map(|one| open(Executor::Thread(one.thread), one.call)));
        }
        if let Some(loops) = self.loops.upgrade() {
            calls.extend(loops.inspect(now_ns).into_iter().map(|one| open(Executor::Loop(one.index), one.call)));
        }
        if let Some(http) = self.http.upgrade() {
            calls.extend(
                http.in_flight().into_iter().map(|(call, server)| open(Executor::Endpoint(server.into()), call)),
            );
        }
        if let Some(native) = self.native.upgrade() {
            calls.extend(native.inspect(now_ns).into_iter().map(|call| open(Executor::Elsewhere, call)));
        }
        calls
    }
}

/// Makes the file of an engine's timeline. What is in the way is no reason not to score.
pub fn recorder(
    (path, bytes, shortest, process): TraceArg,
    functions: &[&FunctionConfig],
    clock: Clock,
) -> io::Result<Arc<Recorder>> {
    let functions = functions.iter().map(|one| (one.function.name.to_string(), one.lane_word.to_owned())).collect();
    let shortest = Duration::try_from_secs_f64(shortest.max(0.0)).unwrap_or(Duration::MAX);
    Recorder::new(TraceConfig { path, bytes, shortest, process, functions }, clock).map(Arc::new)
}

/// Begins to record an engine.
pub fn start(
    recorder: &Arc<Recorder>,
    scheduler: &Scheduler,
    lanes: TracedLanes,
    supervisor: Arc<SupervisorQueue>,
) -> io::Result<()> {
    let (clock, path) = (scheduler.clock(), recorder.path().display().to_string());
    recorder.start(RecorderSources {
        loads: Box::new(scheduler.loads()),
        open_calls: Box::new(move || lanes.open_calls(clock)),
        on_trouble: Box::new(move |reason| {
            supervisor.push(SupervisorRequest::TraceTrouble { path: path.clone(), reason: reason.to_owned() });
        }),
    })?;
    scheduler.trace(recorder.clone());
    Ok(())
}

/// Tells a timeline of what is to be warned of about an endpoint.
pub fn endpoint_warning(recorder: &Recorder, clock: Clock, function: usize, warning: LimitWarning, why: &str) {
    let what = match warning {
        LimitWarning::BreakerOpen => Moment::BreakerOpened,
        LimitWarning::Hangs => Moment::EndpointHangs,
        LimitWarning::LongRetryAfter(_) => Moment::LongRetryAfter,
    };
    let (executor, at_ns, why) = (Executor::Elsewhere, clock.now_ns(), why.to_owned());
    recorder.record(TraceEvent::Moment { what, executor, function: Some(function), at_ns, why });
}

/// One function of a trace: calls, failed, retries, running, seconds in all and of the longest.
type FunctionRow = (u64, u64, u64, u64, f64, f64);

/// What a timeline holds.
#[pyclass(frozen, get_all, module = "guerdon._native")]
pub struct TraceSummary {
    processes: Vec<String>,
    tracks: usize,
    slices: usize,
    instants: usize,
    counters: usize,
    batches: usize,
    dropped: u64,
    span_s: f64,
    functions: BTreeMap<String, FunctionRow>,
    moments: BTreeMap<String, u64>,
}

impl From<Summary> for TraceSummary {
    fn from(summary: Summary) -> Self {
        let seconds = |ns| Duration::from_nanos(ns).as_secs_f64();
        let row = |(name, one): (String, FunctionSummary)| {
            (name, (one.calls, one.failed, one.retries, one.running, seconds(one.busy_ns), seconds(one.longest_ns)))
        };
        Self {
            processes: summary.processes,
            tracks: summary.tracks,
            slices: summary.slices,
            instants: summary.instants,
            counters: summary.counters,
            batches: summary.batches,
            dropped: summary.dropped,
            span_s: seconds(summary.span_ns),
            functions: summary.functions.into_iter().map(row).collect(),
            moments: summary.moments,
        }
    }
}

/// Reads a timeline's file.
#[pyfunction]
pub fn trace_summary(py: Python<'_>, path: PathBuf) -> PyResult<TraceSummary> {
    gil::detached(py, || match Summary::read(&path) {
        Ok(summary) => Ok(summary.into()),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            Err(PyValueError::new_err(format!("{}: {error}", path.display())))
        }
        Err(error) => Err(error.into()),
    })
}
