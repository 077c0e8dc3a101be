//! Hands out frames: which function's calls go where next, with a permit of its limiter.
//!
//! - One thread at a time does it. It searches once more after each frame, and stops only after a
//!   search under the lock found nothing, so a thread that finds it at work need not search.
//! - A thread with `Lane::shares_threads` hands out at most one frame and leaves the rest to
//!   `keep_time`.
//! - A panic ends the function concerned as broken, in its batch or in all; others go on.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tracing::{trace, warn};

use crate::batch::Batch;
use crate::batch_slice::TakenCalls;
use crate::call::{Call, CallKind, Cause};
use crate::frame::{Frame, LaneCounts};
use crate::function::FunctionId;
use crate::lane::Lane;
use crate::limits::{AcquireResult, Permit, Tokens};
use crate::outcome::Note;
use crate::scheduler::gather::WaitingSamples;
use crate::scheduler::open_batches::OpenBatches;
use crate::scheduler::queue::Work;
use crate::scheduler::state::{SchedulerCore, SchedulerState};
use crate::scheduler::timer_queue::Due;
use crate::scheduler::{gather, order};

/// Next step.
enum Next {
    Frame(Arc<dyn Lane>, Frame),
    /// A call that its limit will never allow.
    Never(Frame, String),
    /// The function can't be handed out any more, in these batches.
    Broken(Vec<Arc<Batch>>, FunctionId, Note),
    Nothing,
}

/// Calls chosen to go next.
enum NextCalls {
    Calls(FunctionId, TakenCalls, Option<Permit>),
    Never(FunctionId, TakenCalls, String),
    Refused(u64, FunctionId, String),
    Nothing,
}

/// Held by the thread that hands out frames. A panic drops it, which leaves the rest to
/// `keep_time`.
struct PumpGuard<'a>(&'a SchedulerCore);

impl Drop for PumpGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.state.lock().pumping = false;
            self.0.timers_changed.notify_one();
        }
    }
}

impl SchedulerCore {
    /// Hands out frames until no lane with room has work waiting.
    pub(crate) fn pump(self: &Arc<Self>) {
        self.hand_out(usize::MAX);
    }

    /// Hands out frames after an event of a function's frame, on the thread of its lane.
    pub(super) fn pump_after(self: &Arc<Self>, function: FunctionId) {
        let brief = self.lane(function).shares_threads();
        self.hand_out(if brief { 1 } else { usize::MAX });
    }

    /// Hands out at most `most` frames, and leaves the rest to `keep_time`.
    pub(super) fn hand_out(self: &Arc<Self>, most: usize) {
        {
            let mut state = self.state.lock();
            if state.pumping {
                return;
            }
            state.pumping = true;
        }
        let _pumping = PumpGuard(self);
        let mut handed_out = 0;
        loop {
            let next = {
                let mut state = self.state.lock();
                if handed_out == most {
                    state.pumping = false;
                    // Only if there is more work, because waking costs a system call.
                    if self.find_free(&mut state, self.now_if_needed()) {
                        self.timers_changed.notify_one();
                    }
                    return;
                }
                let next = self.next_or_broken(&mut state);
                if matches!(next, Next::Nothing) {
                    state.pumping = false;
                    return;
                }
                next
            };
            match next {
                Next::Frame(lane, frame) if !frame.is_empty() => {
                    self.run(&*lane, frame);
                    handed_out += 1;
                }
                Next::Frame(..) | Next::Nothing => {} // its calls were swept while they waited
                Next::Never(mut frame, reason) => frame.refuse(reason),
                Next::Broken(batches, function, why) => {
                    let cause = Cause::Broken(why);
                    batches.iter().for_each(|batch| self.end_broken(batch, function, &cause));
                }
            }
        }
    }

