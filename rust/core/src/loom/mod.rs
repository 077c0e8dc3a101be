//! Model checks: loom runs each of these under every interleaving that `LOOM_MAX_PREEMPTIONS` allows (`make model-check`).
//!
//! - `grid`: one outcome a cell, one announcement a group, what came too late is dropped (G-1, G-2, G-4, G-5, G-6).
//! - `batch`: each group is handed out once, and no news of one is lost (B-1, B-2).
//! - `scheduler`: no call is lost between an attempt that failed and a sweep, no work is left while a lane has room (S-2, S-3, B-3, F-1, F-3).
//! - `limits`: a limit is never exceeded, and what a call gives back is the next one's, however the call ended (L-3).
//! - `gathering`: no sample of a call on several batches is lost, mixed up or ended with another's batch, whatever ends the call beside it (M-2, M-3,
//!   M-8, S-2, S-3).
//! - `growing`: samples added, growth ended and groups cut beside outcomes and a consumer elsewhere: each group is handed out once (A-3, B-1, Z-1,
//!   Z-2, U-3, U-4).
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "what is missing has failed the model")]

mod batch;
mod gathering;
mod grid;
mod limits;
mod open_batch;
mod scheduler;

use loom::thread;

/// Explores a model. Unbounded, a model of three threads over locks takes hours; three preemptions find what there is to find.
fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.check(model);
}

/// Runs these beside each other and waits for all.
fn beside(these: Vec<Box<dyn FnOnce() + Send>>) {
    let threads: Vec<_> = these.into_iter().map(thread::spawn).collect();
    for one in threads {
        one.join().unwrap();
    }
}
