//! Calls that run now.

use guerdon_core::function::FunctionId;
use guerdon_core::tracer::Executor;

/// A call that runs, as a lane sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenCall {
    pub executor: Executor,
    pub function: FunctionId,
    pub batch: u64,
    pub first: usize,
    pub attempt: u16,
    pub started_ns: u64,
}
