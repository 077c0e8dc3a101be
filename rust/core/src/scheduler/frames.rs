//! Requests of frames to the scheduler.

use std::sync::Arc;

use tracing::warn;

use crate::batch::{Batch, CompletedCells};
use crate::call::{Call, Cause};
use crate::frame::{FrameOwner, LaneCounts, LaneOwner};
use crate::function::FunctionId;
use crate::grid::Claim;
use crate::limits::Feedback;
use crate::member_call::MemberCall;
use crate::observer::Telemetry;
use crate::outcome::{Failure, Times};
use crate::report::Usage;
use crate::scheduler::state::SchedulerCore;
use crate::scheduler::timer_queue::Due;
use crate::sync::Ordering;

impl LaneOwner for SchedulerCore {
    fn tracer(&self) -> Option<&Arc<dyn Telemetry>> {
        self.tracer.get()
    }

    fn find_work(self: Arc<Self>, brief: bool) {
        self.hand_out(if brief { 1 } else { usize::MAX });
    }

    fn call_members(self: Arc<Self>, batch: &Arc<Batch>, calls: &[MemberCall], scores: &[Option<f64>]) {
        Self::call_members(&self, batch, calls, scores);
    }

    fn give_up_members(self: Arc<Self>, batch: &Arc<Batch>, calls: &[MemberCall]) {
        Self::give_up_members(&self, batch, calls);
    }

    fn wake_at(&self, (batch, function, first): (u64, FunctionId, usize), due_ns: u64) {
        if self.state.lock().timers.set(due_ns, Due::Wake { batch, function, first }) {
            self.timers_changed.notify_one();
        }
    }

    fn compute(&self, task: Box<dyn FnOnce() + Send>) {
        drop(self.runtime.spawn_blocking(task));
    }
}

impl FrameOwner for SchedulerCore {
    fn completed(self: Arc<Self>, batch: &Arc<Batch>, function: FunctionId, finish: bool, completed: CompletedCells) {
        Self::completed(&self, batch, function, finish, completed);
    }

    fn attempt_failed(
        self: Arc<Self>,
        batch: &Arc<Batch>,
        function: FunctionId,
        call: Call,
        claim: Claim<'_>,
        failure: Failure,
        times: Times,
    ) {
        Self::attempt_failed(&self, batch, function, call, claim, failure, times);
    }

    fn gathered_failed(
        self: Arc<Self>,
        function: FunctionId,
        claimed: Vec<(&Arc<Batch>, Call, Claim<'_>)>,
        failure: Failure,
        excused: bool,
        times: Times,
    ) {
        Self::gathered_failed(&self, function, claimed, failure, excused, times);
    }

    fn end_function(self: Arc<Self>, batch: &Arc<Batch>, function: FunctionId, cause: &Cause) {
        Self::end_broken(&self, batch, function, cause);
    }

    fn note_endpoint_error(&self, function: FunctionId, feedback: Feedback, why: &str) {
        if let Some(limiter) = &self.limiters[function]
            && let Some(warning) = limiter.note_error(self.clock.now_ns(), feedback, why)
            && let Some(listener) = self.limit_listener.get()
        {
            warn!(function = &*self.function(function).name, ?warning, "endpoint in trouble");
            listener(function, warning, why);
        }
    }

    fn frame_ended(
        self: Arc<Self>,
        function: FunctionId,
        unfinished: Vec<(u64, Vec<Call>)>,
        freed: LaneCounts,
        run_ns: u64,
        ran: u64,
    ) {
        {
            let mut state = self.state.lock();
            state.freed(function, freed);
            state.ended += 1;
            self.released(&mut state, function);
            state.estimates[function].learn(run_ns, ran);
            state.take_back(function, unfinished);
            // Its place is of use to this function alone.
            let is_apart = self.concurrent_calls(function, state.estimates[function]).is_some();
            if is_apart && !state.works.has_ready(function) {
                return;
            }
        }
        self.pump_after(function);
    }

    fn given_back(self: Arc<Self>, function: FunctionId, calls: Vec<(u64, Vec<Call>)>, freed: LaneCounts) {
        {
            let mut state = self.state.lock();
            state.freed(function, freed);
            if freed.frames > 0 {
                self.released(&mut state, function);
            }
            state.take_back(function, calls);
        }
        self.pump_after(function);
    }

    fn calls_ended(self: Arc<Self>, function: FunctionId, calls: usize, run_ns: u64, ran: u64) {
        {
            let mut state = self.state.lock();
            state.freed(function, LaneCounts { calls, ..LaneCounts::default() });
            state.ended += 1;
            state.estimates[function].learn(run_ns, ran);
            // Usually no call waits, or the lane has enough.
            let share = self.concurrent_calls(function, state.estimates[function]);
            let enough = share.is_some_and(|share| !share.has_room(state.in_flight[function].calls));
            if enough || !state.works.has_ready(function) {
                return;
            }
        }
        self.pump_after(function);
    }

    fn observe(&self, function: FunctionId, run_ns: u64) {
        self.state.lock().estimates[function].learn(run_ns, 1);
    }

    fn count_usage(&self, function: FunctionId, usage: Usage) {
        self.usage.lock()[function] += usage;
    }

    fn count_late(&self) {
        self.late.fetch_add(1, Ordering::Relaxed);
    }
}
