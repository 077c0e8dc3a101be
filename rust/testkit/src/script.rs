//! Scripts of a fake lane: the result of each attempt.

use std::time::Duration;

use guerdon_core::call::CallKind;
use guerdon_core::function::FunctionId;
use guerdon_core::outcome::{Cell, Failure, FailureKind};

/// One attempt of one call that a lane is about to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    pub batch: u64,
    pub function: FunctionId,
    pub kind: CallKind,
    pub first: usize,
    /// Samples that the call covers.
    pub samples: usize,
    pub attempt: u16,
    /// Number of times that the same attempt was handed out before: given back, or lost with its
    /// frame.
    pub handed: u16,
    /// Scores that a `finish_group` call shapes; empty for others.
    pub scores: Vec<Option<f64>>,
}

/// The lane's action on an attempt. Times are run times; a call that runs longer than its `timeout`
/// is stopped then.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    Return {
        after: Duration,
        cells: Vec<Cell>,
    },
    Fail {
        after: Duration,
        failure: Failure,
    },
    /// It never returns.
    Hang,
    /// The worker dies with the running call, and the calls behind it in the frame are given back.
    Crash {
        after: Duration,
    },
    /// The lane loses the frame, the running call included.
    Lose {
        after: Duration,
    },
    /// The lane panics while it runs the frame.
    Panic,
    /// The lane gives back this call and those behind it, not started.
    GiveBack,
    /// `setup()` failed.
    FailSetup,
    /// The lane reports the outcome without a check whether the call is still open.
    Late {
        after: Duration,
        cells: Vec<Cell>,
    },
}

/// Decides the result of attempts. It must be a pure function of its arguments if results are
/// compared with [`crate::serial`]'s.
pub trait Script: Send + Sync + 'static {
    fn act(&self, ask: &Ask) -> Act;
}

impl<F: Fn(&Ask) -> Act + Send + Sync + 'static> Script for F {
    fn act(&self, ask: &Ask) -> Act {
        self(ask)
    }
}

/// A failure that another attempt could avoid.
#[must_use]
pub fn failure(kind: FailureKind) -> Failure {
    Failure::new(kind, format!("{kind:?} by script"))
}
