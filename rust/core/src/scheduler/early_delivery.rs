//! Groups that are delivered before all of their calls have ended: by a quorum, or a deadline of their own.
//!
//! - U-1  A cut ends the open calls of its group's samples, those that were never made included. A quorum has every group call behind it (its cells
//!   count for each sample); a deadline ends that too. The one call of a batch function is never cut: it belongs to no group alone.
//! - U-2  `finish_group` is not cut: it comes after, with the scores that there are. It needs a whole group: a quorum waits until the group has all
//!   of its samples, and where a deadline finds some missing its cells end with the others.
//! - U-3  A group is marked before its calls are swept, and under the lock: an attempt that fails meanwhile is not granted another one, and what is
//!   added later makes no calls.
//! - U-4  The cut settles cells as any call does, so the group is announced once, by whoever settles its last cell (G-2).

use std::ops::Range;
use std::sync::Arc;

use crate::batch::Batch;
use crate::call::Cause;
use crate::function::Shape;
use crate::outcome::Times;
use crate::scheduler::state::{SchedulerCore, SchedulerState};
use crate::scheduler::timers::Due;

impl SchedulerCore {
    /// Ends what is open of these groups, each once.
    pub(super) fn deliver_early(
        self: &Arc<Self>,
        batch: &Arc<Batch>,
        groups: impl IntoIterator<Item = usize>,
        cause: &Cause,
    ) {
        let (status, note) = cause.end();
        let timeout = *cause == Cause::GroupTimeout;
        for group in groups {
            {
                let _state = self.state.lock(); // U-3
                if !batch.mark_delivered_early(group, cause) {
                    continue;
                }
            }
            let samples = group * batch.group_size()..(group + 1) * batch.group_size();
            for (function, spec) in self.functions.iter().enumerate() {
                let span = match spec.shape {
                    Shape::Sample => 1,
                    Shape::Group if timeout => batch.group_size(),
                    Shape::Group | Shape::Batch => continue,
                };
                if spec.finish && !batch.is_whole(group) {
                    // First: once its scores are there, its call is made.
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
        }
    }

    /// Sets the timer of groups that began at `at_ns`, if their batch has one.
    pub(super) fn set_group_timer(&self, state: &mut SchedulerState, batch: &Batch, groups: Range<usize>, at_ns: u64) {
        if let Some(ns) = batch.delivery().group_timeout_ns
            && state.timers.set(at_ns.saturating_add(ns), Due::DeliverEarly { batch: batch.id(), groups })
        {
            self.timers_changed.notify_one();
        }
    }
}
