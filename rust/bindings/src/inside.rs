//! What the lanes have in hand, for `Dispatcher.dump()`: rows of plain values.
//!
//! - D-1  Nothing here waits with the GIL held, and looking at the lanes of this process does not wait at all: it may be done in a signal
//!   handler, between any two instructions of Python.

use std::sync::Arc;
use std::time::Duration;

use guerdon_core::clock::Clock;
use guerdon_core::in_flight::InFlightCall;
use guerdon_http::HttpLane;
use guerdon_process::{ProcessLane, WorkerSnapshot};

use crate::lanes::aio::AioLane;
use crate::lanes::thread::ThreadLane;
use crate::lanes::thread::chunk::Held;

/// function, batch, samples as (first, end), phase, attempt, age in seconds, and what tells the place: of a worker process its pid; of a thread
/// its number and identifier; of a loop its index and generation, then the frame and, in the phase of calls, the index of the call.
pub type Row = (usize, u64, Vec<(usize, usize)>, &'static str, u16, f64, Vec<u64>);
/// A row, the stack, and why there is none.
pub type ProcessRow = (Row, Option<String>, Option<String>);

/// One row for each batch of the call.
fn rows(doing: InFlightCall, place: Vec<u64>) -> impl Iterator<Item = Row> {
    let InFlightCall { function, batch, samples, others, phase, attempt, age_ns } = doing;
    let age_s = Duration::from_nanos(age_ns).as_secs_f64();
    std::iter::once((batch, samples)).chain(others).map(move |(batch, samples)| {
        let samples = samples.into_iter().map(|span| (span.start, span.end)).collect();
        (function, batch, samples, phase.word(), attempt, age_s, place.clone())
    })
}

/// What worker processes have in hand, with their stacks; waits for these, up to `within`.
pub fn of_processes(lane: Option<&Arc<ProcessLane>>, within: Duration) -> Vec<ProcessRow> {
    let told = |WorkerSnapshot { call, worker, stack }| {
        rows(call, vec![u64::from(i32::cast_unsigned(worker))]).map(move |row| match &stack {
            Ok(stack) => (row, Some(stack.clone()), None),
            Err(why) => (row, None, Some(why.to_string())),
        })
    };
    lane.map(|lane| lane.inspect(within)).unwrap_or_default().into_iter().flat_map(told).collect()
}

/// What threads have in hand.
pub fn of_threads(lane: &ThreadLane, clock: Clock) -> Vec<Row> {
    let now_ns = clock.now_ns();
    let held = lane.held();
    let told = |chunk: &Arc<Held>| Some(rows(chunk.doing(now_ns)?, vec![chunk.thread(), chunk.ident()]));
    held.iter().filter_map(told).flatten().collect()
}

/// What event loops have in hand.
pub fn of_loops(lane: &AioLane, clock: Clock) -> Vec<Row> {
    lane.doing(clock.now_ns()).into_iter().flat_map(|(doing, place)| rows(doing, place)).collect()
}

/// What requests are on their way, each with its server.
pub fn of_requests(lane: &HttpLane) -> Vec<(Row, String)> {
    let told = |(doing, host): (InFlightCall, String)| rows(doing, Vec::new()).map(move |row| (row, host.clone()));
    lane.in_flight().into_iter().flat_map(told).collect()
}
