//! Parsers of judges' answers: functions of the user, called with the text of an answer.
//!
//! - A judge whose answers a parser reads abstains, and reports the answer as `ANSWER`. The parser
//!   is called then, and the member call ends with its result: composites see one call.
//! - A function with a parser has `2 n` slots: the parser reads the answers of slot `s` in slot
//!   `n + s`.

use std::any::Any;
use std::sync::Arc;

use crate::batch::{Batch, CallOwner};
use crate::function::{FunctionId, Parsing};
use crate::member_call::{ANSWER, MemberCall, MemberEnd};
use crate::outcome::Status;
use crate::payload::Payload;
use crate::report::{Extra, NamedExtra};
use crate::scheduler::state::SchedulerCore;
use guerdon_wire::columns::ColumnsWriter;
use guerdon_wire::sent_constants::SentConstants;
use guerdon_wire::text::{RawText, TextKind};

/// Longest part of an answer that the reason of a parser's failure shows, in characters.
const SHOWN: usize = 200;

/// The answers of a judge, as the only value of its parser's calls.
struct Answers {
    batch: Arc<Batch>,
    judge: FunctionId,
}

impl Payload for Answers {
    fn encode(&self, _: FunctionId, _: bool, samples: &[u32], _: &mut SentConstants, out: &mut Vec<u8>) {
        let text = |sample: &u32| {
            let text = answer_in(&self.batch.extra_at(*sample as usize, self.judge)).unwrap_or_default().to_owned();
            if text.is_ascii() {
                return (TextKind::Ascii, text.into_bytes());
            }
            (TextKind::Utf32, text.chars().flat_map(|character| u32::from(character).to_ne_bytes()).collect())
        };
        let texts: Vec<(TextKind, Vec<u8>)> = samples.iter().map(text).collect();
        ColumnsWriter::new(out, samples.len(), 1).text(0, |row| RawText { kind: texts[row].0, bytes: &texts[row].1 });
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn answer_in(extra: &[NamedExtra]) -> Option<&str> {
    extra.iter().rev().find_map(|(name, value)| match value {
        Extra::Text(text) if name == ANSWER => Some(&**text),
        _ => None,
    })
}

impl SchedulerCore {
    /// Returns the slot of a parser's calls on the answers in this one.
    fn parser_slot(&self, owner: FunctionId, slot: usize) -> usize {
        self.function(owner).member_calls / 2 + slot
    }

    /// Returns the call of the parser of a judge, if it has one.
    pub(super) fn parser_call(&self, owner: FunctionId, call: MemberCall) -> Option<MemberCall> {
        let Some(Parsing::By(parser)) = self.function(call.function).parsing else { return None };
        Some(MemberCall { function: parser, slot: self.parser_slot(owner, call.slot), ..call })
    }

    /// Returns the values of a parser's calls: the answers in `batch`.
    pub(super) fn answers(&self, parser: FunctionId, batch: Option<Arc<Batch>>) -> Option<Box<dyn Payload>> {
        let (Some(Parsing::Of(judge)), Some(batch)) = (self.function(parser).parsing, batch) else { return None };
        Some(Box::new(Answers { batch, judge }))
    }

    /// Has a judge's answer parsed, if it has a parser and gave one; or makes of a parser's result
    /// that of the judge. `None`: the call goes on.
    pub(super) fn parsed(self: &Arc<Self>, owner: &CallOwner, member: FunctionId, end: MemberEnd) -> Option<MemberEnd> {
        let call = MemberCall { function: member, sample: end.sample, slot: end.slot };
        match self.function(member).parsing {
            Some(Parsing::By(_)) if end.outcome.status == Status::Abstained => {
                let parser = self.parser_call(owner.function, call);
                self.call_members(&owner.batch, parser.as_slice(), &[]);
                None
            }
            Some(Parsing::Of(judge)) => {
                let slot = end.slot - self.parser_slot(owner.function, 0);
                let answered = self.batch(self.member_batch(owner.batch.id(), owner.function, slot))?;
                let (judged, attempts) = answered.grid().read(end.sample, judge)?;
                let mut extra = answered.extra_at(end.sample, judge);
                let mut outcome = end.outcome;
                if judged.times.started_ns != 0 {
                    outcome.times.started_ns = judged.times.started_ns; // the whole span counts
                }
                let mut note = end.note;
                if let (Some(note), Some(answer)) = (&mut note, answer_in(&extra)) {
                    let shown: String = answer.chars().take(SHOWN).collect();
                    let more = if shown.len() < answer.len() { "…" } else { "" };
                    note.reason.push_str(&format!(" (parse= of the answer {shown:?}{more})"));
                }
                extra.retain(|(name, _)| name != ANSWER);
                answered.remove_extra(end.sample, judge, ANSWER);
                Some(MemberEnd { slot, outcome, attempts, note, extra, ..end })
            }
            _ => Some(end),
        }
    }
}
