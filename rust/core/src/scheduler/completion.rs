//! Ends calls: completed, tried again, or swept by the scheduler.

use std::ops::Range;
use std::sync::Arc;

use tracing::debug;

use crate::batch::{Batch, CompletedCells};
use crate::call::{Call, Cause};
use crate::function::{Function, FunctionId, Shape};
use crate::grid::Claim;
use crate::outcome::{Failure, Note, Outcome, Status, Times};
use crate::scheduler::queue::Work;
use crate::scheduler::retry;
use crate::scheduler::state::{SchedulerCore, SchedulerState};
use crate::scheduler::timer_queue::Due;

impl SchedulerCore {
    /// Passes on what the cells of a call completed.
    pub(super) fn completed(
        self: &Arc<Self>,
        batch: &Arc<Batch>,
        function: FunctionId,
        finish: bool,
        completed: CompletedCells,
    ) {
        let CompletedCells { groups, quorums, decided, shared } = completed;
        if !groups.is_empty() {
            self.groups_complete(batch, function, finish, &groups);
        }
        if !quorums.is_empty() {
            self.deliver_early(batch, quorums, &Cause::GroupQuorum);
        }
        shared.into_iter().for_each(|sample| self.pass_on_shared(batch, function, sample));
        // Decided last: in a group that was delivered early no call may begin.
        self.decide(batch, Some(function), decided);
    }

    /// Ends an attempt that failed: with another attempt, or with the failure of the call.
    pub(crate) fn attempt_failed(
        self: &Arc<Self>,
        batch: &Arc<Batch>,
        function: FunctionId,
        mut call: Call,
        claim: Claim<'_>,
        failure: Failure,
        times: Times,
    ) {
        let policy = &self.function(function).policy;
        if failure.progressed {
            call.begin_anew();
        }
        let mut swept = None;
        {
            let mut state = self.state.lock();
            // Under the lock, which a sweep of late calls also takes: an attempt that is not late
            // here is open when the sweep comes (scheduler-1).
            let now_ns = self.clock.now_ns();
            let closed = state.closed(batch.id(), function);
            let expires_ns = batch.expires_ns(call.first, function);
            if let Some(cause) = closed.or_else(|| batch.early_delivery_of(call.first, function, call.finish)) {
                swept = Some(cause);
            } else if let Some(again) = retry::decide(policy, &call, &failure, now_ns, expires_ns, fastrand::f64()) {
                batch.count_retry(function, again.deferred);
                // The reason is left out, because it may contain the user's texts.
                let (kind, wait_ms) = (failure.kind, again.due_ns.saturating_sub(now_ns) / 1_000_000);
                let (sample, attempt, name) = (call.first, call.attempt, &*self.function(function).name);
                debug!(
                    function = name,
                    batch = batch.id(),
                    sample,
                    attempt,
                    ?kind,
                    wait_ms,
                    "attempt failed, tried again"
                );
                call.suspect = again.suspect;
                call.deferred = call.deferred.saturating_add(again.deferred.into());
                call.attempt = claim.reopen();
                if again.deferred {
                    state.limiter_pauses[function].deferred(again.due_ns);
                }
                if again.due_ns > now_ns {
                    let retry = Due::Retry { function, calls: vec![(batch.id(), vec![call])] };
                    if state.timers.set(again.due_ns, retry) {
                        self.timers_changed.notify_one();
                    }
                    return;
                }
                self.put_back_retried(&mut state, function, vec![(batch.id(), vec![call])]);
                drop(state);
                // The frame may run on for long, and a lane with room must not wait for its end.
                self.pump_after(function);
                return;
            }
        }
        let (status, note) = match swept {
            Some(cause) => self.end_of(batch, function, &cause),
            None => {
                let kind = failure.kind;
                let mut note = Note::from(failure);
                note.reason.push_str(&call.counted_apart());
                (kind.status(), Arc::new(note))
            }
        };
        let spec = self.function(function);
        if spec.gather.is_some() && !call.finish {
            batch.count_gathered(function, times);
        }
        let span = if call.finish { batch.group_size() } else { spec.span(batch.samples(), batch.group_size()) };
        self.fail(batch, function, call.finish, call.first..call.first + span, claim, status, &note, times);
    }

    /// Ends all open calls of one function, or of all, in a batch.
    pub(crate) fn end_open(self: &Arc<Self>, batch: &Arc<Batch>, function: Option<FunctionId>, cause: &Cause) {
        let functions = function.map_or(0..batch.functions().len(), |one| one..one + 1);
        let (closed, open): (Vec<FunctionId>, bool) = {
            let mut state = self.state.lock();
            let works = &mut state.works;
            let close = |id: &FunctionId| works.edit(batch.id(), *id, |queue| queue.close(cause)) == Some(true);
            (functions.filter(close).collect(), batch.is_open())
        };
        if function.is_none() {
            let (_, note) = cause.end();
            if batch.end_additions(&note.reason, false) == Ok(true) {
                self.forget(batch);
            }
        }
        // Comes after the queues were closed and additions ended: samples added later end in `add`.
        let groups = 0..batch.groups();
        for function in closed {
            self.sweep(batch, function, groups.clone(), cause, open);
        }
        self.calls_swept();
    }

