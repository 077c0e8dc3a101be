//! One unit of work: the calls of all columns that one set of requests answers, of one sample or of
//! one group.
//!
//! - A column is answered once. Its call may come before the answer or after it;
//!   whichever is second completes it.
//! - A unit is gone once all of its columns are answered, or its batch is done.

use std::sync::Arc;

use guerdon_core::batch::Batch;
use guerdon_core::outcome::{Cell, Failure, Times};
use guerdon_core::report::Report;

use crate::in_flight::InFlightFrame;

/// A call: its frame, and its index in that.
pub type UnitCall = (Arc<InFlightFrame>, usize);

/// A unit: its batch, and its first sample there.
pub type UnitKey = (u64, usize);

/// Outcome of a column's call.
#[derive(Clone, Debug)]
pub struct Answered {
    pub ended: Result<Cells, Failure>,
    /// Values for `result.extra`, also of a call that failed.
    pub report: Report,
    pub times: Times,
}

/// The cells of a column's call.
pub type Cells = Vec<Cell>;

/// See the module.
pub struct Unit {
    pub batch: Arc<Batch>,
    /// The task that works on it.
    pub task: Option<u64>,
    columns: Vec<State>,
}

enum State {
    Empty,
    Waiting(UnitCall),
    Answered(Answered),
    Done,
}

impl Unit {
    pub fn new(batch: Arc<Batch>, columns: usize) -> Self {
        Self { batch, task: None, columns: (0..columns).map(|_| State::Empty).collect() }
    }

    /// Adds a column's call; gives it back with its answer if that is there already.
    pub fn add(&mut self, column: usize, call: UnitCall) -> Option<(UnitCall, Answered)> {
        let state = self.columns.get_mut(column)?;
        match std::mem::replace(state, State::Done) {
            State::Answered(answered) => Some((call, answered)),
            _ => {
                *state = State::Waiting(call);
                None
            }
        }
    }

    /// Answers a column; gives the call to complete, if it is there.
    pub fn answer(&mut self, column: usize, answered: Answered) -> Option<(UnitCall, Answered)> {
        let state = self.columns.get_mut(column)?;
        match std::mem::replace(state, State::Done) {
            State::Waiting(call) => Some((call, answered)),
            State::Empty => {
                *state = State::Answered(answered);
                None
            }
            done => {
                *state = done;
                None
            }
        }
    }

    /// The call of the function that asks, if it waits.
    pub fn leader(&self) -> Option<&UnitCall> {
        if let Some(State::Waiting(call)) = self.columns.first() { Some(call) } else { None }
    }

    /// The calls that wait for answers.
    pub fn calls(&self) -> impl Iterator<Item = &UnitCall> {
        self.columns.iter().filter_map(|state| if let State::Waiting(call) = state { Some(call) } else { None })
    }

    /// The call of a column that waits for its answer, or else of any.
    pub fn waiting(&self, column: usize) -> Option<&UnitCall> {
        let own = self.columns.get(column);
        let own = own.and_then(|state| if let State::Waiting(call) = state { Some(call) } else { None });
        own.or_else(|| self.calls().next())
    }

    pub fn is_done(&self) -> bool {
        self.columns.iter().all(|state| matches!(state, State::Done))
    }

    /// Returns whether no column waits for an answer of the requests.
    pub fn is_answered(&self) -> bool {
        self.columns.iter().all(|state| matches!(state, State::Done | State::Answered(_)))
    }
}

/// A failure that no other attempt mends.
pub fn broken(reason: &str) -> Failure {
    Failure::error(reason.to_owned())
}
