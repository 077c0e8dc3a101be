//! The scheduler: hands the calls of all batches to the lanes, and ends what the lanes must not.
//!
//! `work` is what is left to do, `order` which of it goes next, `gather` which samples go together, `pump` hands it out, `throttled` remembers
//! limits that let nothing through. `ending` settles what came back, `retry` says whether a failed attempt gets another, `split` makes two calls of
//! one on many samples that failed. `timers` and `due` are what happens when its time comes, `growing` batches to which samples are added, `cut` groups that are delivered early.
//!
//! - S-1  Only the scheduler grants another attempt, and only it ends calls at `deadline`, `budget` and cancellation.
//! - S-2  Once a line is closed nothing of it is handed out or reopened: closing and reopening both happen under the lock, so that no call
//!   can slip between the sweep that ends the open ones and the attempt that opens one again.
//! - S-3  Lanes are handed frames without the lock, by one thread at a time: a lane's answer about its room is true when its frame arrives.
//!   A lane that panics then breaks the function for the batch, and nothing else.
//! - S-4  An idle scheduler does nothing: its one task sleeps until the next timer.

mod adding;
mod completion;
mod due;
mod early_delivery;
mod gather;
mod order;
mod pump;
mod queue;
mod retry;
mod split;
mod throttled;
mod timers;

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::batch::{Batch, BatchSpec};
use crate::call::{Call, Cause};
use crate::clock::{Clock, nanos};
use crate::function::{Function, FunctionId};
use crate::lane::{Lane, LaneWaker};
use crate::limits::{Feedback, Limiter};
use crate::sync::{AtomicU64, Mutex, Ordering};
use due::keep_time;
use order::Estimate;
pub(crate) use queue::Taken;
use queue::{Queue, Work};
use throttled::Throttled;
use timers::{Due, Timers};

/// The engine of one dispatcher: its functions, its lanes and the order of its work. Dropping it cancels what is open.
pub struct Scheduler {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    clock: Clock,
    functions: Arc<[Function]>,
    lanes: Vec<Arc<dyn Lane>>,
    /// Per function, where it has a limit.
    limiters: Vec<Option<Arc<Limiter>>>,
    state: Mutex<State>,
    /// Signalled when a timer was set that is sooner than all others, and at the end.
    timers_changed: Arc<Notify>,
    /// Outcomes that came too late (F-3). Written by frames.
    late: AtomicU64,
    /// Called when a circuit breaker opens. Written once, before the first batch.
    breaker_listener: OnceLock<BreakerListener>,
}

/// Takes the function whose circuit breaker opened, and the reason of its last call.
type BreakerListener = Box<dyn Fn(FunctionId, &str) + Send + Sync>;

struct State {
    /// Open batches; a lower id is an older batch.
    works: BTreeMap<u64, Work>,
    estimates: Vec<Estimate>,
    /// Frames with the lanes, per function.
    in_flight: Vec<usize>,
    /// Per function: until when its limit lets nothing through.
    throttled: Vec<Throttled>,
    timers: Timers,
    last_batch: u64,
    last_frame: u64,
    /// Parts of calls that were split.
    last_part: u64,
    /// A thread is handing out frames (S-3).
    pumping: bool,
    closed: bool,
}

/// What to do where a batch finds no descriptors to wake its caller by.
fn no_descriptors(error: &io::Error) -> io::Error {
    let advice = "Allow more (ulimit -n), or keep fewer tickets at a time";
    io::Error::other(format!("a batch needs a file descriptor for as long as its ticket is kept: {error}. {advice}."))
}

