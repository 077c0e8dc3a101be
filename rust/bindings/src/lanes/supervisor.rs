//! The requests to the thread supervisor, as Python gets them: one class each.

use std::sync::Arc;

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

/// Inspect an event loop, and warn of a call that blocks it.
#[pyclass(frozen, get_all, module = "guerdon._native")]
pub struct InspectLoop {
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

/// Warn of trouble: what with, the function, folder or file that has it, and what it is.
#[pyclass(frozen, get_all, module = "guerdon._native")]
pub struct Trouble {
    source: &'static str,
    place: String,
    why: String,
}

/// Report that no call has ended for `seconds` seconds.
#[pyclass(frozen, get_all, module = "guerdon._native")]
pub struct StallReport {
    seconds: f64,
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

/// Any of them.
#[derive(IntoPyObject)]
pub enum PySupervisorRequest {
    StartThread(StartThread),
    StartLoop(StartLoop),
    ThreadAbandoned(ThreadAbandoned),
    ReadStack(ReadStack),
    ReadStacks(ReadStacks),
    InspectLoop(InspectLoop),
    LoopWasBlocked(LoopWasBlocked),
    Trouble(Trouble),
    Stall(StallReport),
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
            Request::InspectLoop { index, generation } => Self::InspectLoop(InspectLoop { index, generation }),
            Request::LoopWasBlocked { index, generation, function } => {
                Self::LoopWasBlocked(LoopWasBlocked { index, generation, function })
            }
            Request::Stalled { stalled, .. } => Self::Stall(StallReport { seconds: stalled.as_secs_f64() }),
            Request::Trouble { source, place, why } => Self::Trouble(Trouble { source: source.word(), place, why }),
        }))
    }
}
