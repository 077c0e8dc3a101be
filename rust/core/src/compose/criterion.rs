//! A criterion of a rubric: a column whose score a judge gives together with the other scores, or
//! in a separate request.
//!
//! - The columns of a rubric share the calls of one member. A call is made when the first column
//!   requests it; its result goes to every column that has begun, and to the others as they begin.
//! - Separate requests are made one after the other, so that the server has the text of the sample
//!   in its prefix cache from the second on: each column waits for the requests before its request.

use std::sync::Arc;

use crate::compose::step::{CompositeResult, NextStep};
use crate::function::FunctionId;
use crate::member_call::{JUDGMENTS, MemberCall, MemberEnd};
use crate::outcome::{Cell, Failure, FailureKind, Status};
use crate::report::{Extra, Report};

/// See the module.
#[derive(Clone, Debug)]
pub struct Criterion {
    /// The member that sends the requests.
    pub function: FunctionId,
    /// All columns of the rubric, in the order of its criteria.
    pub columns: Arc<[FunctionId]>,
    /// Its place among them.
    pub place: usize,
    /// True if each criterion has a separate request, in the slot at its place.
    pub in_turn: bool,
}

/// A call that was begun.
pub(super) struct CriterionCall {
    /// The member call that it waits for.
    waits_for: MemberCall,
    result: Option<CompositeResult<Cell>>,
    pub started_ns: Option<u64>,
}

impl CriterionCall {
    /// The member call that is under way.
    pub(super) fn open(&self) -> Vec<MemberCall> {
        self.slot().map(|_| self.waits_for).into_iter().collect()
    }

    /// The slot of the member call that is under way.
    pub(super) fn slot(&self) -> Option<usize> {
        self.result.is_none().then_some(self.waits_for.slot)
    }

    pub(super) fn result(&mut self) -> CompositeResult<Cell> {
        let none = || (Err(Failure::error("internal error: no judgment".to_owned())), Report::default(), None);
        self.result.take().unwrap_or_else(none)
    }
}

impl Criterion {
    /// Returns the number of slots that a sample takes; the first column has them for all.
    #[must_use]
    pub fn calls(&self) -> usize {
        match self.place {
            0 if self.in_turn => self.columns.len(),
            0 => 1,
            _ => 0,
        }
    }

    pub(super) fn begin(&self, sample: usize) -> (CriterionCall, NextStep) {
        let first = MemberCall { function: self.function, sample, slot: 0 };
        (CriterionCall { waits_for: first, result: None, started_ns: None }, NextStep::call(vec![first]))
    }

    /// Takes the result of a member call.
    pub(super) fn ended(&self, call: &mut CriterionCall, end: &MemberEnd) -> NextStep {
        if call.result.is_some() || end.slot != call.waits_for.slot {
            return NextStep::wait();
        }
        if self.in_turn && end.slot < self.place {
            call.waits_for.slot += 1;
            return NextStep::call(vec![call.waits_for]);
        }
        call.started_ns = Some(end.outcome.times.started_ns).filter(|ns| *ns != 0);
        call.result = Some(self.judged(end));
        NextStep::end()
    }

    /// Returns the score of this column in the result of its request.
    fn judged(&self, end: &MemberEnd) -> CompositeResult<Cell> {
        let (mut report, mut judgment) = (Report::default(), None);
        let place = if self.in_turn { 0 } else { self.place };
        for (name, value) in &end.extra {
            match value {
                Extra::List(all) if name == JUDGMENTS => judgment = all.chunks_exact(2).nth(place),
                // Other values are about the whole answer, and are reported once.
                _ if self.in_turn || self.place == 0 => report.add(0, name.clone(), value.clone()),
                _ => {}
            }
        }
        let kind = match end.outcome.status {
            Status::Timeout => Some(FailureKind::Timeout),
            Status::Crashed => Some(FailureKind::Crashed),
            Status::Error | Status::Cancelled => Some(FailureKind::Error),
            Status::Ok | Status::Abstained | Status::Skipped => None,
        };
        if let Some(kind) = kind {
            let traceback = end.note.as_ref().and_then(|note| note.traceback.clone());
            let failure = Failure { kind, traceback, ..Failure::error(end.reason().unwrap_or_default()) };
            return (Err(failure), report, None);
        }
        let Some([score, reason]) = judgment else {
            return (Err(Failure::error("internal error: no judgment".to_owned())), report, None);
        };
        if let Extra::Text(reason) = reason {
            report.add(0, "reason", reason.clone());
        }
        let cell = if let Extra::Number(score) = score { Cell::Value(*score) } else { Cell::Abstained };
        (Ok(cell), report, None)
    }
}
