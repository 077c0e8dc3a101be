//! Votes, panels and cascades: opinions of one sample made into one score. Votes stop early as
//! compose-3 has it.

use crate::compose::early_stop::{is_decided, worth_sending};
use crate::compose::reduce::{Opinion, Reduce, ReducedScore, Reduction, agreement_of};
use crate::compose::step::{CompositeResult, NextStep, in_lists, items, listed};
use crate::function::{Condition, FunctionId};
use crate::member_call::{MemberCall, MemberEnd};
use crate::outcome::{Cell, Failure, Status};
use crate::report::Report;

/// The members of a composite function.
#[derive(Clone, Debug)]
pub enum Members {
    /// One function several times: the votes that can decide, and more only while the result is
    /// open.
    Votes { function: FunctionId, votes: usize },
    /// Each of these once, all at the same time: name in `result.extra`, and function.
    Panel(Vec<(String, FunctionId)>),
    /// The first of these, then the next where one failed or met none of its conditions.
    Cascade {
        members: Vec<(String, FunctionId)>,
        accept: Vec<Condition>,
        /// True if the first is a judge and the others its fallback: its values keep their names.
        is_fallback: bool,
    },
}

/// A function whose score is made of opinions.
#[derive(Clone, Debug)]
pub struct Opinions {
    pub members: Members,
    pub rules: Reduction,
}

/// State of a slot for one member call.
#[derive(Default)]
enum SlotState {
    #[default]
    Unsent,
    Open(MemberCall),
    Ended(MemberEnd),
}

/// A call that was begun.
pub(super) struct OpinionsCall {
    sample: usize,
    slots: Vec<SlotState>,
}

impl OpinionsCall {
    /// The member calls that are under way.
    pub(super) fn open(&self) -> Vec<MemberCall> {
        self.slots.iter().filter_map(|slot| if let SlotState::Open(call) = slot { Some(*call) } else { None }).collect()
    }

    pub(super) fn ends(&self) -> impl Iterator<Item = &MemberEnd> {
        self.slots.iter().filter_map(|slot| if let SlotState::Ended(end) = slot { Some(end) } else { None })
    }

    fn opinions(&self) -> Vec<Opinion> {
        self.ends().map(opinion).collect()
    }

    /// Returns the result in a slot, once it is there.
    fn end_in(&self, slot: usize) -> Option<&MemberEnd> {
        if let SlotState::Ended(end) = self.slots.get(slot)? { Some(end) } else { None }
    }

    /// Begins the member calls of these functions, each in its slot.
    fn send(&mut self, calls: impl Iterator<Item = (usize, FunctionId)>) -> Vec<MemberCall> {
        let Self { sample, slots } = self;
        let call = |(slot, function): (usize, FunctionId)| MemberCall { function, sample: *sample, slot };
        calls.map(call).inspect(|call| slots[call.slot] = SlotState::Open(*call)).collect()
    }
}

impl Opinions {
    /// Returns the most member calls that one call makes.
    #[must_use]
    pub fn calls(&self) -> usize {
        match &self.members {
            Members::Votes { votes, .. } => *votes,
            Members::Panel(members) => members.len() + usize::from(matches!(self.rules.reduce, Reduce::Function(_))),
            Members::Cascade { members, .. } => members.len(),
        }
    }

    /// A new call, and the member calls that it begins with.
    pub(super) fn begin(&self, sample: usize) -> (OpinionsCall, Vec<MemberCall>) {
        let mut call = OpinionsCall { sample, slots: (0..self.calls()).map(|_| SlotState::default()).collect() };
        let calls = match &self.members {
            Members::Votes { function, votes } => self.more_votes(&mut call, *function, *votes),
            Members::Panel(members) => call.send(members.iter().map(|(_, function)| *function).enumerate()),
            Members::Cascade { members, .. } => call.send(member_at(members, 0)),
        };
        (call, calls)
    }

    fn more_votes(&self, call: &mut OpinionsCall, function: FunctionId, votes: usize) -> Vec<MemberCall> {
        let opinions = call.opinions();
        let sent = opinions.len();
        let more = worth_sending(&self.rules, &opinions, votes - sent);
        call.send((sent..sent + more).map(|slot| (slot, function)))
    }

