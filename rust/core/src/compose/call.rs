//! One call of a composite function: which member calls it needs, and the score made of their
//! results, without a clock, a lock or a wait. Votes stop early as compose-3 has it.

use std::collections::BTreeMap;

use crate::compose::early_stop::{is_decided, worth_sending};
use crate::compose::reduce::{Opinion, ReducedScore, Reduction, agreement_of};
use crate::function::FunctionId;
use crate::member_call::{MemberCall, MemberEnd};
use crate::outcome::{Cell, Failure, Status, Times};
use crate::report::{Extra, NamedExtra, Report};

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

/// A composite function.
#[derive(Clone, Debug)]
pub struct Composite {
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
pub(super) struct CompositeCall {
    slots: Vec<SlotState>,
}

/// Next step of a call.
pub(super) enum NextStep {
    Call(Vec<MemberCall>),
    Wait,
    End,
}

impl NextStep {
    pub(super) const fn is_end(&self) -> bool {
        matches!(self, Self::End)
    }
}

/// Score, report and record of a call.
pub(super) type CompositeResult = (Result<Cell, Failure>, Report, Option<Vec<u8>>);

impl CompositeCall {
    /// The member calls that are under way.
    pub(super) fn open(&self) -> Vec<MemberCall> {
        self.slots.iter().filter_map(|slot| if let SlotState::Open(call) = slot { Some(*call) } else { None }).collect()
    }

    fn ends(&self) -> impl Iterator<Item = &MemberEnd> {
        self.slots.iter().filter_map(|slot| if let SlotState::Ended(end) = slot { Some(end) } else { None })
    }

    fn opinions(&self) -> Vec<Opinion> {
        self.ends().map(opinion).collect()
    }

    /// Returns the time from the start of the first member call that ran until now.
    pub(super) fn times(&self, now_ns: u64) -> Times {
        let started = self.ends().map(|end| end.outcome.times.started_ns).filter(|ns| *ns != 0).min();
        started
            .map_or_else(Times::default, |started_ns| Times { started_ns, run_ns: now_ns.saturating_sub(started_ns) })
    }

    fn send(&mut self, calls: impl Iterator<Item = MemberCall>) -> Vec<MemberCall> {
        calls.inspect(|call| self.slots[call.slot] = SlotState::Open(*call)).collect()
    }
}

impl Composite {
    /// Returns the most member calls that one call makes.
    #[must_use]
    pub const fn calls(&self) -> usize {
        match &self.members {
            Members::Votes { votes, .. } => *votes,
            Members::Panel(members) | Members::Fallback(members) => members.len(),
        }
    }

    /// A new call, and the member calls that it begins with.
    pub(super) fn begin(&self) -> (CompositeCall, Vec<MemberCall>) {
        let mut call = CompositeCall { slots: (0..self.calls()).map(|_| SlotState::default()).collect() };
        let calls = match &self.members {
            Members::Votes { function, votes } => self.more_votes(&mut call, *function, *votes),
            Members::Panel(members) => {
                let of =
                    |(slot, (_, function)): (usize, &(String, FunctionId))| MemberCall { function: *function, slot };
                call.send(members.iter().enumerate().map(of))
            }
            Members::Fallback(members) => call.send(member_at(members, 0)),
        };
        (call, calls)
    }

    fn more_votes(&self, call: &mut CompositeCall, function: FunctionId, votes: usize) -> Vec<MemberCall> {
        let opinions = call.opinions();
        let sent = opinions.len();
        let more = worth_sending(&self.rules, &opinions, votes - sent);
        call.send((sent..sent + more).map(|slot| MemberCall { function, slot }))
    }

    /// Takes the result of a member call.
    pub(super) fn ended(&self, call: &mut CompositeCall, end: MemberEnd) -> NextStep {
        match call.slots.get_mut(end.slot) {
            Some(slot @ SlotState::Open(_)) => *slot = SlotState::Ended(end),
            _ => return NextStep::Wait, // it has ended before
        }
        let opinions = call.opinions();
        let waits = opinions.len() < call.slots.iter().filter(|slot| !matches!(slot, SlotState::Unsent)).count();
        match &self.members {
            Members::Votes { votes, .. } if is_decided(&self.rules, &opinions, votes - opinions.len()) => NextStep::End,
            Members::Votes { function, votes } if !waits => NextStep::Call(self.more_votes(call, *function, *votes)),
            Members::Votes { .. } => NextStep::Wait,
            Members::Panel(members) => {
                let failed = opinions.iter().filter(|one| **one == Opinion::Failed).count();
                // All that are left may give scores.
                if !waits || members.len() - failed < self.rules.needed { NextStep::End } else { NextStep::Wait }
            }
            Members::Fallback(members) if opinions.last() == Some(&Opinion::Failed) => {
                let next = call.send(member_at(members, opinions.len()));
                if next.is_empty() { NextStep::End } else { NextStep::Call(next) }
            }
            Members::Fallback(_) => NextStep::End,
        }
    }

