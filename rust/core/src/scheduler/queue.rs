//! The remaining calls of each batch: one queue per function.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use crate::batch::Batch;
use crate::call::{Call, Cause};
use crate::function::{Function, FunctionId};
use crate::scheduler::timer_queue::DueQueue;

/// The calls of one function in one batch that no lane has.
#[derive(Default)]
pub(crate) struct Queue {
    /// The first sample that was never handed out.
    pub cursor: usize,
    /// Calls of a streamed batch or of a gated function, never handed out, in the order in which
    /// they became possible.
    pub arrived: VecDeque<Call>,
    /// Calls that came back (innocent, retried, suspect) and `finish_group` calls; they go first.
    pub returned: VecDeque<Call>,
    /// Cells whose gates were not decided yet, so calls may still come.
    pub undecided: usize,
    /// Calls of a function with a limit that failed or were deferred. Each waits until the given
    /// number of fresh calls was handed out, or until none is left: a call that fails by itself
    /// must not hold up others.
    pub retried: VecDeque<(usize, Call)>,
    /// Number of fresh calls that were handed out.
    pub handed_out: usize,
    /// Set once; from then on no call of the queue is handed out or reopened.
    pub closed: Option<Cause>,
    /// Times that another function of its pool went first since its last turn.
    pub passed_over: usize,
    /// Time until which the queued samples wait for more, if a time was set.
    pub waits_until_ns: u64,
    /// Calls of a streamed batch that end when their `total_timeout` passes: the first sample of
    /// each, and whether it is a `finish_group` call.
    pub late: DueQueue<(usize, bool)>,
}

impl Queue {
    /// Returns whether there is a call to hand out; `samples` is the number of samples at
    /// submission.
    pub(crate) fn is_ready(&self, samples: usize) -> bool {
        self.closed.is_none() && (self.has_first(samples) || !self.retried.is_empty())
    }

    fn has_first(&self, samples: usize) -> bool {
        !self.returned.is_empty() || !self.arrived.is_empty() || self.cursor < samples
    }

    /// Returns whether it has a call that has not failed before.
    pub(crate) fn has_fresh(&self, samples: usize) -> bool {
        let came_back = self.returned.iter().any(|call| !call.has_failed());
        self.closed.is_none() && (came_back || !self.arrived.is_empty() || self.cursor < samples)
    }

    /// Returns the number of its calls, of `span` samples each.
    pub(crate) fn waiting(&self, samples: usize, span: usize) -> usize {
        let fresh = samples.saturating_sub(self.cursor).div_ceil(span.max(1));
        if self.closed.is_some() { 0 } else { self.returned.len() + self.arrived.len() + self.retried.len() + fresh }
    }

    /// The sample at which the next call begins.
    pub(crate) fn position(&self, samples: usize) -> usize {
        let retried = self.retried.front().filter(|_| !self.has_first(samples)).map(|(_, call)| call);
        self.returned.front().or_else(|| self.arrived.front()).or(retried).map_or(self.cursor, |call| call.first)
    }

    /// Adds a call that failed or was deferred, behind `behind` fresh ones.
    pub(crate) fn retry(&mut self, call: Call, behind: usize) {
        self.retried.push_back((self.handed_out.saturating_add(behind), call));
    }

    /// Takes a call that failed or was deferred, if it is its turn. If `fresh_first` is set, fresh
    /// calls have precedence.
    pub(crate) fn take_retried(&mut self, samples: usize, fresh_first: bool) -> Option<Call> {
        let (after, _) = self.retried.front()?;
        let held_back = if fresh_first { self.has_fresh(samples) } else { *after > self.handed_out };
        if !self.returned.is_empty() || (held_back && self.has_first(samples)) {
            return None;
        }
        self.retried.pop_front().map(|(_, call)| call)
    }

    /// Returns whether the next call must go by itself, because it died with its worker or is not a
    /// call on samples.
    pub(crate) fn is_headed_alone(&self) -> bool {
        self.returned.front().is_some_and(|call| call.finish || (call.suspect && call.part == 0))
    }

