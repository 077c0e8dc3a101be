//! Gathering: calls on several samples at once, for functions that are faster with more samples.
//!
//! - A call waits for more samples only while more can come and its oldest sample has waited less
//!   than `max_wait`. A call that came back never waits.
//! - A failed call is split in two until the failing sample is alone. The parts are not mixed with
//!   other samples; a sample that failed alone under a limit goes behind fresh ones.
//! - Samples of several batches go together where `across` and their names allow it. Each still
//!   ends, counts and is retried in its own batch.
//! - The batch whose turn it is takes half of the places; others fill the rest, oldest first.

use std::sync::Arc;

use crate::batch::Batch;
use crate::batch_slice::TakenCalls;
use crate::call::Call;
use crate::clock::nanos;
use crate::function::{Function, FunctionId, Gather};
use crate::payload::Payload;
use crate::scheduler::open_batches::OpenBatches;
use crate::scheduler::queue::{Queue, Work};

/// Samples of one function in one batch that wait for more, until `until_ns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WaitingSamples {
    pub batch: u64,
    pub function: FunctionId,
    pub until_ns: u64,
}

/// Returns the time until which the queued samples wait, if no other batch has samples for their
/// call; `None` when they must go.
fn waits_until(batch: &Batch, function: FunctionId, gather: Gather, queue: &Queue, now_ns: u64) -> Option<u64> {
    let oldest = queue.arrived.front().filter(|_| queue.closed.is_none())?;
    let more = queue.undecided > 0 || (batch.is_open() && batch.has_room());
    if !queue.returned.is_empty() || queue.arrived.len() >= gather.max_size || !more {
        return None;
    }
    let until_ns = batch.ready_ns(oldest.first, function).saturating_add(nanos(gather.max_wait));
    (now_ns < until_ns).then_some(until_ns)
}

/// Returns the samples that wait for more, of functions that may get a call: queues with too few
/// samples, even with the other batches' samples that may join them.
pub(super) fn waiting(
    works: &OpenBatches,
    functions: &[Function],
    free: impl Fn(FunctionId) -> bool,
    now_ns: u64,
) -> Vec<WaitingSamples> {
    let mut found = Vec::new();
    let gathers = functions.iter().enumerate().filter_map(|(function, spec)| Some((function, spec.gather?)));
    for (function, gather) in gathers.filter(|(function, _)| free(*function)) {
        let from = found.len();
        let arriving =
            |work: &&Work| work.batch.is_streamed() || functions[function].run_if.is_some() || functions[function].pure;
        for work in works.ready(function).filter(arriving) {
            if let Some(until_ns) = waits_until(&work.batch, function, gather, &work.queues[function], now_ns) {
                found.push(WaitingSamples { batch: work.batch.id(), function, until_ns });
            }
        }
        if gather.across && found.len() > from {
            let compatible = CompatibleBatches::all(works, function);
            let full = |waiting: &WaitingSamples| {
                compatible
                    .iter()
                    .any(|compatible| compatible.gatherable >= gather.max_size && compatible.has(waiting.batch))
            };
            let mut place = 0;
            found.retain(|waiting| {
                place += 1;
                place <= from || !full(waiting)
            });
        }
    }
    found
}

/// Batches whose samples may be in one call.
struct CompatibleBatches {
    names: Names,
    batches: Vec<u64>,
    /// Number of their queued samples.
    gatherable: usize,
}

impl CompatibleBatches {
    fn all(works: &OpenBatches, function: FunctionId) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for work in works.ready(function) {
            let Some((gatherable, _)) = work.queues[function].gatherable(work.submitted()) else { continue };
            if let Some(compatible) =
                all.iter_mut().find(|compatible| is_compatible(&compatible.names, &work.batch, function))
            {
                compatible.batches.push(work.batch.id());
                compatible.gatherable += gatherable;
            } else if let Some(names) = names_of(&work.batch, function) {
                all.push(Self { names, batches: vec![work.batch.id()], gatherable });
            }
        }
        all
    }

    fn has(&self, batch: u64) -> bool {
        self.batches.binary_search(&batch).is_ok()
    }
}

/// Names of the values of samples that may be in one call; `None` inside for values by position.
type Names = Option<Vec<String>>;

/// Returns the names of this batch's samples, if they may be in a call with other batches' samples.
fn names_of(batch: &Batch, function: FunctionId) -> Option<Names> {
    let names = |payload: &dyn Payload| Some(payload.names(function, false).map(<[String]>::to_vec));
    batch.with_payload(|payload| names(payload).filter(|_| payload.mixes(function)))?
}