    /// Takes the result of a member call.
    pub(super) fn ended(&self, call: &mut OpinionsCall, end: MemberEnd) -> NextStep {
        let ended = end.slot;
        match call.slots.get_mut(ended) {
            Some(slot @ SlotState::Open(_)) => *slot = SlotState::Ended(end),
            _ => return NextStep::wait(), // it has ended before
        }
        let opinions = call.opinions();
        let waits = opinions.len() < call.slots.iter().filter(|slot| !matches!(slot, SlotState::Unsent)).count();
        match &self.members {
            Members::Votes { votes, .. } if is_decided(&self.rules, &opinions, votes - opinions.len()) => {
                NextStep::end()
            }
            Members::Votes { function, votes } if !waits => NextStep::call(self.more_votes(call, *function, *votes)),
            Members::Votes { .. } => NextStep::wait(),
            Members::Panel(members) => {
                let failed = opinions.iter().filter(|one| **one == Opinion::Failed).count();
                match self.rules.reduce {
                    // All that are left may give scores.
                    _ if waits && members.len() - failed >= self.rules.needed => NextStep::wait(),
                    Reduce::Function(function) if ended < members.len() && self.rules.too_few(&opinions).is_none() => {
                        NextStep::call(call.send(std::iter::once((members.len(), function))))
                    }
                    _ => NextStep::end(),
                }
            }
            Members::Cascade { members, accept, .. } => {
                let stands = call.end_in(ended).is_some_and(|end| stands(accept, members[ended].1, end));
                let next = call.send(member_at(members, ended + 1).filter(|_| !stands));
                if next.is_empty() { NextStep::end() } else { NextStep::call(next) }
            }
        }
    }

    pub(super) fn result(&self, call: &OpinionsCall) -> CompositeResult<Cell> {
        match &self.members {
            Members::Votes { votes, .. } => self.result_of_votes(call, *votes),
            Members::Panel(members) => self.result_of_panel(call, members),
            Members::Cascade { members, accept, is_fallback } => {
                self.result_of_cascade(call, members, accept, *is_fallback)
            }
        }
    }

    fn result_of_votes(&self, call: &OpinionsCall, votes: usize) -> CompositeResult<Cell> {
        let opinions = call.opinions();
        let failures: Vec<String> = call.ends().filter_map(MemberEnd::reason).collect();
        let mut report = Report { incomplete: !failures.is_empty(), ..Report::default() };
        report.add(0, "votes", opinions.iter().copied().map(shown).collect::<Vec<_>>());
        report.add(0, "agreement", agreement_of(&opinions));
        for (name, value) in in_lists(call.ends().flat_map(|end| &end.extra)) {
            report.add(0, name, value);
        }
        let too_few = || {
            let (failed, last) = (failures.len(), failures.last().cloned().unwrap_or_default());
            format!("{failed} of {votes} votes failed, and {} scores are needed; the last: {last}", self.rules.needed)
        };
        let records: Vec<String> = call.ends().filter_map(|end| items(end.record.as_deref()?)).collect();
        let record = match &records[..] {
            [one] => Some(format!("[{one}]").into_bytes()),
            all => listed(all),
        };
        (self.cell(&opinions, call, too_few), report, record)
    }

    fn result_of_panel(&self, call: &OpinionsCall, members: &[(String, FunctionId)]) -> CompositeResult<Cell> {
        let (report, record) = of_members(call, members);
        let cell = if let Some(end) = call.end_in(members.len()) {
            match opinion(end) {
                Opinion::Score(score) => Ok(Cell::Value(score)),
                Opinion::Abstained => Ok(Cell::Abstained),
                // Members that failed were few enough for it.
                Opinion::Failed => Err(failure(named(members, end, &end.reason().unwrap_or_default()), call)),
            }
        } else {
            let of_slot = |slot| call.end_in(slot).map_or(Opinion::Failed, opinion);
            let opinions: Vec<Opinion> = (0..members.len()).map(of_slot).collect();
            self.cell(&opinions, call, || {
                let (all, needed) = (members.len(), self.rules.needed);
                format!("of {all} members {needed} must give a score; {}", failures(call, members).join("; "))
            })
        };
        (cell, report, record)
    }

    fn result_of_cascade(
        &self,
        call: &OpinionsCall,
        members: &[(String, FunctionId)],
        accept: &[Condition],
        is_fallback: bool,
    ) -> CompositeResult<Cell> {
        let failures = failures(call, members);
        let answer = call.ends().find(|end| stands(accept, members[end.slot].1, end));
        let (mut report, record) = if is_fallback {
            let mut report = Report { incomplete: !failures.is_empty(), ..Report::default() };
            let fields = answer.into_iter().flat_map(|end| &end.extra);
            fields.for_each(|(name, value)| report.add(0, name.clone(), value.clone()));
            (report, answer.and_then(|end| end.record.clone()))
        } else {
            of_members(call, members)
        };
        if let Some(end) = answer {
            if !is_fallback || !failures.is_empty() {
                report.add(0, "by", members[end.slot].0.clone());
            }
            if !failures.is_empty() {
                report.add(0, "failed", failures.join("; "));
            }
        }
        let why = |end: &MemberEnd| match opinion(end) {
            Opinion::Score(score) => format!("{score} is not accepted"),
            Opinion::Abstained => "abstained".to_owned(),
            Opinion::Failed => end.reason().unwrap_or_default(),
        };
        let reasons = || call.ends().map(|end| named(members, end, &why(end))).collect::<Vec<_>>().join("; ");
        (self.cell(&[answer.map_or(Opinion::Failed, opinion)], call, reasons), report, record)
    }

