//! Waiting and running calls, for a tracer.

use crate::batch::Batch;
use crate::function::Shape;
use crate::scheduler::queue::Work;
use crate::scheduler::state::SchedulerCore;
use crate::tracer::TraceEvent;

/// Waiting and running calls of one function, over all batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FunctionLoad {
    /// Calls that no lane has.
    pub queued: usize,
    /// Calls that lanes have.
    pub in_flight: usize,
    /// Calls that its limit allows at a time now, if the limit bounds them.
    pub limit: Option<usize>,
    /// True if its circuit breaker is open.
    pub breaker_open: bool,
}

/// The loads of all functions, and the number of open batches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loads {
    pub functions: Vec<FunctionLoad>,
    pub batches: usize,
}

impl SchedulerCore {
    pub(super) fn trace_submitted(&self, batch: &Batch) {
        if let Some(tracer) = self.tracer.get() {
            tracer.record(TraceEvent::BatchSubmitted {
                batch: batch.number(),
                step: batch.step(),
                samples: batch.samples(),
                groups: batch.groups(),
                at_ns: batch.submitted_ns(),
            });
        }
    }

    pub(super) fn trace_done(&self, batch: &Batch) {
        if let Some(tracer) = self.tracer.get() {
            let (samples, groups) = (batch.samples(), batch.groups());
            let at_ns = self.clock.now_ns();
            tracer.record(TraceEvent::BatchDone { batch: batch.number(), samples, groups, at_ns });
        }
    }

    pub(super) fn loads(&self) -> Loads {
        let mut loads = Loads::default();
        {
            let state = self.state.lock();
            loads.batches = state.works.seen();
            for (function, lane_counts) in state.in_flight.iter().enumerate() {
                let per_call = |batch: &Batch| match self.functions[function].shape {
                    Shape::Sample => 1,
                    Shape::Group => batch.group_size().max(1),
                    Shape::Batch => batch.samples().max(1),
                };
                let waiting = |work: &Work| work.queues[function].waiting(work.submitted(), per_call(&work.batch));
                let queued = state.works.ready(function).map(waiting).sum();
                loads.functions.push(FunctionLoad { queued, in_flight: lane_counts.calls, ..FunctionLoad::default() });
            }
        }
        for (load, limiter) in loads.functions.iter_mut().zip(&self.limiters) {
            load.limit = limiter.as_ref().and_then(|limiter| limiter.allowed_concurrency());
            load.breaker_open = limiter.as_ref().is_some_and(|limiter| limiter.breaker_is_open());
        }
        loads
    }
}
