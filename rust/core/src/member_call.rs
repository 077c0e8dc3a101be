//! Member calls: calls of hidden functions that another function's call requests (`compose`).
//!
//! Each call of a composite function may request one call on a sample in each of its slots. The
//! calls of one slot are a separate batch with a `CallOwner`, so lanes, retries, limits and
//! gathering treat member calls like other calls. If the owner's calls are on groups, its member
//! calls are on pairs of samples: the second is `slot + 1` places behind the first (`Pairs`).

use crate::function::FunctionId;
use crate::outcome::{Note, Outcome};
use crate::report::NamedExtra;

/// Name of the value by which a judge reports the answer that its parser is to read.
pub const ANSWER: &str = "answer to parse";

/// Name of the value by which a judge reports its scores by several criteria and its reasons: one
/// list of a number or `None`, and then a text or `None`, for each criterion.
pub const JUDGMENTS: &str = "judgments";

/// A member call to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberCall {
    pub function: FunctionId,
    /// Its sample; of a pair the first.
    pub sample: usize,
    pub slot: usize,
}

/// Result of a member call.
#[derive(Clone, Debug)]
pub struct MemberEnd {
    /// The call that requested it: batch, function and first sample.
    pub owner: (u64, FunctionId, usize),
    pub sample: usize,
    pub slot: usize,
    pub outcome: Outcome,
    pub attempts: u16,
    /// Why it failed.
    pub note: Option<Note>,
    pub extra: Vec<NamedExtra>,
    /// Its record, as JSON.
    pub record: Option<Vec<u8>>,
}

impl MemberEnd {
    /// Returns why it failed, if it did.
    pub(crate) fn reason(&self) -> Option<String> {
        let why = self.note.as_ref().map(|note| &note.reason).filter(|_| self.outcome.status.is_failure())?;
        Some(if self.attempts > 1 { format!("{why} (after {} attempts)", self.attempts) } else { why.clone() })
    }
}