    fn cell(
        &self,
        opinions: &[Opinion],
        call: &OpinionsCall,
        too_few: impl FnOnce() -> String,
    ) -> Result<Cell, Failure> {
        match self.rules.reduced(opinions) {
            ReducedScore::Score(score) => Ok(Cell::Value(score)),
            ReducedScore::Abstained => Ok(Cell::Abstained),
            ReducedScore::Failed => Err(failure(too_few(), call)),
        }
    }
}

/// A failure for this reason, with the traceback of the last call that has one.
fn failure(why: String, call: &OpinionsCall) -> Failure {
    let traceback = call.ends().filter_map(|end| end.note.as_ref()?.traceback.clone()).last();
    Failure { traceback, ..Failure::error(why) }
}

/// Name of the function that a call was of; that of the reduce of a panel is `reduce`.
fn name<'a>(members: &'a [(String, FunctionId)], end: &MemberEnd) -> &'a str {
    members.get(end.slot).map_or("reduce", |(name, _)| name)
}

/// A reason with the name of the member; one member alone is the function itself.
fn named(members: &[(String, FunctionId)], end: &MemberEnd, why: &str) -> String {
    if members.len() > 1 { format!("{}: {why}", name(members, end)) } else { why.to_owned() }
}

/// The reasons of the calls that failed.
fn failures(call: &OpinionsCall, members: &[(String, FunctionId)]) -> Vec<String> {
    call.ends().filter_map(|end| Some(named(members, end, &end.reason()?))).collect()
}

/// The scores, named values and records of all members, by their names.
fn of_members(call: &OpinionsCall, members: &[(String, FunctionId)]) -> (Report, Option<Vec<u8>>) {
    let mut report = Report { incomplete: call.ends().any(|end| end.reason().is_some()), ..Report::default() };
    for (slot, (member, _)) in members.iter().enumerate() {
        report.add(0, member.clone(), call.end_in(slot).and_then(|end| shown(opinion(end))));
    }
    for end in call.ends() {
        for (field, value) in &end.extra {
            report.add(0, format!("{}/{field}", name(members, end)), value.clone());
        }
    }
    let of_member = |end: &MemberEnd| {
        let quoted = name(members, end).replace('\\', "\\\\").replace('"', "\\\"");
        Some(format!("[\"member\",\"{quoted}\",[{}]]", items(end.record.as_deref()?)?))
    };
    (report, joined(call.ends().filter_map(of_member)))
}

/// Returns whether a member's result is that of its cascade: it gave one, and met a condition if it
/// has any.
#[expect(clippy::cast_possible_truncation, reason = "conditions are about rewards, which are float32")]
fn stands(accept: &[Condition], member: FunctionId, end: &MemberEnd) -> bool {
    let mut conditions = accept.iter().filter(|condition| condition.source == member).peekable();
    let is_free = conditions.peek().is_none();
    match opinion(end) {
        Opinion::Score(score) => is_free || conditions.any(|condition| condition.holds(score as f32)),
        Opinion::Abstained => is_free,
        Opinion::Failed => false,
    }
}

/// The call of the member in this place, if there is one.
fn member_at(members: &[(String, FunctionId)], slot: usize) -> impl Iterator<Item = (usize, FunctionId)> {
    members.get(slot).map(|(_, function)| (slot, *function)).into_iter()
}

const fn opinion(end: &MemberEnd) -> Opinion {
    match end.outcome.status {
        Status::Ok => Opinion::Score(end.outcome.value),
        Status::Abstained | Status::Skipped => Opinion::Abstained,
        Status::Timeout | Status::Error | Status::Crashed | Status::Cancelled => Opinion::Failed,
    }
}

/// An opinion as `result.extra` shows it.
const fn shown(opinion: Opinion) -> Option<f64> {
    match opinion {
        Opinion::Score(score) => Some(score),
        Opinion::Abstained | Opinion::Failed => None,
    }
}

/// A record of these items; `None` without any.
fn joined(items: impl Iterator<Item = String>) -> Option<Vec<u8>> {
    let all: Vec<String> = items.collect();
    (!all.is_empty()).then(|| format!("[{}]", all.join(",")).into_bytes())
}