impl Scheduler {
    /// Starts the engine on a runtime. `Function::lane` is an index into `lanes`.
    #[must_use]
    pub fn start(runtime: &Handle, clock: Clock, functions: Vec<Function>, lanes: Vec<Arc<dyn Lane>>) -> Self {
        let limiters = Limiter::all(functions.iter().map(|function| function.policy.limit.as_ref()));
        let state = State {
            works: BTreeMap::new(),
            estimates: vec![Estimate::default(); functions.len()],
            in_flight: vec![0; functions.len()],
            throttled: vec![Throttled::default(); functions.len()],
            timers: Timers::default(),
            last_batch: 0,
            last_frame: 0,
            last_part: 0,
            pumping: false,
            closed: false,
        };
        let inner = Arc::new(Inner {
            clock,
            functions: functions.into(),
            lanes,
            limiters,
            state: Mutex::new(state),
            timers_changed: Arc::new(Notify::new()),
            late: AtomicU64::new(0),
            breaker_listener: OnceLock::new(),
        });
        for lane in &inner.lanes {
            lane.attach(LaneWaker(Arc::downgrade(&inner)));
        }
        runtime.spawn(keep_time(Arc::downgrade(&inner), inner.timers_changed.clone()));
        Self { inner }
    }

    /// Sets what is called, on any thread, when the circuit breaker of a function's endpoint opens. Only the first one counts.
    pub fn on_breaker_open(&self, listener: impl Fn(FunctionId, &str) + Send + Sync + 'static) {
        let _ = self.inner.breaker_listener.set(Box::new(listener));
    }

    /// Takes a batch on and returns at once. On a closed engine its cells are cancelled.
    pub fn submit(&self, spec: BatchSpec) -> io::Result<Arc<Batch>> {
        let inner = &self.inner;
        let batch;
        {
            let mut state = inner.state.lock();
            state.last_batch += 1;
            let new = Batch::new(state.last_batch, inner.clock, inner.functions.clone(), spec);
            batch = Arc::new(new.map_err(|error| no_descriptors(&error))?);
            if batch.is_done() {
                return Ok(batch);
            }
            state.works.insert(batch.id(), Work::new(batch.clone()));
            let mut soonest = false;
            let mut expire = |after: u64, function, cause| {
                let due_ns = batch.submitted_ns().saturating_add(after);
                soonest |= state.timers.set(due_ns, Due::Expire { batch: batch.id(), function, cause });
            };
            if let Some(budget) = batch.batch_timeout_ns() {
                expire(budget, None, Cause::BatchTimeout);
            }
            for (id, function) in inner.functions.iter().enumerate().filter(|_| !batch.is_streamed()) {
                if let Some(deadline) = function.policy.total_timeout {
                    expire(nanos(deadline), Some(id), Cause::TotalTimeout);
                }
            }
            if soonest {
                inner.timers_changed.notify_one();
            }
            inner.set_group_timer(&mut state, &batch, 0..batch.groups(), batch.submitted_ns());
        }
        if inner.state.lock().closed {
            inner.end_open(&batch, None, &Cause::Cancelled("the engine is closed".to_owned()));
        }
        inner.pump();
        Ok(batch)
    }

    /// Ends what is open of a batch as cancelled; one that grows takes no more samples.
    pub fn cancel(&self, batch: &Arc<Batch>, reason: &str) {
        self.inner.complete_ended();
        self.inner.end_open(batch, None, &Cause::Cancelled(reason.to_owned()));
    }

    /// Cancels all batches and ends the lanes. May be called more than once.
    pub async fn close(&self) {
        self.inner.cancel_all("the engine was closed");
        // All at once: one that cannot end must not keep the others.
        let mut closing: Vec<_> = self.inner.lanes.iter().map(|lane| lane.close()).collect();
        let all = poll_fn(|context| {
            closing.retain_mut(|lane| lane.as_mut().poll(context).is_pending());
            if closing.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        });
        all.await;
    }

    #[must_use]
    pub fn clock(&self) -> Clock {
        self.inner.clock
    }

    /// Batches that are not done.
    #[must_use]
    pub fn open_batches(&self) -> usize {
        self.inner.state.lock().works.len()
    }

    /// Cells without an outcome, per function, over all open batches.
    #[must_use]
    pub fn open_cells(&self) -> Vec<usize> {
        let batches: Vec<Arc<Batch>> = self.inner.state.lock().works.values().map(|work| work.batch.clone()).collect();
        let open = |function| {
            let of = |batch: &Arc<Batch>| {
                (0..batch.samples()).filter(|sample| batch.grid().read(*sample, function).is_none()).count()
            };
            batches.iter().map(of).sum()
        };
        (0..self.inner.functions.len()).map(open).collect()
    }

