//! Model checks: loom runs each under every interleaving that `LOOM_MAX_PREEMPTIONS` allows.
//!
//! `grid`: one outcome a cell, one announcement a group. `batch`: no news of a group is lost.
//! `scheduler`: no call is lost between a failed attempt and a sweep, no work waits while there is
//! room. `limits`, `engines`: no limit is exceeded, each permit comes back. `gathering`: no sample
//! of a call on several batches is lost. `open_batch`: additions and early deliveries beside
//! outcomes and a consumer. `dependents`: a gated call is made, skipped or swept, once. `compose`:
//! no member call runs that was given up. `sharing`: identical calls get one outcome.
//! `frame_runner`: a call of a frame from elsewhere is reported once, whoever ends it.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "what is missing has failed the model")]

mod batch;
mod compose;
mod dependents;
mod engines;
mod frame_runner;
mod gathering;
mod grid;
mod limits;
mod open_batch;
mod scheduler;
mod sharing;

use loom::thread;

/// Explores a model. Unbounded, a model of three threads over locks takes hours; three preemptions
/// find the same as more.
fn explore(model: impl Fn() + Sync + Send + 'static) {
    explore_within(3, model);
}

/// Explores models of three threads that take many locks, of which each preemption makes twenty
/// times as many interleavings.
fn explore_within(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.check(model);
}

/// Runs these beside each other and waits for all.
fn beside(these: Vec<Box<dyn FnOnce() + Send>>) {
    let threads: Vec<_> = these.into_iter().map(thread::spawn).collect();
    for one in threads {
        one.join().unwrap();
    }
}
