//! A frame that another process sent, as it arrived.

use crate::call::CallKind;
use crate::function::FunctionId;
use crate::payload::Payload;

/// See the module.
pub struct HostedFrame {
    /// Session of the sender. Session and number identify the frame.
    pub session: u64,
    pub id: u64,
    pub function: FunctionId,
    pub kind: CallKind,
    /// Number of calls, and how many samples each covers.
    pub calls: usize,
    pub samples: usize,
    /// True if it is to run on a fresh worker.
    pub alone: bool,
    /// True if a worker died while it ran this frame's call.
    pub suspect: bool,
    /// The values of its samples, numbered from 0.
    pub payload: Box<dyn Payload>,
    /// Scores of all samples, if the calls are `finish_group` calls.
    pub scores: Vec<Option<f64>>,
}
