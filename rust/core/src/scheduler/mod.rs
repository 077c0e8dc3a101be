//! The scheduler: hands the calls of all batches to the lanes, and ends calls for reasons that
//! lanes can't see.
//!
//! `queue` holds the remaining calls; `order`, `gather` and `pump` hand it out; `completion`,
//! `retry` and `split` handle the ended ones; `timer_queue` and `due` with what time brings.
//!
//! - Only the scheduler grants another attempt, and ends calls for outer timeouts and cancellation.
//! - scheduler-1  No call of a closed queue is handed out or reopened: both happen under the lock.
//! - One thread at a time hands frames out, without the lock. An idle scheduler does nothing.

mod adding;
mod call_counts;
mod completion;
mod dependents;
mod due;
mod early_delivery;
mod frames;
mod gather;
mod limiter_pause;
mod loads;
mod members;
mod open_batches;
mod order;
mod parsing;
mod pump;
mod queue;
mod reducing;
mod retry;
mod shared_calls;
mod sharing;
mod split;
mod stalls;
mod state;
mod timer_queue;

#[cfg(all(test, not(feature = "loom")))]
pub(crate) use queue::tests::{NoValues, function as test_function};

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::Handle;
use tracing::debug;

use crate::batch::{Batch, BatchSpec, ids_of_batch};
use crate::call::Cause;
use crate::clock::{Clock, nanos};
use crate::frame::LaneOwner;
use crate::function::{Function, FunctionId, visible};
use crate::lane::{Lane, LaneWaker};
use crate::limits::LimitWarning;
use crate::observer::Telemetry;
use crate::open_batch::{AddedSamples, IncompleteGroups};
use crate::payload::Payload;
use crate::report::Usage;
use crate::sync::Ordering;
use crate::task::spawn_restarted;
use crate::wake::no_descriptor;
use call_counts::CallCounters;
pub use call_counts::CallCounts;
use due::keep_time;
pub use loads::{FunctionLoad, Loads};
use queue::Work;
use state::SchedulerCore;
use timer_queue::Due;

/// The engine of one dispatcher: its functions, its lanes and the order of its work. Dropping it
/// cancels the open calls.
pub struct Scheduler {
    inner: Arc<SchedulerCore>,
}

/// Returns the error for a batch that got no descriptor to wake its caller.
fn no_descriptors(error: &io::Error) -> io::Error {
    let what = "a batch needs a file descriptor as long as its PendingBatch is kept";
    io::Error::other(no_descriptor(what, error))
}

impl Scheduler {
    /// Starts the engine on a runtime. `Function::lane` is an index into `lanes`.
    #[must_use]
    pub fn start(runtime: &Handle, clock: Clock, functions: Vec<Function>, lanes: Vec<Arc<dyn Lane>>) -> Self {
        let inner = Arc::new(SchedulerCore::new(runtime.clone(), clock, functions, lanes));
        let owner: Arc<dyn LaneOwner> = inner.clone();
        for lane in &inner.lanes {
            lane.attach(LaneWaker::new(&owner, lane.shares_threads()));
        }
        let (core, changed) = (Arc::downgrade(&inner), inner.timers_changed.clone());
        spawn_restarted(runtime, move || keep_time(core.clone(), changed.clone()));
        Self { inner }
    }

    /// Sets the listener for warnings about a function's endpoint, such as the opening of its
    /// circuit breaker. It is called on any thread. Only the first listener counts.
    pub fn on_limit_warning(&self, listener: impl Fn(FunctionId, LimitWarning, &str) + Send + Sync + 'static) {
        let _ = self.inner.limit_listener.set(Box::new(listener));
    }

    /// Calls `report`, on a thread of the runtime, when calls are with the lanes and none has ended
    /// for `after`, and again each time that this time has doubled.
    pub fn watch_stalls(&self, after: Duration, report: impl Fn(Duration) + Send + Sync + 'static) {
        let (core, report) = (Arc::downgrade(&self.inner), Arc::new(report));
        spawn_restarted(&self.inner.runtime, move || stalls::watch(core.clone(), after, report.clone()));
    }