    /// Returns the status and note for cells that end for this cause.
    pub(super) fn end_of(&self, batch: &Batch, function: FunctionId, cause: &Cause) -> (Status, Arc<Note>) {
        let of = |(id, spec): (FunctionId, &Function)| {
            id == function || spec.member_of == Some(function) || spec.columns.contains(&function)
        };
        let limiters = self.functions.iter().enumerate().zip(&self.limiters).filter(|(one, _)| of(*one));
        let mut limiters = limiters.filter_map(|(_, limiter)| limiter.as_ref());
        cause.end_with(|| limiters.find_map(|limiter| limiter.last_error(batch.submitted_ns())))
    }

    /// Ends the open calls of a function in these groups, whose queue is closed. If `apart` is set,
    /// a call over the whole batch was not made yet because the batch is streamed, so each group's
    /// cells are ended separately.
    pub(super) fn sweep(
        self: &Arc<Self>,
        batch: &Arc<Batch>,
        function: FunctionId,
        groups: Range<usize>,
        cause: &Cause,
        apart: bool,
    ) {
        let (status, note) = self.end_of(batch, function, cause);
        let times = Times { started_ns: 0, run_ns: 0 };
        let spec = &batch.functions()[function];
        let size = batch.group_size();
        let samples = groups.start * size..groups.end * size;
        let mut reached = Vec::new();
        if let Some(stage) = batch.stage(function) {
            for sample in samples.clone() {
                if let Some(claim) = stage.claim_open(sample, 0) {
                    claim.complete([Outcome::without_value(status, times)], |_| {});
                    reached.extend(batch.count_completed(sample..sample + 1));
                }
            }
        }
        let span = match spec.shape {
            _ if spec.finish => size,
            Shape::Sample => 1,
            Shape::Batch if !apart => batch.samples(),
            Shape::Group | Shape::Batch => size,
        };
        for first in samples.step_by(span.max(1)) {
            if let Some(claim) = batch.grid().claim_open(first, function) {
                self.fail(batch, function, spec.finish, first..first + span, claim, status, &note, times);
            }
        }
        self.completed(batch, function, false, CompletedCells { quorums: reached, ..CompletedCells::default() });
    }

    /// Fails the cells of a call and passes on what this completes.
    #[expect(clippy::too_many_arguments, reason = "one call, one end: splitting it would hide what belongs together")]
    pub(super) fn fail(
        self: &Arc<Self>,
        batch: &Arc<Batch>,
        function: FunctionId,
        finish: bool,
        samples: Range<usize>,
        claim: Claim<'_>,
        status: Status,
        note: &Arc<Note>,
        times: Times,
    ) {
        let completed = batch.fail(function, finish, samples, claim, status, note, times);
        self.completed(batch, function, finish, completed);
    }

    /// Records that all cells of these groups are complete in the grid of this function's calls.
    fn groups_complete(self: &Arc<Self>, batch: &Arc<Batch>, function: FunctionId, finish: bool, groups: &[usize]) {
        if !finish && batch.stage(function).is_some() {
            groups.iter().for_each(|group| self.scores_complete(batch, function, *group));
            return;
        }
        if let Some(owner) = batch.owner() {
            groups.iter().for_each(|sample| self.member_ended(batch, owner, function, *sample));
            return;
        }
        if let Some(observers) = self.observers.get().filter(|_| !groups.is_empty()) {
            // Before the batch may be done and its payload released.
            observers.iter().for_each(|observer| observer.groups_completed(batch, groups));
        }
        if batch.announce(groups) {
            self.forget(batch);
        }
    }

    /// Removes a batch that is done.
    pub(super) fn forget(&self, batch: &Batch) {
        debug!(batch = batch.id(), elapsed_ms = batch.elapsed_ns() / 1_000_000, "batch ended");
        let (known, members) = {
            let SchedulerState { works, timers, ended, .. } = &mut *self.state.lock();
            *ended += 1;
            let own = batch.id();
            let members: Vec<Work> = works.remove_all(self.slots(batch));
            std::iter::once(own).chain(members.iter().map(|work| work.batch.id())).for_each(|id| timers.forget(id));
            (works.remove(own).is_some(), members)
        };
        // The owners of these calls have ended; lanes find the calls swept.
        members.iter().for_each(|work| work.batch.give_up());
        if known {
            self.trace_done(batch);
        }
    }

    /// Queues the `finish_group` call of a group that has all scores, if any score can be shaped.
    fn scores_complete(self: &Arc<Self>, batch: &Arc<Batch>, function: FunctionId, group: usize) {
        let samples = group * batch.group_size()..(group + 1) * batch.group_size();
        let first = samples.start;
        let scores: Vec<Outcome> = samples
            .filter_map(|sample| batch.stage(function).and_then(|stage| stage.read(sample, 0)))
            .map(|(score, _)| score)
            .collect();
        if scores.iter().any(|score| score.status.is_answer()) {
            let call = Call::finish(first);
            {
                let mut state = self.state.lock();
                state.give_back(batch.id(), function, vec![call]);
                self.set_total_timer(&mut state, batch, function, &[call], self.clock.now_ns());
            }
            self.pump_after(function);
        } else if let Some(claim) = batch.grid().claim_open(first, function) {
            self.completed(batch, function, true, batch.fill(function, true, claim, scores));
        }
    }

    /// Ends the open calls of all batches.
    pub(super) fn cancel_all(self: &Arc<Self>, reason: &str) {
        let open: Vec<Arc<Batch>> = {
            let mut state = self.state.lock();
            state.closed = true;
            state.works.batches()
        };
        self.timers_changed.notify_one();
        self.complete_ended();
        for batch in open {
            self.end_open(&batch, None, &Cause::Cancelled(reason.to_owned()));
        }
    }
}
