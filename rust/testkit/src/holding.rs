//! A lane that keeps its frames until the test takes and ends them.

use std::sync::Arc;

use guerdon_core::frame::Frame;
use guerdon_core::function::FunctionId;
use guerdon_core::lane::{CloseFuture, Lane, LaneWaker};
use guerdon_core::outcome::Times;
use parking_lot::Mutex;

/// Keeps up to `places` frames of `frame_calls` calls.
pub struct HoldingLane {
    places: usize,
    frame_calls: usize,
    frames_for_cores: usize,
    /// Oldest first. Written by `run` and `take`.
    held: Mutex<Vec<Frame>>,
}

impl HoldingLane {
    #[must_use]
    pub fn new(places: usize, frame_calls: usize) -> Arc<Self> {
        Self::with_cores(places, frame_calls, usize::MAX)
    }

    /// Makes a lane whose cores are busy with `frames_for_cores` frames.
    #[must_use]
    pub fn with_cores(places: usize, frame_calls: usize, frames_for_cores: usize) -> Arc<Self> {
        Arc::new(Self { places, frame_calls, frames_for_cores, held: Mutex::default() })
    }

    /// Number of frames that it keeps.
    pub fn held(&self) -> usize {
        self.held.lock().len()
    }

    /// Returns the newest frame, whose place becomes free.
    pub fn take(&self) -> Option<Frame> {
        self.held.lock().pop()
    }

    /// Ends all calls of the newest frame with a number; false without a frame.
    pub fn complete(&self) -> bool {
        let Some(mut frame) = self.take() else { return false };
        let times = Times { started_ns: 1, run_ns: 1 };
        (0..frame.len()).for_each(|call| frame.complete_soon(call, 1.0, times));
        true
    }
}

impl Lane for HoldingLane {
    fn attach(&self, _: LaneWaker) {}

    fn room(&self, _: FunctionId) -> usize {
        self.places.saturating_sub(self.held())
    }

    fn parallelism(&self, _: FunctionId) -> usize {
        1 // the calls of a batch come in as few frames as possible
    }

    fn frames_for_cores(&self, _: FunctionId) -> usize {
        self.frames_for_cores
    }

    fn pool(&self, _: FunctionId) -> usize {
        0
    }

    fn frame_calls(&self, _: FunctionId) -> usize {
        self.frame_calls
    }

    fn run(&self, frame: Frame) {
        self.held.lock().push(frame);
    }

    fn close(&self) -> CloseFuture {
        let held = std::mem::take(&mut *self.held.lock());
        drop(held);
        Box::pin(std::future::ready(()))
    }
}