    fn run(self: &Arc<Self>, lane: &dyn Lane, frame: Frame) {
        let (name, calls) = (&*frame.function().name, frame.len());
        trace!(function = name, frame = frame.id(), batch = frame.batch().id(), calls, "frame handed out");
        // Most frames have one slice: nothing is allocated for them.
        let mut slices = frame.slices().iter().map(|slice| slice.batch().id());
        let (first, others) = (slices.next(), slices.collect::<Vec<u64>>());
        let function = frame.function_id();
        // After a panic, the calls of the dropped frame are back in their queue. Handing them out
        // again could repeat without end.
        if catch_unwind(AssertUnwindSafe(|| lane.run(frame))).is_err() {
            warn!(function, "a lane panicked");
            let why = Note { reason: "its lane panicked".to_owned(), traceback: None };
            let batches: Vec<Arc<Batch>> = {
                let state = self.state.lock();
                let open = |batch| state.works.get(batch).map(|work| work.batch.clone());
                first.into_iter().chain(others).filter_map(open).collect()
            };
            let cause = Cause::Broken(why);
            batches.iter().for_each(|batch| self.end_broken(batch, function, &cause));
        }
    }

    /// Returns the next step; if the search panics, the function is broken.
    fn next_or_broken(self: &Arc<Self>, state: &mut SchedulerState) -> Next {
        state.handing_out = None;
        let panic = match catch_unwind(AssertUnwindSafe(|| self.next_frame(state))) {
            Ok(next) => return next,
            Err(panic) => panic,
        };
        // Gathered calls may have been taken out of several batches.
        let Some((batch, function)) = state.handing_out else { return Next::Nothing };
        let batch = batch.filter(|_| self.function(function).gather.is_none());
        let batches = match batch {
            Some(batch) => state.works.get(batch).map(|work| work.batch.clone()).into_iter().collect(),
            None => state.works.all().map(|work| work.batch.clone()).collect(),
        };
        Next::Broken(batches, function, Note { reason: panicked(&*panic), traceback: None })
    }

    fn next_frame(self: &Arc<Self>, state: &mut SchedulerState) -> Next {
        if state.closed {
            return Next::Nothing;
        }
        let (function, taken, permit) = match self.choose(state) {
            NextCalls::Nothing => return Next::Nothing,
            NextCalls::Calls(function, taken, permit) => (function, taken, permit),
            NextCalls::Refused(batch, function, reason) => {
                let batches = state.works.get(batch).map(|work| work.batch.clone()).into_iter().collect();
                return Next::Broken(batches, function, Note { reason, traceback: None });
            }
            NextCalls::Never(function, taken, reason) => {
                return Next::Never(self.frame(state, function, taken), reason);
            }
        };
        let frame = self.frame(state, function, taken);
        Next::Frame(self.lane(function).clone(), frame.permitted(permit))
    }

    fn frame(self: &Arc<Self>, state: &mut SchedulerState, function: FunctionId, taken: TakenCalls) -> Frame {
        state.last_frame += 1;
        let share = self.concurrent_calls(function, state.estimates[function]);
        let frame = Frame::new(state.last_frame, self.clone(), self.clock, function, taken);
        let cheap = self.cheap_frames(function, state.estimates[function]) < usize::MAX;
        let frame = frame.reporting(share.map(order::ConcurrentCalls::report_every)).counted_as_cheap(cheap);
        let LaneCounts { frames, calls, cheap } = &mut state.in_flight[function];
        *frames += 1;
        *calls += frame.lane_counts().calls;
        *cheap += frame.lane_counts().cheap;
        frame
    }

    /// Returns whether a function may get another frame.
    fn is_free(&self, state: &SchedulerState, function: FunctionId, now_ns: u64) -> bool {
        let (in_flight, estimate) = (state.in_flight[function], state.estimates[function]);
        let fits = match self.concurrent_calls(function, estimate) {
            Some(share) => share.has_room(in_flight.calls),
            None => {
                let most = self.functions[function].policy.concurrency.unwrap_or(usize::MAX);
                // A permit must not wait for a place in the lane.
                let limited = self.limiters[function].is_some();
                in_flight.frames < if limited { most.min(self.lane(function).parallelism(function)) } else { most }
            }
        };
        let cheap = || state.in_flight.iter().map(|one| one.cheap).sum::<usize>();
        let most_cheap = self.cheap_frames(function, estimate);
        let fits = fits && (most_cheap == usize::MAX || cheap() < most_cheap);
        state.limiter_pauses[function].is_over(now_ns) && fits && self.lane(function).room(function) > 0
    }

