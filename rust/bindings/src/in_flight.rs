//! What the lanes have in flight, for `Dispatcher.dump()`.
//!
//! Nothing here waits with the GIL held, and looking at the lanes of this process does not wait at
//! all: it may be done in a signal handler, between any two instructions of Python.

use std::sync::Arc;
use std::time::Duration;

use guerdon_core::clock::Clock;
use guerdon_core::in_flight::InFlightCall;
use guerdon_http::{EndpointSnapshot, HttpLane};
use guerdon_inprocess::asyncio_lane::AsyncioLane;
use guerdon_inprocess::thread_lane::ThreadLane;
use guerdon_native::NativeLane;
use guerdon_process::{ProcessLane, WorkerSnapshot};
use guerdon_remote::{RemoteCall, RemoteLane};
use pyo3::prelude::*;
use tokio::runtime::Handle;

use crate::gil;

/// A call in flight, as far as it is of one batch.
#[pyclass(frozen, get_all, module = "guerdon._native", name = "CallSnapshot")]
#[derive(Clone)]
pub struct PyCallSnapshot {
    function: usize,
    batch: u64,
    /// The samples, as (first, end) of each run of neighbours.
    spans: Vec<(usize, usize)>,
    phase: &'static str,
    attempt: u16,
    age_s: f64,
}

/// A call in a worker process, and where its Python is, or why that is not known.
#[pyclass(frozen, get_all, module = "guerdon._native", name = "WorkerSnapshot")]
pub struct PyWorkerSnapshot {
    call: PyCallSnapshot,
    pid: i32,
    stack: Option<String>,
    no_stack: Option<String>,
}

/// A call that a node has in hand, and where its Python is, or why that is not known.
#[pyclass(frozen, get_all, module = "guerdon._native", name = "NodeCallSnapshot")]
pub struct PyNodeCallSnapshot {
    call: PyCallSnapshot,
    node: String,
    /// The worker there; empty where that is not known.
    place: String,
    stack: Option<String>,
    no_stack: Option<String>,
}

/// A call on a thread: its number, and what Python calls it.
#[pyclass(frozen, get_all, module = "guerdon._native", name = "ThreadSnapshot")]
pub struct PyThreadSnapshot {
    call: PyCallSnapshot,
    thread: u64,
    ident: u64,
}

/// A call on an event loop: which loop, and the call's frame and number in it.
#[pyclass(frozen, get_all, module = "guerdon._native", name = "LoopSnapshot")]
pub struct PyLoopSnapshot {
    call: PyCallSnapshot,
    index: usize,
    generation: u64,
    frame: u64,
    number: usize,
}

/// A request on its way to a server.
#[pyclass(frozen, get_all, module = "guerdon._native", name = "RequestSnapshot")]
pub struct PyRequestSnapshot {
    call: PyCallSnapshot,
    server: String,
}

/// A call of a kernel.
#[pyclass(frozen, get_all, module = "guerdon._native", name = "KernelSnapshot")]
pub struct PyKernelSnapshot {
    call: PyCallSnapshot,
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
    p50_s: Option<f64>,
}

/// The endpoints of a function's member, as they are now.
pub fn endpoints(lane: &HttpLane, function: usize, member: usize) -> Vec<PyEndpointSnapshot> {
    let snapshot = |one: EndpointSnapshot| PyEndpointSnapshot {
        url: one.url,
        address: one.address.map(|address| address.to_string()),
        weight: one.weight,
        breaker: one.breaker,
        in_flight: one.in_flight,
        answered: one.answered,
        failed: one.failed,
        p50_s: one.p50_ns.map(|time| Duration::from_nanos(time).as_secs_f64()),
    };
    lane.endpoints(function, member).into_iter().map(snapshot).collect()
}

