//! `Agent`: the lanes of this process, run by drivers elsewhere.
//!
//! Like an `Engine`, it belongs to the process that made it: in a forked child every use raises,
//! and dropping it touches nothing.

use std::mem::ManuallyDrop;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use guerdon_core::clock::Clock;
use guerdon_core::function::Function;
use guerdon_core::lane::Lane;
use guerdon_core::snapshots::AgentStats;
use guerdon_inprocess::thread_lane::ThreadLane;
use guerdon_process::ProcessConfig;
use guerdon_remote::{Agent, AgentConfig};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pythonize::pythonize;
use serde::Deserialize;
use tokio::runtime::Handle;

use crate::config::{FunctionSettings, settings};
use crate::gil;
use crate::lane_kind::LaneKind;
use crate::lanes::Lanes;
use crate::nodes::PyLink;
use crate::process::EngineProcess;
use crate::runtime;

/// The indexes of an agent's lanes: requests are the drivers' business.
const THREAD: usize = 0;
const ASYNCIO: usize = 1;
const PROCESS: usize = 2;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AgentSettings {
    functions: Vec<FunctionSettings>,
    workers: ProcessConfig,
    digest: [u8; 32],
}

#[pyclass(frozen, module = "guerdon._native", name = "Agent")]
pub struct PyAgent {
    pid: u32,
    runtime: Handle,
    /// Not dropped in a forked child.
    parts: ManuallyDrop<AgentParts>,
}

struct AgentParts {
    agent: Arc<Agent>,
    process: EngineProcess,
    lanes: Lanes,
}

impl PyAgent {
    fn parts(&self) -> PyResult<&AgentParts> {
        if self.pid == std::process::id() {
            Ok(&self.parts)
        } else {
            Err(PyRuntimeError::new_err("the agent was started in another process; a forked child needs its own"))
        }
    }
}

impl Drop for PyAgent {
    fn drop(&mut self) {
        if self.pid == std::process::id() {
            #[expect(unsafe_code, reason = "the one place where the parts are dropped")]
            // SAFETY: `parts` is not used after this: `self` is being dropped.
            let parts = unsafe { ManuallyDrop::take(&mut self.parts) };
            self.runtime.spawn(async move { parts.agent.close().await });
        }
    }
}

/// Returns the counters of the lanes.
fn stats(process: &EngineProcess, threads: &ThreadLane) -> AgentStats {
    let counts = process.get().map(|lane| lane.stats()).unwrap_or_default();
    AgentStats {
        workers: counts.workers,
        forks: counts.forks,
        restarts: counts.restarts,
        kills: counts.kills,
        abandoned_threads: threads.pool().abandoned() as u64,
    }
}

#[pymethods]
impl PyAgent {
    #[new]
    fn new(config: &Bound<'_, PyAny>) -> PyResult<Self> {
        let AgentSettings { functions, workers: mut config, digest } = settings(config)?;
        let runtime = runtime::handle()?;
        let clock = Clock::start();
        let core = functions.iter().map(|one| {
            let lane = match one.lane.kind {
                LaneKind::Thread => THREAD,
                LaneKind::Asyncio => ASYNCIO,
                LaneKind::Process => PROCESS,
                LaneKind::Http | LaneKind::Native | LaneKind::Compose => {
                    let why = "judges, kernels and panels are called by the driver, not by agents";
                    return Err(PyValueError::new_err(why));
                }
            };
            Ok(Function { lane, ..one.function.clone() })
        });
        let core = core.collect::<PyResult<Vec<_>>>()?;
        let own = Lanes::new(&runtime, clock, &core, &functions);
        let slots = config.workers.max(1);
        config.resource_limits = functions.into_iter().map(|one| one.resource_limits).collect();
        let printing: Arc<OnceLock<Weak<Agent>>> = Arc::default();
        let printer = printing.clone();
        config.sink = Arc::new(move |lines| {
            if let Some(agent) = printer.get().and_then(Weak::upgrade) {
                agent.print(lines);
            }
        });
        let process = EngineProcess::default();
        let mut lanes: Vec<Arc<dyn Lane>> = vec![own.threads.clone(), own.loops.clone()];
        if core.iter().any(|function| function.lane == PROCESS) {
            lanes.push(process.start(&runtime, clock, &core, PROCESS, config));
        }
        let (counted, pool) = (process.clone(), own.threads.clone());
        let config = AgentConfig { digest, slots, stats: Box::new(move || stats(&counted, &pool)) };
        let agent = Arc::new(Agent::start(&runtime, clock, core, lanes, config));
        let _ = printing.set(Arc::downgrade(&agent));
        let (requests, reader) = (Arc::downgrade(&own.supervisor), own.stacks.clone());
        agent.inspect_with(Box::new(move |lanes, within| {
            requests.upgrade().map(|requests| reader.look(&requests, lanes, clock, within)).unwrap_or_default()
        }));
        let parts = AgentParts { agent, process, lanes: own };
        Ok(Self { pid: std::process::id(), runtime, parts: ManuallyDrop::new(parts) })
    }

    /// Returns the objects that the lanes' Python threads hold on to.
    #[getter]
    fn lanes(&self) -> PyResult<Lanes> {
        Ok(self.parts()?.lanes.clone())
    }

    /// Has a driver say what the lanes' Python threads warn of.
    fn warn(&self, py: Python<'_>, what: &str) -> PyResult<()> {
        let agent = &self.parts()?.agent;
        gil::detached(py, || agent.warn(what));
        Ok(())
    }

    /// A driver has come: this end of the link to it.
    fn connect(&self, peer: &str) -> PyResult<PyLink> {
        Ok(PyLink::new(self.parts()?.agent.connect(peer)))
    }

    #[pyo3(signature = (timeout = 5.0))]
    fn close(&self, py: Python<'_>, timeout: f64) -> PyResult<bool> {
        let agent = self.parts()?.agent.clone();
        let timeout = Duration::try_from_secs_f64(timeout.max(0.0)).unwrap_or(Duration::MAX);
        Ok(gil::finished(py, &self.runtime, timeout, async move { agent.close().await })?.is_some())
    }

    /// Frames that have not ended, and what its workers did.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let parts = self.parts()?;
        let stats = pythonize(py, &stats(&parts.process, &parts.lanes.threads))?;
        stats.set_item("frames", parts.agent.frames())?;
        Ok(stats)
    }

    fn worker_pids(&self) -> PyResult<Vec<i32>> {
        Ok(self.parts()?.process.get().map(|lane| lane.worker_pids()).unwrap_or_default())
    }
}
