//! State that the scheduler's parts share: the functions and lanes, and the state under the lock.

use std::sync::{Arc, OnceLock};

use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::batch::Batch;
use crate::call::{Call, Cause};
use crate::clock::Clock;
use crate::dependents;
use crate::frame::LaneCounts;
use crate::function::{Function, FunctionId};
use crate::lane::{CallsRun, Lane};
use crate::limits::{LimitWarning, Limiter};
use crate::observer::Telemetry;
use crate::payload::PayloadRelease;
use crate::report::Usage;
use crate::scheduler::call_counts::CallCounters;
use crate::scheduler::limiter_pause::LimiterPause;
use crate::scheduler::open_batches::OpenBatches;
use crate::scheduler::order::{ConcurrentCalls, Estimate, FrameSize};
use crate::scheduler::shared_calls::SharedCalls;
use crate::scheduler::timer_queue::Timers;
use crate::sync::{AtomicU64, Mutex};

/// Number of fresh calls that go before a retried one: at least this many, and a multiple of the
/// calls that may be in flight. A batch of this size has its retries at its end, and in a larger
/// batch no sample waits for more fresh calls.
const BEHIND: usize = 1024;
const BEHIND_WIDTHS: usize = 4;

pub(super) struct SchedulerCore {
    pub(super) runtime: Handle,
    pub(super) clock: Clock,
    /// Calls of pure functions in flight, and the calls that wait for their outcomes.
    pub(super) sharing: Mutex<SharedCalls>,
    /// Per function, since the start.
    pub(super) call_counts: Box<[CallCounters]>,
    pub(super) functions: Arc<[Function]>,
    pub(super) lanes: Vec<Arc<dyn Lane>>,
    /// Per function, the longest chain of functions that wait for its outcomes.
    pub(super) heights: Vec<usize>,
    /// Per function, its limiter if it has a limit.
    pub(super) limiters: Vec<Option<Arc<Limiter>>>,
    pub(super) state: Mutex<SchedulerState>,
    /// Signalled when a new timer is the soonest, when a thread leaves frames to `keep_time`, and
    /// at the end.
    pub(super) timers_changed: Arc<Notify>,
    /// Number of outcomes that came too late. Written by frames.
    pub(super) late: AtomicU64,
    /// Usage of each function since the start. Written by frames.
    pub(super) usage: Mutex<Vec<Usage>>,
    pub(super) releases: Arc<PayloadRelease>,
    /// Called with warnings. Written once, before the first batch.
    pub(super) limit_listener: OnceLock<LimitListener>,
    /// All sinks of telemetry. Written once, before the first batch.
    pub(super) observers: OnceLock<Vec<Arc<dyn Telemetry>>>,
    /// The sink that takes events. Written once, before the first batch.
    pub(super) tracer: OnceLock<Arc<dyn Telemetry>>,
}

/// Takes a function, a warning, and the reason of its last call that failed.
type LimitListener = Box<dyn Fn(FunctionId, LimitWarning, &str) + Send + Sync>;

pub(super) struct SchedulerState {
    pub(super) works: OpenBatches,
    pub(super) estimates: Vec<Estimate>,
    /// Calls that lanes have, by function.
    pub(super) in_flight: Vec<LaneCounts>,
    /// Per function, the pause in which its limit allows no call.
    pub(super) limiter_pauses: Vec<LimiterPause>,
    pub(super) timers: Timers,
    /// Number of ended frames, ended calls of frames that go on, and batches that are done.
    pub(super) ended: u64,
    pub(super) last_batch: u64,
    pub(super) last_frame: u64,
    /// Number of the last part of a split call.
    pub(super) last_part: u64,
    /// True while a thread hands out frames.
    pub(super) pumping: bool,
    /// Per function, true if it may get another frame; kept to avoid an allocation.
    pub(super) free: Vec<bool>,
    /// The function that the thread which hands out frames works on, in one batch or in all, in
    /// case it panics.
    pub(super) handing_out: Option<(Option<u64>, FunctionId)>,
    pub(super) closed: bool,
}

impl SchedulerCore {
    pub(super) fn new(runtime: Handle, clock: Clock, functions: Vec<Function>, lanes: Vec<Arc<dyn Lane>>) -> Self {
        let limiters = Limiter::all(functions.iter().map(|function| function.policy.limit.as_ref()));
        let state = SchedulerState {
            works: OpenBatches::new(functions.len()),
            estimates: vec![Estimate::default(); functions.len()],
            in_flight: vec![LaneCounts::default(); functions.len()],
            limiter_pauses: vec![LimiterPause::default(); functions.len()],
            timers: Timers::default(),
            ended: 0,
            last_batch: 0,
            last_frame: 0,
            last_part: 0,
            pumping: false,
            free: Vec::new(),
            handing_out: None,
            closed: false,
        };
        Self {
            runtime,
            sharing: Mutex::default(),
            call_counts: functions.iter().map(|_| CallCounters::default()).collect(),
            clock,
            usage: Mutex::new(vec![Usage::default(); functions.len()]),
            heights: dependents::heights(&functions),
            functions: functions.into(),
            lanes,
            limiters,
            state: Mutex::new(state),
            timers_changed: Arc::new(Notify::new()),
            late: AtomicU64::new(0),
            releases: Arc::default(),
            limit_listener: OnceLock::new(),
            observers: OnceLock::new(),
            tracer: OnceLock::new(),
        }
    }

