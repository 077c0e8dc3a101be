//! `guerdon._native`: the engine as a Python extension module. Conversions and the discipline of
//! the GIL; no decisions.
//!
//! It is made for a Python without the GIL too, where a method may run on several threads at once.
//! All classes are frozen except `Fence` and `OverdueCalls`, which one thread uses. Methods write
//! behind locks and atomics, and lists are read from copies that no user code has. No lock is held
//! where Python may stop the thread, except `MutexExt`'s, whose waiters are detached: the collector
//! waits for threads that are attached.

mod agent;
mod batch;
mod batch_result;
mod compose;
mod config;
mod engine;
mod engine_parts;
mod fence;
mod forks;
mod gil;
mod host;
mod http;
mod in_flight;
mod journal;
mod kernel;
mod lane_kind;
mod lanes;
mod local_lanes;
mod location;
mod log;
mod math;
mod monitor;
mod nodes;
mod process;
mod questions;
mod reports;
mod runtime;
mod stacks;
mod trace;
mod values;
mod watchdog;

/// The compiled engine of guerdon.
#[cfg_attr(Py_3_14, pyo3::pymodule(gil_used = false))]
#[cfg_attr(not(Py_3_14), pyo3::pymodule(gil_used = true))]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::agent::PyAgent;
    #[pymodule_export]
    use crate::batch::PyBatch;
    #[pymodule_export]
    use crate::batch_result::PyBatchResult;
    #[pymodule_export]
    use crate::engine::Engine;
    #[pymodule_export]
    use crate::fence::PyFence;
    #[pymodule_export]
    use crate::forks::{close_inherited_sockets, hold_sockets, release_sockets};
    #[pymodule_export]
    use crate::host::{Carrier, carry, reap_child};
    #[pymodule_export]
    use crate::http::{check_http, read_score};
    #[pymodule_export]
    use crate::journal::recover_journal;
    #[pymodule_export]
    use crate::kernel::PyKernel;
    #[pymodule_export]
    use crate::lanes::Lanes;
    #[pymodule_export]
    use crate::lanes::frame_view::PyFrameView;
    #[pymodule_export]
    use crate::lanes::loop_frame::{PyLoopFrame, Turn};
    #[pymodule_export]
    use crate::lanes::loop_queue::{Beat, OverdueCall, OverdueCalls, PyLoopQueue};
    #[pymodule_export]
    use crate::lanes::supervisor::{
        InspectLoop, LoopWasBlocked, ReadStack, ReadStacks, StallReport, StartLoop, StartThread, ThreadAbandoned,
        Trouble,
    };
    #[pymodule_export]
    use crate::lanes::thread_frame::PyThreadFrame;
    #[pymodule_export]
    use crate::lanes::thread_slot::ThreadSlot;
    #[pymodule_export]
    use crate::math::math_decision;
    #[pymodule_export]
    use crate::monitor::metric_families;
    #[pymodule_export]
    use crate::nodes::PyLink;
    #[pymodule_export]
    use crate::questions::{KeyRequests, ProgramAnswer, ProgramQuestions};
    #[pymodule_export]
    use crate::trace::trace_summary;
    #[pymodule_export]
    use crate::values::columns::{PyConstant, PyFunctionColumns};

    /// Cores that this process may use: CPU affinity and the quotas of its control groups.
    #[pyfunction]
    fn available_parallelism() -> usize {
        std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
    }

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::log::start();
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}

/// A module that needs the GIL: a free-threaded Python turns it on when it loads this.
#[pyo3::pymodule(gil_used = true)]
mod _with_gil {}
