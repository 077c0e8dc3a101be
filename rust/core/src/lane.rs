//! A lane: where calls run. The scheduler sees all lanes through one trait.
//!
//! - `run` takes the frame and returns at once; each call ends once, through the frame.
//! - A lane enforces `timeout`, from the start of user code. It decides about no other attempt.
//! - It ends calls, drops frames and wakes the scheduler with no lock held that `room` takes.
//! - A place is free before its frame is dropped, or the lane wakes the scheduler.
//! - lane-1  Calls that a lane completes late are completed before the scheduler ends open ones.
//! - A frame that comes after `close` is dropped. An idle lane does nothing.

use std::cmp::Reverse;
use std::future::Future;
use std::pin::Pin;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::frame::{Frame, LaneOwner};
use crate::function::FunctionId;
use crate::in_flight::InFlight;
use crate::member_call::MemberEnd;
use crate::observer::Telemetry;

/// Return value of `Lane::close`: done when nothing of the lane is left.
pub type CloseFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Order in which the calls of a frame run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallsRun {
    /// One after the other: a frame has as many calls as take a short time together.
    InTurn,
    /// Side by side, in a lane that takes only the frames that it can start: a frame has
    /// `Lane::frame_calls` calls, however long they are expected to take.
    Concurrent,
    /// Side by side, at most this many of a function at a time, in a lane that takes all frames.
    /// The scheduler then gives the lane the running calls and the next ones to start, because
    /// calls that wait in a lane are out of the scheduler's order.
    AtMost(usize),
}

/// A kind of place where calls run.
pub trait Lane: Send + Sync + 'static {
    /// Called once, before the first frame.
    fn attach(&self, waker: LaneWaker);

    /// Returns the number of frames that the lane would take now for this function.
    fn room(&self, function: FunctionId) -> usize;

    /// Returns the number of frames that can make progress at a time, over all functions that share
    /// a pool.
    fn parallelism(&self, function: FunctionId) -> usize;

    /// Returns the number of frames that keep the lane's cores busy if none of their calls waits;
    /// `usize::MAX` if the lane takes fewer.
    fn frames_for_cores(&self, _function: FunctionId) -> usize {
        usize::MAX
    }

    /// Functions with the same pool of a lane share places: they take turns, and go through a
    /// batch's groups together.
    fn pool(&self, function: FunctionId) -> usize;

    /// The most calls in one frame.
    fn frame_calls(&self, function: FunctionId) -> usize;

    /// Order in which the calls of a frame run.
    fn calls_run(&self, _function: FunctionId) -> CallsRun {
        CallsRun::InTurn
    }

    /// Returns the reason why calls of a function must fail now instead of waiting for their turn,
    /// if there is one. Called for functions with a limit only.
    fn refuses(&self, _function: FunctionId) -> Option<String> {
        None
    }

    /// Returns whether all calls that the lane has of a function wait on purpose: for a limit, for
    /// a circuit breaker, or for the `Retry-After` of a server.
    fn waits_on_purpose(&self, _function: FunctionId) -> bool {
        false
    }

    /// Returns whether calls end on threads for which other work waits, such as threads that hold
    /// an interpreter's lock. The scheduler then hands out at most one frame there, and the rest on
    /// a thread of the runtime.
    fn shares_threads(&self) -> bool {
        false
    }

    /// The most bytes in one frame; a frame has at least one call, however large its values are.
    fn frame_bytes(&self) -> usize {
        usize::MAX
    }

    /// Starts the calls of a frame, and owns it from now on.
    fn run(&self, frame: Frame);

    /// Completes the ended calls. Called with no lock held.
    fn complete_ended(&self) {}

    /// Takes the result of a member call that one of its calls requested. Called with no lock of
    /// the scheduler held.
    fn member_ended(&self, _end: MemberEnd) {}

    /// Called at the time that was set for a call: batch, function and first sample. The scheduler
    /// holds no lock.
    fn woken(&self, _call: (u64, FunctionId, usize)) {}

    /// Called after calls were ended from outside, with no lock held.
    fn calls_swept(&self) {}

    /// Returns the lane's calls that run in this process. Does not wait.
    fn in_flight(&self, _now_ns: u64) -> Vec<InFlight> {
        Vec::new()
    }

    /// Requests the calls that other processes run for this lane, with their stacks. The processes
    /// answer `within` this time, on another thread; those without a call drop the sender.
    fn ask_in_flight(&self, _within: Duration, _answer: &Sender<InFlight>) {}

    /// Returns its counters since the start, by name.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Ends all work and everything the lane made.
    fn close(&self) -> CloseFuture;
}

/// Additional time in which a process may report that it found nothing before the deadline.
const AFTERWARDS: Duration = Duration::from_millis(100);

/// Returns the calls that run in this process, the oldest first. Does not wait.
#[must_use]
pub fn in_flight(lanes: &[Arc<dyn Lane>], now_ns: u64) -> Vec<InFlight> {
    oldest_first(lanes.iter().flat_map(|lane| lane.in_flight(now_ns)).collect())
}

/// Returns the calls that other processes run, the oldest first. All processes are requested at
/// once, and this thread waits for them up to `within`; don't call it on a task of the runtime.
#[must_use]
pub fn in_flight_elsewhere(lanes: &[Arc<dyn Lane>], within: Duration) -> Vec<InFlight> {
    let end = Instant::now() + within + AFTERWARDS;
    let (answer, answers) = channel();
    lanes.iter().for_each(|lane| lane.ask_in_flight(within, &answer));
    // The channel closes when the last process has answered or its sender is dropped.
    drop(answer);
    let next = || answers.recv_timeout(end.saturating_duration_since(Instant::now())).ok();
    oldest_first(std::iter::from_fn(next).collect())
}

fn oldest_first(mut calls: Vec<InFlight>) -> Vec<InFlight> {
    calls.sort_by_key(|one| Reverse(one.call.age_ns));
    calls
}

/// Wakes the scheduler when a lane has room although no frame has ended.
#[derive(Clone)]
pub struct LaneWaker {
    owner: Weak<dyn LaneOwner>,
    /// Result of `Lane::shares_threads`.
    brief: bool,
}

impl LaneWaker {
    pub(crate) fn new(owner: &Arc<dyn LaneOwner>, brief: bool) -> Self {
        Self { owner: Arc::downgrade(owner), brief }
    }

    /// Returns the tracer of the engine, if it has one.
    #[must_use]
    pub fn tracer(&self) -> Option<Arc<dyn Telemetry>> {
        self.owner.upgrade()?.tracer().cloned()
    }

    /// The engine, `None` once it is gone.
    pub(crate) fn owner(&self) -> Option<Arc<dyn LaneOwner>> {
        self.owner.upgrade()
    }

    /// Searches for work for the lane now. Must not be called while a lock of the lane is held.
    pub fn wake(&self) {
        if let Some(scheduler) = self.owner.upgrade() {
            scheduler.find_work(self.brief);
        }
    }
}