    pub(super) fn function(&self, function: FunctionId) -> &Function {
        &self.functions[function]
    }

    pub(super) fn lane(&self, function: FunctionId) -> &Arc<dyn Lane> {
        &self.lanes[self.functions[function].lane]
    }

    /// Makes the lanes complete the ended calls, because open calls are about to be ended (lane-1).
    pub(super) fn complete_ended(&self) {
        self.lanes.iter().for_each(|lane| lane.complete_ended());
    }

    /// Returns the bounds of a function's calls on a lane that runs them side by side.
    pub(super) fn concurrent_calls(&self, function: FunctionId, estimate: Estimate) -> Option<ConcurrentCalls> {
        // A frame under a limit has one call, and the limit bounds the number of frames.
        match self.lane(function).calls_run(function) {
            CallsRun::AtMost(width) if self.limiters[function].is_none() => Some(ConcurrentCalls::new(width, estimate)),
            _ => None,
        }
    }

    /// Returns the size of the next frame of a function.
    pub(super) fn frame_size(&self, function: FunctionId, estimate: Estimate, in_flight: LaneCounts) -> FrameSize {
        let (spec, lane) = (self.function(function), self.lane(function));
        let most = if spec.isolated || spec.policy.limit.is_some() { 1 } else { lane.frame_calls(function) };
        match self.concurrent_calls(function, estimate) {
            Some(share) => FrameSize::AtMost(share.room(in_flight.calls).min(most)),
            None if lane.calls_run(function) == CallsRun::Concurrent => FrameSize::AtMost(most),
            None => {
                let parallelism = lane.parallelism(function).min(self.cheap_frames(function, estimate));
                FrameSize::InTurn { estimate, most, parallelism }
            }
        }
    }

    /// Returns the most frames of a function whose calls are cheap.
    pub(super) fn cheap_frames(&self, function: FunctionId, estimate: Estimate) -> usize {
        if estimate.is_cheap() { self.lane(function).frames_for_cores(function) } else { usize::MAX }
    }

    /// Queues calls for another attempt. A single failed call goes behind fresh ones if its
    /// function has a limit: all calls then go to one endpoint.
    pub(super) fn put_back_retried(
        &self,
        state: &mut SchedulerState,
        function: FunctionId,
        calls: Vec<(u64, Vec<Call>)>,
    ) {
        if let [(batch, one)] = &calls[..]
            && let [call] = one[..]
            && let Some(limit) = &self.function(function).policy.limit
            && call.is_behind()
        {
            let width = limit.rules.concurrency.unwrap_or(0);
            state.retry(*batch, function, call, width.saturating_mul(BEHIND_WIDTHS).max(BEHIND));
        } else {
            state.take_back(function, calls);
        }
    }

    /// An open batch.
    pub(super) fn batch(&self, id: u64) -> Option<Arc<Batch>> {
        self.state.lock().works.get(id).map(|work| work.batch.clone())
    }
}

impl SchedulerState {
    /// Returns the cause for which a queue was closed, if it was closed.
    pub(super) fn closed(&self, batch: u64, function: FunctionId) -> Option<Cause> {
        self.works.queue(batch, function)?.closed.clone()
    }

    /// Subtracts `freed` from the calls that lanes have.
    pub(super) fn freed(&mut self, function: FunctionId, freed: LaneCounts) {
        let LaneCounts { frames, calls, cheap } = &mut self.in_flight[function];
        *frames -= freed.frames;
        *calls -= freed.calls;
        *cheap -= freed.cheap;
    }

    /// Like `give_back`, for several batches under one lock, so that calls that ran together are
    /// queued together.
    pub(super) fn take_back(&mut self, function: FunctionId, calls: Vec<(u64, Vec<Call>)>) {
        for (batch, calls) in calls {
            self.give_back(batch, function, calls);
        }
    }

    /// Queues a call whose attempt failed or was deferred, behind `behind` fresh calls, unless the
    /// queue was closed (scheduler-1).
    pub(super) fn retry(&mut self, batch: u64, function: FunctionId, call: Call, behind: usize) {
        self.works.edit(batch, function, |queue| {
            if queue.closed.is_none() {
                queue.retry(call, behind);
            }
        });
    }

    /// Puts calls before all others of their queue, unless it was closed (scheduler-1).
    pub(super) fn give_back(&mut self, batch: u64, function: FunctionId, calls: Vec<Call>) {
        self.works.edit(batch, function, |queue| {
            if queue.closed.is_none() {
                queue.put_back(&calls);
            }
        });
    }
}
