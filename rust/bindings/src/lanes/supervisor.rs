//! The requests to the thread supervisor, as Python gets them: one class each.

use std::sync::Arc;

use guerdon_core::limits::LimitWarning;
use guerdon_inprocess::asyncio_lane::AsyncioLane;
use guerdon_inprocess::supervisor::{LoopCall, SupervisorRequest};
use guerdon_inprocess::thread_lane::ThreadLane;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::lanes::loop_queue::PyLoopQueue;
use crate::lanes::thread_slot::ThreadSlot;
use crate::stacks::StackReader;
use crate::values::released::ReleasedValues;

/// Start a thread. A slot that is dropped is one of a thread that could not be started.
#[pyclass(frozen, get_all, module = "guerdon._native")]
pub struct StartThread {
    slot: Py<ThreadSlot>,
}

/// Start an event loop.
#[pyclass(frozen, get_all, module = "guerdon._native")]
pub struct StartLoop {
    index: usize,
    generation: u64,
    /// None if the loop is not wanted any more.
    queue: Option<Py<PyLoopQueue>>,
}

/// Warn that a thread was abandoned in a call; `count` of the function are now.
#[pyclass(frozen, get_all, module = "guerdon._native")]
pub struct ThreadAbandoned {
    function: usize,
    count: u64,
}

/// Read the stack of a thread.
#[pyclass(frozen, get_all, module = "guerdon._native")]
pub struct ReadStack {
    thread: u64,
    ident: u64,
}

/// Find out what blocks an event loop, and warn.
#[pyclass(frozen, get_all, module = "guerdon._native")]
pub struct LoopBlocked {
    index: usize,
    generation: u64,
}

/// Warn that a call of this function blocked its loop.
#[pyclass(frozen, get_all, module = "guerdon._native")]
pub struct LoopWasBlocked {
    index: usize,
    generation: u64,
    function: usize,
}

/// Warn of a function's endpoint: "breaker_open", "hangs", or "retry_after", which asked to wait
/// for so many seconds.
#[pyclass(frozen, get_all, module = "guerdon._native")]
pub struct EndpointWarning {
    function: usize,
    kind: &'static str,
    retry_after: f64,
    reason: String,
}

/// Warn that endpoints came for whose connections there are too few descriptors.
#[pyclass(frozen, get_all, module = "guerdon._native")]
pub struct TooFewDescriptors {
    reason: String,
}

/// Warn of a cache folder that can't be used, or only in part.
#[pyclass(frozen, get_all, module = "guerdon._native")]
pub struct CacheTrouble {
    folder: String,
    reason: String,
}

/// Warn of a journal that can't be written, or only in part.
#[pyclass(frozen, get_all, module = "guerdon._native")]
pub struct JournalTrouble {
    folder: String,
    reason: String,
}

/// Report that no call has ended for so many seconds.
#[pyclass(frozen, get_all, module = "guerdon._native")]
pub struct Stalled {
    seconds: f64,
}

/// Warn that a timeline can't be written any more.
#[pyclass(frozen, get_all, module = "guerdon._native")]
pub struct TraceTrouble {
    path: String,
    reason: String,
}

/// Index and generation of a loop, the function, and frame and index of the call.
type LoopCallKey = (usize, u64, usize, Option<(u64, usize)>);

/// Read the stacks of threads, by what Python calls them, and of calls on event loops.
#[pyclass(frozen, get_all, module = "guerdon._native")]
pub struct ReadStacks {
    number: u64,
    threads: Vec<u64>,
    loops: Vec<LoopCallKey>,
}

/// Warn of a node of the cluster, or that none is left.
#[pyclass(frozen, get_all, module = "guerdon._native")]
pub struct NodeTrouble {
    reason: String,
}

/// Any of them.
#[derive(IntoPyObject)]
pub enum PySupervisorRequest {
    StartThread(StartThread),
    StartLoop(StartLoop),
    ThreadAbandoned(ThreadAbandoned),
    ReadStack(ReadStack),
    ReadStacks(ReadStacks),
    LoopBlocked(LoopBlocked),
    LoopWasBlocked(LoopWasBlocked),
    EndpointWarning(EndpointWarning),
    TooFewDescriptors(TooFewDescriptors),
    CacheTrouble(CacheTrouble),
    JournalTrouble(JournalTrouble),
    Stalled(Stalled),
    TraceTrouble(TraceTrouble),
    NodeTrouble(NodeTrouble),
    /// Values to let go.
    Values(Py<PyList>),
}

impl PySupervisorRequest {
    pub fn of(
        py: Python<'_>,
        request: SupervisorRequest,
        threads: &Arc<ThreadLane>,
        loops: &AsyncioLane,
        released: &ReleasedValues,
        stacks: &StackReader,
    ) -> PyResult<Option<Self>> {
        use SupervisorRequest as Request;
        Ok(Some(match request {
            Request::ReleaseValues => return Ok(released.next(py).map(Self::Values)),
            Request::StartThread { function, thread } => Self::StartThread(StartThread {
                slot: Py::new(py, ThreadSlot::new(threads.clone(), function, thread))?,
            }),
            Request::StartLoop { index, generation } => {
                let queue = loops.open(index, generation).map(|queue| Py::new(py, PyLoopQueue::new(queue)));
                Self::StartLoop(StartLoop { index, generation, queue: queue.transpose()? })
            }
            Request::ThreadAbandoned { function, count } => Self::ThreadAbandoned(ThreadAbandoned { function, count }),
            Request::ReadStack { thread, ident } => Self::ReadStack(ReadStack { thread, ident }),
            Request::ReadStacks { number, .. } if !stacks.is_awaited(number) => return Ok(None),
            Request::ReadStacks { number, threads, loops } => {
                let key = |one: LoopCall| (one.index, one.generation, one.function, one.call);
                Self::ReadStacks(ReadStacks { number, threads, loops: loops.into_iter().map(key).collect() })
            }
            Request::LoopBlocked { index, generation } => Self::LoopBlocked(LoopBlocked { index, generation }),
            Request::LoopWasBlocked { index, generation, function } => {
                Self::LoopWasBlocked(LoopWasBlocked { index, generation, function })
            }
            Request::Stalled { stalled, .. } => Self::Stalled(Stalled { seconds: stalled.as_secs_f64() }),
            Request::CacheTrouble { folder, reason } => Self::CacheTrouble(CacheTrouble { folder, reason }),
            Request::JournalTrouble { folder, reason } => Self::JournalTrouble(JournalTrouble { folder, reason }),
            Request::TraceTrouble { path, reason } => Self::TraceTrouble(TraceTrouble { path, reason }),
            Request::NodeTrouble { reason } => Self::NodeTrouble(NodeTrouble { reason }),
            Request::EndpointWarning { function, warning, reason } => {
                let (kind, retry_after) = match warning {
                    LimitWarning::BreakerOpen => ("breaker_open", 0.0),
                    LimitWarning::Hangs => ("hangs", 0.0),
                    LimitWarning::LongRetryAfter(after) => ("retry_after", after.as_secs_f64()),
                };
                Self::EndpointWarning(EndpointWarning { function, kind, retry_after, reason })
            }
            Request::TooFewDescriptors { reason } => Self::TooFewDescriptors(TooFewDescriptors { reason }),
        }))
    }
}
