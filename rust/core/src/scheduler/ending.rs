//! How calls end: settled, tried again, or swept by the scheduler.

use std::sync::Arc;

use crate::batch::{Batch, Record};
use crate::function::FunctionId;
use crate::grid::{Claim, Grid};
use crate::outcome::{Cell, Failure, Note, Outcome, Status, Times};
use crate::scheduler::Inner;
use crate::scheduler::retry;
use crate::scheduler::timers::Due;
use crate::scheduler::work::{Call, Cause};

/// Where the cells of a call stand: the function's own scores in its stage if it has one, all else in the batch's grid.
pub(crate) fn place(batch: &Batch, function: FunctionId, finish: bool) -> (&Grid, FunctionId) {
    match batch.stage(function) {
        Some(stage) if !finish => (stage, 0),
        _ => (batch.grid(), function),
    }
}

/// The outcome of what a function gave for a cell; a note where it is no reward.
fn judge(cell: Cell, times: Times) -> (Outcome, Option<Note>) {
    let why = match cell {
        Cell::Value(value) if value.is_finite() && value.abs() <= f64::from(f32::MAX) => {
            return (Outcome { status: Status::Ok, value, times }, None);
        }
        Cell::Abstained => return (Outcome::without_value(Status::Abstained, times), None),
        Cell::Value(value) if value.is_finite() => {
            format!("returned {value:e}, which is beyond float32")
        }
        Cell::Value(value) => {
            format!("returned {value}, which is no reward; return None to abstain")
        }
        Cell::Invalid(why) => why,
    };
    (Outcome::without_value(Status::Error, times), Some(Note { reason: why, traceback: None }))
}

/// Keeps why a cell failed (B-3).
fn keep_note(batch: &Batch, function: FunctionId, finish: bool, sample: usize, note: Note) {
    if finish || batch.stage(function).is_none() {
        batch.note(sample, function, note);
    } else {
        batch.note_score(sample, function, note);
    }
}

impl Inner {
    /// Settles the cells of a call that came back.
    pub(crate) fn settle(
        self: &Arc<Self>,
        batch: &Arc<Batch>,
        function: FunctionId,
        call: Call,
        claim: Claim<'_>,
        cells: impl IntoIterator<Item = Cell>,
        times: Times,
    ) {
        let outcomes = cells.into_iter().enumerate().map(|(offset, cell)| {
            let sample = call.first + offset;
            let scored = if call.finish { batch.stage(function).and_then(|stage| stage.read(sample, 0)) } else { None };
            match scored {
                // A failed score stays failed, whatever was made of its group.
                Some((score, _)) if score.status.is_failure() => score,
                _ => {
                    let (outcome, note) = judge(cell, scored.map_or(times, |(score, _)| score.times));
                    if let Some(note) = note {
                        keep_note(batch, function, call.finish, sample, note);
                    }
                    outcome
                }
            }
        });
        self.fill(batch, function, call.finish, claim, outcomes);
    }

    /// An attempt failed: there is another, or the call has failed.
    pub(crate) fn attempt_failed(
        self: &Arc<Self>,
        batch: &Arc<Batch>,
        function: FunctionId,
        mut call: Call,
        claim: Claim<'_>,
        failure: Failure,
        times: Times,
    ) {
        let now_ns = self.clock.now_ns();
        let policy = &self.function(function).policy;
        let mut swept = None;
        {
            let mut state = self.state.lock();
            let closed = state.line(batch.id(), function).and_then(|line| line.closed.clone());
            let expires_ns = batch.expires_ns(function);
            if let Some(cause) = closed {
                swept = Some(cause);
            } else if let Some(again) = retry::decide(policy, &call, &failure, now_ns, expires_ns, fastrand::f64()) {
                batch.count_retry(function);
                call.suspect = again.suspect;
                call.attempt = claim.reopen();
                if again.due_ns > now_ns {
                    let retry = Due::Retry { batch: batch.id(), function, call };
                    if state.timers.set(again.due_ns, retry) {
                        self.timers_changed.notify_one();
                    }
                    return;
                }
                state.give_back(batch.id(), function, vec![call]);
                drop(state);
                // The frame may go on for long yet: a lane with room beside it shall not wait for its end.
                self.pump();
                return;
            }
        }
        let (status, note) = match swept {
            Some(cause) => cause.end(),
            None => (failure.kind.status(), failure.into()),
        };
        self.fail(batch, function, call.finish, call.first, claim, status, &note, times);
    }

