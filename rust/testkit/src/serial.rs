//! The reference: each call with all its attempts, one after another, without an engine. It is
//! written from the rules, not from the engine's code.

use guerdon_core::call::CallKind;
use guerdon_core::function::{Function, FunctionId, OnFailure, Shape};
use guerdon_core::outcome::{Cell, Failure, FailureKind, Status};

use crate::script::{Act, Ask, Script, failure};

/// The expected content of one cell, if its call is not cut short.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpectedCell {
    pub status: Status,
    /// NaN unless `status` is ok.
    pub value: f64,
    pub attempts: u16,
    /// Failures of its attempts, in order; a call that is cut short may have ended with any of
    /// them.
    pub failed: Vec<Status>,
}

/// Returns the cells of one batch, `[sample][function]`. Scripts that fail a setup have no serial
/// meaning, because the order decides which calls come before.
pub fn serial(
    functions: &[Function],
    batch: u64,
    samples: usize,
    group_size: usize,
    script: &dyn Script,
) -> Vec<Vec<ExpectedCell>> {
    let mut columns: Vec<Option<Vec<ExpectedCell>>> = vec![None; functions.len()];
    while let Some((id, function)) = functions.iter().enumerate().find(|(id, one)| {
        let sources = one.run_if.iter().flat_map(|run_if| &run_if.conditions);
        columns[*id].is_none() && sources.into_iter().all(|condition| columns[condition.source].is_some())
    }) {
        let run = Run { function, id, batch, script };
        // Returns whether the function is called for a sample at all.
        let opens = |sample: usize| {
            function.run_if.iter().flat_map(|run_if| &run_if.conditions).all(|condition| {
                let of = |column: &Vec<ExpectedCell>| shown(&functions[condition.source], &column[sample]);
                condition.holds(columns[condition.source].as_ref().map_or(f32::NAN, of))
            })
        };
        let (kind, span) = match function.shape {
            Shape::Sample => (CallKind::Sample, 1),
            Shape::Group => (CallKind::Group, group_size),
            Shape::Batch => (CallKind::Batch, samples),
        };
        let call = |first| if opens(first) { run.call(kind, first, span, Vec::new()) } else { vec![skipped()] };
        let mut cells: Vec<ExpectedCell> = (0..samples).step_by(span.max(1)).flat_map(call).collect();
        if function.finish {
            for first in (0..samples).step_by(group_size) {
                run.finish(first, &mut cells[first..first + group_size]);
            }
        }
        columns[id] = Some(cells);
    }
    let row = |sample: usize| columns.iter().flatten().map(|column| column[sample].clone()).collect();
    (0..samples).map(row).collect()
}

/// Returns the value that a gate compares: the number that the result shows.
#[expect(clippy::cast_possible_truncation, reason = "the result holds float32")]
fn shown(function: &Function, cell: &ExpectedCell) -> f32 {
    match (cell.status, function.policy.on_failure) {
        (Status::Skipped, _) => function.run_if.as_ref().map_or(f32::NAN, |run_if| run_if.otherwise),
        (Status::Ok, _) => cell.value as f32,
        (status, OnFailure::Value(value)) if status.is_failure() => value,
        _ => f32::NAN,
    }
}

fn skipped() -> ExpectedCell {
    ExpectedCell { status: Status::Skipped, value: f64::NAN, attempts: 1, failed: Vec::new() }
}

struct Run<'a> {
    function: &'a Function,
    id: FunctionId,
    batch: u64,
    script: &'a dyn Script,
}

impl Run<'_> {
    fn call(&self, kind: CallKind, first: usize, samples: usize, scores: Vec<Option<f64>>) -> Vec<ExpectedCell> {
        let (mut attempt, mut handed, mut retries, mut crashes) = (1, 0, 0, 0);
        let mut failed = Vec::new();
        loop {
            let (batch, function) = (self.batch, self.id);
            let ask = Ask { batch, function, kind, first, samples, attempt, handed, scores: scores.clone() };
            let failure = match self.act(&ask) {
                AttemptEnd::Again => {
                    handed += 1;
                    continue;
                }
                AttemptEnd::Cells(cells) => {
                    return cells.into_iter().map(|cell| judged(cell, attempt, &failed)).collect();
                }
                AttemptEnd::Failed(failure) => failure,
            };
            failed.push(failure.kind.status());
            let crashed = failure.kind == FailureKind::Crashed;
            crashes += u32::from(crashed);
            let free = crashed && crashes == 1;
            if !free {
                if kind == CallKind::Finish || !failure.retryable || retries == self.function.policy.retries {
                    let status = failure.kind.status();
                    return vec![ExpectedCell { status, value: f64::NAN, attempts: attempt, failed }; samples];
                }
                retries += 1;
            }
            attempt += 1;
            handed = 0;
        }
    }

    fn act(&self, ask: &Ask) -> AttemptEnd {
        let timeout = self.function.policy.timeout;
        let in_time =
            |after, then| if after > timeout { AttemptEnd::Failed(failure(FailureKind::Timeout)) } else { then };
        match self.script.act(ask) {
            Act::Return { after, cells } | Act::Late { after, cells } => {
                if cells.len() == ask.samples {
                    return in_time(after, AttemptEnd::Cells(cells));
                }
                let wrong = Failure { retryable: false, ..failure(FailureKind::Error) };
                in_time(after, AttemptEnd::Failed(wrong))
            }
            Act::Fail { after, failure } => in_time(after, AttemptEnd::Failed(failure)),
            Act::Crash { after } => in_time(after, AttemptEnd::Failed(failure(FailureKind::Crashed))),
            Act::Hang => AttemptEnd::Failed(failure(FailureKind::Timeout)),
            Act::Lose { after } => in_time(after, AttemptEnd::Again),
            Act::Panic | Act::GiveBack => AttemptEnd::Again,
            Act::FailSetup => AttemptEnd::Failed(Failure { retryable: false, ..failure(FailureKind::Error) }),
        }
    }

    /// Shapes a group's scores: failed and skipped cells keep their outcome, and without a score no
    /// call is made.
    fn finish(&self, first: usize, cells: &mut [ExpectedCell]) {
        if !cells.iter().any(|cell| cell.status.is_answer()) {
            return;
        }
        let scores = cells.iter().map(|cell| (cell.status == Status::Ok).then_some(cell.value)).collect();
        let shaped = self.call(CallKind::Finish, first, cells.len(), scores);
        for (cell, shaped) in cells.iter_mut().zip(shaped) {
            if cell.status.is_answer() {
                (cell.status, cell.value) = (shaped.status, shaped.value);
            }
        }
    }
}

enum AttemptEnd {
    Cells(Vec<Cell>),
    Failed(Failure),
    /// Given back or lost: the same attempt is made once more.
    Again,
}

fn judged(cell: Cell, attempts: u16, failed: &[Status]) -> ExpectedCell {
    let (status, value) = match cell {
        Cell::Value(value) if value.is_finite() && value.abs() <= f64::from(f32::MAX) => (Status::Ok, value),
        Cell::Abstained => (Status::Abstained, f64::NAN),
        Cell::Value(_) | Cell::Invalid(_) => (Status::Error, f64::NAN),
        Cell::Reported(reported) => (reported.0, f64::NAN),
    };
    ExpectedCell { status, value, attempts, failed: failed.to_vec() }
}
