//! Hands out frames: which function's calls go where next, with a permit of its limiter.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::batch::Batch;
use crate::batch_slice::TakenCalls;
use crate::call::{Call, CallKind, Cause};
use crate::frame::Frame;
use crate::function::FunctionId;
use crate::lane::Lane;
use crate::limits::{Acquired, Tokens};
use crate::outcome::{Failure, FailureKind, Note, Times};
use crate::scheduler::gather::Waiting;
use crate::scheduler::order::Estimate;
use crate::scheduler::queue::Work;
use crate::scheduler::state::{SchedulerCore, SchedulerState};
use crate::scheduler::timers::Due;
use crate::scheduler::{gather, order};

/// What is to be done next.
enum Next {
    Frame(Arc<dyn Lane>, Frame),
    /// A call that its limit will never let through.
    Never(Frame, Failure),
    /// The function's limit lets nothing of this batch through any more.
    Refused(Arc<Batch>, FunctionId, Note),
    Nothing,
}

impl SchedulerCore {
    /// Hands out frames until no lane with room has work waiting.
    pub(crate) fn pump(self: &Arc<Self>) {
        {
            let mut state = self.state.lock();
            if state.pumping {
                // That thread looks once more after each frame: it ends under this lock, when it
                // finds nothing.
                return;
            }
            state.pumping = true;
        }
        loop {
            let (lane, frame) = {
                let mut state = self.state.lock();
                match self.next_frame(&mut state) {
                    Next::Frame(lane, frame) => (lane, frame),
                    Next::Never(mut frame, failure) => {
                        drop(state);
                        (0..frame.len()).for_each(|call| frame.fail(call, failure.clone(), Times::default()));
                        continue;
                    }
                    Next::Refused(batch, function, why) => {
                        drop(state);
                        self.end_open(&batch, Some(function), &Cause::Broken(why));
                        continue;
                    }
                    Next::Nothing => {
                        state.pumping = false;
                        return;
                    }
                }
            };
            if frame.is_empty() {
                continue; // its calls were swept while they waited
            }
            let batches: Vec<Arc<Batch>> = frame.slices().iter().map(|slice| slice.batch().clone()).collect();
            let function = frame.function_id();
            // The calls of a frame that a panic dropped are back in their queue: handing them out
            // again could go on for ever.
            if catch_unwind(AssertUnwindSafe(|| lane.run(frame))).is_err() {
                let why = Note { reason: "its lane panicked".to_owned(), traceback: None };
                for batch in batches {
                    self.end_open(&batch, Some(function), &Cause::Broken(why.clone()));
                }
            }
        }
    }

