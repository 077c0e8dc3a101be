//! Votes, panels and cascades: opinions of one sample made into one score. Votes stop early as
//! compose-3 has it.
//!
//! A member that makes several calls itself is part of the outer call: it has a range of the outer
//! call's slots, and ends like a member call.

use std::ops::Range;

use crate::compose::early_stop::{is_decided, worth_sending};
use crate::compose::opinions_call::{OpinionState, OpinionsCall, opinion, shown};
use crate::compose::reduce::{Opinion, Reduce, ReducedScore, Reduction, agreement_of};
use crate::compose::step::{CompositeResult, NextStep, in_lists, items, listed};
use crate::function::{Condition, FunctionId};
use crate::member_call::{MemberCall, MemberEnd};
use crate::outcome::{Cell, Failure, Note, Outcome, Status, Times};
use crate::report::Report;

/// A member of a composite function.
#[derive(Clone, Debug)]
pub enum Member {
    Function(FunctionId),
    /// It makes calls of several functions, or several of one.
    Opinions(Box<Opinions>),
}

impl Member {
    /// Returns the most member calls that it makes.
    fn calls(&self) -> usize {
        match self {
            Self::Function(_) => 1,
            Self::Opinions(opinions) => opinions.calls(),
        }
    }
}

/// The members of a composite function.
#[derive(Clone, Debug)]
pub enum Members {
    /// One function several times: the votes that can decide, and more only while the result is
    /// open.
    Votes { function: FunctionId, votes: usize },
    /// Each of these once, all at the same time, by name in `result.extra`.
    Panel(Vec<(String, Member)>),
    /// The first of these, then the next where one failed or met none of its conditions.
    Cascade {
        members: Vec<(String, Member)>,
        /// The source of a condition is the place of a member.
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

impl Opinions {
    /// Returns the most member calls that one call makes.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.slot_of(self.opinions())
    }

    /// The number of opinions, with the reduce.
    const fn opinions(&self) -> usize {
        match &self.members {
            Members::Votes { votes, .. } => *votes,
            Members::Panel(members) => members.len() + matches!(self.rules.reduce, Reduce::Function(_)) as usize,
            Members::Cascade { members, .. } => members.len(),
        }
    }

    /// The members; none for votes, each of which is a call of one function.
    fn members(&self) -> &[(String, Member)] {
        match &self.members {
            Members::Votes { .. } => &[],
            Members::Panel(members) | Members::Cascade { members, .. } => members,
        }
    }

    /// Returns the slot of the first call for the opinion at a place.
    fn slot_of(&self, place: usize) -> usize {
        let members = self.members();
        let before = &members[..place.min(members.len())];
        before.iter().map(|(_, member)| member.calls()).sum::<usize>() + place - before.len()
    }

    /// Returns the place of the opinion that the call in a slot is for.
    fn place_of(&self, slot: usize) -> usize {
        let (mut place, mut next) = (0, 0);
        for (_, member) in self.members() {
            next += member.calls();
            if slot < next {
                return place;
            }
            place += 1;
        }
        place + slot - next
    }

    /// Returns a new call, which has the slots from `first_slot` on, and its first member calls.
    pub(super) fn begin(&self, sample: usize, first_slot: usize) -> (OpinionsCall, Vec<MemberCall>) {
        let states = (0..self.opinions()).map(|_| OpinionState::default()).collect();
        let mut call = OpinionsCall { sample, first_slot, states, incomplete: false };
        let calls = match &self.members {
            Members::Votes { function, votes } => self.more_votes(&mut call, *function, *votes),
            Members::Panel(members) => self.begin_members(&mut call, 0..members.len()),
            Members::Cascade { .. } => self.begin_members(&mut call, 0..1),
        };
        (call, calls)
    }

    /// Begins the members at these places.
    fn begin_members(&self, call: &mut OpinionsCall, places: Range<usize>) -> Vec<MemberCall> {
        let mut calls = Vec::with_capacity(places.len());
        let mut slot = self.slot_of(places.start);
        for place in places {
            let (_, member) = &self.members()[place];
            match member {
                Member::Function(function) => calls.push(call.send(place, *function, slot)),
                Member::Opinions(opinions) => {
                    let (begun, more) = opinions.begin(call.sample, call.first_slot + slot);
                    call.states[place] = OpinionState::Begun(Box::new(begun));
                    calls.extend(more);
                }
            }
            slot += member.calls();
        }
        calls
    }

    fn more_votes(&self, call: &mut OpinionsCall, function: FunctionId, votes: usize) -> Vec<MemberCall> {
        let opinions = call.opinions();
        let sent = opinions.len();
        let more = worth_sending(&self.rules, &opinions, votes - sent);
        (sent..sent + more).map(|place| call.send(place, function, place)).collect()
    }

    /// Takes the result of a member call.
    pub(super) fn ended(&self, call: &mut OpinionsCall, end: MemberEnd) -> NextStep {
        let place = self.place_of(end.slot - call.first_slot);
        let mut give_up = Vec::new();
        match (call.states.get_mut(place), self.members().get(place)) {
            (Some(state @ OpinionState::Open(_)), _) => *state = OpinionState::Ended(MemberEnd { slot: place, ..end }),
            (Some(state), Some((_, Member::Opinions(opinions)))) => {
                let OpinionState::Begun(begun) = state else { return NextStep::wait() };
                let owner = end.owner;
                let step = opinions.ended(begun, end);
                if !step.is_end {
                    return step;
                }
                give_up = step.give_up;
                begun.add_open(&mut give_up);
                let (end, incomplete) = opinions.end_of(begun, owner, place);
                *state = OpinionState::Ended(end);
                call.incomplete |= incomplete;
            }
            _ => return NextStep::wait(), // it has ended before
        }
        NextStep { give_up, ..self.next(call, place) }
    }

    /// Returns the next step after the end of the opinion at this place.
    fn next(&self, call: &mut OpinionsCall, ended: usize) -> NextStep {
        let opinions = call.opinions();
        let waits = opinions.len() < call.states.iter().filter(|state| !matches!(state, OpinionState::Unsent)).count();
        match &self.members {
            Members::Votes { votes, .. } if is_decided(&self.rules, &opinions, votes - opinions.len()) => {
                NextStep::end()
            }
            Members::Votes { function, votes } if !waits => NextStep::call(self.more_votes(call, *function, *votes)),
            Members::Votes { .. } => NextStep::wait(),
            Members::Panel(members) => match self.rules.reduce {
                _ if waits && !self.too_many_failed(&opinions) => NextStep::wait(),
                Reduce::Function(function) if ended < members.len() && self.rules.too_few(&opinions).is_none() => {
                    let score = |place| call.end_at(place).and_then(|end| shown(opinion(end)));
                    let scores = (0..members.len()).map(score).collect();
                    let reduce = call.send(members.len(), function, self.slot_of(members.len()));
                    NextStep { scores, ..NextStep::call(vec![reduce]) }
                }
                _ => NextStep::end(),
            },
            Members::Cascade { members, accept, .. } => {
                let stands = call.end_at(ended).is_some_and(|end| stands(accept, end));
                if stands || ended + 1 == members.len() {
                    return NextStep::end();
                }
                NextStep::call(self.begin_members(call, ended + 1..ended + 2))
            }
        }
    }

    /// Returns whether a panel fails because too few of its members can still give scores.
    fn too_many_failed(&self, opinions: &[Opinion]) -> bool {
        let failed = opinions.iter().filter(|one| **one == Opinion::Failed).count();
        failed + self.rules.needed > self.members().len()
    }

    pub(super) fn result(&self, call: &OpinionsCall) -> CompositeResult<Cell> {
        let (cell, report, record) = match &self.members {
            Members::Votes { votes, .. } => self.result_of_votes(call, *votes),
            Members::Panel(members) => self.result_of_panel(call, members),
            Members::Cascade { members, accept, is_fallback } => {
                self.result_of_cascade(call, members, accept, *is_fallback)
            }
        };
        let incomplete = call.incomplete || call.ends().any(|end| end.reason().is_some());
        (cell, Report { incomplete, ..report }, record)
    }

    /// Returns the result of a member's call as that of a member call, and whether a part of it
    /// failed.
    fn end_of(&self, call: &OpinionsCall, owner: (u64, FunctionId, usize), place: usize) -> (MemberEnd, bool) {
        let (cell, report, record) = self.result(call);
        let times = Times { started_ns: call.started_ns().unwrap_or_default(), run_ns: 0 };
        let (outcome, note) = match cell {
            Ok(Cell::Value(value)) => (Outcome { status: Status::Ok, value, times }, None),
            Ok(_) => (Outcome::without_value(Status::Abstained, times), None),
            Err(failure) => (Outcome::without_value(failure.kind.status(), times), Some(Note::from(failure))),
        };
        let extra = report.extra.into_iter().map(|(_, named)| named).collect();
        let end = MemberEnd { owner, sample: call.sample, slot: place, outcome, attempts: 1, note, extra, record };
        (end, report.incomplete)
    }

    fn result_of_votes(&self, call: &OpinionsCall, votes: usize) -> CompositeResult<Cell> {
        let opinions = call.opinions();
        let failures: Vec<String> = call.ends().filter_map(MemberEnd::reason).collect();
        let mut report = Report::default();
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

    fn result_of_panel(&self, call: &OpinionsCall, members: &[(String, Member)]) -> CompositeResult<Cell> {
        let (report, record) = of_members(call, members);
        let cell = if let Some(end) = call.end_at(members.len()) {
            match opinion(end) {
                Opinion::Score(score) => Ok(Cell::Value(score)),
                Opinion::Abstained => Ok(Cell::Abstained),
                // Members that failed were few enough for it.
                Opinion::Failed => Err(failure(named(members, end, &end.reason().unwrap_or_default()), call)),
            }
        } else {
            let at = |place| call.end_at(place).map_or(Opinion::Failed, opinion);
            let opinions: Vec<Opinion> = (0..members.len()).map(at).collect();
            let (all, needed) = (members.len(), self.rules.needed);
            let why = || format!("of {all} members {needed} must give a score; {}", failures(call, members).join("; "));
            // The other members may have been cancelled, so their results have no influence.
            if self.too_many_failed(&opinions) { Err(failure(why(), call)) } else { self.cell(&opinions, call, why) }
        };
        (cell, report, record)
    }

    fn result_of_cascade(
        &self,
        call: &OpinionsCall,
        members: &[(String, Member)],
        accept: &[Condition],
        is_fallback: bool,
    ) -> CompositeResult<Cell> {
        let failures = failures(call, members);
        let answer = call.ends().find(|end| stands(accept, end));
        let (mut report, record) = if is_fallback {
            let mut report = Report::default();
            if let Some(end) = answer {
                for (field, value) in &end.extra {
                    // A composite's values have these names; a function's records are not renamed.
                    let is_taken = !failures.is_empty() && matches!(&**field, "by" | "failed");
                    let field = if is_taken { format!("{}/{field}", name(members, end)).into() } else { field.clone() };
                    report.add(0, field, value.clone());
                }
            }
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
fn name<'a>(members: &'a [(String, Member)], end: &MemberEnd) -> &'a str {
    members.get(end.slot).map_or("reduce", |(name, _)| name)
}

/// A reason with the name of the member; one member alone is the function itself.
fn named(members: &[(String, Member)], end: &MemberEnd, why: &str) -> String {
    if members.len() > 1 { format!("{}: {why}", name(members, end)) } else { why.to_owned() }
}

/// The reasons of the calls that failed.
fn failures(call: &OpinionsCall, members: &[(String, Member)]) -> Vec<String> {
    call.ends().filter_map(|end| Some(named(members, end, &end.reason()?))).collect()
}

/// The scores, named values and records of all members, by their names.
fn of_members(call: &OpinionsCall, members: &[(String, Member)]) -> (Report, Option<Vec<u8>>) {
    let mut report = Report::default();
    for (place, (member, _)) in members.iter().enumerate() {
        report.add(0, member.clone(), call.end_at(place).and_then(|end| shown(opinion(end))));
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
fn stands(accept: &[Condition], end: &MemberEnd) -> bool {
    let mut conditions = accept.iter().filter(|condition| condition.source == end.slot).peekable();
    let is_free = conditions.peek().is_none();
    match opinion(end) {
        Opinion::Score(score) => is_free || conditions.any(|condition| condition.holds(score as f32)),
        Opinion::Abstained => is_free,
        Opinion::Failed => false,
    }
}

/// A record of these items; `None` without any.
fn joined(items: impl Iterator<Item = String>) -> Option<Vec<u8>> {
    let all: Vec<String> = items.collect();
    (!all.is_empty()).then(|| format!("[{}]", all.join(",")).into_bytes())
}
