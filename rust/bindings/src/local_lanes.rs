//! The lanes of this process, in the place of nodes when none is left.
//!
//! The thread and asyncio lanes are the engine's own, which attaches and closes them itself; the
//! process lane is made for this, where functions need it.

use std::future::ready;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use guerdon_core::frame::Frame;
use guerdon_core::function::FunctionId;
use guerdon_core::in_flight::InFlight;
use guerdon_core::lane::{CallsRun, CloseFuture, Lane, LaneWaker};
use guerdon_inprocess::asyncio_lane::AsyncioLane;
use guerdon_inprocess::thread_lane::ThreadLane;

use crate::lane_kind::LaneKind;

/// See the module.
pub struct LocalLanes {
    /// Lane of each function.
    pub kinds: Vec<LaneKind>,
    pub threads: Arc<ThreadLane>,
    pub loops: Arc<AsyncioLane>,
    /// None: no function needs workers.
    pub process: Option<Arc<dyn Lane>>,
}

impl LocalLanes {
    fn lane(&self, function: FunctionId) -> &dyn Lane {
        match (&self.process, self.kinds[function]) {
            (_, LaneKind::Asyncio) => &*self.loops,
            (Some(process), LaneKind::Process) => &**process,
            _ => &*self.threads,
        }
    }
}

impl Lane for LocalLanes {
    fn attach(&self, waker: LaneWaker) {
        if let Some(process) = &self.process {
            process.attach(waker);
        }
    }

    fn room(&self, function: FunctionId) -> usize {
        self.lane(function).room(function)
    }

    fn parallelism(&self, function: FunctionId) -> usize {
        self.lane(function).parallelism(function)
    }

    fn pool(&self, function: FunctionId) -> usize {
        self.lane(function).pool(function)
    }

    fn frame_calls(&self, function: FunctionId) -> usize {
        self.lane(function).frame_calls(function)
    }

    fn calls_run(&self, function: FunctionId) -> CallsRun {
        self.lane(function).calls_run(function)
    }

    fn run(&self, frame: Frame) {
        self.lane(frame.function_id()).run(frame);
    }

    fn ask_in_flight(&self, within: Duration, answer: &Sender<InFlight>) {
        if let Some(process) = &self.process {
            process.ask_in_flight(within, answer);
        }
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.process.as_ref().map(|process| process.counters()).unwrap_or_default()
    }

    fn close(&self) -> CloseFuture {
        self.process.as_ref().map_or_else(|| Box::pin(ready(())) as CloseFuture, |process| process.close())
    }
}
