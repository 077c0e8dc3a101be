//! Member calls: made when the call of a composite function requests them (`compose`).
//!
//! - The member calls of one slot are a batch, which exists from the first of them until their
//!   owner's batch is done. Its ids follow the owner's, so both count as equally old.
//! - A member call whose owner has ended is not made, or is ended: `calls_swept` comes after the
//!   owner's cell has its outcome, and the composite's lane checks its cell after each request.

use std::sync::Arc;

use crate::batch::{Batch, CallOwner};
use crate::call::{Call, Cause};
use crate::function::FunctionId;
use crate::member_call::{MemberCall, MemberEnd};
use crate::open_batch::Placement;
use crate::outcome::Times;
use crate::scheduler::queue::Work;
use crate::scheduler::state::{SchedulerCore, SchedulerState};

impl SchedulerCore {
    /// Returns the id of the batch of a slot's member calls.
    pub(super) fn member_batch(&self, owner: u64, function: FunctionId, slot: usize) -> u64 {
        let before = self.functions[..function].iter().map(|one| one.member_calls).sum::<usize>();
        owner + 1 + (before + slot) as u64
    }

    /// Makes member calls for a call of `function`, each once.
    pub(super) fn call_members(self: &Arc<Self>, batch: &Arc<Batch>, function: FunctionId, calls: &[MemberCall]) {
        let mut ended = Vec::new();
        {
            let mut state = self.state.lock();
            for call in calls {
                let Some(members) = self.members(&mut state, batch, function, *call) else { return };
                let fresh = Call::fresh(call.sample);
                let cause = match members.reserve(&Placement::Exact(vec![call.sample])) {
                    Ok(added) => {
                        let cause = state.works.edit(members.id(), call.function, |queue| {
                            if queue.closed.is_none() {
                                queue.arrived.push_back(fresh);
                            }
                            queue.closed.clone()
                        });
                        self.set_total_timer(&mut state, &members, call.function, &[fresh], added.at_ns);
                        cause.flatten()
                    }
                    Err(_) => None, // it was made before
                };
                if cause.is_some() || members.grid().read(call.sample, call.function).is_some() {
                    ended.push((members, call, cause));
                }
            }
        }
        for (members, call, cause) in ended {
            if let Some(cause) = cause {
                self.end_member(&members, call, &cause);
            }
            // The sweep that closed the queue may have passed its cell before the call was
            // requested.
            if let Some(owner) = members.owner() {
                self.member_ended(&members, owner, call.function, call.sample);
            }
        }
        self.pump();
    }

    /// Returns the batch of a slot's member calls; `None` if the owner's batch is done.
    fn members(
        &self,
        state: &mut SchedulerState,
        batch: &Arc<Batch>,
        function: FunctionId,
        call: MemberCall,
    ) -> Option<Arc<Batch>> {
        let id = self.member_batch(batch.id(), function, call.slot);
        if let Some(work) = state.works.get(id) {
            return Some(work.batch.clone());
        }
        state.works.get(batch.id())?;
        // A parser's calls are made when the judge's have ended.
        let judged = call.slot.checked_sub(self.function(function).member_calls / 2);
        let judged = judged.map(|slot| self.member_batch(batch.id(), function, slot));
        let judged = judged.and_then(|id| Some(state.works.get(id)?.batch.clone()));
        let payload = self.answers(call.function, judged);
        let owner = CallOwner { batch: batch.clone(), function, slot: call.slot };
        let made = Batch::of_member_calls(id, self.clock, self.functions.clone(), call.function, owner, payload);
        let members = Arc::new(made.ok()?);
        state.works.insert(Work::new(members.clone()));
        Some(members)
    }

    /// Ends member calls that are not needed any more.
    pub(super) fn give_up_members(self: &Arc<Self>, batch: &Batch, calls: &[MemberCall]) {
        for call in calls.iter().flat_map(|call| {
            let owner = self.function(call.function).member_of.unwrap_or_default();
            [Some(*call), self.parser_call(owner, *call)].into_iter().flatten()
        }) {
            let owner = self.function(call.function).member_of.unwrap_or_default();
            let members = self.batch(self.member_batch(batch.id(), owner, call.slot));
            if let Some(members) = members.filter(|members| call.sample < members.samples()) {
                self.end_member(&members, &call, &Cause::Cancelled("not needed any more".to_owned()));
            }
        }
    }

    fn end_member(self: &Arc<Self>, members: &Arc<Batch>, call: &MemberCall, cause: &Cause) {
        let MemberCall { function, sample, .. } = *call;
        let (status, note) = self.end_of(members, function, cause);
        if let Some(claim) = members.grid().claim_open(sample, function) {
            self.fail(members, function, false, sample..sample + 1, claim, status, &note, Times::default());
        }
    }

    /// Passes the result of a member call on to the call that requested it.
    pub(super) fn member_ended(
        self: &Arc<Self>,
        members: &Batch,
        owner: &CallOwner,
        member: FunctionId,
        sample: usize,
    ) {
        let Some((outcome, attempts)) = members.grid().read(sample, member) else { return };
        let failed = outcome.status.is_failure();
        let end = MemberEnd {
            owner: (owner.batch.id(), owner.function, owner.first(sample)),
            sample,
            slot: owner.slot,
            outcome,
            attempts,
            note: if failed { members.note_of(sample, member) } else { None },
            extra: members.extra_at(sample, member),
            record: members.record_of(sample, member),
        };
        if let Some(end) = self.parsed(owner, member, end) {
            self.lane(owner.function).member_ended(end);
        }
    }

    /// Notifies lanes that calls were ended from outside.
    pub(super) fn calls_swept(&self) {
        self.lanes.iter().for_each(|lane| lane.calls_swept());
    }
}
