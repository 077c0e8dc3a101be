//! `Link`: one end of the connection to a node or to a driver; and the nodes of an engine.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use guerdon_core::clock::Clock;
use guerdon_core::function::Function;
use guerdon_core::lane::Lane;
use guerdon_core::settings::seconds;
use guerdon_inprocess::supervisor::{Source, SupervisorRequest};
use guerdon_inprocess::thread_lane::most_threads;
use guerdon_process::{Printer, ProcessConfig, standard_error};
use guerdon_remote::{Link, OutgoingBytes, Pace, RemoteConfig, RemoteLane, RunsOn};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyConnectionError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde::Deserialize;
use tokio::runtime::Handle;

use crate::config::FunctionSettings;
use crate::gil;
use crate::lane_kind::LaneKind;
use crate::lanes::Lanes;
use crate::local_lanes::LocalLanes;
use crate::process::EngineProcess;

/// Waiting in one go: no longer, so that a signal is answered.
const LONGEST_TAKE: Duration = Duration::from_secs(1);

/// Settings for nodes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoteSettings {
    /// Digest that tells the functions from others.
    digest: [u8; 32],
    /// Time that a node may say nothing.
    #[serde(deserialize_with = "seconds")]
    silence: Duration,
}

/// Carries bytes; what they mean is the engine's business at both ends.
#[pyclass(frozen, module = "guerdon._native", name = "Link")]
pub struct PyLink(Arc<Link>);

impl PyLink {
    pub const fn new(link: Arc<Link>) -> Self {
        Self(link)
    }

    pub const fn link(&self) -> &Arc<Link> {
        &self.0
    }

    fn next(&self, py: Python<'_>, timeout: f64, linger: f64, enough: usize) -> PyResult<Option<Vec<u8>>> {
        let pace = Pace { linger: Duration::try_from_secs_f64(linger.max(0.0)).unwrap_or(Duration::MAX), enough };
        let end = gil::end_of(Some(timeout));
        loop {
            let left = end.map(|end| end.saturating_duration_since(std::time::Instant::now()));
            let wait = left.unwrap_or(LONGEST_TAKE).min(LONGEST_TAKE);
            match gil::detached(py, || self.0.take(wait, pace)) {
                OutgoingBytes::Message(message) => return Ok(Some(message)),
                OutgoingBytes::Closed(reason) => {
                    return Err(PyConnectionError::new_err(reason.unwrap_or_else(|| "the link is closed".to_owned())));
                }
                OutgoingBytes::Empty if left.is_some_and(|left| left <= wait) => return Ok(None),
                OutgoingBytes::Empty => py.check_signals()?,
            }
        }
    }
}

#[pymethods]
impl PyLink {
    /// Returns the bytes to send next: waits up to `timeout` seconds; None: nothing yet. Bytes that
    /// do not hurry wait up to `linger` seconds for more, until there are `enough`. Raises
    /// ConnectionError when there will be nothing any more.
    #[pyo3(signature = (timeout, *, linger = 0.0, enough = 0))]
    fn take<'py>(
        &self,
        py: Python<'py>,
        timeout: f64,
        linger: f64,
        enough: usize,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let message = self.next(py, timeout, linger, enough)?;
        Ok(message.map(|message| PyBytes::new(py, &message)))
    }

    /// The same, cut in pieces of `size` bytes at most.
    #[pyo3(signature = (timeout, size, *, linger = 0.0, enough = 0))]
    fn take_pieces<'py>(
        &self,
        py: Python<'py>,
        timeout: f64,
        size: usize,
        linger: f64,
        enough: usize,
    ) -> PyResult<Option<Vec<Bound<'py, PyBytes>>>> {
        let message = self.next(py, timeout, linger, enough)?;
        Ok(message.map(|message| message.chunks(size.max(1)).map(|piece| PyBytes::new(py, piece)).collect()))
    }

    /// A message of the other end has come, in pieces: anything with contiguous bytes.
    #[pyo3(signature = (*pieces))]
    fn deliver(&self, py: Python<'_>, pieces: Vec<PyBuffer<u8>>) -> PyResult<()> {
        let mut message = vec![0; pieces.iter().map(|piece| piece.len_bytes()).sum()];
        let mut rest = message.as_mut_slice();
        for piece in &pieces {
            let (here, behind) = rest.split_at_mut(piece.len_bytes());
            piece.copy_to_slice(py, here)?;
            rest = behind;
        }
        gil::detached(py, || self.0.deliver(message));
        Ok(())
    }

    /// The connection is gone, for this reason. `innocent`: no call can be to blame.
    #[pyo3(signature = (reason, *, innocent = false))]
    fn lost(&self, py: Python<'_>, reason: &str, innocent: bool) {
        gil::detached(py, || self.0.lost(reason, innocent));
    }

    /// Returns whether the engine is done with it, or it is lost.
    #[getter]
    fn closed(&self) -> bool {
        self.0.is_closed()
    }

    /// Returns the name of the other end.
    #[getter]
    fn name(&self) -> String {
        self.0.name().to_string()
    }
}

