//! `guerdon._native`: the engine as a Python extension module. Conversions and the discipline of the GIL; no logic.

mod batch;
mod config;
mod engine;
mod gil;
mod http;
mod inside;
mod lanes;
mod location;
mod runtime;
mod values;

/// The compiled engine of guerdon.
#[pyo3::pymodule(gil_used = true)]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::batch::PyBatch;
    #[pymodule_export]
    use crate::config::FunctionConfig;
    #[pymodule_export]
    use crate::engine::Engine;
    #[pymodule_export]
    use crate::http::HttpConfig;
    #[pymodule_export]
    use crate::lanes::Lanes;
    #[pymodule_export]
    use crate::lanes::aio::event_loop::LoopQueue;
    #[pymodule_export]
    use crate::lanes::aio::jobs::Jobs;
    #[pymodule_export]
    use crate::lanes::thread::chunk::Chunk;
    #[pymodule_export]
    use crate::values::given::{PyConst, PyUse};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