    fn next_frame(self: &Arc<Self>, state: &mut SchedulerState) -> Next {
        if state.closed {
            return Next::Nothing;
        }
        let SchedulerState { works, estimates, in_flight, throttled, timers, last_frame, .. } = state;
        // Read once a round: without limits and gathering, and so without a look at the clock, for
        // most.
        let looks =
            self.limiters.iter().any(Option::is_some) || self.functions.iter().any(|spec| spec.gather.is_some());
        let now_ns = if looks { self.clock.now_ns() } else { 0 };
        let waiting = gather::waiting(works, &self.functions, now_ns);
        for Waiting { batch, function, until_ns } in &waiting {
            let Some(queue) = works.get_mut(batch).and_then(|work| work.queues.get_mut(*function)) else { continue };
            if std::mem::replace(&mut queue.looks_ns, *until_ns) != *until_ns && timers.set(*until_ns, Due::Look) {
                self.timers_changed.notify_one();
            }
        }
        let (function, permit, taken) = loop {
            let free = |function: FunctionId| {
                let most = self.functions[function].policy.concurrency.unwrap_or(usize::MAX);
                // A permit is not to wait for a place in the lane.
                let limited = self.limiters[function].is_some();
                let most = if limited { most.min(self.lane(function).parallelism(function)) } else { most };
                throttled[function].is_over(now_ns)
                    && in_flight[function] < most
                    && self.lane(function).room(function) > 0
            };
            let chosen = works.values_mut().find_map(|work| {
                let id = work.batch.id();
                let waits = |function| waiting.iter().any(|one| (one.batch, one.function) == (id, function));
                let chosen = order::choose(work, estimates, |function| &**self.lane(function), free, waits)?;
                Some((id, chosen))
            });
            let Some((batch, function)) = chosen else { return Next::Nothing };
            // Which calls are next is known by taking them: those that must wait go back to where
            // they stood.
            let mut take = || self.take(works, batch, function, estimates[function]);
            let Some(limiter) = &self.limiters[function] else { break (function, None, take()) };
            let taken = if limiter.counts_tokens() { take() } else { None };
            let about = self.functions[function].policy.limit.as_ref().and_then(|limit| limit.tokens);
            let counted = taken.as_ref().and_then(|taken| tokens_of(taken, function));
            if let Some(reason) = counted.and_then(|tokens| limiter.exceeds(tokens))
                && let Some(taken) = taken
            {
                in_flight[function] += 1;
                *last_frame += 1;
                let kind = FailureKind::Error;
                let why = Failure { kind, reason, traceback: None, retryable: false, retry_after: None, answer: None };
                return Next::Never(Frame::new(*last_frame, self.clone(), self.clock, function, taken), why);
            }
            match limiter.acquire(now_ns, counted.map_or(Tokens::Estimated(about), Tokens::Counted)) {
                Acquired::Permit(permit) => break (function, Some(permit), taken.or_else(take)),
                refused => {
                    if let Some(taken) = &taken {
                        gather::put_back(works, function, taken);
                    }
                    match refused {
                        Acquired::Permit(_) => {}
                        Acquired::Wait { until_ns, on_release } => {
                            throttled[function].until(until_ns, on_release);
                            if until_ns < u64::MAX && timers.set(until_ns, Due::Look) {
                                self.timers_changed.notify_one();
                            }
                        }
                        Acquired::Refused(reason) => {
                            let Some(work) = works.get(&batch) else { return Next::Nothing };
                            return Next::Refused(work.batch.clone(), function, Note { reason, traceback: None });
                        }
                    }
                }
            }
        };
        let Some(taken) = taken else { return Next::Nothing };
        in_flight[function] += 1;
        *last_frame += 1;
        let frame = Frame::new(*last_frame, self.clone(), self.clock, function, taken);
        Next::Frame(self.lane(function).clone(), frame.permitted(permit))
    }

    /// Takes the calls of the next frame, which begins with a line that is ready.
    fn take(
        &self,
        works: &mut BTreeMap<u64, Work>,
        batch: u64,
        function: FunctionId,
        estimate: Estimate,
    ) -> Option<TakenCalls> {
        let gathered = gather::take(works, batch, function, &self.functions[function]);
        gathered.or_else(|| {
            let work = works.get_mut(&batch)?;
            let batch = work.batch.clone();
            let queue = &mut work.queues[function];
            let (calls, alone) = order::take(queue, &batch, function, &**self.lane(function), estimate);
            Some(TakenCalls { batch, calls, others: Vec::new(), alone })
        })
    }
}

/// Tokens that these calls take together, where their function counts them.
fn tokens_of(taken: &TakenCalls, function: FunctionId) -> Option<f64> {
    let of = |(batch, calls): (&Arc<Batch>, &[Call])| {
        let payload = batch.payload()?;
        let own = calls.iter().filter(|call| !call.finish);
        let samples = own.flat_map(|call| batch.covered(CallKind::of(&batch.functions()[function]), call.first));
        samples.filter_map(|sample| payload.tokens(function, sample as u32)).reduce(|all, one| all + one)
    };
    taken.by_batch().filter_map(of).reduce(|all, one| all + one)
}
