//! Interface of the scheduler to frames and lanes.

use std::sync::Arc;

use crate::batch::{Batch, Completed};
use crate::call::{Call, Cause};
use crate::frame::InHand;
use crate::function::FunctionId;
use crate::grid::Claim;
use crate::limits::Feedback;
use crate::member_call::MemberCall;
use crate::observer::Telemetry;
use crate::outcome::{Failure, Times};
use crate::report::Usage;

/// Source of a lane's frames, as the lane sees it.
pub(crate) trait LaneOwner: Send + Sync {
    /// Returns the tracer of the engine, if it has one.
    fn tracer(&self) -> Option<&Arc<dyn Telemetry>>;

    /// Hands out frames until no lane with room has work waiting; here only one, if `brief`.
    fn look_for_work(self: Arc<Self>, brief: bool);

    /// Makes member calls for a call of a function.
    fn call_members(self: Arc<Self>, _batch: &Arc<Batch>, _function: FunctionId, _calls: &[MemberCall]) {}

    /// Ends member calls that nobody needs any more.
    fn give_up_members(self: Arc<Self>, _batch: &Batch, _calls: &[MemberCall]) {}

    /// Has `Lane::woken` called for a call, at this time; not if its batch is done by then.
    fn wake_at(&self, _call: (u64, FunctionId, usize), _due_ns: u64) {}

    /// Runs what takes long, on another thread if there is one.
    fn compute(&self, task: Box<dyn FnOnce() + Send>) {
        task();
    }
}

/// The scheduler, as its frames see it. Nothing of this is called for each sample that
/// gives a number: what frames complete is passed on by group.
pub(crate) trait FrameOwner: LaneOwner {
    /// The calls of a function completed groups, in the grid of their cells.
    fn completed(self: Arc<Self>, batch: &Arc<Batch>, function: FunctionId, finish: bool, completed: Completed);

    /// An attempt failed: there is another, or the call has failed.
    fn attempt_failed(
        self: Arc<Self>,
        batch: &Arc<Batch>,
        function: FunctionId,
        call: Call,
        claim: Claim<'_>,
        failure: Failure,
        times: Times,
    );

    /// A call on several samples failed: they are tried again in two parts, or have failed.
    fn gathered_failed(
        self: Arc<Self>,
        function: FunctionId,
        claimed: Vec<(&Arc<Batch>, Call, Claim<'_>)>,
        failure: Failure,
        excused: bool,
        times: Times,
    );

    /// Ends the open calls of a function in a batch.
    fn end_function(self: Arc<Self>, batch: &Arc<Batch>, function: FunctionId, cause: &Cause);

    /// Takes in a failed call's reason; calls the listener if there is something new to warn of.
    fn note_endpoint_error(&self, function: FunctionId, feedback: Feedback, why: &str);

    /// Takes back the calls that a frame did not end, and its permits.
    fn frame_ended(
        self: Arc<Self>,
        function: FunctionId,
        unfinished: Vec<(u64, Vec<Call>)>,
        freed: InHand,
        run_ns: u64,
        ran: u64,
    );

    /// Takes back innocent calls of a frame that goes on, and its place if they were all that it
    /// had.
    fn given_back(self: Arc<Self>, function: FunctionId, calls: Vec<(u64, Vec<Call>)>, freed: InHand);

    /// Notes that `calls` calls have ended of a frame that goes on, if calls run side by side.
    fn calls_ended(self: Arc<Self>, function: FunctionId, calls: usize, run_ns: u64, ran: u64);

    /// Learns that a call has been running for `run_ns` and is not done.
    fn observe(&self, function: FunctionId, run_ns: u64);

    /// Counts what a call used, whatever becomes of it.
    fn count_usage(&self, function: FunctionId, usage: Usage);

    /// Counts an outcome that found its call swept, or another attempt of it under way.
    fn count_late(&self);

    /// Learns how many tokens a call used that runs without a permit: its limit is elsewhere.
    fn used_elsewhere(&self, _tokens: f64) {}
}
