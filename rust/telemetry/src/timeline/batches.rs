//! State of the batches that are open, or whose last calls may still be reported.

use std::collections::BTreeMap;

use guerdon_core::function::FunctionId;
use guerdon_core::tracer::CallSpan;

/// The most batches that are kept. If there are more, the oldest is left out: the event of its end
/// was dropped.
const MOST: usize = 1 << 14;

/// State of one batch.
pub(crate) struct BatchState {
    pub step: Option<u64>,
    pub submitted_ns: u64,
    pub samples: usize,
    pub groups: usize,
    pub done_ns: Option<u64>,
    pub functions: BTreeMap<FunctionId, CallTally>,
}

/// Calls of a function that ran in a batch.
#[derive(Clone, Copy)]
pub(crate) struct CallTally {
    pub ready_ns: u64,
    pub last_start_ns: u64,
    pub ended_ns: u64,
    pub calls: u64,
    pub failed: u64,
}

impl CallTally {
    /// The tally of one call.
    pub(crate) fn of(span: &CallSpan) -> Self {
        let failed = u64::from(span.has_failed());
        Self { ready_ns: span.ready_ns, last_start_ns: span.started_ns, ended_ns: span.ended_ns(), calls: 1, failed }
    }
}

/// Open batches by their numbers.
#[derive(Default)]
pub(crate) struct Batches(BTreeMap<u64, BatchState>);

impl Batches {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn submitted(&mut self, batch: u64, state: BatchState) {
        if self.0.len() >= MOST {
            self.0.pop_first();
        }
        self.0.insert(batch, state);
    }

    pub(crate) fn done(&mut self, batch: u64, samples: usize, groups: usize, at_ns: u64) {
        if let Some(state) = self.0.get_mut(&batch) {
            (state.done_ns, state.samples, state.groups) = (Some(at_ns), samples, groups);
        }
    }

    /// Adds calls of a function.
    pub(crate) fn ran(&mut self, batch: u64, function: FunctionId, more: CallTally) {
        let Some(state) = self.0.get_mut(&batch) else { return };
        let add = |ran: &mut CallTally| {
            ran.ready_ns = ran.ready_ns.min(more.ready_ns);
            ran.last_start_ns = ran.last_start_ns.max(more.last_start_ns);
            ran.ended_ns = ran.ended_ns.max(more.ended_ns);
            ran.calls += more.calls;
            ran.failed += more.failed;
        };
        state.functions.entry(function).and_modify(add).or_insert(more);
    }

    /// Removes and returns the batches that were done by this time.
    pub(crate) fn take_over(&mut self, before_ns: u64) -> Vec<(u64, BatchState)> {
        let is_over = |state: &BatchState| state.done_ns.is_some_and(|done_ns| done_ns <= before_ns);
        let over: Vec<u64> = self.0.iter().filter(|(_, state)| is_over(state)).map(|(id, _)| *id).collect();
        over.into_iter().filter_map(|id| Some((id, self.0.remove(&id)?))).collect()
    }
}
