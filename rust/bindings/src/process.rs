//! The process lane of an engine: there from the start, or made once no node is left.

use std::sync::{Arc, OnceLock};

use guerdon_core::clock::Clock;
use guerdon_core::function::Function;
use guerdon_core::lane::Lane;
use guerdon_process::{ProcessConfig, ProcessLane};
use tokio::runtime::Handle;

/// The process lane once it has started: an engine without functions for workers has no zygote
/// either.
#[derive(Clone, Default)]
pub struct EngineProcess(Arc<OnceLock<Arc<ProcessLane>>>);

impl EngineProcess {
    pub fn get(&self) -> Option<&Arc<ProcessLane>> {
        self.0.get()
    }

    /// Makes the lane.
    pub fn start(
        &self,
        runtime: &Handle,
        clock: Clock,
        functions: &[Function],
        index: usize,
        config: ProcessConfig,
    ) -> Arc<dyn Lane> {
        self.0.get_or_init(|| ProcessLane::new(runtime.clone(), clock, functions, index, config)).clone()
    }
}