/// Lanes that run calls here when no node is left.
pub struct Here<'a> {
    pub lanes: &'a Lanes,
    pub process: &'a EngineProcess,
    pub workers: ProcessConfig,
}

/// The lane of an engine with nodes.
pub fn lane(
    runtime: &Handle,
    clock: Clock,
    configs: &[FunctionSettings],
    functions: &[Function],
    settings: &RemoteSettings,
    here: Here<'_>,
) -> Arc<RemoteLane> {
    let Here { lanes: Lanes { supervisor, threads, loops, .. }, process, workers } = here;
    let frame_calls = (0..functions.len()).map(|id| workers.frame_calls(id)).collect();
    let runs_on = configs.iter().enumerate().map(|(id, config)| match config.lane.kind {
        LaneKind::Thread if config.anywhere => RunsOn::Threads(most_threads(&functions[id])),
        LaneKind::Asyncio if config.anywhere => RunsOn::Loop(loops.parallelism(id)),
        _ => RunsOn::Workers,
    });
    let runs_on: Vec<RunsOn> = runs_on.collect();
    let kinds: Vec<LaneKind> = configs.iter().map(|config| config.lane.kind).collect();
    let workers = Mutex::new(Some(workers));
    let (process, all, handle) = (process.clone(), functions.to_vec(), runtime.clone());
    let (threads, loops) = (threads.clone(), loops.clone());
    let local = move || -> Arc<dyn Lane> {
        let process = kinds.contains(&LaneKind::Process).then(|| {
            // Made once: the second time the lane is there.
            let config = workers.lock().unwrap_or_else(PoisonError::into_inner).take();
            let config = config.unwrap_or_else(|| {
                ProcessConfig::new(std::path::PathBuf::new(), std::path::PathBuf::new(), Vec::new(), 1)
            });
            process.start(&handle, clock, &all, LaneKind::Process.index(), config)
        });
        Arc::new(LocalLanes { kinds: kinds.clone(), threads: threads.clone(), loops: loops.clone(), process })
    };
    let mut config = RemoteConfig::new(settings.digest, functions.len(), Box::new(local));
    config.frame_calls = frame_calls;
    config.runs_on = runs_on;
    config.silence = settings.silence;
    let requests = supervisor.clone();
    config.warn = Arc::new(move |why| {
        requests.push(SupervisorRequest::Trouble { source: Source::Node, place: String::new(), why });
    });
    let printer = {
        let _inside = runtime.enter();
        Printer::start(standard_error())
    };
    let last = printer.clone();
    config.print = Arc::new(move |node, lines| print(&printer, node, lines));
    config.last_words = Box::new(move || {
        let printer = last.clone();
        Box::pin(async move { printer.last_words().await })
    });
    RemoteLane::new(runtime.clone(), clock, functions, config)
}

/// Prints lines of a node's workers, each with the node's name.
fn print(printer: &Arc<Printer>, node: &str, lines: &[u8]) {
    for line in String::from_utf8_lossy(lines).lines() {
        let of_function = line.strip_prefix("[guerdon ").and_then(|rest| rest.split_once("] "));
        match of_function {
            Some((source, line)) => printer.line(&format!("{node}: {source}"), line.as_bytes()),
            None => printer.line(node, line.strip_prefix("[guerdon] ").unwrap_or(line).as_bytes()),
        }
    }
}

fn there(lane: Option<&Arc<RemoteLane>>) -> PyResult<&Arc<RemoteLane>> {
    lane.ok_or_else(|| PyRuntimeError::new_err("this engine has no nodes: no function of it runs on some"))
}

pub fn add(lane: Option<&Arc<RemoteLane>>, name: &str) -> PyResult<PyLink> {
    let link = there(lane)?.add_node(name);
    link.map(PyLink::new).ok_or_else(|| PyValueError::new_err(format!("there is a node '{name}' already")))
}

pub fn drain(lane: Option<&Arc<RemoteLane>>, name: &str) -> PyResult<()> {
    if there(lane)?.drain(name) { Ok(()) } else { Err(PyValueError::new_err(format!("there is no node '{name}'"))) }
}
