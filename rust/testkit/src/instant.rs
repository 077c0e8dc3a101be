//! Lanes that run a frame within `run`.

use guerdon_core::frame::Frame;
use guerdon_core::function::FunctionId;
use guerdon_core::lane::{CloseFuture, Lane, LaneWaker};
use guerdon_core::outcome::{Cell, Times};

/// Runs frames of up to `frame_calls` calls with a function, one after the other.
pub struct InlineLane<R> {
    frame_calls: usize,
    run: R,
}

impl<R: Fn(Frame) + Send + Sync + 'static> InlineLane<R> {
    pub const fn new(frame_calls: usize, run: R) -> Self {
        Self { frame_calls, run }
    }
}

impl<R: Fn(Frame) + Send + Sync + 'static> Lane for InlineLane<R> {
    fn attach(&self, _: LaneWaker) {}

    fn room(&self, _: FunctionId) -> usize {
        1
    }

    fn parallelism(&self, _: FunctionId) -> usize {
        1
    }

    fn pool(&self, _: FunctionId) -> usize {
        0
    }

    fn frame_calls(&self, _: FunctionId) -> usize {
        self.frame_calls
    }

    fn run(&self, frame: Frame) {
        (self.run)(frame);
    }

    fn close(&self) -> CloseFuture {
        Box::pin(std::future::ready(()))
    }
}

/// Returns a lane that ends every call within `run`, with the number of its first sample: the cost
/// of a batch on it is the engine's own work.
#[must_use]
pub fn instant_lane(frame_calls: usize) -> InlineLane<impl Fn(Frame) + Send + Sync + 'static> {
    InlineLane::new(frame_calls, |mut frame: Frame| {
        let times = Times { started_ns: 1, run_ns: 1 };
        for call in 0..frame.len() {
            let (first, size) = (frame.first(call), frame.size(call));
            if size == 1 {
                frame.complete_soon(call, first as f64, times);
            } else {
                frame.complete_many(call, vec![Cell::Value(first as f64); size], times);
            }
        }
    })
}
