//! Ends the calls of a frame.

use std::sync::Arc;

use crate::batch::{Batch, CompletedCells, Record};
use crate::batch_slice::BatchSlice;
use crate::call::{Call, CallKind, Cause};
use crate::frame::ended::EndedCall;
use crate::frame::reports::CallExtra;
use crate::frame::trace::{AttemptEnd, status_of};
use crate::frame::{Frame, LaneCounts};
use crate::grid::Claim;
use crate::limits::{Feedback, NextRequest, Permit};
use crate::outcome::{Cell, Failure, FailureKind, Note, Status, Times, Traceback};
use crate::timeout_messages::no_setup;

impl Frame {
    /// Ends a call of one sample.
    pub fn complete(&mut self, call: usize, cell: Cell, times: Times) {
        if self.kind == CallKind::Sample {
            let status = status_of(&cell);
            self.end(call, [cell], status, times);
        } else {
            self.complete_many(call, vec![cell], times);
        }
    }

    /// Ends a call of several samples; one cell each.
    pub fn complete_many(&mut self, call: usize, cells: Vec<Cell>, times: Times) {
        let expected = self.size(call);
        if cells.len() == expected {
            let failed = self.trace.is_some() && cells.iter().all(|cell| !status_of(cell).is_answer());
            self.end(call, cells, if failed { Status::Error } else { Status::Ok }, times);
        } else {
            let reason = format!("returned {} values for {expected} samples", cells.len());
            let failure = Failure { retryable: false, ..Failure::new(FailureKind::Error, reason) };
            self.fail(call, failure, times);
        }
    }

    /// Ends a call of one sample with a number. It is completed soon, together with the calls that
    /// end next.
    pub fn complete_soon(&mut self, call: usize, value: f64, times: Times) {
        if self.kind != CallKind::Sample || self.permit.is_some() || !self.records.is_empty() || !self.extra.is_empty()
        {
            self.complete(call, Cell::Value(value), times);
            return;
        }
        if !std::mem::take(&mut self.pending[call]) {
            return;
        }
        self.count(times);
        if self.ended.push(EndedCall { call, value, times }) {
            self.complete_ended();
        }
        self.report_ended();
    }

    /// Completes the ended calls.
    pub fn complete_ended(&mut self) {
        self.trace_numbers();
        let ended = self.ended.take();
        if ended.is_empty() {
            return;
        }
        let slice = self.own(); // calls of one sample are all of one batch
        let claimed = ended.into_iter().filter_map(|EndedCall { call, value, times }| {
            Some((self.claim(slice, &slice.calls[call])?, value, times))
        });
        let completed = slice.batch().complete_all(self.function, claimed);
        self.pass_on(slice.batch(), completed);
    }

    /// Passes the cells that a call completed on to the scheduler.
    fn pass_on(&self, batch: &Arc<Batch>, completed: CompletedCells) {
        if !completed.is_empty() {
            self.owner.clone().completed(batch, self.function, self.kind == CallKind::Finish, completed);
        }
    }

    fn end(&mut self, call: usize, cells: impl IntoIterator<Item = Cell>, status: Status, times: Times) {
        if std::mem::take(&mut self.pending[call]) {
            self.count(times);
            self.trace_end(call, AttemptEnd::of(status), times);
            self.end_permit(call, Feedback::Ok);
            self.fill(call, cells, times);
            self.report_ended();
        }
    }

    fn fill(&mut self, call: usize, cells: impl IntoIterator<Item = Cell>, times: Times) {
        let (record, extra) = (self.records.remove(&call), self.extra.remove(&call));
        if self.kind == CallKind::Gathered {
            self.end_gathered(cells, record, extra, times);
            return;
        }
        let (slice, this) = (self.own(), self.own().calls[call]);
        if let Some(claim) = slice.claim(self.function, &this) {
            if let Some(json) = record {
                slice.batch().record(self.function, Record { first: this.first, gathered: Vec::new(), json });
            }
            self.keep_extra(this.first, extra);
            let completed = slice.batch().complete(self.function, this, claim, cells, times);
            self.pass_on(slice.batch(), completed);
        } else {
            self.owner.count_late();
        }
    }

