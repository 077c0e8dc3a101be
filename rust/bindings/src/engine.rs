//! `Engine`: the scheduler, the lanes and the workers of one dispatcher.
//!
//! - An engine belongs to the process that made it. In a forked child every use raises, and a drop
//!   has no effect: its locks may be held by threads that the child lacks.
//! - `close` may be called any number of times, from any thread; open batches end as cancelled.

use std::collections::BTreeMap;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use guerdon_core::batch::BatchSpec;
use guerdon_core::clock::nanos;
use guerdon_core::delivery::Delivery;
use guerdon_core::function::{Function, Shape};
use guerdon_http::Callback;
use guerdon_telemetry::metrics::Sample;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyList;
use pythonize::pythonize;
use tokio::runtime::Handle;

use crate::batch::PyBatch;
use crate::config::{FunctionSettings, settings};
use crate::engine_parts::{EngineSettings, Parts};
use crate::gil;
use crate::in_flight;
use crate::journal::EngineJournal;
use crate::lane_kind::LaneKind;
use crate::lanes::Lanes;
use crate::monitor::{Monitor, Place};
use crate::nodes::{self, PyLink};
use crate::questions::CallbackArg;
use crate::reports;
use crate::runtime;
use crate::values::columns::PyFunctionColumns;
use crate::values::open_batch::{OpenBatchPayload, OpenBatchValues};
use crate::values::whole_batch::WholeBatchPayload;

/// Looking at the workers has a bound, even if the caller gave a longer one.
const LONGEST_INSPECTION: Duration = Duration::from_secs(60);
/// The longest that `close` waits for what a cache folder has still to write.
const CACHE_CLOSE: Duration = Duration::from_secs(5);
/// The longest that `close` waits for the end of a timeline to be written.
const TRACE_CLOSE: Duration = Duration::from_secs(2);

#[pyclass(frozen, module = "guerdon._native", name = "Engine")]
pub struct Engine {
    pid: u32,
    runtime: Handle,
    /// Lane whose form the values of each function have, and whether a call takes one sample.
    functions: Vec<(LaneKind, bool)>,
    /// Functions whose identical calls are made once.
    pure: Vec<bool>,
    /// Not dropped in a forked child.
    parts: ManuallyDrop<Parts>,
    closed: AtomicBool,
}

impl Engine {
    /// The parts, in the process that they belong to.
    fn parts(&self) -> PyResult<&Parts> {
        if self.pid == std::process::id() {
            Ok(&self.parts)
        } else {
            Err(PyRuntimeError::new_err("the engine was started in another process; a forked child needs its own"))
        }
    }
}

fn in_time(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

fn in_ns(seconds: Option<f64>) -> Option<u64> {
    seconds.map(|seconds| nanos(in_time(seconds)))
}

fn delivery(group_quorum: Option<usize>, group_timeout: Option<f64>, cancellable: bool) -> Delivery {
    Delivery { group_quorum, group_timeout_ns: in_ns(group_timeout), cancellable }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if self.pid == std::process::id() {
            #[expect(unsafe_code, reason = "the one place where the parts are dropped")]
            // SAFETY: `parts` is not used after this: `self` is being dropped.
            let parts = unsafe { ManuallyDrop::take(&mut self.parts) };
            // Work that still runs ends in the background: dropping must not wait.
            self.runtime.spawn(parts.close_later());
        }
    }
}

#[pymethods]
impl Engine {
    #[new]
    #[pyo3(signature = (config, *, encode, callbacks))]
    fn new(
        py: Python<'_>,
        config: &Bound<'_, PyAny>,
        encode: Py<PyAny>,
        callbacks: Vec<CallbackArg<'_>>,
    ) -> PyResult<Self> {
        let config: EngineSettings = settings(config)?;
        let kind = |one: &FunctionSettings| match &config.remote {
            Some(_) if one.anywhere => LaneKind::Process,
            // The values of pairs are put together as bytes, which every lane takes.
            _ if !one.function.second_columns.is_empty() && !one.lane.kind.takes_bytes() => LaneKind::Process,
            _ => one.lane.kind,
        };
        let one_by_one = |one: &Function| one.shape == Shape::Sample && one.gather.is_none();
        let functions = config.functions.iter().map(|one| (kind(one), one_by_one(&one.function))).collect();
        let pure = config.functions.iter().map(|one| one.function.pure).collect();
        let runtime = runtime::handle()?;
        let callbacks: Vec<Callback> = callbacks.iter().filter_map(CallbackArg::callback).collect();
        let parts = Parts::start(py, &runtime, config, encode, &callbacks)?;
        Ok(Self {
            pid: std::process::id(),
            runtime,
            functions,
            pure,
            parts: ManuallyDrop::new(parts),
            closed: AtomicBool::new(false),
        })
    }

    /// Returns the objects that the lanes' Python threads hold on to.
    #[getter]
    fn lanes(&self) -> PyResult<Lanes> {
        Ok(self.parts()?.lanes.clone())
    }

