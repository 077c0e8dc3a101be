//! Votes, panels and fallbacks: opinions of one sample made into one score. Votes stop early as
//! compose-3 has it.

use crate::compose::early_stop::{is_decided, worth_sending};
use crate::compose::reduce::{Opinion, ReducedScore, Reduction, agreement_of};
use crate::compose::step::{CompositeResult, NextStep, in_lists, items, listed};
use crate::function::FunctionId;
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
    /// The first of these, and the next one where it failed.
    Fallback(Vec<(String, FunctionId)>),
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
    pub const fn calls(&self) -> usize {
        match &self.members {
            Members::Votes { votes, .. } => *votes,
            Members::Panel(members) | Members::Fallback(members) => members.len(),
        }
    }

    /// A new call, and the member calls that it begins with.
    pub(super) fn begin(&self, sample: usize) -> (OpinionsCall, Vec<MemberCall>) {
        let mut call = OpinionsCall { sample, slots: (0..self.calls()).map(|_| SlotState::default()).collect() };
        let calls = match &self.members {
            Members::Votes { function, votes } => self.more_votes(&mut call, *function, *votes),
            Members::Panel(members) => call.send(members.iter().map(|(_, function)| *function).enumerate()),
            Members::Fallback(members) => call.send(member_at(members, 0)),
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
        match call.slots.get_mut(end.slot) {
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
                // All that are left may give scores.
                if !waits || members.len() - failed < self.rules.needed { NextStep::end() } else { NextStep::wait() }
            }
            Members::Fallback(members) if opinions.last() == Some(&Opinion::Failed) => {
                let next = call.send(member_at(members, opinions.len()));
                if next.is_empty() { NextStep::end() } else { NextStep::call(next) }
            }
            Members::Fallback(_) => NextStep::end(),
        }
    }

    pub(super) fn result(&self, call: &OpinionsCall) -> CompositeResult<Cell> {
        match &self.members {
            Members::Votes { votes, .. } => self.result_of_votes(call, *votes),
            Members::Panel(members) => self.result_of_panel(call, members),
            Members::Fallback(members) => self.result_of_fallback(call, members),
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
        let opinion_of =
            |slot: &SlotState| if let SlotState::Ended(end) = slot { opinion(end) } else { Opinion::Failed };
        let opinions: Vec<Opinion> = call.slots.iter().map(opinion_of).collect();
        let name = |end: &MemberEnd| &members[end.slot].0;
        let why = |end: &MemberEnd| Some(format!("{}: {}", name(end), end.reason()?));
        let failures: Vec<String> = call.ends().filter_map(why).collect();
        let mut report = Report { incomplete: !failures.is_empty(), ..Report::default() };
        for ((member, _), opinion) in members.iter().zip(&opinions) {
            report.add(0, member.clone(), shown(*opinion));
        }
        for end in call.ends() {
            for (field, value) in &end.extra {
                report.add(0, format!("{}/{field}", name(end)), value.clone());
            }
        }
        let too_few =
            || format!("of {} members {} must give a score; {}", members.len(), self.rules.needed, failures.join("; "));
        let of_member = |end: &MemberEnd| {
            let quoted = name(end).replace('\\', "\\\\").replace('"', "\\\"");
            Some(format!("[\"member\",\"{quoted}\",[{}]]", items(end.record.as_deref()?)?))
        };
        let record = joined(call.ends().filter_map(of_member));
        (self.cell(&opinions, call, too_few), report, record)
    }

    fn result_of_fallback(&self, call: &OpinionsCall, members: &[(String, FunctionId)]) -> CompositeResult<Cell> {
        // One member alone is the function itself.
        let named = |end: &MemberEnd, why| {
            if members.len() > 1 { format!("{}: {why}", members[end.slot].0) } else { why }
        };
        let failures: Vec<String> = call.ends().filter_map(|end| Some(named(end, end.reason()?))).collect();
        let mut report = Report { incomplete: !failures.is_empty(), ..Report::default() };
        let answer = call.ends().find(|end| opinion(end) != Opinion::Failed);
        if let Some(end) = answer {
            for (name, value) in &end.extra {
                report.add(0, name.clone(), value.clone());
            }
            if !failures.is_empty() {
                report.add(0, "by", members[end.slot].0.clone());
                report.add(0, "failed", failures.join("; "));
            }
        }
        let record = answer.and_then(|end| end.record.clone());
        let opinion = answer.map_or(Opinion::Failed, opinion);
        (self.cell(&[opinion], call, || failures.join("; ")), report, record)
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
            ReducedScore::Failed => {
                let traceback = call.ends().filter_map(|end| end.note.as_ref()?.traceback.clone()).last();
                Err(Failure { traceback, ..Failure::error(too_few()) })
            }
        }
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
