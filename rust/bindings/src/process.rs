//! The process lane of an engine: there from the start, or made once no node is left.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use guerdon_core::clock::Clock;
use guerdon_core::function::Function;
use guerdon_core::lane::Lane;
use guerdon_process::{ProcessConfig, ProcessLane, Recycle};
use pyo3::prelude::*;
use tokio::runtime::Handle;

use crate::config::FunctionConfig;

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

/// Settings of the package for workers.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct WorkerArgs {
    pub workers: usize,
    python: String,
    worker_dir: String,
    serialized_functions: Option<Vec<u8>>,
    environment: Vec<(Vec<u8>, Vec<u8>)>,
    /// Calls, seconds and bytes after which a worker is replaced.
    recycle: (Option<u64>, Option<f64>, Option<u64>),
}

impl WorkerArgs {
    pub fn config(self, functions: &[FunctionConfig]) -> ProcessConfig {
        let Self { workers, python, worker_dir, serialized_functions, environment, recycle } = self;
        let serialized_functions = serialized_functions.unwrap_or_default();
        let mut config = ProcessConfig::new(python.into(), worker_dir.into(), serialized_functions, workers);
        let text = OsString::from_vec;
        config.environment = Some(environment.into_iter().map(|(name, value)| (text(name), text(value))).collect());
        let (calls, age, rss) = recycle;
        let age = age.map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX));
        config.recycle = Recycle { calls, age, rss };
        config.resource_limits = functions.iter().map(|function| function.resource_limits.clone()).collect();
        config
    }
}