    fn end_gathered(
        &self,
        cells: impl IntoIterator<Item = Cell>,
        record: Option<Vec<u8>>,
        extra: Option<CallExtra>,
        times: Times,
    ) {
        let claimed: Vec<_> = self.each().map(|(slice, call)| self.claim(slice, call)).collect();
        self.keep_gathered_extra(extra, |sample| claimed.get(sample).is_some_and(Option::is_some));
        // A function that records is called on samples of one batch.
        if let Some(json) = record.filter(|_| claimed.iter().any(Option::is_some) && self.slices.len() == 1) {
            let samples: Vec<usize> = self.samples(0).collect();
            let record = Record { first: self.first(0), gathered: samples, json };
            self.batch().record(self.function, record);
        }
        let mut counted = None;
        for (((slice, call), claim), cell) in self.each().zip(claimed).zip(cells) {
            if let Some(claim) = claim {
                // Counted before its cells are complete, so that a reader of the cells sees the
                // call counted.
                if counted.replace(slice.batch().id()) != Some(slice.batch().id()) {
                    slice.batch().count_gathered(self.function, times);
                }
                let completed = slice.batch().complete(self.function, *call, claim, [cell], times);
                self.pass_on(slice.batch(), completed);
            }
        }
    }

    /// Returns the claim on a gathered sample, `None` if its call has ended.
    fn claim<'a>(&self, slice: &'a BatchSlice, call: &Call) -> Option<Claim<'a>> {
        let claim = slice.claim(self.function, call);
        if claim.is_none() {
            self.owner.count_late();
        }
        claim
    }

    /// Ends an attempt that failed; the scheduler decides on another.
    pub fn fail(&mut self, call: usize, failure: Failure, times: Times) {
        if !std::mem::take(&mut self.pending[call]) {
            return;
        }
        self.count(times);
        self.trace_end(call, &failure, times);
        self.pass_on_failure(call, failure, times);
        self.report_ended();
    }

    fn pass_on_failure(&mut self, call: usize, failure: Failure, times: Times) {
        let feedback = Feedback::of(&failure);
        let excused = self.end_permit(call, feedback);
        self.owner.note_endpoint_error(self.function, feedback, &failure.reason);
        let gathered = self.kind == CallKind::Gathered;
        for slice in self.slices.iter_mut().filter(|_| excused) {
            let all = if gathered { 0..slice.calls.len() } else { call..call + 1 };
            slice.batch().count_excused(self.function);
            slice.calls[all].iter_mut().for_each(|one| one.excused = one.excused.saturating_add(1));
        }
        self.records.remove(&call);
        let extra = self.extra.remove(&call);
        if gathered && self.size(call) != 1 {
            let claimed: Vec<_> = self.each().map(|(slice, call)| self.claim(slice, call)).collect();
            self.keep_gathered_extra(extra, |sample| claimed.get(sample).is_some_and(Option::is_some));
            let each = self.each().zip(claimed);
            let claimed = each.filter_map(|((slice, call), claim)| Some((slice.batch(), *call, claim?)));
            self.owner.clone().gathered_failed(self.function, claimed.collect(), failure, excused, times);
            return;
        }
        let Some((slice, this)) = self.of(call).next() else { return };
        if let Some(claim) = slice.claim(self.function, this) {
            self.keep_extra(this.first, extra);
            self.owner.clone().attempt_failed(slice.batch(), self.function, *this, claim, failure, times);
        } else {
            self.owner.count_late();
        }
    }

    /// Records that the function's `setup()` failed: all its open cells in the batches of this
    /// frame fail.
    pub fn fail_setup(&mut self, reason: String, traceback: Option<String>) {
        self.break_function(Note { reason, traceback: traceback.map(Traceback::Raised) });
    }

    /// Records that the function's `setup()` did not end in time, with the location where it was
    /// last seen.
    pub fn time_out_setup(&mut self, last_seen: Option<String>) {
        let reason = no_setup(self.function().policy.setup_timeout);
        self.break_function(Note { reason, traceback: last_seen.map(Traceback::LastSeen) });
    }

    /// Fails the open calls of the frame without another attempt.
    pub fn refuse(&mut self, reason: String) {
        let failure = Failure { retryable: false, ..Failure::new(FailureKind::Error, reason) };
        (0..self.len()).for_each(|call| self.fail(call, failure.clone(), Times::default()));
    }

    fn break_function(&self, why: Note) {
        let cause = Cause::Broken(why);
        for slice in &self.slices {
            self.owner.clone().end_function(slice.batch(), self.function, &cause);
        }
    }

    /// Gives calls that were not started back to the scheduler, unchanged.
    pub fn give_back(&mut self, calls: impl IntoIterator<Item = usize>) {
        let calls = calls.into_iter().filter(|call| std::mem::take(&mut self.pending[*call])).collect::<Vec<_>>();
        if !calls.is_empty() {
            self.trace_given_back(calls.len());
            let freed = if calls.len() == self.pending.len() {
                drop(self.permit.take());
                std::mem::take(&mut self.lane_counts)
            } else {
                self.lane_counts.calls -= calls.len();
                LaneCounts { calls: calls.len(), ..LaneCounts::default() }
            };
            self.owner.clone().given_back(self.function, self.returning(&calls), freed);
        }
    }

    /// Returns these calls in the scheduler's form, by batch; nothing for no calls.
    fn returning(&self, calls: &[usize]) -> Vec<(u64, Vec<Call>)> {
        let of = |slice: &BatchSlice| match self.kind {
            CallKind::Gathered => slice.calls.clone(),
            _ => calls.iter().map(|call| slice.calls[*call]).collect(),
        };
        let slices = self.slices.iter().filter(|_| !calls.is_empty());
        slices.map(|slice| (slice.batch().id(), of(slice))).collect()
    }

    /// Returns whether what a call recorded is kept until it is completed.
    #[must_use]
    pub fn has_record(&self, call: usize) -> bool {
        self.records.contains_key(&call)
    }

    /// Keeps the record of a call until the call is completed.
    pub fn record(&mut self, call: usize, json: Vec<u8>) {
        self.records.insert(call, json);
    }

    /// Records how many tokens a call used, for limits on tokens. Called before the call is ended.
    pub fn used(&mut self, tokens: f64) {
        if self.permit.is_none() {
            self.owner.used_elsewhere(tokens);
        }
        self.tokens = Some(tokens);
    }

    /// Returns the permit for a second request of the running call: `Some(None)` if the function
    /// has no limit, `None` if its limiter has no permit right now.
    #[must_use]
    pub fn second_request(&self) -> Option<Option<Permit>> {
        let Some(permit) = &self.permit else { return Some(None) };
        permit.another(self.clock.now_ns()).map(Some)
    }

    /// Reports a request of the running call as answered to the function's limiter, which gives a
    /// permit for the next one; `None` without a limit.
    pub fn answered(&mut self) -> Option<NextRequest> {
        let now_ns = self.clock.now_ns();
        Some(self.permit.take()?.answered(now_ns))
    }

    /// Goes on with the permit for the next request.
    pub fn goes_on(&mut self, permit: Permit) {
        self.permit = Some(permit);
    }

    /// Records that the call failed at one of several endpoints while others are up. The failure,
    /// which is reported next, is then not evidence about the function's limit.
    pub const fn others_are_up(&mut self) {
        self.others_up = true;
    }

    /// Reports the end of a call to the function's limiter; true if its failure is excused.
    fn end_permit(&mut self, call: usize, feedback: Feedback) -> bool {
        let tokens = self.tokens.take();
        let feedback = if std::mem::take(&mut self.others_up) { Feedback::Unknown } else { feedback };
        // Most calls have no permit, so they don't read the clock.
        let Some(permit) = self.permit.take() else { return false };
        permit.end(self.clock().now_ns(), feedback, tokens, self.history(call))
    }

    /// Reports how long the running call has been running, so that the next frames are sized for
    /// it.
    pub fn observe(&mut self, run_ns: u64) {
        self.owner.observe(self.function, run_ns);
    }

    /// Records that a call holds up the frame, which then stops counting as a frame of cheap calls.
    pub fn note_slow(&mut self) {
        let cheap = std::mem::take(&mut self.lane_counts.cheap);
        if cheap > 0 {
            self.owner.clone().given_back(self.function, Vec::new(), LaneCounts { cheap, ..LaneCounts::default() });
        }
    }

    fn count(&mut self, times: Times) {
        self.unreported += 1;
        if times.started_ns != 0 {
            self.run_ns = self.run_ns.saturating_add(times.run_ns);
            self.ran += 1;
        }
    }

    /// Reports ended calls to the scheduler, once there are enough: others may go in their place.
    fn report_ended(&mut self) {
        if self.unreported >= self.report_every && self.unreported < self.lane_counts.calls {
            let calls = std::mem::take(&mut self.unreported);
            self.lane_counts.calls -= calls;
            let (run_ns, ran) = (std::mem::take(&mut self.run_ns), std::mem::take(&mut self.ran));
            self.owner.clone().calls_ended(self.function, calls, run_ns, ran);
        }
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        self.complete_ended();
        self.trace_frame();
        let open: Vec<usize> = (0..self.pending.len()).filter(|call| self.pending[*call]).collect();
        let unfinished = self.returning(&open);
        // An unused permit is returned before the next search for work.
        drop(self.permit.take());
        self.owner.clone().frame_ended(self.function, unfinished, self.lane_counts, self.run_ns, self.ran);
    }
}
