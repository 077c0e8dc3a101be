//! `guerdon._native`: the engine as a Python extension module. Conversions and the discipline of
//! the GIL; no decisions.

mod batch;
mod cache;
mod compound;
mod config;
mod engine;
mod gil;
mod http;
mod in_flight;
mod lanes;
mod limit;
mod location;
mod parse;
mod reports;
mod runtime;
mod tariff;
mod values;

/// The compiled engine of guerdon.
#[pyo3::pymodule(gil_used = true)]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::batch::PyBatch;
    #[pymodule_export]
    use crate::cache::PyOutcomeStore;
    #[pymodule_export]
    use crate::compound::CompoundConfig;
    #[pymodule_export]
    use crate::config::FunctionConfig;
    #[pymodule_export]
    use crate::engine::Engine;
    #[pymodule_export]
    use crate::http::HttpConfig;
    #[pymodule_export]
    use crate::in_flight::{
        PyCallSnapshot, PyEndpointSnapshot, PyLoopSnapshot, PyRequestSnapshot, PyThreadSnapshot, PyWorkerSnapshot,
    };
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
        CacheTrouble, EndpointWarning, LoopBlocked, LoopWasBlocked, ReadStack, StartLoop, StartThread, ThreadAbandoned,
        TooFewDescriptors,
    };
    #[pymodule_export]
    use crate::lanes::thread_frame::PyThreadFrame;
    #[pymodule_export]
    use crate::lanes::thread_slot::ThreadSlot;
    #[pymodule_export]
    use crate::parse::read_score;
    #[pymodule_export]
    use crate::tariff::{PyTariff, SpendingCap};
    #[pymodule_export]
    use crate::values::columns::{PyConstant, PyFunctionColumns};

    /// Cores that this process may use: CPU affinity and the quotas of its control groups.
    #[pyfunction]
    fn available_parallelism() -> usize {
        std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
    }

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