    /// Returns the clock if a limit or gathering needs it, otherwise 0 without reading it.
    fn now_if_needed(&self) -> u64 {
        let looks =
            self.limiters.iter().any(Option::is_some) || self.functions.iter().any(|spec| spec.gather.is_some());
        if looks { self.clock.now_ns() } else { 0 }
    }

    /// Finds the functions that have calls to hand out and may get a frame, if there are any.
    fn find_free(&self, state: &mut SchedulerState, now_ns: u64) -> bool {
        let mut free = std::mem::take(&mut state.free);
        free.clear();
        for function in 0..self.functions.len() {
            state.handing_out = Some((None, function));
            free.push(state.works.has_ready(function) && self.is_free(state, function, now_ns));
        }
        let any = free.contains(&true);
        state.free = free;
        any
    }

    /// Takes the calls that go next.
    fn choose(self: &Arc<Self>, state: &mut SchedulerState) -> NextCalls {
        let now_ns = self.now_if_needed();
        if !self.find_free(state, now_ns) {
            return NextCalls::Nothing;
        }
        let mut free = std::mem::take(&mut state.free);
        let chosen = self.choose_of(state, &mut free, now_ns);
        state.free = free;
        chosen
    }

    /// Takes the calls that go next, of functions that are `free`.
    fn choose_of(self: &Arc<Self>, state: &mut SchedulerState, free: &mut [bool], now_ns: u64) -> NextCalls {
        let SchedulerState { works, estimates, in_flight, limiter_pauses, timers, handing_out, .. } = state;
        let waiting = gather::waiting(works, &self.functions, |function| free[function], now_ns);
        for WaitingSamples { batch, function, until_ns } in &waiting {
            let waits_until_ns =
                works.edit(*batch, *function, |queue| std::mem::replace(&mut queue.waits_until_ns, *until_ns));
            if waits_until_ns != Some(*until_ns) && timers.set(*until_ns, Due::Look) {
                self.timers_changed.notify_one();
            }
        }
        loop {
            let waits = |batch, function| waiting.iter().any(|one| (one.batch, one.function) == (batch, function));
            let all = || (0..free.len()).filter(|function| free[*function]);
            let held = |batch, function| waits(batch, function) || self.leaves_to_fresh(works, batch, function);
            let Some(batch) = works.oldest(all(), held) else { return NextCalls::Nothing };
            let held: Vec<FunctionId> = all().filter(|function| held(batch, *function)).collect();
            let Some(work) = works.get_mut(batch) else { return NextCalls::Nothing };
            let lane = |function| &**self.lane(function);
            let function =
                order::choose(work, estimates, &self.heights, lane, |one| free[one], |one| held.contains(&one));
            let Some(function) = function else { return NextCalls::Nothing };
            *handing_out = Some((Some(batch), function));
            // The next calls are determined by taking them; calls that must wait go back to their
            // places.
            let size = self.frame_size(function, estimates[function], in_flight[function]);
            let mut take = || self.take(works, batch, function, size);
            let of = |taken: Option<TakenCalls>, permit| {
                taken.map_or(NextCalls::Nothing, |taken| NextCalls::Calls(function, taken, permit))
            };
            let Some(limiter) = &self.limiters[function] else { return of(take(), None) };
            if let Some(reason) = self.lane(function).refuses(function)
                && let Some(taken) = take()
            {
                return NextCalls::Never(function, taken, reason);
            }
            let taken = if limiter.counts_tokens() { take() } else { None };
            let about = self.functions[function].policy.limit.as_ref().and_then(|limit| limit.tokens);
            let counted = taken.as_ref().and_then(|taken| tokens_of(taken, function));
            if let Some(reason) = counted.and_then(|tokens| limiter.exceeds(tokens))
                && let Some(taken) = taken
            {
                return NextCalls::Never(function, taken, reason);
            }
            match limiter.acquire(now_ns, counted.map_or(Tokens::Estimated(about), Tokens::Counted)) {
                AcquireResult::Permit(permit) => return of(taken.or_else(take), Some(permit)),
                AcquireResult::Wait { .. }
                    if self.functions[function].has_fallback
                        && let Some(reason) = limiter.open_breaker() =>
                {
                    let taken = taken.or_else(take);
                    return taken.map_or(NextCalls::Nothing, |taken| NextCalls::Never(function, taken, reason));
                }
                refused => {
                    if let Some(taken) = &taken {
                        gather::put_back(works, function, taken);
                    }
                    match refused {
                        AcquireResult::Permit(_) => {}
                        AcquireResult::Wait { until_ns, on_release } => {
                            limiter_pauses[function].until(until_ns, on_release);
                            let wait_ms = until_ns.saturating_sub(now_ns) / 1_000_000;
                            trace!(function = &*self.functions[function].name, wait_ms, "held back by its limit");
                            free[function] = limiter_pauses[function].is_over(now_ns);
                            if until_ns < u64::MAX && timers.set(until_ns, Due::Look) {
                                self.timers_changed.notify_one();
                            }
                        }
                        AcquireResult::Refused(reason) => return NextCalls::Refused(batch, function, reason),
                    }
                }
            }
        }
    }

