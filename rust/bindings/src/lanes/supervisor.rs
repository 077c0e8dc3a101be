//! The requests to the thread supervisor, as Python gets them: one class each.

use guerdon_inprocess::supervisor::SupervisorRequest;
use pyo3::prelude::*;

/// Start a thread for a function.
#[pyclass(frozen, get_all, module = "guerdon._native")]
pub struct StartThread {
    function: usize,
    thread: u64,
}

/// Start an event loop.
#[pyclass(frozen, get_all, module = "guerdon._native")]
pub struct StartLoop {
    index: usize,
    generation: u64,
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

/// Warn that the circuit breaker of a function's endpoint is open.
#[pyclass(frozen, get_all, module = "guerdon._native")]
pub struct BreakerOpen {
    function: usize,
    reason: String,
}

/// Any of them.
#[derive(IntoPyObject)]
pub enum PySupervisorRequest {
    StartThread(StartThread),
    StartLoop(StartLoop),
    ThreadAbandoned(ThreadAbandoned),
    ReadStack(ReadStack),
    LoopBlocked(LoopBlocked),
    LoopWasBlocked(LoopWasBlocked),
    BreakerOpen(BreakerOpen),
}

impl From<SupervisorRequest> for PySupervisorRequest {
    fn from(request: SupervisorRequest) -> Self {
        use SupervisorRequest as Request;
        match request {
            Request::StartThread { function, thread } => Self::StartThread(StartThread { function, thread }),
            Request::StartLoop { index, generation } => Self::StartLoop(StartLoop { index, generation }),
            Request::ThreadAbandoned { function, count } => Self::ThreadAbandoned(ThreadAbandoned { function, count }),
            Request::ReadStack { thread, ident } => Self::ReadStack(ReadStack { thread, ident }),
            Request::LoopBlocked { index, generation } => Self::LoopBlocked(LoopBlocked { index, generation }),
            Request::LoopWasBlocked { index, generation, function } => {
                Self::LoopWasBlocked(LoopWasBlocked { index, generation, function })
            }
            Request::BreakerOpen { function, reason } => Self::BreakerOpen(BreakerOpen { function, reason }),
        }
    }
}