    pub(super) fn result(&self, call: &CompositeCall) -> CompositeResult {
        match &self.members {
            Members::Votes { votes, .. } => self.result_of_votes(call, *votes),
            Members::Panel(members) => self.result_of_panel(call, members),
            Members::Fallback(members) => self.result_of_fallback(call, members),
        }
    }

    fn result_of_votes(&self, call: &CompositeCall, votes: usize) -> CompositeResult {
        let opinions = call.opinions();
        let failures: Vec<String> = call.ends().filter_map(reason).collect();
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
            [] => None,
            [one] => Some(format!("[{one}]").into_bytes()),
            all => Some(format!("[[\"votes\",[[{}]]]]", all.join("],[")).into_bytes()),
        };
        (self.cell(&opinions, call, too_few), report, record)
    }

    fn result_of_panel(&self, call: &CompositeCall, members: &[(String, FunctionId)]) -> CompositeResult {
        let opinion_of =
            |slot: &SlotState| if let SlotState::Ended(end) = slot { opinion(end) } else { Opinion::Failed };
        let opinions: Vec<Opinion> = call.slots.iter().map(opinion_of).collect();
        let name = |end: &MemberEnd| &members[end.slot].0;
        let why = |end: &MemberEnd| Some(format!("{}: {}", name(end), reason(end)?));
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

    fn result_of_fallback(&self, call: &CompositeCall, members: &[(String, FunctionId)]) -> CompositeResult {
        // One member alone is the function itself.
        let named = |end: &MemberEnd, why| {
            if members.len() > 1 { format!("{}: {why}", members[end.slot].0) } else { why }
        };
        let failures: Vec<String> = call.ends().filter_map(|end| Some(named(end, reason(end)?))).collect();
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
        call: &CompositeCall,
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
fn member_at(members: &[(String, FunctionId)], slot: usize) -> impl Iterator<Item = MemberCall> {
    members.get(slot).map(|(_, function)| MemberCall { function: *function, slot }).into_iter()
}

const fn opinion(end: &MemberEnd) -> Opinion {
    match end.outcome.status {
        Status::Ok => Opinion::Score(end.outcome.value),
        Status::Abstained | Status::Skipped => Opinion::Abstained,
        Status::Timeout | Status::Error | Status::Crashed | Status::Cancelled => Opinion::Failed,
    }
}

/// Returns why a member call failed, if it did.
fn reason(end: &MemberEnd) -> Option<String> {
    let why = end.note.as_ref().map(|note| note.reason.as_str()).filter(|_| opinion(end) == Opinion::Failed)?;
    Some(if end.attempts > 1 { format!("{why} (after {} attempts)", end.attempts) } else { why.to_owned() })
}

/// An opinion as `result.extra` shows it.
const fn shown(opinion: Opinion) -> Option<f64> {
    match opinion {
        Opinion::Score(score) => Some(score),
        Opinion::Abstained | Opinion::Failed => None,
    }
}

/// The values of each name: as it is where there is but one, else all of them in a list.
fn in_lists<'a>(extra: impl Iterator<Item = &'a NamedExtra>) -> Vec<NamedExtra> {
    let mut lists: BTreeMap<&str, Vec<Extra>> = BTreeMap::new();
    for (name, value) in extra {
        let list = lists.entry(name).or_default();
        match value {
            Extra::List(values) => list.extend(values.iter().cloned()),
            value => list.push(value.clone()),
        }
    }
    let one = |(name, mut values): (&str, Vec<Extra>)| {
        let value = if values.len() == 1 { values.remove(0) } else { Extra::List(values) };
        (name.to_owned().into(), value)
    };
    lists.into_iter().map(one).collect()
}

/// The items of a record, which is a JSON list; `None` without any.
fn items(record: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(record).ok()?.trim();
    let items = text.strip_prefix('[')?.strip_suffix(']')?;
    (!items.trim().is_empty()).then(|| items.to_owned())
}

/// A record of these items; `None` without any.
fn joined(items: impl Iterator<Item = String>) -> Option<Vec<u8>> {
    let all: Vec<String> = items.collect();
    (!all.is_empty()).then(|| format!("[{}]", all.join(",")).into_bytes())
}