    /// Outcomes that came too late and were dropped.
    #[must_use]
    pub fn late_outcomes(&self) -> u64 {
        self.inner.late.load(Ordering::Relaxed)
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        self.inner.cancel_all("the engine was dropped");
    }
}

impl Inner {
    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    pub(crate) fn function(&self, function: FunctionId) -> &Function {
        &self.functions[function]
    }

    fn lane(&self, function: FunctionId) -> &Arc<dyn Lane> {
        &self.lanes[self.functions[function].lane]
    }

    /// Takes in a failed call's reason; calls the listener if the circuit breaker is newly open.
    pub(crate) fn note_endpoint_error(&self, function: FunctionId, feedback: Feedback, why: &str) {
        if feedback == Feedback::Unhealthy
            && self.limiters[function].as_ref().is_some_and(|limiter| limiter.note_error(why))
            && let Some(listener) = self.breaker_listener.get()
        {
            listener(function, why);
        }
    }

    /// Takes back what a frame did not end, and frees its place if it has one still.
    pub(crate) fn frame_ended(
        self: &Arc<Self>,
        function: FunctionId,
        unfinished: Vec<(u64, Vec<Call>)>,
        frees: bool,
        run_ns: u64,
        ran: u64,
    ) {
        {
            let mut state = self.state.lock();
            if frees {
                state.in_flight[function] -= 1;
            }
            self.released(&mut state, function);
            state.estimates[function].learn(run_ns, ran);
            state.take_back(function, unfinished);
        }
        self.pump();
    }

    /// Takes back innocent calls of a frame that goes on, and its place if they were all that it had.
    pub(crate) fn given_back(self: &Arc<Self>, function: FunctionId, calls: Vec<(u64, Vec<Call>)>, frees: bool) {
        {
            let mut state = self.state.lock();
            if frees {
                state.in_flight[function] -= 1;
                self.released(&mut state, function);
            }
            state.take_back(function, calls);
        }
        self.pump();
    }

    /// Learns that a call has been running for `run_ns` and is not done.
    pub(crate) fn observe(&self, function: FunctionId, run_ns: u64) {
        self.state.lock().estimates[function].learn(run_ns, 1);
    }

    /// Has the lanes settle what has ended, since open calls are about to be ended (L-9 of `lane`).
    pub(super) fn complete_ended(&self) {
        self.lanes.iter().for_each(|lane| lane.complete_ended());
    }

    /// Counts an outcome that found its call swept, or another attempt of it under way.
    pub(crate) fn count_late(&self) {
        self.late.fetch_add(1, Ordering::Relaxed);
    }

    fn cancel_all(self: &Arc<Self>, reason: &str) {
        let open: Vec<Arc<Batch>> = {
            let mut state = self.state.lock();
            state.closed = true;
            state.works.values().map(|work| work.batch.clone()).collect()
        };
        self.timers_changed.notify_one();
        self.complete_ended();
        for batch in open {
            self.end_open(&batch, None, &Cause::Cancelled(reason.to_owned()));
        }
    }
}

impl State {
    fn queue(&mut self, batch: u64, function: FunctionId) -> Option<&mut Queue> {
        self.works.get_mut(&batch)?.queues.get_mut(function)
    }

    /// `give_back` for several batches at once: what belongs together comes back together.
    fn take_back(&mut self, function: FunctionId, calls: Vec<(u64, Vec<Call>)>) {
        for (batch, calls) in calls {
            self.give_back(batch, function, calls);
        }
    }

    /// Puts calls before all others of their queue, unless it was closed (S-2).
    fn give_back(&mut self, batch: u64, function: FunctionId, calls: Vec<Call>) {
        if let Some(queue) = self.queue(batch, function).filter(|queue| queue.closed.is_none()) {
            for call in calls.into_iter().rev() {
                queue.returned.push_front(call);
            }
        }
    }
}
