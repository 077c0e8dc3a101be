//! `Engine`: the scheduler, the lanes and the workers of one dispatcher.
//!
//! - An engine belongs to the process that made it. In a forked child every use raises, and
//!   dropping it touches nothing: its locks may be held by threads that the child lacks.
//! - `close` may be called any number of times, from any thread; open batches end as cancelled.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::mem::ManuallyDrop;
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use guerdon_cache::OutcomeStore;
use guerdon_core::batch::BatchSpec;
use guerdon_core::clock::{Clock, nanos};
use guerdon_core::delivery::Delivery;
use guerdon_core::dependents;
use guerdon_core::function::{Function, Shape};
use guerdon_core::lane::Lane;
use guerdon_core::scheduler::Scheduler;
use guerdon_http::HttpLane;
use guerdon_inprocess::asyncio_lane::AsyncioLane;
use guerdon_inprocess::supervisor::{SupervisorQueue, SupervisorRequest};
use guerdon_inprocess::thread_lane::ThreadLane;
use guerdon_process::{ProcessConfig, ProcessLane, Recycle};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyList;
use tokio::runtime::Handle;

use crate::batch::PyBatch;
use crate::config::{FunctionConfig, LaneKind};
use crate::gil;
use crate::http;
use crate::in_flight::{
    self, PyEndpointSnapshot, PyLoopSnapshot, PyRequestSnapshot, PyThreadSnapshot, PyWorkerSnapshot,
};
use crate::lanes::Lanes;
use crate::reports;
use crate::runtime;
use crate::values::columns::PyFunctionColumns;
use crate::values::open_batch::{OpenBatchPayload, OpenBatchValues};
use crate::values::released::ReleasedValues;
use crate::values::whole_batch::WholeBatchPayload;

/// Looking at the workers has a bound, whatever was asked for.
const LONGEST_INSPECTION: Duration = Duration::from_secs(60);
/// The longest that `close` waits for what a cache folder has still to write.
const CACHE_CLOSE: Duration = Duration::from_secs(5);

#[pyclass(frozen, module = "guerdon._native", name = "Engine")]
pub struct Engine {
    pid: u32,
    runtime: Handle,
    /// Lane of each function, and whether its calls take one sample.
    functions: Vec<(LaneKind, bool)>,
    /// Whether identical calls of each function are made once.
    pure: Vec<bool>,
    /// Not dropped in a forked child.
    parts: ManuallyDrop<Parts>,
    closed: AtomicBool,
}

struct Parts {
    scheduler: Arc<Scheduler>,
    /// Only where a function runs in workers: without one there is no zygote either.
    process: Option<Arc<ProcessLane>>,
    supervisor: Arc<SupervisorQueue>,
    threads: Arc<ThreadLane>,
    loops: Arc<AsyncioLane>,
    http: Arc<HttpLane>,
    released: Arc<ReleasedValues>,
    /// The cache folders of its functions.
    stores: Vec<Arc<OutcomeStore>>,
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

fn in_ns(seconds: Option<f64>) -> Option<u64> {
    seconds.map(|seconds| nanos(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)))
}

fn delivery(group_quorum: Option<usize>, group_timeout: Option<f64>) -> Delivery {
    Delivery { group_quorum, group_timeout_ns: in_ns(group_timeout) }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if self.pid == std::process::id() {
            #[expect(unsafe_code, reason = "the one place where the parts are dropped")]
            // SAFETY: `parts` is not used after this: `self` is being dropped.
            let parts = unsafe { ManuallyDrop::take(&mut self.parts) };
            // What is still running ends in the background: dropping must not wait.
            let scheduler = parts.scheduler;
            self.runtime.spawn(async move { scheduler.close().await });
        }
    }
}

