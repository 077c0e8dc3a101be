//! What the scheduler's parts share: the functions and lanes, and the state under the lock.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use tokio::sync::Notify;

use crate::batch::Batch;
use crate::call::Call;
use crate::clock::Clock;
use crate::function::{Function, FunctionId};
use crate::lane::Lane;
use crate::limits::Limiter;
use crate::scheduler::order::Estimate;
use crate::scheduler::queue::{Queue, Work};
use crate::scheduler::throttled::Throttled;
use crate::scheduler::timers::Timers;
use crate::sync::{AtomicU64, Mutex};

pub(super) struct SchedulerCore {
    pub(super) clock: Clock,
    pub(super) functions: Arc<[Function]>,
    pub(super) lanes: Vec<Arc<dyn Lane>>,
    /// Per function, where it has a limit.
    pub(super) limiters: Vec<Option<Arc<Limiter>>>,
    pub(super) state: Mutex<SchedulerState>,
    /// Signalled when a timer was set that is sooner than all others, and at the end.
    pub(super) timers_changed: Arc<Notify>,
    /// Outcomes that came too late. Written by frames.
    pub(super) late: AtomicU64,
    /// Called when a circuit breaker opens. Written once, before the first batch.
    pub(super) breaker_listener: OnceLock<BreakerListener>,
}

/// Takes the function whose circuit breaker opened, and the reason of its last call.
type BreakerListener = Box<dyn Fn(FunctionId, &str) + Send + Sync>;

pub(super) struct SchedulerState {
    /// Open batches; a lower id is an older batch.
    pub(super) works: BTreeMap<u64, Work>,
    pub(super) estimates: Vec<Estimate>,
    /// Frames with the lanes, per function.
    pub(super) in_flight: Vec<usize>,
    /// Per function: until when its limit lets nothing through.
    pub(super) throttled: Vec<Throttled>,
    pub(super) timers: Timers,
    pub(super) last_batch: u64,
    pub(super) last_frame: u64,
    /// Parts of calls that were split.
    pub(super) last_part: u64,
    /// A thread is handing out frames.
    pub(super) pumping: bool,
    pub(super) closed: bool,
}

impl SchedulerCore {
    pub(super) fn new(clock: Clock, functions: Vec<Function>, lanes: Vec<Arc<dyn Lane>>) -> Self {
        let limiters = Limiter::all(functions.iter().map(|function| function.policy.limit.as_ref()));
        let state = SchedulerState {
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
        Self {
            clock,
            functions: functions.into(),
            lanes,
            limiters,
            state: Mutex::new(state),
            timers_changed: Arc::new(Notify::new()),
            late: AtomicU64::new(0),
            breaker_listener: OnceLock::new(),
        }
    }

    pub(super) fn function(&self, function: FunctionId) -> &Function {
        &self.functions[function]
    }

    pub(super) fn lane(&self, function: FunctionId) -> &Arc<dyn Lane> {
        &self.lanes[self.functions[function].lane]
    }

    /// Has the lanes complete what has ended, since open calls are about to be ended (lane-1).
    pub(super) fn complete_ended(&self) {
        self.lanes.iter().for_each(|lane| lane.complete_ended());
    }

    /// An open batch.
    pub(super) fn batch(&self, id: u64) -> Option<Arc<Batch>> {
        self.state.lock().works.get(&id).map(|work| work.batch.clone())
    }
}

impl SchedulerState {
    pub(super) fn queue(&mut self, batch: u64, function: FunctionId) -> Option<&mut Queue> {
        self.works.get_mut(&batch)?.queues.get_mut(function)
    }

    /// `give_back` for several batches at once: what belongs together comes back together.
    pub(super) fn take_back(&mut self, function: FunctionId, calls: Vec<(u64, Vec<Call>)>) {
        for (batch, calls) in calls {
            self.give_back(batch, function, calls);
        }
    }

    /// Puts calls before all others of their queue, unless it was closed (scheduler-1).
    pub(super) fn give_back(&mut self, batch: u64, function: FunctionId, calls: Vec<Call>) {
        if let Some(queue) = self.queue(batch, function).filter(|queue| queue.closed.is_none()) {
            for call in calls.into_iter().rev() {
                queue.returned.push_front(call);
            }
        }
    }
}
