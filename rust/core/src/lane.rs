//! A lane: where calls run. The scheduler sees all of them through this one trait.
//!
//! - L-1  `run` takes the frame over and returns at once. It never waits, never runs user code, and may be called from any thread.
//! - L-2  A lane ends each call of a frame once, through the frame; what it drops unfinished goes back to the scheduler.
//! - L-3  A lane holds `timeout`: it counts from the start of user code, and a call past it is stopped. It never decides about another attempt.
//! - L-4  A call that is no longer open (`Frame::is_open`) was settled by the scheduler: the lane stops its work and reports nothing.
//! - L-5  An idle lane does nothing: no tick, no poll.
//! - L-6  The scheduler asks for room, pools and sizes with its lock held, and ending a call or dropping a frame takes that lock and may
//!   come back with `run`. So a lane ends calls, drops frames and pokes with no lock held that any of its answers takes.
//! - L-7  A place that counts in `room` is free before the frame that held it is dropped, or the lane pokes: nobody asks again by himself.
//! - L-8  A frame that comes after `close` is dropped.
//! - L-9  A lane that settles calls later than they end settles them before the scheduler ends open calls for a time that has come, or because they
//!   were cancelled: nothing that a function gave in time is lost to a lane's own delay.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};

use crate::frame::{Frame, FrameOwner};
use crate::function::FunctionId;

/// What `Lane::close` returns: done when nothing of the lane is left.
pub type Closing = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Where calls run.
pub trait Lane: Send + Sync + 'static {
    /// Called once, before the first frame.
    fn attach(&self, waker: LaneWaker);

    /// How many frames it would take now for this function.
    fn room(&self, function: FunctionId) -> usize;

    /// How many frames can make progress at a time, over all functions that slice a pool.
    fn parallelism(&self, function: FunctionId) -> usize;

    /// Functions with the same pool of one lane slice places: they take turns, and go through a batch's groups together.
    fn pool(&self, function: FunctionId) -> usize;

    /// The most calls in one frame.
    fn frame_calls(&self, function: FunctionId) -> usize;

    /// The most bytes in one frame; a frame has at least one call, however large.
    fn frame_bytes(&self) -> usize {
        usize::MAX
    }

    /// Takes a frame over (L-1).
    fn run(&self, frame: Frame);

    /// Settles what has ended (L-9). Called with no lock held.
    fn complete_ended(&self) {}

    /// Ends all work and everything the lane made.
    fn close(&self) -> Closing;
}

/// Tells the scheduler that a lane has room without a frame having ended.
#[derive(Clone)]
pub struct LaneWaker(Weak<dyn FrameOwner>);

impl LaneWaker {
    pub(crate) fn new(owner: &Arc<dyn FrameOwner>) -> Self {
        Self(Arc::downgrade(owner))
    }

    /// Looks for work for the lane now. Must not be called with a lock of the lane's held.
    pub fn wake(&self) {
        if let Some(scheduler) = self.0.upgrade() {
            scheduler.look_for_work();
        }
    }
}
