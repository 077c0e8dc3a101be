//! Runs frames that the scheduler of another process made, on lanes of this one.
//!
//! - It makes no decisions: retries, total timeouts and limits belong to the other process. It cuts
//!   a frame into pieces if its lane takes fewer calls at a time, and hands out again the calls
//!   that a lane gave back.
//! - Each call of a frame is reported once: how it ended, or that it is given back. Calls that were
//!   swept are not. `Ended` comes last, when no lane has any of the frame.
//! - Sessions, of several drivers, take turns frame by frame.

mod event;
mod hosted_frame;
mod hosting;
mod piece_queue;
mod runner_core;

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use tokio::runtime::Handle;

use crate::call::CallKind;
use crate::clock::Clock;
use crate::frame::LaneOwner;
use crate::function::Function;
use crate::lane::{Lane, LaneWaker};
pub use event::{EndedCell, FrameEvent, FrameListener};
pub use hosted_frame::HostedFrame;
pub use hosting::HostedCalls;
use runner_core::RunnerCore;

/// The most samples of one frame; a frame with more can't come from an engine.
const MOST_SAMPLES: usize = 1 << 20;

/// See the module.
pub struct FrameRunner {
    core: Arc<RunnerCore>,
}

impl FrameRunner {
    /// Runs frames of these functions on these lanes; `Function::lane` is an index into them.
    #[must_use]
    pub fn start(
        runtime: &Handle,
        clock: Clock,
        functions: Vec<Function>,
        lanes: Vec<Arc<dyn Lane>>,
        listener: Arc<dyn FrameListener>,
    ) -> Self {
        let core = Arc::new(RunnerCore::new(runtime.clone(), clock, functions, lanes, listener));
        let owner: Arc<dyn LaneOwner> = core.clone();
        for lane in &core.lanes {
            lane.attach(LaneWaker::new(&owner, lane.shares_threads()));
        }
        Self { core }
    }

    /// Accepts a frame; the error is the reason why it can't run.
    pub fn submit(&self, frame: HostedFrame) -> Result<(), String> {
        let functions = self.core.functions.len();
        if frame.function >= functions {
            return Err(format!("a frame of function {} of {functions}", frame.function));
        }
        let samples = frame.calls.saturating_mul(frame.samples);
        let one_call = matches!(frame.kind, CallKind::Batch | CallKind::Gathered);
        let scored = if frame.kind == CallKind::Finish { samples } else { 0 };
        if samples == 0
            || samples > MOST_SAMPLES
            || (one_call && frame.calls != 1)
            || (frame.kind == CallKind::Sample && frame.samples != 1)
            || frame.scores.len() != scored
        {
            return Err(format!("a frame of {} calls on {} samples each", frame.calls, frame.samples));
        }
        self.core.submit(frame)
    }

    /// Gives back the calls of a frame that no lane has.
    pub fn take_back(&self, session: u64, frame: u64) {
        self.core.take_back(session, frame);
    }

    /// Ends these calls, for which nobody waits any more; the lane stops those that run.
    pub fn sweep(&self, session: u64, frame: u64, calls: &[usize]) {
        self.core.sweep(session, frame, calls);
    }

    /// Ends all calls of a session.
    pub fn end_session(&self, session: u64) {
        self.core.end_session(session);
    }

    /// Frames that have not ended.
    #[must_use]
    pub fn frames(&self) -> usize {
        self.core.frames()
    }

    /// Lanes of the frames, for a snapshot of the calls in flight.
    #[must_use]
    pub fn lanes(&self) -> &[Arc<dyn Lane>] {
        &self.core.lanes
    }

    /// Returns the frames of a session that have not ended, by the number of their batch in the
    /// lanes' snapshots.
    #[must_use]
    pub fn calls_of(&self, session: u64) -> BTreeMap<u64, HostedCalls> {
        self.core.calls_of(session)
    }

    /// Ends the lanes and all their calls.
    pub async fn close(&self) {
        self.core.close();
        let mut closing: Vec<_> = self.core.lanes.iter().map(|lane| lane.close()).collect();
        let all = poll_fn(|context| {
            closing.retain_mut(|lane| lane.as_mut().poll(context).is_pending());
            if closing.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        });
        all.await;
    }
}

impl Drop for FrameRunner {
    fn drop(&mut self) {
        self.core.close();
    }
}