/// One for each batch of the call.
fn by_batch(call: InFlightCall) -> impl Iterator<Item = PyCallSnapshot> {
    let InFlightCall { function, batch, samples, others, phase, attempt, age_ns } = call;
    let (phase, age_s) = (phase.word(), Duration::from_nanos(age_ns).as_secs_f64());
    std::iter::once((batch, samples)).chain(others).map(move |(batch, samples)| {
        let spans = samples.into_iter().map(|span| (span.start, span.end)).collect();
        PyCallSnapshot { function, batch, spans, phase, attempt, age_s }
    })
}

/// The calls in worker processes; waits for their stacks, up to `within`.
pub fn workers(
    py: Python<'_>,
    runtime: &Handle,
    lane: Option<Arc<ProcessLane>>,
    within: Duration,
) -> PyResult<Vec<PyWorkerSnapshot>> {
    let Some(lane) = lane else { return Ok(Vec::new()) };
    let looking = runtime.spawn_blocking(move || lane.inspect(within));
    // The lane keeps to its time; the rest is for what it takes to say so.
    let seen =
        gil::finished(py, runtime, within + Duration::from_secs(1), async { looking.await.unwrap_or_default() })?;
    let seen = seen.unwrap_or_default();
    let snapshots = |WorkerSnapshot { call, worker: pid, stack }| {
        let (stack, no_stack) = match stack {
            Ok(stack) => (Some(stack), None),
            Err(why) => (None, Some(why.to_string())),
        };
        by_batch(call).map(move |call| PyWorkerSnapshot { call, pid, stack: stack.clone(), no_stack: no_stack.clone() })
    };
    Ok(seen.into_iter().flat_map(snapshots).collect())
}

/// The calls that nodes have; waits for it, up to `within`.
pub fn nodes(
    py: Python<'_>,
    runtime: &Handle,
    lane: Option<Arc<RemoteLane>>,
    within: Duration,
) -> PyResult<Vec<PyNodeCallSnapshot>> {
    let Some(lane) = lane else { return Ok(Vec::new()) };
    let looking = runtime.spawn_blocking(move || lane.inspect(within));
    let seen =
        gil::finished(py, runtime, within + Duration::from_secs(1), async { looking.await.unwrap_or_default() })?;
    let snapshots = |one: RemoteCall| {
        let (node, place) = (one.node.to_string(), one.place);
        let (stack, no_stack) = match one.stack {
            Ok(stack) => (Some(stack), None),
            Err(why) => (None, Some(why)),
        };
        by_batch(one.call).map(move |call| PyNodeCallSnapshot {
            call,
            node: node.clone(),
            place: place.clone(),
            stack: stack.clone(),
            no_stack: no_stack.clone(),
        })
    };
    Ok(seen.unwrap_or_default().into_iter().flat_map(snapshots).collect())
}

pub fn threads(lane: &ThreadLane, clock: Clock) -> Vec<PyThreadSnapshot> {
    let seen = lane.inspect(clock.now_ns()).into_iter();
    seen.flat_map(|one| {
        by_batch(one.call).map(move |call| PyThreadSnapshot { call, thread: one.thread, ident: one.ident })
    })
    .collect()
}

pub fn loops(lane: &AsyncioLane, clock: Clock) -> Vec<PyLoopSnapshot> {
    let seen = lane.inspect(clock.now_ns()).into_iter();
    seen.flat_map(|one| {
        let (index, generation, frame, number) = (one.index, one.generation, one.frame, one.number);
        by_batch(one.call).map(move |call| PyLoopSnapshot { call, index, generation, frame, number })
    })
    .collect()
}

pub fn requests(lane: &HttpLane) -> Vec<PyRequestSnapshot> {
    let seen = lane.in_flight().into_iter();
    seen.flat_map(|(call, server)| by_batch(call).map(move |call| PyRequestSnapshot { call, server: server.clone() }))
        .collect()
}

pub fn kernels(lane: &NativeLane, clock: Clock) -> Vec<PyKernelSnapshot> {
    let seen = lane.inspect(clock.now_ns()).into_iter();
    seen.flat_map(|call| by_batch(call).map(|call| PyKernelSnapshot { call })).collect()
}
