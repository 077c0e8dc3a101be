//! A composite function and one call of it: which member calls it needs, and the score made of
//! their results, without a clock, a lock or a wait.

use std::borrow::Cow;

use crate::compose::criterion::{Criterion, CriterionCall};
use crate::compose::opinions::Opinions;
use crate::compose::opinions_call::OpinionsCall;
use crate::compose::pairwise::{Pairwise, PairwiseCall};
use crate::compose::step::{CompositeResult, NextStep};
use crate::member_call::{MemberCall, MemberEnd};
use crate::outcome::{Cell, Failure, Times};
use crate::report::Report;

/// A composite function.
#[derive(Clone, Debug)]
pub enum Composite {
    /// One score of a sample.
    Opinions(Opinions),
    /// Scores of a group.
    Pairwise(Pairwise),
    /// One of several columns with one judge.
    Criterion(Criterion),
}

/// A call that was begun.
pub(super) enum CompositeCall {
    Opinions(OpinionsCall),
    Pairwise(PairwiseCall),
    Criterion(CriterionCall),
}

/// Cells of a call.
pub(super) enum Cells {
    One(Cell),
    Each(Vec<Cell>),
}

impl Composite {
    /// Returns the most member calls that one call makes for a sample.
    #[must_use]
    pub fn calls(&self) -> usize {
        match self {
            Self::Opinions(opinions) => opinions.calls(),
            Self::Pairwise(_) => Pairwise::MOST_SAMPLES - 1,
            Self::Criterion(criterion) => criterion.calls(),
        }
    }

    /// Returns whether its calls end shortly before their time is up, with the results so far.
    pub(super) const fn ends_early(&self) -> bool {
        matches!(self, Self::Pairwise(_))
    }

    /// A new call on `size` samples from `first` on, and how it begins.
    pub(super) fn begin(&self, first: usize, size: usize) -> (CompositeCall, NextStep) {
        match self {
            Self::Opinions(opinions) => {
                let (call, calls) = opinions.begin(first, 0);
                (CompositeCall::Opinions(call), NextStep::call(calls))
            }
            Self::Pairwise(pairwise) => {
                let (call, step) = pairwise.begin(first, size);
                (CompositeCall::Pairwise(call), step)
            }
            Self::Criterion(criterion) => {
                let (call, step) = criterion.begin(first);
                (CompositeCall::Criterion(call), step)
            }
        }
    }

    /// Takes the result of a member call.
    pub(super) fn ended(&self, call: &mut CompositeCall, end: Cow<'_, MemberEnd>) -> NextStep {
        match (self, call) {
            (Self::Opinions(opinions), CompositeCall::Opinions(call)) => opinions.ended(call, end.into_owned()),
            (Self::Pairwise(pairwise), CompositeCall::Pairwise(call)) => pairwise.ended(call, end.into_owned()),
            (Self::Criterion(criterion), CompositeCall::Criterion(call)) => criterion.ended(call, &end),
            _ => NextStep::wait(), // a call is of its composite's kind
        }
    }

    /// The result of a call; `late`: its time is up.
    pub(super) fn result(&self, call: &mut CompositeCall, late: bool) -> CompositeResult<Cells> {
        match (self, call) {
            (Self::Pairwise(pairwise), CompositeCall::Pairwise(call)) => {
                let (cells, report, record) = pairwise.result(call, late);
                (cells.map(Cells::Each), report, record)
            }
            (Self::Opinions(opinions), CompositeCall::Opinions(call)) => {
                let (cell, report, record) = opinions.result(call);
                (cell.map(Cells::One), report, record)
            }
            (Self::Criterion(_), CompositeCall::Criterion(call)) => {
                let (cell, report, record) = call.result();
                (cell.map(Cells::One), report, record)
            }
            _ => (Err(Failure::error("internal error: a call of another kind".to_owned())), Report::default(), None),
        }
    }
}

impl CompositeCall {
    /// The member calls that are under way.
    pub(super) fn open(&self, composite: &Composite) -> Vec<MemberCall> {
        match (self, composite) {
            (Self::Opinions(call), _) => {
                let mut open = Vec::new();
                call.add_open(&mut open);
                open
            }
            (Self::Pairwise(call), Composite::Pairwise(pairwise)) => call.open(pairwise.function),
            (Self::Criterion(call), _) => call.open(),
            (Self::Pairwise(_), _) => Vec::new(),
        }
    }

    /// The slot of the member call that a column of a rubric waits for.
    pub(super) fn slot(&self) -> Option<usize> {
        if let Self::Criterion(call) = self { call.slot() } else { None }
    }

    /// Returns the time from the start of the first member call that ran until now.
    pub(super) fn times(&self, now_ns: u64) -> Times {
        let started = match self {
            Self::Opinions(call) => call.started_ns(),
            Self::Pairwise(call) => call.started_ns,
            Self::Criterion(call) => call.started_ns,
        };
        let times = |started_ns| Times { started_ns, run_ns: now_ns.saturating_sub(started_ns) };
        started.map_or_else(Times::default, times)
    }
}