    /// Ends all open calls of one function, or of all, in a batch.
    pub(crate) fn end_open(self: &Arc<Self>, batch: &Arc<Batch>, function: Option<FunctionId>, cause: &Cause) {
        let functions = function.map_or(0..batch.functions().len(), |one| one..one + 1);
        let closed: Vec<FunctionId> = {
            let mut state = self.state.lock();
            let close = |id: &FunctionId| state.line(batch.id(), *id).is_some_and(|line| line.close(cause));
            functions.filter(close).collect()
        };
        let (status, note) = cause.end();
        let times = Times { started_ns: 0, run_ns: 0 };
        for function in closed {
            let spec = &batch.functions()[function];
            if let Some(stage) = batch.stage(function) {
                for sample in 0..batch.samples() {
                    if let Some(claim) = stage.claim_open(sample, 0) {
                        claim.settle([Outcome::without_value(status, times)], |_| {});
                    }
                }
            }
            let span = spec.span(batch.samples(), batch.group_size());
            let span = if spec.finish { batch.group_size() } else { span };
            for first in (0..batch.samples()).step_by(span.max(1)) {
                if let Some(claim) = batch.grid().claim_open(first, function) {
                    self.fail(batch, function, spec.finish, first, claim, status, &note, times);
                }
            }
        }
    }

    /// Fails the cells of a call; of a `finish_group` call those whose score had not failed already.
    #[expect(clippy::too_many_arguments, reason = "one call, one end: splitting it would hide what belongs together")]
    fn fail(
        self: &Arc<Self>,
        batch: &Arc<Batch>,
        function: FunctionId,
        finish: bool,
        first: usize,
        claim: Claim<'_>,
        status: Status,
        note: &Note,
        times: Times,
    ) {
        let spec = &batch.functions()[function];
        let span = if finish { batch.group_size() } else { spec.span(batch.samples(), batch.group_size()) };
        let outcomes = (first..first + span).map(|sample| {
            let score = if finish { batch.stage(function).and_then(|stage| stage.read(sample, 0)) } else { None };
            if let Some((score, _)) =
                score.filter(|(score, _)| score.status.is_failure() && batch.note_of(sample, function).is_some())
            {
                return score;
            }
            keep_note(batch, function, finish, sample, note.clone());
            Outcome::without_value(status, score.map_or(times, |(score, _)| score.times))
        });
        self.fill(batch, function, finish, claim, outcomes);
    }

    /// Writes outcomes and passes on what they complete.
    fn fill(
        self: &Arc<Self>,
        batch: &Arc<Batch>,
        function: FunctionId,
        finish: bool,
        claim: Claim<'_>,
        outcomes: impl IntoIterator<Item = Outcome>,
    ) {
        let staged = !finish && batch.stage(function).is_some();
        claim.settle(outcomes, |group| {
            if staged {
                self.scores_complete(batch, function, group);
            } else if batch.announce(group) {
                let mut state = self.state.lock();
                state.works.remove(&batch.id());
                state.timers.forget(batch.id());
            }
        });
    }

    /// All scores of a group are there: its `finish_group` is next, unless there is nothing for it to shape.
    fn scores_complete(self: &Arc<Self>, batch: &Arc<Batch>, function: FunctionId, group: usize) {
        let samples = group * batch.group_size()..(group + 1) * batch.group_size();
        let first = samples.start;
        let scores: Vec<Outcome> = samples
            .filter_map(|sample| batch.stage(function).and_then(|stage| stage.read(sample, 0)))
            .map(|(score, _)| score)
            .collect();
        if scores.iter().any(|score| !score.status.is_failure()) {
            let call = Call { first, attempt: 1, finish: true, suspect: false };
            self.state.lock().give_back(batch.id(), function, vec![call]);
            self.pump();
        } else if let Some(claim) = batch.grid().claim_open(first, function) {
            self.fill(batch, function, true, claim, scores);
        }
    }

    pub(crate) fn keep_record(batch: &Batch, function: FunctionId, call: Call, json: Vec<u8>) {
        batch.record(function, Record { first: call.first, json });
    }
}
