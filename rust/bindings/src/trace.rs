//! The timeline of an engine, and what a recorded one holds.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use guerdon_core::clock::Clock;
use guerdon_core::in_flight::{InFlight, Location};
use guerdon_core::lane;
use guerdon_core::limits::LimitWarning;
use guerdon_core::scheduler::Scheduler;
use guerdon_core::tracer::{Executor, Moment, TraceEvent, Tracer};
use guerdon_inprocess::supervisor::{Source, SupervisorQueue, SupervisorRequest};
use guerdon_telemetry::timeline::{FunctionSummary, OpenCall, Recorder, RecorderSources, Summary, TraceConfig};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::config::FunctionConfig;
use crate::gil;

/// File, bytes, seconds of the shortest call with its own slice, and the process's name.
pub type TraceArg = (PathBuf, u64, f64, String);

/// Calls that run in this process.
fn open_calls(scheduler: &Scheduler) -> Vec<OpenCall> {
    let now_ns = scheduler.clock().now_ns();
    let open = |InFlight { call, location, .. }: InFlight| OpenCall {
        executor: match location {
            Location::Thread { number, .. } => Executor::Thread(number),
            Location::Loop { index, .. } => Executor::Loop(index),
            Location::Server(server) => Executor::Endpoint(server.into()),
            Location::Worker(_) | Location::Native | Location::Node { .. } => Executor::Elsewhere,
        },
        function: call.function,
        batch: call.batch,
        first: call.samples.first().map_or(0, |samples| samples.start),
        attempt: call.attempt,
        started_ns: now_ns.saturating_sub(call.age_ns),
    };
    lane::in_flight(scheduler.lanes(), now_ns).into_iter().map(open).collect()
}

/// Makes the file of an engine's timeline. An obstacle does not keep the engine from scoring.
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
pub fn start(recorder: &Arc<Recorder>, scheduler: &Arc<Scheduler>, supervisor: Arc<SupervisorQueue>) -> io::Result<()> {
    let path = recorder.path().display().to_string();
    let running = Arc::downgrade(scheduler);
    recorder.start(RecorderSources {
        loads: Box::new(scheduler.loads()),
        open_calls: Box::new(move || running.upgrade().map(|running| open_calls(&running)).unwrap_or_default()),
        on_trouble: Box::new(move |reason| {
            let (place, why) = (path.clone(), reason.to_owned());
            supervisor.push(SupervisorRequest::Trouble { source: Source::Timeline, place, why });
        }),
    })?;
    scheduler.trace(recorder.clone());
    Ok(())
}

/// Draws a warning about an endpoint on a timeline.
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

/// Contents of a timeline.
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
