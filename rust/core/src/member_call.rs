//! Member calls: calls of hidden functions that another function's call requests (`compose`).
//!
//! Each call of a composite function may request one call in each of its slots. The calls of one
//! slot are a separate batch with a `CallOwner`, so lanes, retries, limits and gathering treat
//! member calls like other calls.

use crate::function::FunctionId;
use crate::outcome::{Note, Outcome};
use crate::report::NamedExtra;

/// Name of the value by which a judge reports the answer that its parser is to read.
pub const ANSWER: &str = "answer to parse";

/// A member call to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberCall {
    pub function: FunctionId,
    pub slot: usize,
}

/// Result of a member call.
#[derive(Clone, Debug)]
pub struct MemberEnd {
    /// The call that requested it: batch, function and sample.
    pub owner: (u64, FunctionId, usize),
    pub slot: usize,
    pub outcome: Outcome,
    pub attempts: u16,
    /// Why it failed.
    pub note: Option<Note>,
    pub extra: Vec<NamedExtra>,
    /// Its record, as JSON.
    pub record: Option<Vec<u8>>,
}
