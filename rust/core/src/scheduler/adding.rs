//! Additions to open batches: calls become possible as samples come.
//!
//! - The call of a sample is possible from its addition on, the call of a group once the group is
//!   full, the call of the batch when additions end. They end under the lock, so the batch call is
//!   either made or swept.
//! - A sample that is added after its queue was closed ends like the queue. Places are taken before
//!   the lock, so the sweep or the addition reaches each such cell, and the cell's claim allows
//!   only one of them to write.
//! - `total_timeout` counts from when a call became possible.

use std::sync::Arc;

use crate::batch::Batch;
use crate::call::{Call, Cause};
use crate::clock::nanos;
use crate::function::{FunctionId, Shape};
use crate::open_batch::{AddedSamples, IncompleteGroups};
use crate::outcome::Times;
use crate::scheduler::state::{SchedulerCore, SchedulerState};
use crate::scheduler::timer_queue::Due;

impl SchedulerCore {
    pub(super) fn add(self: &Arc<Self>, batch: &Arc<Batch>, added: &AddedSamples) {
        let mut closed: Vec<(FunctionId, Cause)> = Vec::new();
        let mut alike = Vec::new();
        let size = batch.group_size();
        let whole;
        let decided;
        {
            let mut state = self.state.lock();
            whole = batch.arrive(&added.samples);
            // The cells of groups that were delivered early have ended or are about to end.
            let (samples, filled): (Vec<usize>, Vec<usize>) = (
                added.samples.iter().copied().filter(|sample| !batch.is_delivered_early(sample / size)).collect(),
                whole.iter().copied().filter(|group| !batch.is_delivered_early(*group)).collect(),
            );
            for (function, spec) in batch.functions().iter().enumerate() {
                let calls: Vec<Call> = match spec.shape {
                    Shape::Sample if spec.run_if.is_some() => Vec::new(),
                    Shape::Sample => samples.iter().map(|sample| Call::fresh(*sample)).collect(),
                    Shape::Group => filled.iter().map(|group| Call::fresh(group * size)).collect(),
                    Shape::Batch => Vec::new(),
                };
                // The batch is done if its queue is missing: its cells have outcomes.
                let Some(cause) = state.works.edit(batch.id(), function, |queue| {
                    if spec.run_if.is_some() || spec.pure {
                        queue.undecided += if spec.run_if.is_some() { added.samples.len() } else { calls.len() };
                    }
                    if queue.closed.is_none() && !spec.pure {
                        queue.arrived.extend(&calls);
                    }
                    queue.closed.clone()
                }) else {
                    return;
                };
                if let Some(cause) = cause {
                    closed.push((function, cause));
                } else {
                    self.set_total_timer(&mut state, batch, function, &calls, added.at_ns);
                    if spec.pure && !calls.is_empty() {
                        alike.push((function, calls.iter().map(|call| call.first).collect::<Vec<_>>()));
                    }
                }
            }
            decided = batch.bring_values(&added.samples);
            for group in &added.begun {
                self.set_group_timer(&mut state, batch, *group..*group + 1, added.at_ns);
            }
        }
        for (function, cause) in closed {
            // If additions ended meanwhile, they ended after the queue was closed, so the batch
            // call was never made.
            let mut groups: Vec<usize> = added.samples.iter().map(|sample| sample / size).collect();
            groups.dedup();
            for group in groups {
                self.sweep(batch, function, group..group + 1, &cause, true);
            }
        }
        if batch.counts_whole() {
            let reached = whole.iter().flat_map(|group| batch.count_completed(group * size..(group + 1) * size));
            self.deliver_early(batch, reached.collect::<Vec<_>>(), &Cause::GroupQuorum);
        }
        for (function, samples) in alike {
            self.share(batch, function, samples);
        }
        self.decide(batch, None, decided);
        self.pump();
    }

    pub(super) fn finish(self: &Arc<Self>, batch: &Arc<Batch>) -> Result<(), IncompleteGroups> {
        let last = {
            let mut state = self.state.lock();
            let was_open = batch.is_open();
            let last = batch.end_additions("it was finished", true)?;
            if was_open && batch.groups() > 0 {
                for (function, _) in self.functions.iter().enumerate().filter(|(_, spec)| spec.shape == Shape::Batch) {
                    let call = Call::fresh(0);
                    let opened = state.works.edit(batch.id(), function, |queue| {
                        if queue.closed.is_none() {
                            queue.arrived.push_back(call);
                        }
                        queue.closed.is_none()
                    });
                    if opened == Some(true) {
                        self.set_total_timer(&mut state, batch, function, &[call], self.clock.now_ns());
                    }
                }
            }
            last
        };
        if last {
            self.forget(batch);
        }
        self.pump();
        Ok(())
    }

    /// Sets the timer of calls that became possible at `at_ns`, if their function has a
    /// `total_timeout`. Only gated functions need one if the batch was submitted whole.
    pub(super) fn set_total_timer(
        &self,
        state: &mut SchedulerState,
        batch: &Batch,
        function: FunctionId,
        calls: &[Call],
        at_ns: u64,
    ) {
        let spec = self.function(function);
        let apart = batch.is_streamed() || spec.run_if.is_some();
        let Some(timeout) = spec.policy.total_timeout.filter(|_| apart && !calls.is_empty()) else { return };
        let due_ns = at_ns.saturating_add(nanos(timeout));
        let soonest = state.works.edit(batch.id(), function, |queue| {
            let mut add = |call: &Call| queue.late.add(due_ns, (call.first, call.finish), ended_of(batch, function));
            // Every call is added, so `any` with its short circuit can't be used.
            calls.iter().fold(false, |soonest, call| add(call) | soonest)
        });
        if soonest == Some(true) && state.timers.set(due_ns, Due::Late { batch: batch.id(), function }) {
            self.timers_changed.notify_one();
        }
    }

    /// Ends calls whose `total_timeout` passed.
    pub(super) fn end_late(self: &Arc<Self>, batch: u64, function: FunctionId, now_ns: u64) {
        let Some(batch) = self.batch(batch) else { return };
        let calls = {
            let mut state = self.state.lock();
            let over = ended_of(&batch, function);
            let taken = state.works.edit(batch.id(), function, |queue| queue.late.take(now_ns, over));
            let Some((calls, next_ns)) = taken else { return };
            if let Some(due_ns) = next_ns {
                state.timers.set(due_ns, Due::Late { batch: batch.id(), function });
            }
            calls
        };
        let spec = self.function(function);
        let (status, note) = self.end_of(&batch, function, &Cause::TotalTimeout);
        for (first, finish) in calls {
            let (grid, column) = batch.place(function, finish);
            let span = if finish { batch.group_size() } else { spec.span(batch.samples(), batch.group_size()) };
            if let Some(claim) = grid.claim_open(first, column) {
                self.fail(&batch, function, finish, first..first + span, claim, status, &note, Times::default());
            }
        }
        self.calls_swept();
    }
}

/// Returns a predicate that is true for calls that have ended, to drop their timeouts.
fn ended_of(batch: &Batch, function: FunctionId) -> impl Fn(&(usize, bool)) -> bool {
    move |(first, finish)| {
        let (grid, column) = batch.place(function, *finish);
        grid.read(*first, column).is_some()
    }
}
