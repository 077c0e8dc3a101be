//! A frame that came from elsewhere, as it came.

use crate::call::CallKind;
use crate::function::FunctionId;
use crate::payload::Payload;

/// See the module.
pub struct HostedFrame {
    /// Session of the sender; with its number there, it identifies the frame.
    pub session: u64,
    pub id: u64,
    pub function: FunctionId,
    pub kind: CallKind,
    /// Its calls, and how many samples each covers.
    pub calls: usize,
    pub samples: usize,
    /// It is to run on a fresh worker.
    pub alone: bool,
    /// A worker died with its call in hand before.
    pub suspect: bool,
    /// The values of its samples, which are numbered from 0.
    pub payload: Box<dyn Payload>,
    /// Scores for `finish_group` calls: the scores of all samples.
    pub scores: Vec<Option<f64>>,
}
