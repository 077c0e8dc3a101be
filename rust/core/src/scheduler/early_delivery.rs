//! Groups that are delivered before their calls have ended: by a quorum, by their timeout, or
//! because no caller waits for them any more.
//!
//! - The open calls of the group's samples end, even those never made; except for a quorum, its
//!   group calls end too. The call of a batch function goes on, because it belongs to all groups.
//! - `finish_group` runs afterwards, with the scores that exist. It needs a whole group: a quorum
//!   waits for all samples; if a timeout finds some missing, its cells end with the others.
//! - A group is marked under the lock before its calls are swept: no failed attempt gets another.

use std::ops::Range;
use std::sync::Arc;

use crate::batch::Batch;
use crate::call::Cause;
use crate::function::Shape;
use crate::outcome::Times;
use crate::scheduler::state::{SchedulerCore, SchedulerState};
use crate::scheduler::timer_queue::Due;

impl SchedulerCore {
    /// Ends the open calls of these groups, each once.
    pub(super) fn deliver_early(
        self: &Arc<Self>,
        batch: &Arc<Batch>,
        groups: impl IntoIterator<Item = usize>,
        cause: &Cause,
    ) {
        let (status, note) = cause.end();
        let whole = cause.ends_group_calls();
        for group in groups {
            {
                let _state = self.state.lock();
                if !batch.mark_delivered_early(group, cause) {
                    continue;
                }
            }
            let samples = group * batch.group_size()..(group + 1) * batch.group_size();
            for (function, spec) in batch.functions().iter().enumerate() {
                let span = match spec.shape {
                    Shape::Sample => 1,
                    Shape::Group if whole => batch.group_size(),
                    Shape::Group | Shape::Batch => continue,
                };
                if spec.finish && !batch.is_whole(group) {
                    // Ends before the scores do: the end of the last score would make this call.
                    if let Some(claim) = batch.grid().claim_open(samples.start, function) {
                        self.fail(batch, function, true, samples.clone(), claim, status, &note, Times::default());
                    }
                }
                let (grid, column) = batch.place(function, false);
                for first in samples.clone().step_by(span) {
                    if let Some(claim) = grid.claim_open(first, column) {
                        self.fail(batch, function, false, first..first + span, claim, status, &note, Times::default());
                    }
                }
            }
            self.calls_swept();
        }
    }

    /// Sets the timer of groups that began at `at_ns`, if their batch has a group timeout.
    pub(super) fn set_group_timer(&self, state: &mut SchedulerState, batch: &Batch, groups: Range<usize>, at_ns: u64) {
        let Some(ns) = batch.delivery().group_timeout_ns else { return };
        let Some(work) = state.works.get_mut(batch.id()) else { return };
        let due_ns = at_ns.saturating_add(ns);
        if work.early.add(due_ns, groups, |groups| batch.are_complete(groups))
            && state.timers.set(due_ns, Due::DeliverEarly { batch: batch.id() })
        {
            self.timers_changed.notify_one();
        }
    }

    /// Delivers groups whose timeout passed.
    pub(super) fn deliver_late(self: &Arc<Self>, batch: u64, now_ns: u64) {
        let (batch, groups) = {
            let mut state = self.state.lock();
            let Some(work) = state.works.get_mut(batch) else { return };
            let batch = work.batch.clone();
            let (groups, next_ns) = work.early.take(now_ns, |groups| batch.are_complete(groups));
            if let Some(due_ns) = next_ns {
                state.timers.set(due_ns, Due::DeliverEarly { batch: batch.id() });
            }
            (batch, groups)
        };
        self.deliver_early(&batch, groups.into_iter().flatten(), &Cause::GroupTimeout);
    }
}
