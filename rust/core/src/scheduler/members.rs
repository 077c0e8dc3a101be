//! Member calls: made when the call of a composite function requests them (`compose`).
//!
//! - The member calls of one slot are a batch, which exists from the first of them until their
//!   owner's batch is done. Its ids follow the owner's, so both count as equally old.
//! - Abandoned member calls do not run. Giving up reserves the sample, so a later request finds the
//!   call made, and marks the sample, so a failed attempt gets no other.

use std::ops::Range;
use std::sync::Arc;

use crate::batch::{Batch, CallOwner, ids_of_batch};
use crate::call::{Call, Cause};
use crate::function::FunctionId;
use crate::member_call::{MemberCall, MemberEnd};
use crate::open_batch::Placement;
use crate::outcome::Times;
use crate::scheduler::queue::Work;
use crate::scheduler::reducing;
use crate::scheduler::state::{SchedulerCore, SchedulerState};

impl SchedulerCore {
    /// Returns the function whose slots hold the calls of a member.
    fn leader(&self, member: FunctionId) -> FunctionId {
        self.function(member).member_of.unwrap_or_default()
    }

    /// Returns the id of the batch of a slot's member calls.
    pub(super) fn member_batch(&self, owner: u64, function: FunctionId, slot: usize) -> u64 {
        let before = self.functions[..function].iter().map(|one| one.member_calls).sum::<usize>();
        owner + 1 + (before + slot) as u64
    }

    /// Makes member calls, each once. Calls of a reduce get `scores`.
    pub(super) fn call_members(self: &Arc<Self>, batch: &Arc<Batch>, calls: &[MemberCall], scores: &[Option<f64>]) {
        let (mut ended, mut made) = (Vec::new(), false);
        {
            let mut state = self.state.lock();
            for call in calls {
                let Some(members) = self.members(&mut state, batch, *call) else { return };
                if self.function(call.function).reduces {
                    reducing::keep_scores(&members, call.sample, scores);
                }
                let fresh = Call::fresh(call.sample);
                let cause = match members.reserve(&Placement::Exact(vec![call.sample])) {
                    Ok(added) => {
                        made = true;
                        let cause = state.works.edit(members.id(), call.function, |queue| {
                            if queue.closed.is_none() {
                                queue.arrived.push_back(fresh);
                            }
                            queue.closed.clone()
                        });
                        self.set_total_timer(&mut state, &members, call.function, &[fresh], added.at_ns);
                        cause.flatten()
                    }
                    Err(_) => None, // it was made or given up before
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
        if made {
            self.pump();
        }
    }

    /// Returns the batch of a slot's member calls; `None` if the owner's batch is done.
    fn members(&self, state: &mut SchedulerState, batch: &Arc<Batch>, call: MemberCall) -> Option<Arc<Batch>> {
        let leader = self.leader(call.function);
        let id = self.member_batch(batch.id(), leader, call.slot);
        if let Some(work) = state.works.get(id) {
            return Some(work.batch.clone());
        }
        state.works.get(batch.id())?;
        let payload = if self.function(call.function).reduces {
            Some(reducing::scores())
        } else {
            // A parser's calls are made when the judge's have ended.
            let judged = call.slot.checked_sub(self.function(leader).member_calls / 2);
            let judged = judged.map(|slot| self.member_batch(batch.id(), leader, slot));
            let judged = judged.and_then(|id| Some(state.works.get(id)?.batch.clone()));
            self.answers(call.function, judged)
        };
        let function = self.function(call.function).columns.get(call.slot).copied().unwrap_or(leader);
        let owner = CallOwner { batch: batch.clone(), function, slot: call.slot };
        let made = Batch::of_member_calls(id, self.clock, self.functions.clone(), call.function, owner, payload);
        let members = Arc::new(made.ok()?);
        let broken = state.works.range(self.slots(batch)).find_map(|work| work.broken(call.function));
        state.works.insert(Work::new(members.clone()));
        if let Some(cause) = broken {
            state.works.edit(id, call.function, |queue| queue.close(&cause));
        }
        Some(members)
    }

    /// Ends member calls that are not needed any more. Their requests may be under way on another
    /// thread, and come later.
    pub(super) fn give_up_members(self: &Arc<Self>, batch: &Arc<Batch>, calls: &[MemberCall]) {
        for call in calls {
            // Another column may need it.
            let is_open = |column: &FunctionId| batch.grid().read(call.sample, *column).is_none();
            if self.function(call.function).columns.iter().any(is_open) {
                continue;
            }
            // The end of a judge's call may be making that of its parser.
            if !self.give_up_member(batch, *call)
                && let Some(parser) = self.parser_call(self.leader(call.function), *call)
            {
                self.give_up_member(batch, parser);
            }
        }
    }

    /// Ends a member call; false if it has ended or is being ended, or the owner's batch is done.
    fn give_up_member(self: &Arc<Self>, batch: &Arc<Batch>, call: MemberCall) -> bool {
        let cause = Cause::Cancelled("not needed any more".to_owned());
        let members = {
            let mut state = self.state.lock();
            let Some(members) = self.members(&mut state, batch, call) else { return false };
            let _ = members.reserve(&Placement::Exact(vec![call.sample])); // fails if it was made
            // Under the lock: an attempt that is failing now gets no other.
            members.mark_delivered_early(call.sample, &cause);
            members
        };
        self.end_member(&members, &call, &cause)
    }

    /// Ends a member call that is open; false if it is not.
    fn end_member(self: &Arc<Self>, members: &Arc<Batch>, call: &MemberCall, cause: &Cause) -> bool {
        let MemberCall { function, sample, .. } = *call;
        let Some(claim) = members.grid().claim_open(sample, function) else { return false };
        let (status, note) = self.end_of(members, function, cause);
        self.fail(members, function, false, sample..sample + 1, claim, status, &note, Times::default());
        true
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

    /// Ends all calls of a function that can't run any more: of a member those in every slot, and
    /// in slots that follow.
    pub(super) fn end_broken(self: &Arc<Self>, batch: &Arc<Batch>, function: FunctionId, cause: &Cause) {
        self.end_open(batch, Some(function), cause);
        let Some(owner) = batch.owner() else { return };
        let siblings: Vec<Arc<Batch>> = {
            let state = self.state.lock();
            let of = |work: &&Work| work.batch.grid().first_function() == function && work.broken(function).is_none();
            state.works.range(self.slots(&owner.batch)).filter(of).map(|work| work.batch.clone()).collect()
        };
        siblings.iter().for_each(|sibling| self.end_open(sibling, Some(function), cause));
    }

    /// Returns the ids of all batches of member calls for a batch.
    pub(super) fn slots(&self, batch: &Batch) -> Range<u64> {
        batch.id() + 1..batch.id() + ids_of_batch(&self.functions)
    }

    /// Notifies lanes that calls were ended from outside.
    pub(super) fn calls_swept(&self) {
        self.lanes.iter().for_each(|lane| lane.calls_swept());
    }
}