#[pymethods]
impl Engine {
    #[new]
    #[pyo3(signature = (functions, *, workers, python, worker_dir, serialized_functions, environment, recycle))]
    fn new(
        functions: Vec<PyRef<'_, FunctionConfig>>,
        workers: usize,
        python: String,
        worker_dir: String,
        serialized_functions: Option<Vec<u8>>,
        environment: Vec<(Vec<u8>, Vec<u8>)>,
        recycle: (Option<u64>, Option<f64>, Option<u64>),
    ) -> PyResult<Self> {
        let runtime = runtime::handle()?;
        let clock = Clock::start();
        let lanes: Vec<LaneKind> = functions.iter().map(|config| config.lane).collect();
        let pure: Vec<bool> = functions.iter().map(|config| config.function.pure).collect();
        let one_by_one: Vec<bool> =
            functions.iter().map(|one| one.function.shape == Shape::Sample && one.function.gather.is_none()).collect();
        let core: Vec<Function> = functions.iter().map(|config| config.function.clone()).collect();
        if let Some(fault) = dependents::fault(&core) {
            return Err(PyValueError::new_err(fault));
        }
        let supervisor = Arc::new(SupervisorQueue::default());
        let threads = Arc::new(ThreadLane::new(&runtime, clock, &core, &supervisor));
        let names: Vec<Option<String>> = functions.iter().map(|config| config.event_loop.clone()).collect();
        let loops = Arc::new(AsyncioLane::new(&runtime, clock, &core, &names, &supervisor));
        let specs = functions.iter().map(|config| config.http.clone()).collect();
        let compounds = functions.iter().map(|config| config.compound.clone()).collect();
        let http = Arc::new(http::lane(&runtime, clock, &core, specs, compounds)?);
        let mut all: Vec<Arc<dyn Lane>> = vec![threads.clone(), loops.clone(), http.clone()];
        let process = lanes.contains(&LaneKind::Process).then(|| {
            let serialized_functions = serialized_functions.unwrap_or_default();
            let mut config = ProcessConfig::new(python.into(), worker_dir.into(), serialized_functions, workers);
            let text = OsString::from_vec;
            config.environment = Some(environment.into_iter().map(|(name, value)| (text(name), text(value))).collect());
            let (calls, age, rss) = recycle;
            let age = age.map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX));
            config.recycle = Recycle { calls, age, rss };
            config.resource_limits = functions.iter().map(|function| function.resource_limits.clone()).collect();
            ProcessLane::new(runtime.clone(), clock, &core, LaneKind::Process.index(), config)
        });
        all.extend(process.iter().map(|lane| lane.clone() as Arc<dyn Lane>));
        let scheduler = Arc::new(Scheduler::start(&runtime, clock, core, all));
        let warn = |requests: Arc<SupervisorQueue>| {
            move |function, warning, reason: &str| {
                requests.push(SupervisorRequest::EndpointWarning { function, warning, reason: reason.to_owned() });
            }
        };
        scheduler.on_limit_warning(warn(supervisor.clone()));
        http.on_limit_warning(warn(supervisor.clone()));
        let requests = supervisor.clone();
        http.on_descriptor_shortage(move |shortage| {
            let reason = format!("{shortage}: {}", http::ALLOW_MORE);
            requests.push(SupervisorRequest::TooFewDescriptors { reason });
        });
        let stores = distinct(functions.iter().filter_map(|config| config.store.clone()));
        for store in &stores {
            let (requests, folder) = (supervisor.clone(), store.folder().display().to_string());
            store.on_trouble(move |reason| {
                let (folder, reason) = (folder.clone(), reason.to_owned());
                requests.push(SupervisorRequest::CacheTrouble { folder, reason });
            });
        }
        let released = Arc::new(ReleasedValues::new(supervisor.clone()));
        let kept = released.clone();
        scheduler.on_payload_release(move |values| kept.keep(values));
        Ok(Self {
            pid: std::process::id(),
            runtime,
            functions: lanes.into_iter().zip(one_by_one).collect(),
            pure,
            parts: ManuallyDrop::new(Parts { scheduler, process, supervisor, threads, loops, http, released, stores }),
            closed: AtomicBool::new(false),
        })
    }

    /// What the lanes' Python threads hold on to.
    #[getter]
    fn lanes(&self) -> PyResult<Lanes> {
        let parts = self.parts()?;
        let Parts { supervisor, threads, loops, released, .. } = parts;
        Ok(Lanes::new(supervisor.clone(), threads.clone(), loops.clone(), released.clone()))
    }

    #[pyo3(signature = (columns, uses, *, samples, num_generations, held, dumps, batch_timeout = None, group_quorum = None, group_timeout = None))]
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
    ) -> PyResult<Bound<'py, PyBatch>> {
        let parts = self.parts()?;
        parts.released.let_go(py);
        if num_generations == 0 || !samples.is_multiple_of(num_generations) {
            let problem = format!("num_generations={num_generations} does not divide {samples} samples");
            return Err(PyValueError::new_err(problem));
        }
        let lanes: Vec<LaneKind> = self.functions.iter().map(|(lane, _)| *lane).collect();
        let payload = Box::new(WholeBatchPayload::capture(py, &columns, &uses, &lanes, &self.pure, samples, dumps)?);
        let spec = BatchSpec {
            batch_timeout_ns: in_ns(batch_timeout),
            delivery: delivery(group_quorum, group_timeout),
            ..BatchSpec::whole(samples, num_generations, payload)
        };
        let scheduler = &parts.scheduler;
        let batch = gil::detached(py, || scheduler.submit(spec))?;
        let released = parts.released.clone();
        let batch = Bound::new(py, PyBatch::new(batch, scheduler, None, released, self.runtime.clone()))?;
        held.append(&batch)?;
        Ok(batch)
    }

    /// Takes on an open batch, without samples.
    #[pyo3(signature = (*, num_generations, held, batch_timeout = None, group_quorum = None, group_timeout = None, max_pending = None))]
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
    ) -> PyResult<Bound<'py, PyBatch>> {
        let parts = self.parts()?;
        let open_values = Arc::new(OpenBatchValues::new(self.functions.clone()));
        let payload = Box::new(OpenBatchPayload(open_values.clone()));
        let spec = BatchSpec {
            batch_timeout_ns: in_ns(batch_timeout),
            streamed: true,
            max_pending,
            delivery: delivery(group_quorum, group_timeout),
            ..BatchSpec::whole(0, num_generations, payload)
        };
        let scheduler = &parts.scheduler;
        let batch = gil::detached(py, || scheduler.submit(spec))?;
        let released = parts.released.clone();
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
        let timeout = Duration::try_from_secs_f64(timeout.max(0.0)).unwrap_or(Duration::MAX);
        // A task of its own: what isn't ended in time, or before Ctrl-C, goes on ending in the
        // background.
        let closing = async move { scheduler.close().await };
        let done = gil::finished(py, &self.runtime, timeout, closing)?.is_some();
        gil::detached(py, || parts.stores.iter().for_each(|store| store.close(timeout.min(CACHE_CLOSE))));
        parts.released.let_go(py);
        Ok(done)
    }

    #[getter]
    fn closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn stats(&self, py: Python<'_>) -> PyResult<BTreeMap<&'static str, u64>> {
        let parts = self.parts()?;
        let workers = parts.process.as_ref().map(|lane| lane.stats()).unwrap_or_default();
        let fleets = parts.http.fleet_counts();
        let mut stats = BTreeMap::from([
            ("workers", workers.workers),
            ("worker_restarts", workers.restarts),
            ("worker_loads", workers.loads),
            ("kills", workers.kills),
            ("abandoned_threads", parts.threads.pool().abandoned() as u64),
            ("late_outcomes", parts.scheduler.late_outcomes()),
            ("open_batches", parts.scheduler.open_batches() as u64),
            ("failovers", fleets.failovers),
            ("hedges", fleets.hedges),
            ("hedges_won", fleets.hedges_won),
        ]);
        if !parts.stores.is_empty() {
            let counts: Vec<_> = gil::detached(py, || parts.stores.iter().map(|store| store.counts()).collect());
            stats.insert("cache_bytes", counts.iter().map(|counts| counts.bytes).sum());
            stats.insert("cache_dropped", counts.iter().map(|counts| counts.dropped).sum());
        }
        Ok(stats)
    }

    /// Samples whose calls need not be made since the start, one triple a function: those that got
    /// the outcome of an identical call, those found in a cache folder, and those looked up in
    /// vain.
    fn call_counts(&self) -> PyResult<Vec<(u64, u64, u64)>> {
        let counts = self.parts()?.scheduler.call_counts();
        Ok(counts.into_iter().map(|one| (one.shared, one.hits, one.misses)).collect())
    }

    /// What each function used since the start, see `Batch.usage`.
    fn usage(&self) -> PyResult<Vec<BTreeMap<&'static str, f64>>> {
        Ok(self.parts()?.scheduler.usage().into_iter().map(reports::usage).collect())
    }

    /// The calls in worker processes, and where their Python is; waits up to `timeout` seconds.
    fn inspect_workers(&self, py: Python<'_>, timeout: f64) -> PyResult<Vec<PyWorkerSnapshot>> {
        let process = self.parts()?.process.clone();
        let within = Duration::try_from_secs_f64(timeout.max(0.0)).unwrap_or(LONGEST_INSPECTION);
        in_flight::workers(py, &self.runtime, process, within.min(LONGEST_INSPECTION))
    }

    fn inspect_threads(&self) -> PyResult<Vec<PyThreadSnapshot>> {
        let parts = self.parts()?;
        Ok(in_flight::threads(&parts.threads, parts.scheduler.clock()))
    }

    fn inspect_loops(&self) -> PyResult<Vec<PyLoopSnapshot>> {
        let parts = self.parts()?;
        Ok(in_flight::loops(&parts.loops, parts.scheduler.clock()))
    }

    fn inspect_requests(&self) -> PyResult<Vec<PyRequestSnapshot>> {
        Ok(in_flight::requests(&self.parts()?.http))
    }

    /// The endpoints of a function's member; none of one that sends no requests.
    fn endpoints(&self, function: usize, member: usize) -> PyResult<Vec<PyEndpointSnapshot>> {
        Ok(in_flight::endpoints(&self.parts()?.http, function, member))
    }

    /// Replaces the endpoints of a function's member, each with its weight.
    fn set_endpoints(
        &self,
        py: Python<'_>,
        function: usize,
        member: usize,
        endpoints: Vec<(String, f64)>,
    ) -> PyResult<()> {
        let (http, runtime) = (self.parts()?.http.clone(), self.runtime.clone());
        let set = gil::detached(py, move || {
            let _inside = runtime.enter(); // pools of new endpoints are made in it
            http.set_endpoints(function, member, endpoints)
        });
        set.map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// Cells without an outcome in all open batches, per function.
    fn open_cells(&self, py: Python<'_>) -> PyResult<Vec<usize>> {
        let scheduler = self.parts()?.scheduler.clone();
        Ok(gil::detached(py, move || scheduler.open_cells()))
    }

    fn worker_pids(&self) -> PyResult<Vec<i32>> {
        Ok(self.parts()?.process.as_ref().map(|lane| lane.worker_pids()).unwrap_or_default())
    }
}
