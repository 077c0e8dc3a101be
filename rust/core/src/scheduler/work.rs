//! What is left to do of each batch: one line of calls per function.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::batch::Batch;
use crate::function::{Function, Shape};
use crate::outcome::{Note, Status};

/// What a call covers, and for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// One sample.
    Sample,
    /// Some samples, of whatever groups.
    Gathered,
    /// One whole group.
    Group,
    /// One whole batch.
    Batch,
    /// The scores of one whole group, for its function's `finish_group`.
    Finish,
}

/// One attempt of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub first: usize,
    pub attempt: u16,
    pub finish: bool,
    /// A worker died with it in hand: it runs alone from now on, and a second death is its end.
    pub suspect: bool,
    /// Attempts that are not counted: their endpoint was dead for all calls (limits B-5), or there were other samples in them (M-4).
    pub excused: u16,
    /// Of a part of a call that failed: its number. Those with the same one go together, and nothing goes with them (M-3); 0: of none.
    pub part: u64,
}

/// Why a function's open calls in a batch were ended by the scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The function's `deadline` passed.
    Deadline,
    /// The batch's `budget` is spent.
    Budget,
    /// Ctrl-C, `cancel()`, `close()`; the reason says which.
    Cancelled(String),
    /// Enough samples of the group are finished without this one.
    Quorum,
    /// The group's own deadline passed.
    GroupDeadline,
    /// The function cannot run: its `setup()` failed, or its lane did.
    Broken(Note),
}

impl Call {
    /// The first attempt of a function's own call.
    pub(crate) const fn fresh(first: usize) -> Self {
        Self { first, attempt: 1, finish: false, suspect: false, excused: 0, part: 0 }
    }
}

impl Cause {
    /// How the cells of such a call end.
    #[must_use]
    pub fn end(&self) -> (Status, Note) {
        let note = |reason: &str| Note { reason: reason.to_owned(), traceback: None };
        match self {
            Self::Deadline => (Status::Timeout, note("deadline")),
            Self::Budget => (Status::Timeout, note("budget")),
            Self::Cancelled(reason) => (Status::Cancelled, note(reason)),
            Self::Quorum => (Status::Cancelled, note("quorum")),
            Self::GroupDeadline => (Status::Timeout, note("group deadline")),
            Self::Broken(why) => (Status::Error, why.clone()),
        }
    }
}

/// The calls of one function in one batch that are not with a lane.
#[derive(Default)]
pub(crate) struct Line {
    /// First sample that was never handed out.
    pub cursor: usize,
    /// Calls of a batch that grows, never handed out, in the order in which they became possible.
    pub arrived: VecDeque<Call>,
    /// Calls that came back (innocent, retried, suspect) and `finish_group` calls; they go first.
    pub returned: VecDeque<Call>,
    /// Set once; from then on nothing of the line is handed out or reopened.
    pub closed: Option<Cause>,
    /// How often another function of its pool went first since its last turn.
    pub passed_over: usize,
    /// Until when what stands in line waits for more, where a time was set to look again (M-2).
    pub looks_ns: u64,
}

impl Line {
    /// Whether there is something to hand out; `samples` are those that the batch was submitted with.
    pub(crate) fn is_ready(&self, samples: usize) -> bool {
        self.closed.is_none() && (!self.returned.is_empty() || !self.arrived.is_empty() || self.cursor < samples)
    }

    /// Sample at which the next call begins.
    pub(crate) fn position(&self) -> usize {
        self.returned.front().or_else(|| self.arrived.front()).map_or(self.cursor, |call| call.first)
    }

    /// Puts calls that were taken before all others.
    pub(crate) fn put_back(&mut self, calls: &[Call]) {
        calls.iter().rev().for_each(|call| self.returned.push_front(*call));
    }

    /// Closes the line, unless it is.
    pub(crate) fn close(&mut self, cause: &Cause) -> bool {
        let first = self.closed.is_none();
        if first {
            self.closed = Some(cause.clone());
            self.returned.clear();
            self.arrived.clear();
        }
        first
    }
}

/// One batch's work.
pub(crate) struct Work {
    pub batch: Arc<Batch>,
    pub lines: Vec<Line>,
}

impl Work {
    pub(crate) fn new(batch: Arc<Batch>) -> Self {
        let lines = batch.functions().iter().map(|_| Line::default()).collect();
        Self { batch, lines }
    }
}

/// What a function's own calls cover.
pub(crate) const fn kind_of(function: &Function) -> CallKind {
    match function.shape {
        Shape::Sample if function.gather.is_some() => CallKind::Gathered,
        Shape::Sample => CallKind::Sample,
        Shape::Group => CallKind::Group,
        Shape::Batch => CallKind::Batch,
    }
}
