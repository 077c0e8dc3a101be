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
use guerdon_http::{EndpointSnapshot, HttpLane};
use pyo3::prelude::*;
use tokio::runtime::Handle;

use crate::gil;

/// A call in flight, as far as it is of one batch, what has it, and where it stands.
#[pyclass(frozen, get_all, module = "guerdon._native", name = "InFlight")]
#[derive(Clone)]
pub struct PyInFlight {
    function: usize,
    batch: u64,
    /// The samples, as (first, end) of each run of neighbours.
    spans: Vec<(usize, usize)>,
    phase: &'static str,
    attempt: u16,
    age_s: f64,
    /// Its place.
    worker: Worker,
    /// On a thread: its number, and what Python calls it.
    thread: Option<(u64, u64)>,
    /// On an event loop: its index and generation, and the call's frame and number in it.
    on_loop: Option<(usize, u64, u64, usize)>,
    /// On another node: which.
    node: Option<String>,
    stack: Option<String>,
    no_stack: Option<String>,
}

/// A process id or a name.
#[derive(Clone, IntoPyObject)]
enum Worker {
    Process(i32),
    Name(String),
}

/// An endpoint of a function of the http lane.
#[pyclass(frozen, get_all, module = "guerdon._native", name = "EndpointSnapshot")]
pub struct PyEndpointSnapshot {
    url: String,
    address: Option<String>,
    weight: f64,
    breaker: &'static str,
    in_flight: usize,
    answered: u64,
    failed: u64,
    deferred: u64,
    p50_s: Option<f64>,
}

/// The endpoints of a function, as they are now.
pub fn endpoints(lane: &HttpLane, function: usize) -> Vec<PyEndpointSnapshot> {
    let snapshot = |one: EndpointSnapshot| PyEndpointSnapshot {
        url: one.url,
        address: one.address.map(|address| address.to_string()),
        weight: one.weight,
        breaker: one.breaker,
        in_flight: one.in_flight,
        answered: one.answered,
        failed: one.failed,
        deferred: one.deferred,
        p50_s: one.p50_ns.map(seconds),
    };
    lane.endpoints(function).into_iter().map(snapshot).collect()
}

/// One for each batch of the call.
fn by_batch(one: InFlight) -> impl Iterator<Item = PyInFlight> {
    let InFlight { call, location, stack } = one;
    let worker = match &location {
        Location::Worker(pid) => Worker::Process(*pid),
        location => Worker::Name(location.to_string()),
    };
    let thread = if let Location::Thread { number, ident } = location { Some((number, ident)) } else { None };
    let on_loop = match location {
        Location::Loop { index, generation, frame, number, .. } => Some((index, generation, frame, number)),
        _ => None,
    };
    let node = if let Location::Node { name, .. } = &location { Some(name.to_string()) } else { None };
    let (stack, no_stack) = stack.text().map_or_else(|why| (None, Some(why)), |stack| (Some(stack), None));
    let InFlightCall { function, batch, samples, others, phase, attempt, age_ns } = call;
    let snapshot = PyInFlight {
        function,
        batch,
        spans: Vec::new(),
        phase: phase.word(),
        attempt,
        age_s: seconds(age_ns),
        worker,
        thread,
        on_loop,
        node,
        stack,
        no_stack,
    };
    std::iter::once((batch, samples)).chain(others).map(move |(batch, samples)| {
        let spans = samples.into_iter().map(|span| (span.start, span.end)).collect();
        PyInFlight { batch, spans, ..snapshot.clone() }
    })
}

/// The calls in this process. Does not wait.
pub fn here(scheduler: &Scheduler) -> Vec<PyInFlight> {
    lane::in_flight(scheduler.lanes(), scheduler.clock().now_ns()).into_iter().flat_map(by_batch).collect()
}

/// The calls that other processes have; waits for their stacks, up to `within`.
pub fn elsewhere(
    py: Python<'_>,
    runtime: &Handle,
    scheduler: &Arc<Scheduler>,
    within: Duration,
) -> PyResult<Vec<PyInFlight>> {
    let scheduler = scheduler.clone();
    let looking = runtime.spawn_blocking(move || lane::in_flight_elsewhere(scheduler.lanes(), within));
    // The lanes keep to their time; the rest is for the message itself.
    let seen =
        gil::finished(py, runtime, within + Duration::from_secs(1), async { looking.await.unwrap_or_default() })?;
    Ok(seen.unwrap_or_default().into_iter().flat_map(by_batch).collect())
}
