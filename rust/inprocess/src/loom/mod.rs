//! Model checks: loom runs each of these under every interleaving that `LOOM_MAX_PREEMPTIONS`
//! allows (`make model-check`).
//!
//! - `thread_lane`: a call beside the watchdog, and threads that wait beside work that comes.
//! - `asyncio_lane`: a call beside the watchdog and the end of its loop, and wake-ups beside
//!   frames.
//! - `supervisor`: requests beside the end of the lanes.

mod asyncio_lane;
mod supervisor;
mod thread_lane;

use std::time::Duration;

use guerdon_core::function::{Function, Policy, Shape};
use loom::thread;

/// Explores a model. Unbounded, a model of three threads over locks takes hours; three preemptions
/// find the same as more.
fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.check(model);
}

/// Runs these beside each other and waits for all.
fn beside(these: Vec<Box<dyn FnOnce() + Send>>) {
    let threads: Vec<_> = these.into_iter().map(thread::spawn).collect();
    for one in threads {
        assert!(one.join().is_ok());
    }
}

/// A function whose calls never time out by the clock: in a model that must not matter.
fn function(concurrency: usize) -> Function {
    let policy = Policy { concurrency: Some(concurrency), ..Policy::new(Duration::from_secs(1_000_000)) };
    Function::new("model", Shape::Sample, policy)
}
