//! Interface of the scheduler to frames and lanes.

use std::sync::Arc;

use crate::batch::{Batch, CompletedCells};
use crate::call::{Call, Cause};
use crate::frame::LaneCounts;
use crate::function::FunctionId;
use crate::grid::Claim;
use crate::limits::Feedback;
use crate::member_call::MemberCall;
use crate::observer::Telemetry;
use crate::outcome::{Failure, Times};
use crate::report::Usage;

/// The lane's view of the source of its frames.
pub(crate) trait LaneOwner: Send + Sync {
    /// Returns the tracer of the engine, if it has one.
    fn tracer(&self) -> Option<&Arc<dyn Telemetry>>;

    /// Hands out frames until no lane with room has work waiting; at most one on this thread if
    /// `brief`.
    fn find_work(self: Arc<Self>, brief: bool);

    /// Makes member calls for a call of a function.
    fn call_members(self: Arc<Self>, _batch: &Arc<Batch>, _calls: &[MemberCall], _scores: &[Option<f64>]) {}

    /// Ends member calls that are not needed any more, made or about to be made.
    fn give_up_members(self: Arc<Self>, _batch: &Arc<Batch>, _calls: &[MemberCall]) {}

    /// Has `Lane::woken` called for a call, at this time; not if its batch is done by then.
    fn wake_at(&self, _call: (u64, FunctionId, usize), _due_ns: u64) {}

    /// Runs what takes long, on another thread if there is one.
    fn compute(&self, task: Box<dyn FnOnce() + Send>) {
        task();
    }
}

/// The frames' view of the scheduler. None of this is called for each sample that gives a number:
/// completions are passed on by group.
pub(crate) trait FrameOwner: LaneOwner {
    /// Records which groups the calls of a function completed, in the grid of their cells.
    fn completed(self: Arc<Self>, batch: &Arc<Batch>, function: FunctionId, finish: bool, completed: CompletedCells);

    /// Records that an attempt failed, and decides on another.
    fn attempt_failed(
        self: Arc<Self>,
        batch: &Arc<Batch>,
        function: FunctionId,
        call: Call,
        claim: Claim<'_>,
        failure: Failure,
        times: Times,
    );

    /// Records that a call on several samples failed, and decides on another try in two parts.
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

    /// Records the reason of a failed call; calls the listener if there is a new warning.
    fn note_endpoint_error(&self, function: FunctionId, feedback: Feedback, why: &str);

    /// Takes back the calls that a frame did not end, and its permits.
    fn frame_ended(
        self: Arc<Self>,
        function: FunctionId,
        unfinished: Vec<(u64, Vec<Call>)>,
        freed: LaneCounts,
        run_ns: u64,
        ran: u64,
    );

    /// Takes back innocent calls of a frame that goes on. The place of the frame becomes free if it
    /// has no other calls.
    fn given_back(self: Arc<Self>, function: FunctionId, calls: Vec<(u64, Vec<Call>)>, freed: LaneCounts);

    /// Records that `calls` calls of a frame have ended that goes on, if calls run side by side.
    fn calls_ended(self: Arc<Self>, function: FunctionId, calls: usize, run_ns: u64, ran: u64);

    /// Records that a call has been running for `run_ns` and has not ended.
    fn observe(&self, function: FunctionId, run_ns: u64);

    /// Counts the usage of a call, whatever its outcome.
    fn count_usage(&self, function: FunctionId, usage: Usage);

    /// Counts an outcome that came after its call was swept, or while another attempt was under
    /// way.
    fn count_late(&self);

    /// Records the tokens of a call that ran without a permit, because its limit is in another
    /// process.
    fn used_elsewhere(&self, _tokens: f64) {}
}
