//! Gated calls: made where their gate opens, skipped where it does not.
//!
//! - They wait in no queue: their function's queue gets each of them once its gate has opened.
//! - The sweep of a cell also ends its gated call: the queue is closed, or the group marked, under
//!   the lock before the sweep begins, so the call is not queued then.
//! - `total_timeout` counts from when the gate opened.

use std::sync::Arc;

use crate::batch::Batch;
use crate::call::Call;
use crate::function::FunctionId;
use crate::outcome::{Outcome, Status, Times};
use crate::scheduler::state::SchedulerCore;

impl SchedulerCore {
    /// Decides cells whose conditions can be checked, on the thread that completed a cell of `of`,
    /// and hands out the calls that this makes possible.
    pub(super) fn decide(
        self: &Arc<Self>,
        batch: &Arc<Batch>,
        of: Option<FunctionId>,
        mut cells: Vec<(FunctionId, usize)>,
    ) {
        if cells.is_empty() {
            return;
        }
        cells.sort_unstable();
        let mut skipped = Vec::new();
        let mut look = false;
        let mut alike: Vec<(FunctionId, Vec<usize>)> = Vec::new();
        for column in cells.chunk_by(|(one, _), (other, _)| one == other) {
            let function = column[0].0;
            let (run, skip): (Vec<usize>, Vec<usize>) =
                column.iter().map(|(_, sample)| *sample).partition(|sample| batch.is_to_run(*sample, function));
            let pure = self.function(function).pure;
            let mut state = self.state.lock();
            let now_ns = self.clock.now_ns();
            let is_early = |sample: &usize| batch.is_delivered_early(sample / batch.group_size());
            let calls: Vec<Call> = run.into_iter().filter(|sample| !is_early(sample)).map(Call::fresh).collect();
            calls.iter().for_each(|call| batch.possible_at(call.first, function, now_ns));
            let queued = state.works.edit(batch.id(), function, |queue| {
                queue.undecided =
                    queue.undecided.saturating_sub(if pure { column.len() - calls.len() } else { column.len() });
                if queue.closed.is_some() {
                    return None;
                }
                if !pure {
                    queue.arrived.extend(&calls);
                }
                // Samples that wait for more may have waited for these.
                Some(queue.undecided == 0 || !calls.is_empty())
            });
            if let Some(Some(changed)) = queued {
                look |= changed;
                self.set_total_timer(&mut state, batch, function, &calls, now_ns);
                if pure {
                    let samples = calls.iter().map(|call| call.first).collect();
                    alike.push((function, samples));
                }
                skipped.extend(skip.into_iter().filter(|sample| !is_early(sample)).map(|sample| (function, sample)));
            }
        }
        for (function, samples) in alike {
            self.share(batch, function, samples);
        }
        let any_skipped = !skipped.is_empty();
        for (function, sample) in skipped {
            let (grid, column) = batch.place(function, false);
            if let Some(claim) = grid.claim_open(sample, column) {
                let outcome = Outcome::without_value(Status::Skipped, Times::default());
                let completed = batch.fill(function, false, claim, [outcome]);
                self.completed(batch, function, false, completed);
            }
        }
        if any_skipped {
            // The last open column of a rubric may be one of them.
            self.calls_swept();
        }
        match of {
            Some(function) if look => self.pump_after(function),
            None if look => self.pump(),
            _ => {}
        }
    }
}
