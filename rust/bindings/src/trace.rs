//! The timeline of an engine, and what a recorded one holds.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use guerdon_core::clock::Clock;
use guerdon_core::lane;
use guerdon_core::limits::LimitWarning;
use guerdon_core::observer::Telemetry;
use guerdon_core::scheduler::Scheduler;
use guerdon_core::tracer::{Executor, Moment, TraceEvent};
use guerdon_inprocess::supervisor::{Source, SupervisorQueue, SupervisorRequest};
use guerdon_telemetry::timeline::{Recorder, RecorderSources, Summary, TraceConfig};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::config::FunctionSettings;
use crate::gil;

/// Makes the file of an engine's timeline, and begins to record. An obstacle does not keep the
/// engine from scoring.
pub fn start(
    config: TraceConfig,
    functions: &[FunctionSettings],
    scheduler: &Arc<Scheduler>,
    supervisor: &Arc<SupervisorQueue>,
) -> io::Result<Arc<Recorder>> {
    let functions = functions.iter().map(|one| (one.function.name.to_string(), one.lane.word.to_owned())).collect();
    let config = TraceConfig { functions, ..config };
    let (running, supervisor) = (Arc::downgrade(scheduler), supervisor.clone());
    let sources = RecorderSources {
        loads: Box::new(scheduler.loads()),
        open_calls: Box::new(move |now_ns| {
            running.upgrade().map(|running| lane::in_flight(running.lanes(), now_ns)).unwrap_or_default()
        }),
        on_trouble: Box::new(move |path, reason| {
            let (place, why) = (path.display().to_string(), reason.to_owned());
            supervisor.push(SupervisorRequest::Trouble { source: Source::Timeline, place, why });
        }),
    };
    Recorder::start(&config, scheduler.clock(), sources).map(Arc::new)
}

/// Draws a warning about an endpoint on a timeline.
pub fn endpoint_warning(recorder: &Recorder, clock: Clock, function: usize, warning: LimitWarning, why: &str) {
    let what = match warning {
        LimitWarning::BreakerOpen => Moment::BreakerOpened,
        LimitWarning::Hangs => Moment::EndpointHangs,
        LimitWarning::LongRetryAfter(_) => Moment::LongRetryAfter,
        LimitWarning::AllThrottled(_) => Moment::AllThrottled,
    };
    let (executor, at_ns, why) = (Executor::Elsewhere, clock.now_ns(), why.to_owned());
    recorder.record(TraceEvent::Moment { what, executor, function: Some(function), at_ns, why });
}

/// Reads a timeline's file; its summary as JSON.
#[pyfunction]
pub fn trace_summary(py: Python<'_>, path: PathBuf) -> PyResult<String> {
    let shown = |error: &dyn std::error::Error| PyValueError::new_err(format!("{}: {error}", path.display()));
    gil::detached(py, || match Summary::read(&path) {
        Ok(summary) => serde_json::to_string(&summary).map_err(|error| shown(&error)),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(shown(&error)),
        Err(error) => Err(error.into()),
    })
}
