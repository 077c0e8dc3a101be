//! Reports of a hosted frame's calls.

use serde::{Deserialize, Serialize};

use crate::outcome::{Cell, Failure, Note, Times};

/// One sample of a call that gave an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndedCell {
    pub call: usize,
    pub cell: Cell,
    pub times: Times,
}

/// An event in the calls of a frame. Calls are numbered by their places in the frame.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FrameEvent {
    /// A lane has some of its calls.
    Begun,
    /// Calls of one sample gave answers, without records.
    Cells(Vec<EndedCell>),
    /// A call gave answers for all its samples.
    Call { call: usize, cells: Vec<Cell>, record: Option<Vec<u8>>, times: Times },
    /// An attempt failed.
    Failed { call: usize, failure: Failure, record: Option<Vec<u8>>, times: Times },
    /// The function can't run.
    Broken(Note),
    /// Tokens used by the call that ends next.
    Used(f64),
    /// A call has been running for this many nanoseconds.
    Observed(u64),
    /// Calls that were not begun, or that their lane dropped.
    GivenBack(Vec<usize>),
    /// No lane has any of its calls.
    Ended,
}

/// Receives the events of frames, on threads of the lanes, with no lock held. It must not wait.
pub trait FrameListener: Send + Sync + 'static {
    fn tell(&self, session: u64, frame: u64, event: FrameEvent);
}
