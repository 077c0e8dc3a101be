//! The thread and asyncio lanes towards Python: what its threads and event loops call.
//!
//! - User code never runs on top of a Rust frame: at interpreter exit CPython unwinds a thread that
//!   is inside user code, and a Rust frame below it would abort the process. All methods are
//!   therefore leaves.
//! - No method waits with the GIL held; no lock is held while Python objects are made or released.
//!
//! Decisions are made in `guerdon_inprocess`; here values are converted.

mod call_results;
pub mod frame_view;
pub mod loop_frame;
pub mod loop_queue;
pub mod supervisor;
pub mod thread_frame;
pub mod thread_slot;

use std::sync::Arc;

use guerdon_core::clock::Clock;
use guerdon_core::function::Function;
use guerdon_inprocess::asyncio_lane::AsyncioLane;
use guerdon_inprocess::supervisor::{SupervisorQueue, SupervisorRequest};
use guerdon_inprocess::thread_lane::ThreadLane;
use pyo3::prelude::*;
use tokio::runtime::Handle;

use crate::config::FunctionSettings;
use crate::gil;
use crate::stacks::StackReader;
use crate::values::released::ReleasedValues;
use supervisor::PySupervisorRequest;

/// Queue from which the lanes' Python threads take their work, and to which they report their end.
#[pyclass(frozen, module = "guerdon._native")]
#[derive(Clone)]
pub struct Lanes {
    pub supervisor: Arc<SupervisorQueue>,
    pub threads: Arc<ThreadLane>,
    pub loops: Arc<AsyncioLane>,
    /// Values that calls on lanes' threads were the last to hold.
    pub released: Arc<ReleasedValues>,
    /// Reader of stacks of this process's calls, for the live state.
    pub stacks: Arc<StackReader>,
}

impl Lanes {
    /// Makes the thread and asyncio lanes of these functions, and what serves them.
    pub fn new(runtime: &Handle, clock: Clock, core: &[Function], functions: &[FunctionSettings]) -> Self {
        let supervisor = Arc::new(SupervisorQueue::default());
        let names: Vec<Option<String>> = functions.iter().map(|config| config.event_loop.clone()).collect();
        Self {
            threads: Arc::new(ThreadLane::new(runtime, clock, core, &supervisor)),
            loops: Arc::new(AsyncioLane::new(runtime, clock, core, &names, &supervisor)),
            released: Arc::new(ReleasedValues::new(runtime.clone(), supervisor.clone())),
            stacks: Arc::default(),
            supervisor,
        }
    }
}

#[pymethods]
impl Lanes {
    fn next_request(&self, py: Python<'_>) -> PyResult<Option<PySupervisorRequest>> {
        // Frames that are queued already are taken without releasing the GIL: a loop that C code
        // blocked would move on while it is released, and what the supervisor is to look at would
        // be gone.
        loop {
            let there = self.supervisor.try_next();
            let Some(request) = there.or_else(|| gil::detached(py, || self.supervisor.next())) else { return Ok(None) };
            // The GIL is held: Python answers.
            if let SupervisorRequest::Stalled { number, .. } = request {
                self.supervisor.stall_seen(number);
            }
            // None: a thread of the caller's was quicker to let values go, or nobody waits for
            // stacks any more.
            let Self { threads, loops, released, stacks, .. } = self;
            if let Some(request) = PySupervisorRequest::of(py, request, threads, loops, released, stacks)? {
                return Ok(Some(request));
            }
        }
    }

    fn set_stack(&self, py: Python<'_>, thread: u64, stack: String) {
        gil::detached(py, || self.threads.pool().set_stack(thread, stack));
    }

    fn set_stacks(&self, py: Python<'_>, number: u64, stacks: Vec<String>) {
        gil::detached(py, || self.stacks.answer(number, stacks));
    }

    fn loop_functions(&self, index: usize) -> Vec<usize> {
        self.loops.functions_of(index)
    }

    fn loop_name(&self, index: usize) -> String {
        self.loops.name_of(index)
    }
}
