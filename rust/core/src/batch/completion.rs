//! Writes the cells of a call as outcomes into the grid, and determines the groups that this
//! completes.

use std::ops::Range;
use std::sync::Arc;

use crate::batch::Batch;
use crate::call::Call;
use crate::function::FunctionId;
use crate::grid::Claim;
use crate::outcome::{Cell, Note, Outcome, Status, Times};

/// Cells that the outcomes of a call have completed.
#[derive(Debug, Default)]
#[must_use = "the scheduler passes on what was completed"]
pub(crate) struct CompletedCells {
    /// Groups whose last cell in the grid of the call was filled.
    pub groups: Vec<usize>,
    /// Groups whose quorum was filled.
    pub quorums: Vec<usize>,
    /// Cells of gated functions, (function, sample), that can be decided now.
    pub decided: Vec<(FunctionId, usize)>,
    /// Samples whose calls others may share, of a pure function.
    pub shared: Vec<usize>,
}

impl CompletedCells {
    pub(crate) const fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.quorums.is_empty() && self.decided.is_empty() && self.shared.is_empty()
    }
}

/// Turns a function's answer for a cell into an outcome, with a note for a value that is not a
/// reward.
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
            format!("returned {value}, which is not a reward; return None to abstain")
        }
        Cell::Invalid(why) => why,
        Cell::Reported(reported) => {
            let (status, reason) = *reported;
            let note = status.is_failure().then_some(Note { reason, traceback: None });
            return (Outcome::without_value(status, times), note);
        }
    };
    (Outcome::without_value(Status::Error, times), Some(Note { reason: why, traceback: None }))
}

impl Batch {
    /// Completes the cells of a call that came back.
    pub(crate) fn complete(
        &self,
        function: FunctionId,
        call: Call,
        claim: Claim<'_>,
        cells: impl IntoIterator<Item = Cell>,
        times: Times,
    ) -> CompletedCells {
        let outcomes = cells.into_iter().enumerate().map(|(offset, cell)| {
            let sample = call.first + offset;
            let scored = if call.finish { self.stage(function).and_then(|stage| stage.read(sample, 0)) } else { None };
            match scored {
                // Failed and skipped cells keep their outcome, whatever score `finish_group`
                // returned.
                Some((score, _)) if !score.status.is_answer() => score,
                _ => {
                    let (outcome, note) = judge(cell, scored.map_or(times, |(score, _)| score.times));
                    if let Some(note) = note {
                        self.keep_note(function, call.finish, sample, note.into());
                    }
                    outcome
                }
            }
        });
        self.fill(function, call.finish, claim, outcomes)
    }

    /// Completes calls that cover one sample each and gave a number, all together.
    pub(crate) fn complete_all<'a>(
        &self,
        function: FunctionId,
        ended: impl IntoIterator<Item = (Claim<'a>, f64, Times)>,
    ) -> CompletedCells {
        let mut completed = CompletedCells::default();
        for (claim, value, times) in ended {
            let sample = claim.first();
            let (outcome, note) = judge(Cell::Value(value), times);
            if let Some(note) = note {
                self.keep_note(function, false, sample, note.into());
            }
            claim.complete([outcome], |group| completed.groups.push(group));
            completed.quorums.extend(self.count_completed(sample..sample + 1));
            // A score that `finish_group` may still change decides no condition.
            if self.stage(function).is_none() {
                self.bring_outcomes(function, sample..sample + 1, &mut completed.decided);
            }
            if self.functions[function].pure {
                completed.shared.push(sample);
            }
        }
        completed
    }

    /// Fails the cells of a call; of a `finish_group` call only those whose score had not failed.
    #[expect(clippy::too_many_arguments, reason = "one call, one end: splitting it would hide what belongs together")]
    pub(crate) fn fail(
        &self,
        function: FunctionId,
        finish: bool,
        samples: Range<usize>,
        claim: Claim<'_>,
        status: Status,
        note: &Arc<Note>,
        times: Times,
    ) -> CompletedCells {
        let outcomes = samples.map(|sample| {
            let score = if finish { self.stage(function).and_then(|stage| stage.read(sample, 0)) } else { None };
            let stays = |score: &Outcome| {
                score.status == Status::Skipped || (score.status.is_failure() && self.has_note(sample, function))
            };
            if let Some((score, _)) = score.filter(|(score, _)| stays(score)) {
                return score;
            }
            self.keep_note(function, finish, sample, note.clone());
            Outcome::without_value(status, score.map_or(times, |(score, _)| score.times))
        });
        self.fill(function, finish, claim, outcomes)
    }

    /// Writes the outcomes of a call.
    pub(crate) fn fill(
        &self,
        function: FunctionId,
        finish: bool,
        claim: Claim<'_>,
        outcomes: impl IntoIterator<Item = Outcome>,
    ) -> CompletedCells {
        let (first, mut count, mut groups) = (claim.first(), 0, Vec::new());
        let outcomes = outcomes.into_iter().inspect(|_| count += 1);
        claim.complete(outcomes, |group| groups.push(group));
        let quorums = if finish { Vec::new() } else { self.count_completed(first..first + count) };
        let mut decided = Vec::new();
        if self.has_conditions() && (finish || self.stage(function).is_none()) {
            self.bring_outcomes(function, first..first + count, &mut decided);
        }
        let shared = if self.functions[function].pure { (first..first + count).collect() } else { Vec::new() };
        CompletedCells { groups, quorums, decided, shared }
    }

    /// Records why a cell failed.
    fn keep_note(&self, function: FunctionId, finish: bool, sample: usize, note: Arc<Note>) {
        if finish || self.stage(function).is_none() {
            self.note(sample, function, note);
        } else {
            self.note_score(sample, function, note);
        }
    }
}
