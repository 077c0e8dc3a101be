//! A call of votes, a panel or a cascade that was begun: the state of each opinion.

use crate::compose::reduce::Opinion;
use crate::function::FunctionId;
use crate::member_call::{MemberCall, MemberEnd};
use crate::outcome::Status;

/// State of one opinion: of a vote, a member or the reduce.
#[derive(Default)]
pub(super) enum OpinionState {
    #[default]
    Unsent,
    Open(MemberCall),
    /// A member that makes several calls has begun.
    Begun(Box<OpinionsCall>),
    /// Its slot is the place of the opinion.
    Ended(MemberEnd),
}

/// A call that was begun.
pub(super) struct OpinionsCall {
    pub sample: usize,
    /// Slot of the first member call.
    pub first_slot: usize,
    pub states: Vec<OpinionState>,
    /// True if a part of a member failed that has ended.
    pub incomplete: bool,
}

impl OpinionsCall {
    /// Adds the member calls that are under way.
    pub(super) fn add_open(&self, open: &mut Vec<MemberCall>) {
        for state in &self.states {
            match state {
                OpinionState::Open(call) => open.push(*call),
                OpinionState::Begun(call) => call.add_open(open),
                OpinionState::Unsent | OpinionState::Ended(_) => {}
            }
        }
    }

    /// The start of the first member call that ran, of those that have ended.
    pub(super) fn started_ns(&self) -> Option<u64> {
        self.ends().map(|end| end.outcome.times.started_ns).filter(|ns| *ns != 0).min()
    }

    pub(super) fn ends(&self) -> impl Iterator<Item = &MemberEnd> {
        self.states.iter().filter_map(|state| if let OpinionState::Ended(end) = state { Some(end) } else { None })
    }

    pub(super) fn opinions(&self) -> Vec<Opinion> {
        self.ends().map(opinion).collect()
    }

    /// Returns the result of the opinion at a place, once it is there.
    pub(super) fn end_at(&self, place: usize) -> Option<&MemberEnd> {
        if let OpinionState::Ended(end) = self.states.get(place)? { Some(end) } else { None }
    }

    /// Begins the call of a function, for the opinion at this place.
    pub(super) fn send(&mut self, place: usize, function: FunctionId, slot: usize) -> MemberCall {
        let call = MemberCall { function, sample: self.sample, slot: self.first_slot + slot };
        self.states[place] = OpinionState::Open(call);
        call
    }
}

pub(super) const fn opinion(end: &MemberEnd) -> Opinion {
    match end.outcome.status {
        Status::Ok => Opinion::Score(end.outcome.value),
        Status::Abstained | Status::Skipped => Opinion::Abstained,
        Status::Timeout | Status::Error | Status::Crashed | Status::Cancelled => Opinion::Failed,
    }
}

/// An opinion as `result.extra` shows it.
pub(super) const fn shown(opinion: Opinion) -> Option<f64> {
    match opinion {
        Opinion::Score(score) => Some(score),
        Opinion::Abstained | Opinion::Failed => None,
    }
}
