//! Calls in flight on the lanes, for `Dispatcher.dump()`.
//!
//! Nothing here waits with the GIL held, and looking at the lanes of this process does not wait at
//! all: it may be done in a signal handler, between any two instructions of Python.

use std::sync::Arc;
use std::time::Duration;

use guerdon_core::clock::seconds;
use guerdon_core::in_flight::{InFlight, InFlightCall, Location};
use guerdon_core::lane;
use guerdon_core::scheduler::Scheduler;
use pyo3::prelude::*;
use serde::Serialize;
use tokio::runtime::Handle;

use crate::gil;

/// A call in flight, as far as it is of one batch, with its holder and its stack.
#[derive(Clone, Serialize)]
pub struct BatchCall {
    function: usize,
    batch: u64,
    /// The samples, as (first, end) of each run of neighbours.
    spans: Vec<(usize, usize)>,
    phase: &'static str,
    attempt: u16,
    age_s: f64,
    /// The name of its holder, and the id of one that is a worker process.
    place: String,
    pid: Option<i32>,
    /// On a thread: its number, and what Python calls it.
    thread: Option<(u64, u64)>,
    /// On an event loop: its index and generation, and the call's frame and number in it.
    on_loop: Option<(usize, u64, u64, usize)>,
    /// On another node: which.
    node: Option<String>,
    stack: Option<String>,
    no_stack: Option<String>,
}

/// One for each batch of the call.
fn by_batch(one: InFlight) -> impl Iterator<Item = BatchCall> {
    let InFlight { call, location, stack } = one;
    let (stack, no_stack) = stack.text().map_or_else(|why| (None, Some(why)), |stack| (Some(stack), None));
    let InFlightCall { function, batch, samples, others, phase, attempt, age_ns } = call;
    let mut shown = BatchCall {
        function,
        batch,
        spans: Vec::new(),
        phase: phase.word(),
        attempt,
        age_s: seconds(age_ns),
        place: location.to_string(),
        pid: None,
        thread: None,
        on_loop: None,
        node: None,
        stack,
        no_stack,
    };
    match location {
        Location::Worker(pid) => shown.pid = Some(pid),
        Location::Thread { number, ident } => shown.thread = Some((number, ident)),
        Location::Loop { index, generation, frame, number, .. } => {
            shown.on_loop = Some((index, generation, frame, number));
        }
        Location::Node { name, .. } => shown.node = Some(name.to_string()),
        Location::Server(_) | Location::Native => {}
    }
    std::iter::once((batch, samples)).chain(others).map(move |(batch, samples)| {
        let spans = samples.into_iter().map(|span| (span.start, span.end)).collect();
        BatchCall { batch, spans, ..shown.clone() }
    })
}

/// The calls in this process. Does not wait.
pub fn here(scheduler: &Scheduler) -> Vec<BatchCall> {
    lane::in_flight(scheduler.lanes(), scheduler.clock().now_ns()).into_iter().flat_map(by_batch).collect()
}

/// The calls that other processes have; waits for their stacks, up to `within`.
pub fn elsewhere(
    py: Python<'_>,
    runtime: &Handle,
    scheduler: &Arc<Scheduler>,
    within: Duration,
) -> PyResult<Vec<BatchCall>> {
    let scheduler = scheduler.clone();
    let looking = runtime.spawn_blocking(move || lane::in_flight_elsewhere(scheduler.lanes(), within));
    // The lanes keep to their time; the rest is for the message itself.
    let seen =
        gil::finished(py, runtime, within + Duration::from_secs(1), async { looking.await.unwrap_or_default() })?;
    Ok(seen.unwrap_or_default().into_iter().flat_map(by_batch).collect())
}