    /// Sets the listener that receives payloads without a holder, on any thread (payload-1). Only
    /// the first listener counts.
    pub fn on_payload_release(&self, listener: impl Fn(Box<dyn Payload>) + Send + Sync + 'static) {
        self.inner.releases.listen(listener);
    }

    /// Sets the sinks of telemetry, before the first batch: at most one of them takes events. Only
    /// the first call counts.
    pub fn observe(&self, sinks: Vec<Arc<dyn Telemetry>>) {
        if let Some(tracer) = sinks.iter().find(|sink| sink.shortest_ns().is_some()) {
            let _ = self.inner.tracer.set(tracer.clone());
        }
        let _ = self.inner.observers.set(sinks);
    }

    /// Returns a reader of waiting and running calls, for a tracer's counters. The reader returns
    /// `None` once the engine is gone.
    pub fn loads(&self) -> impl Fn() -> Option<Loads> + Send + 'static + use<> {
        let inner = Arc::downgrade(&self.inner);
        move || inner.upgrade().map(|inner| inner.loads())
    }

    /// Starts a batch and returns at once. On a closed engine its cells are cancelled.
    pub fn submit(&self, spec: BatchSpec) -> io::Result<Arc<Batch>> {
        let inner = &self.inner;
        let id = {
            let mut state = inner.state.lock();
            let id = state.last_batch + 1;
            state.last_batch += ids_of_batch(&inner.functions);
            id
        };
        // Made without the lock: a large grid takes time, and lane threads wait for the lock.
        let new = Batch::new(id, inner.clock, inner.functions.clone(), &inner.releases, spec);
        let batch = Arc::new(new.map_err(|error| no_descriptors(&error))?);
        if batch.is_done() {
            return Ok(batch);
        }
        let (samples, group_size) = (batch.samples(), batch.group_size());
        debug!(batch = id, samples, group_size, functions = batch.functions().len(), "batch submitted");
        inner.trace_submitted(&batch);
        let work = Work::new(batch.clone());
        {
            let mut state = inner.state.lock();
            state.works.insert(work);
            let mut soonest = false;
            let mut expire = |after: u64, function, cause| {
                let due_ns = batch.submitted_ns().saturating_add(after);
                soonest |= state.timers.set(due_ns, Due::Expire { batch: batch.id(), function, cause });
            };
            if let Some(after) = batch.batch_timeout_ns() {
                expire(after, None, Cause::BatchTimeout);
            }
            for (id, function) in
                batch.functions().iter().enumerate().filter(|(_, spec)| !batch.is_streamed() && spec.run_if.is_none())
            {
                if let Some(timeout) = function.policy.total_timeout {
                    expire(nanos(timeout), Some(id), Cause::TotalTimeout);
                }
            }
            if soonest {
                inner.timers_changed.notify_one();
            }
            inner.set_group_timer(&mut state, &batch, 0..batch.groups(), batch.submitted_ns());
        }
        for (id, function) in batch.functions().iter().enumerate() {
            if function.pure && function.run_if.is_none() {
                inner.share(&batch, id, (0..batch.samples()).collect());
            }
        }
        if inner.state.lock().closed {
            inner.end_open(&batch, None, &Cause::Cancelled("the engine is closed".to_owned()));
        }
        inner.pump();
        Ok(batch)
    }

    /// Makes the calls possible whose samples have reserved places (`Batch::reserve`).
    pub fn add(&self, batch: &Arc<Batch>, added: &AddedSamples) {
        self.inner.add(batch, added);
    }

    /// Ends additions: the batch ends with its present samples. Refused while a group lacks
    /// samples; a second call does nothing.
    pub fn finish(&self, batch: &Arc<Batch>) -> Result<(), IncompleteGroups> {
        self.inner.finish(batch)
    }

    /// Ends the open calls of a batch as cancelled; an open one takes no more samples.
    pub fn cancel(&self, batch: &Arc<Batch>, reason: &str) {
        debug!(batch = batch.id(), "batch cancelled");
        self.inner.complete_ended();
        self.inner.end_open(batch, None, &Cause::Cancelled(reason.to_owned()));
    }

    /// Ends the open calls of one group as cancelled, in a batch whose delivery is `cancellable`.
    pub fn cancel_group(&self, batch: &Arc<Batch>, group: usize, reason: &str) {
        debug_assert!(batch.delivery().cancellable, "its calls were queued as if no group could end early");
        debug!(batch = batch.id(), group, "group cancelled");
        self.inner.complete_ended();
        self.inner.deliver_early(batch, [group], &Cause::Cancelled(reason.to_owned()));
    }

    /// Cancels all batches and ends the lanes. May be called more than once.
    pub async fn close(&self) {
        debug!("engine closes");
        self.inner.cancel_all("the engine was closed");
        // All at once: a lane that cannot end must not keep the others from ending.
        let mut closing: Vec<_> = self.inner.lanes.iter().map(|lane| lane.close()).collect();
        let all = poll_fn(|context| {
            closing.retain_mut(|lane| lane.as_mut().poll(context).is_pending());
            if closing.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        });
        all.await;
    }

    /// Does the work of `keep_time` for one notification, for models, which have no runtime.
    /// Returns whether there was a notification.
    #[cfg(all(test, feature = "loom"))]
    pub(crate) fn keep_time_once(&self) -> bool {
        let mut notified = std::pin::pin!(self.inner.timers_changed.notified());
        let notified = notified.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_ready();
        if notified {
            self.inner.do_due();
        }
        notified
    }

    #[must_use]
    pub fn clock(&self) -> Clock {
        self.inner.clock
    }

    /// Batches that are not done.
    #[must_use]
    pub fn open_batches(&self) -> usize {
        self.inner.state.lock().works.seen()
    }

    /// The batches that are not done, without those of member calls.
    #[must_use]
    pub fn unfinished_batches(&self) -> Vec<Arc<Batch>> {
        self.inner.state.lock().works.batches()
    }

    /// Number of cells without an outcome, by visible function, over all open batches.
    #[must_use]
    pub fn open_cells(&self) -> Vec<usize> {
        let batches = self.unfinished_batches();
        let open = |function| {
            let of = |batch: &Arc<Batch>| {
                (0..batch.samples()).filter(|sample| batch.grid().read(*sample, function).is_none()).count()
            };
            batches.iter().map(of).sum()
        };
        (0..visible(&self.inner.functions)).map(open).collect()
    }

    /// Returns the remaining pause of each function, imposed by its limit or by the other side of
    /// its calls; `None` if no call waits for it, or the time is open.
    #[must_use]
    pub fn limit_waits(&self) -> Vec<Option<Duration>> {
        let now_ns = self.inner.clock.now_ns();
        let left = |end_ns: u64| Duration::from_nanos(end_ns - now_ns);
        self.inner.state.lock().limiter_pauses.iter().map(|pause| pause.known_end_ns(now_ns).map(left)).collect()
    }

    /// The lanes, for a snapshot of the calls in flight.
    #[must_use]
    pub fn lanes(&self) -> &[Arc<dyn Lane>] {
        &self.inner.lanes
    }

    /// Number of calls that the lanes have, by function.
    #[must_use]
    pub fn calls_in_flight(&self) -> Vec<usize> {
        self.inner.state.lock().in_flight.iter().map(|lane_counts| lane_counts.calls).collect()
    }

    /// Returns whether the circuit breaker of each function's limit is open; `None` without a
    /// limit.
    #[must_use]
    pub fn open_breakers(&self) -> Vec<Option<bool>> {
        self.inner.limiters.iter().map(|limiter| Some(limiter.as_ref()?.breaker_is_open())).collect()
    }

    /// Returns the usage of each function since the start; usage of hidden functions counts for
    /// their owner.
    #[must_use]
    pub fn usage(&self) -> Vec<Usage> {
        self.inner.usage.lock()[..visible(&self.inner.functions)].to_vec()
    }

    /// Counts of calls of pure functions that were not needed and of calls that were made, since
    /// the start, by visible function.
    #[must_use]
    pub fn call_counts(&self) -> Vec<CallCounts> {
        self.inner.call_counts[..visible(&self.inner.functions)].iter().map(CallCounters::read).collect()
    }

    /// Number of outcomes that came too late and were dropped.
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
