//! What the lanes have in hand, for `Dispatcher.dump()`: rows of plain values.
//!
//! - D-1  Nothing here waits with the GIL held, and looking at the lanes of this process does not wait at all: it may be done in a signal
//!   handler, between any two instructions of Python.

use std::sync::Arc;
use std::time::Duration;

use guerdon_core::clock::Clock;
use guerdon_core::doing::Doing;
use guerdon_core::process::{ProcessLane, Sight};
use guerdon_http::HttpLane;

use crate::lanes::aio::AioLane;
use crate::lanes::thread::ThreadLane;

/// function, batch, samples as (first, end), phase, attempt, age in seconds, and what tells the place: of a worker process its pid; of a thread
/// its number and identifier; of a loop its index and generation, then the frame and, in the phase of calls, the index of the call.
pub type Row = (usize, u64, Vec<(usize, usize)>, &'static str, u16, f64, Vec<u64>);
/// A row, the stack, and why there is none.
pub type ProcessRow = (Row, Option<String>, Option<String>);

fn row(doing: Doing, place: Vec<u64>) -> Row {
    let samples = doing.samples.into_iter().map(|span| (span.start, span.end)).collect();
    let age_s = Duration::from_nanos(doing.age_ns).as_secs_f64();
    (doing.function, doing.batch, samples, doing.phase.word(), doing.attempt, age_s, place)
}

/// What worker processes have in hand, with their stacks; waits for these, up to `within`.
pub fn of_processes(lane: Option<&Arc<ProcessLane>>, within: Duration) -> Vec<ProcessRow> {
    let told = |Sight { doing, worker, stack }| {
        let row = row(doing, vec![u64::from(i32::cast_unsigned(worker))]);
        match stack {
            Ok(stack) => (row, Some(stack), None),
            Err(why) => (row, None, Some(why.to_string())),
        }
    };
    lane.map(|lane| lane.look(within)).unwrap_or_default().into_iter().map(told).collect()
}

/// What threads have in hand.
pub fn of_threads(lane: &ThreadLane, clock: Clock) -> Vec<Row> {
    let now_ns = clock.now_ns();
    let held = lane.held();
    held.iter().filter_map(|chunk| Some(row(chunk.doing(now_ns)?, vec![chunk.thread(), chunk.ident()]))).collect()
}

/// What event loops have in hand.
pub fn of_loops(lane: &AioLane, clock: Clock) -> Vec<Row> {
    lane.doing(clock.now_ns()).into_iter().map(|(doing, place)| row(doing, place)).collect()
}

/// What requests are on their way, each with its server.
pub fn of_requests(lane: &HttpLane) -> Vec<(Row, String)> {
    lane.doing().into_iter().map(|(doing, host)| (row(doing, Vec::new()), host)).collect()
}