    /// Returns the number of samples that may be gathered with any others, and the first of them.
    pub(crate) fn gatherable(&self, samples: usize) -> Option<(usize, usize)> {
        let plain = self.returned.iter().take_while(|call| call.is_plain());
        let came_back = plain.clone().count();
        let first = plain.chain(&self.arrived).next().map_or(self.cursor, |call| call.first);
        let all = came_back + self.arrived.len() + samples.saturating_sub(self.cursor);
        (self.closed.is_none() && all > 0).then_some((all, first))
    }

    /// Takes at most `most` samples that may be gathered with any others.
    pub(crate) fn draw(&mut self, samples: usize, most: usize, into: &mut Vec<Call>) {
        for _ in 0..most {
            let came_back = self.returned.front().is_some_and(Call::is_plain);
            let call = if came_back { self.returned.pop_front() } else { self.arrived.pop_front() };
            match call {
                Some(call) => into.push(call),
                None if self.cursor < samples => {
                    into.push(Call::fresh(self.cursor));
                    self.cursor += 1;
                }
                None => break,
            }
            self.handed_out += usize::from(!came_back);
        }
    }

    /// Takes the calls of one part, from anywhere in the queue.
    pub(crate) fn draw_part(&mut self, part: u64) -> Vec<Call> {
        let (drawn, left): (Vec<Call>, Vec<Call>) = self.returned.drain(..).partition(|call| call.part == part);
        self.returned.extend(left);
        drawn
    }

    /// Puts calls that were taken back before all others.
    pub(crate) fn put_back(&mut self, calls: &[Call]) {
        calls.iter().rev().for_each(|call| self.returned.push_front(*call));
    }

    /// Closes the queue; false if it was closed before.
    pub(crate) fn close(&mut self, cause: &Cause) -> bool {
        let first = self.closed.is_none();
        if first {
            self.closed = Some(cause.clone());
            self.returned.clear();
            self.arrived.clear();
            self.retried.clear();
        }
        first
    }
}

/// Remaining work of one batch.
pub(crate) struct Work {
    pub batch: Arc<Batch>,
    pub queues: Vec<Queue>,
    /// Groups that are delivered when their timeout passes.
    pub early: DueQueue<Range<usize>>,
}

impl Work {
    pub(crate) fn new(batch: Arc<Batch>) -> Self {
        let samples = if batch.is_streamed() { 0 } else { batch.samples() };
        let queue = |function: &Function| {
            if function.run_if.is_none() && !function.pure {
                return Queue::default();
            }
            // Its calls arrive one by one, as in a streamed batch.
            Queue { cursor: samples, undecided: samples, ..Queue::default() }
        };
        let queues = batch.functions().iter().map(queue).collect();
        Self { batch, queues, early: DueQueue::default() }
    }

    /// Returns the cause for which its calls of a function can't run, if that is so.
    pub(crate) fn broken(&self, function: FunctionId) -> Option<Cause> {
        let cause = self.queues.get(function)?.closed.as_ref()?;
        matches!(cause, Cause::Broken(_)).then(|| cause.clone())
    }

    /// The number of samples that are queued from the start; those of a streamed batch are queued
    /// as they come.
    pub(crate) fn submitted(&self) -> usize {
        if self.batch.is_streamed() { 0 } else { self.batch.samples() }
    }
}

#[cfg(all(test, not(feature = "loom")))]
pub(crate) mod tests {
    use std::any::Any;
    use std::time::Duration;

    use crate::function::{Function, Policy, Shape};
    use crate::payload::Payload;

    /// A payload without values.
    pub(crate) struct NoValues;

    impl Payload for NoValues {
        fn as_any(&self) -> &dyn Any {
            self
        }
    }

    pub(crate) fn function() -> Function {
        Function::new("f", Shape::Sample, Policy::new(Duration::from_secs(1)))
    }
}