    #[pyo3(signature = (columns, uses, *, samples, num_generations, held, dumps, batch_timeout = None, group_quorum = None, group_timeout = None, cancellable = false, step = None, journal = Vec::new()))]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn submit<'py>(
        &self,
        py: Python<'py>,
        columns: Vec<Bound<'py, PyAny>>,
        uses: Vec<PyRef<'py, PyFunctionColumns>>,
        samples: usize,
        num_generations: usize,
        held: &Bound<'py, PyList>,
        dumps: &Bound<'py, PyAny>,
        batch_timeout: Option<f64>,
        group_quorum: Option<usize>,
        group_timeout: Option<f64>,
        cancellable: bool,
        step: Option<u64>,
        journal: Vec<Option<usize>>,
    ) -> PyResult<Bound<'py, PyBatch>> {
        let parts = self.parts()?;
        parts.lanes.released.let_go(py);
        if num_generations == 0 || !samples.is_multiple_of(num_generations) {
            let problem = format!("num_generations={num_generations} does not divide {samples} samples");
            return Err(PyValueError::new_err(problem));
        }
        let lanes: Vec<LaneKind> = self.functions.iter().map(|(lane, _)| *lane).collect();
        let (pure, uses) = (&self.pure, &uses);
        let payload = WholeBatchPayload::capture(py, &columns, uses, &lanes, pure, samples, dumps, &journal)?;
        let payload = Box::new(payload);
        let spec = BatchSpec {
            batch_timeout_ns: in_ns(batch_timeout),
            delivery: delivery(group_quorum, group_timeout, cancellable),
            usage_by_sample: parts.journal.is_some(),
            step,
            ..BatchSpec::whole(samples, num_generations, payload)
        };
        let scheduler = &parts.scheduler;
        let batch = gil::detached(py, || scheduler.submit(spec))?;
        let released = parts.lanes.released.clone();
        let batch = Bound::new(py, PyBatch::new(batch, scheduler, None, released, self.runtime.clone()))?;
        held.append(&batch)?;
        Ok(batch)
    }

    /// Takes on an open batch, without samples.
    #[pyo3(signature = (*, num_generations, held, batch_timeout = None, group_quorum = None, group_timeout = None, max_pending = None, step = None))]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn open<'py>(
        &self,
        py: Python<'py>,
        num_generations: usize,
        held: &Bound<'py, PyList>,
        batch_timeout: Option<f64>,
        group_quorum: Option<usize>,
        group_timeout: Option<f64>,
        max_pending: Option<usize>,
        step: Option<u64>,
    ) -> PyResult<Bound<'py, PyBatch>> {
        let parts = self.parts()?;
        let open_values = Arc::new(OpenBatchValues::new(self.functions.clone()));
        let payload = Box::new(OpenBatchPayload(open_values.clone()));
        let spec = BatchSpec {
            batch_timeout_ns: in_ns(batch_timeout),
            streamed: true,
            max_pending,
            delivery: delivery(group_quorum, group_timeout, false),
            usage_by_sample: parts.journal.is_some(),
            step,
            ..BatchSpec::whole(0, num_generations, payload)
        };
        let scheduler = &parts.scheduler;
        let batch = gil::detached(py, || scheduler.submit(spec))?;
        let released = parts.lanes.released.clone();
        let batch = PyBatch::new(batch, scheduler, Some(open_values), released, self.runtime.clone());
        let batch = Bound::new(py, batch)?;
        held.append(&batch)?;
        Ok(batch)
    }

    #[pyo3(signature = (timeout = 5.0))]
    fn close(&self, py: Python<'_>, timeout: f64) -> PyResult<bool> {
        let parts = self.parts()?;
        self.closed.store(true, Ordering::Release);
        let scheduler = parts.scheduler.clone();
        let timeout = in_time(timeout.max(0.0));
        // A separate task: what isn't ended in time, or before Ctrl-C, goes on ending in the
        // background.
        let closing = async move { scheduler.close().await };
        let done = gil::finished(py, &self.runtime, timeout, closing);
        // After Ctrl-C too: what they hold back is written now.
        gil::detached(py, || {
            parts.stores.values().for_each(|store| store.close(timeout.min(CACHE_CLOSE)));
            parts.journal.iter().for_each(EngineJournal::close);
            parts.monitor.iter().for_each(Monitor::stop);
            parts.recorder.iter().for_each(|recorder| recorder.close(TRACE_CLOSE));
        });
        parts.lanes.released.let_go(py);
        Ok(done?.is_some())
    }

    /// Returns the journal's failures while the engine was closed.
    fn journal_troubles(&self) -> PyResult<Vec<String>> {
        Ok(self.parts()?.journal.as_ref().map(EngineJournal::troubles).unwrap_or_default())
    }

    #[getter]
    fn closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn stats(&self, py: Python<'_>) -> PyResult<BTreeMap<&'static str, u64>> {
        let parts = self.parts()?;
        Ok(gil::detached(py, || parts.stats()))
    }

    /// Samples whose calls need not be made since the start, one triple a function: those that got
    /// the outcome of an identical call, those found in a cache folder, and those looked up in
    /// vain.
    fn call_counts(&self) -> PyResult<Vec<(u64, u64, u64)>> {
        let counts = self.parts()?.scheduler.call_counts();
        Ok(counts.into_iter().map(|one| (one.shared, one.hits, one.misses)).collect())
    }

    /// Returns the usage of each function since the start, see `Batch.usage`.
    fn usage(&self) -> PyResult<Vec<BTreeMap<&'static str, f64>>> {
        Ok(self.parts()?.scheduler.usage().into_iter().map(reports::usage).collect())
    }

    /// The calls in this process. Does not wait.
    fn in_flight<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(pythonize(py, &in_flight::here(&self.parts()?.scheduler))?)
    }

    /// The calls in worker processes and on nodes, and where their Python is; waits up to `timeout`
    /// seconds.
    fn in_flight_elsewhere<'py>(&self, py: Python<'py>, timeout: f64) -> PyResult<Bound<'py, PyAny>> {
        let within = in_time(timeout.max(0.0)).min(LONGEST_INSPECTION);
        let calls = in_flight::elsewhere(py, &self.runtime, &self.parts()?.scheduler, within)?;
        Ok(pythonize(py, &calls)?)
    }

    /// A node has come, or comes soon: this end of the link to its agent.
    fn add_node(&self, name: &str) -> PyResult<PyLink> {
        nodes::add(self.parts()?.remote.as_ref(), name)
    }

    /// Gives a node no more calls, takes back the frames that it has not begun, and releases it.
    fn drain_node(&self, name: &str) -> PyResult<()> {
        nodes::drain(self.parts()?.remote.as_ref(), name)
    }

    /// The nodes; those that were lost, until one of their name comes.
    fn nodes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let nodes = self.parts()?.remote.as_ref().map(|lane| lane.nodes()).unwrap_or_default();
        Ok(pythonize(py, &nodes)?)
    }

    /// The endpoints of a function; none of one that sends no requests.
    fn endpoints<'py>(&self, py: Python<'py>, function: usize) -> PyResult<Bound<'py, PyAny>> {
        Ok(pythonize(py, &self.parts()?.http.endpoints(function))?)
    }

    /// Replaces the endpoints of a function, each with its weight.
    fn set_endpoints(&self, py: Python<'_>, function: usize, endpoints: Vec<(String, f64)>) -> PyResult<()> {
        let (http, runtime) = (self.parts()?.http.clone(), self.runtime.clone());
        let set = gil::detached(py, move || {
            let _inside = runtime.enter(); // pools of new endpoints are made in it
            http.set_endpoints(function, endpoints)
        });
        set.map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// Cells without an outcome in all open batches, per function.
    fn open_cells(&self, py: Python<'_>) -> PyResult<Vec<usize>> {
        let scheduler = self.parts()?.scheduler.clone();
        Ok(gil::detached(py, move || scheduler.open_cells()))
    }

    /// Seconds for which the limit of each function lets nothing through, where that is known.
    fn limit_waits(&self, py: Python<'_>) -> PyResult<Vec<Option<f64>>> {
        let scheduler = self.parts()?.scheduler.clone();
        let waits = gil::detached(py, move || scheduler.limit_waits());
        Ok(waits.into_iter().map(|wait| wait.map(|wait| wait.as_secs_f64())).collect())
    }

    /// The metrics now, each with its labels.
    fn metric_samples(&self, py: Python<'_>) -> PyResult<Vec<Sample>> {
        let monitor = self.parts()?.monitor.as_ref();
        Ok(gil::detached(py, || monitor.map(Monitor::samples).unwrap_or_default()))
    }

    /// The metrics now, as text for Prometheus.
    fn metrics_text(&self, py: Python<'_>, open_metrics: bool) -> PyResult<String> {
        let monitor = self.parts()?.monitor.as_ref();
        Ok(gil::detached(py, || monitor.map(|monitor| monitor.text(open_metrics)).unwrap_or_default()))
    }

    /// The address of the metrics, the socket of the live state and the file of the timeline, each
    /// beside the reason why there is none; both `None` where nobody asked for it.
    fn places(&self) -> PyResult<BTreeMap<&'static str, Place>> {
        let parts = self.parts()?;
        let monitor = parts.monitor.as_ref();
        let trace = parts.recorder.as_ref().map(|one| one.path().display().to_string());
        Ok(BTreeMap::from([
            ("metrics", monitor.map(Monitor::address).unwrap_or_default()),
            ("state", monitor.map(Monitor::socket).unwrap_or_default()),
            ("trace", (trace, parts.trace_problem.clone())),
        ]))
    }

    fn worker_pids(&self) -> PyResult<Vec<i32>> {
        Ok(self.parts()?.process.get().map(|lane| lane.worker_pids()).unwrap_or_default())
    }
}