    /// Returns whether the circuit breaker of a function is open, and is then tried with calls that
    /// have not failed before.
    fn tries_fresh(&self, function: FunctionId) -> bool {
        self.limiters[function].as_ref().is_some_and(|limiter| limiter.breaker_is_open())
    }

    /// Returns whether a batch has only calls that failed before, while another batch has fresh
    /// ones.
    fn leaves_to_fresh(&self, works: &OpenBatches, batch: u64, function: FunctionId) -> bool {
        // Hidden functions have no queues in a batch; their calls are in other batches.
        let fresh = |work: &Work| work.queues.get(function).is_some_and(|queue| queue.has_fresh(work.submitted()));
        self.tries_fresh(function) && !works.get(batch).is_some_and(fresh) && works.ready(function).any(fresh)
    }

    /// Takes the calls of the next frame, which begins with a queue that is ready.
    fn take(
        &self,
        works: &mut OpenBatches,
        batch: u64,
        function: FunctionId,
        size: order::FrameSize,
    ) -> Option<TakenCalls> {
        let fresh_first = self.tries_fresh(function);
        let gathered = gather::take(works, batch, function, &self.functions[function], fresh_first);
        gathered.or_else(|| {
            let of = works.get(batch)?.batch.clone();
            let lane = &**self.lane(function);
            let (calls, alone) =
                works.edit(batch, function, |queue| order::take(queue, &of, function, lane, size, fresh_first))?;
            Some(TakenCalls { batch: of, calls, others: Vec::new(), alone })
        })
    }
}

/// Returns the reason of a function that is broken because the search for its calls panicked.
fn panicked(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the scheduler panicked over it, please report this: {}", text.unwrap_or("no message"))
}

/// Tokens that these calls take together, if their function counts them.
fn tokens_of(taken: &TakenCalls, function: FunctionId) -> Option<f64> {
    let of = |(batch, calls): (&Arc<Batch>, &[Call])| {
        let own = calls.iter().filter(|call| !call.finish);
        let samples = own.flat_map(|call| batch.covered(CallKind::of(&batch.functions()[function]), call.first));
        samples.filter_map(|sample| batch.tokens(function, sample as u32)).reduce(|all, one| all + one)
    };
    taken.by_batch().filter_map(of).reduce(|all, one| all + one)
}