fn is_compatible(names: &Names, batch: &Batch, function: FunctionId) -> bool {
    let same = |payload: &dyn Payload| payload.mixes(function) && payload.names(function, false) == names.as_deref();
    batch.with_payload(same).unwrap_or(false)
}

/// Returns other batches whose samples may be in a call with this batch's, the longest waiting
/// first.
fn beside(works: &OpenBatches, batch: &Batch, function: FunctionId) -> Vec<u64> {
    let Some(names) = names_of(batch, function) else { return Vec::new() };
    let since = |work: &Work| {
        let (_, first) = work.queues[function].gatherable(work.submitted())?;
        is_compatible(&names, &work.batch, function).then(|| (work.batch.ready_ns(first, function), work.batch.id()))
    };
    let others = works.ready(function).filter(|work| work.batch.id() != batch.id());
    let mut found: Vec<(u64, u64)> = others.filter_map(since).collect();
    found.sort_unstable();
    found.into_iter().map(|(_, id)| id).collect()
}

/// Takes the samples of the next call, which begins with a queue that is ready; `None` if a call
/// that must run by itself comes first there.
pub(super) fn take(
    works: &mut OpenBatches,
    batch: u64,
    function: FunctionId,
    spec: &Function,
    fresh_first: bool,
) -> Option<TakenCalls> {
    let gather = spec.gather?;
    let head = works.get(batch)?;
    let (queue, first) = (&head.queues[function], head.batch.clone());
    if queue.is_headed_alone() {
        return None;
    }
    if let Some(part) = queue.returned.front().map(|call| call.part).filter(|part| *part != 0) {
        return Some(take_part(works, first, function, part, spec.isolated));
    }
    let samples = head.submitted();
    if let Some(call) = works.edit(batch, function, |queue| queue.take_retried(samples, fresh_first)).flatten() {
        return Some(TakenCalls { batch: first, calls: vec![call], others: Vec::new(), alone: spec.isolated });
    }
    let others = if gather.across { beside(works, &first, function) } else { Vec::new() };
    let mut room = gather.max_size;
    let mut draw = |batch: u64, most: usize, into: &mut Vec<Call>| {
        let before = into.len();
        let Some(samples) = works.get(batch).map(Work::submitted) else { return };
        works.edit(batch, function, |queue| queue.draw(samples, room.min(most), into));
        room -= into.len() - before;
    };
    let mut calls = Vec::new();
    draw(batch, if others.is_empty() { usize::MAX } else { gather.max_size.div_ceil(2) }, &mut calls);
    let drawn: Vec<(u64, Vec<Call>)> = others
        .into_iter()
        .map(|other| {
            let mut calls = Vec::new();
            draw(other, usize::MAX, &mut calls);
            (other, calls)
        })
        .filter(|(_, calls)| !calls.is_empty())
        .collect();
    draw(batch, usize::MAX, &mut calls);
    let others = drawn.into_iter().filter_map(|(id, calls)| Some((works.get(id)?.batch.clone(), calls))).collect();
    Some(TakenCalls { batch: first, calls, others, alone: spec.isolated })
}

/// Takes all calls of a part, from any batches.
fn take_part(works: &mut OpenBatches, batch: Arc<Batch>, function: FunctionId, part: u64, alone: bool) -> TakenCalls {
    let (mut calls, mut others) = (Vec::new(), Vec::new());
    let ready: Vec<Arc<Batch>> = works.ready(function).map(|work| work.batch.clone()).collect();
    for other in ready {
        let drawn = works.edit(other.id(), function, |queue| queue.draw_part(part)).unwrap_or_default();
        if other.id() == batch.id() {
            calls = drawn;
        } else if !drawn.is_empty() {
            others.push((other, drawn));
        }
    }
    TakenCalls { batch, calls, others, alone }
}

/// Returns calls that were taken to their places in the queue; only for functions with a limit.
pub(super) fn put_back(works: &mut OpenBatches, function: FunctionId, taken: &TakenCalls) {
    if let ([call], []) = (&taken.calls[..], &taken.others[..])
        && call.is_behind()
    {
        works.edit(taken.batch.id(), function, |queue| queue.retried.push_front((0, *call)));
        return;
    }
    for (batch, calls) in taken.by_batch() {
        works.edit(batch.id(), function, |queue| {
            queue.handed_out = queue.handed_out.saturating_sub(calls.iter().filter(|call| !call.has_failed()).count());
            queue.put_back(calls);
        });
    }
}
