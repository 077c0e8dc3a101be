//! What is left to do of each batch: one line of calls per function.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::batch::Batch;
use crate::call::{Call, Cause};

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
