//! The thread lane: Python threads that take frames and run their calls one after the other.
//!
//! - Time is watched only while a frame runs.
//! - Cheap calls are completed together: half a millisecond after the first of them began, with
//!   their frame, or at the watchdog's next check; and before a timeout or a cancellation ends open
//!   calls, so that values returned in time count.

mod pool;
mod running_frame;
mod slots;
mod threads;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use guerdon_core::clock::Clock;
use guerdon_core::frame::Frame;
use guerdon_core::function::{Function, FunctionId};
use guerdon_core::in_flight::{InFlight, Location, Stack};
use guerdon_core::lane::{CloseFuture, Lane, LaneWaker};
use guerdon_core::task::spawn_restarted;
use tokio::runtime::Handle;

use crate::supervisor::SupervisorQueue;
pub use pool::{ThreadFrame, ThreadPool, most_threads};
pub use running_frame::{Death, RunningFrame};

/// The most calls in a frame. Only frames of cheap functions have this many, because a frame should
/// take a few milliseconds.
const FRAME_CALLS: usize = 4096;
/// Interval at which running frames are checked.
const TICK: Duration = Duration::from_millis(5);

pub struct ThreadLane {
    runtime: Handle,
    pool: Arc<ThreadPool<Frame>>,
    waker: Arc<OnceLock<LaneWaker>>,
}

impl ThreadLane {
    pub fn new(runtime: &Handle, clock: Clock, functions: &[Function], supervisor: &Arc<SupervisorQueue>) -> Self {
        let pool = Arc::new(ThreadPool::new(clock, functions, supervisor.clone()));
        Self { runtime: runtime.clone(), pool, waker: Arc::default() }
    }

    /// Returns the pool that the lane's threads use.
    pub const fn pool(&self) -> &Arc<ThreadPool<Frame>> {
        &self.pool
    }

    /// Waits for work for a thread; see `ThreadPool::next_frame`.
    pub fn next_frame(&self, function: FunctionId, thread: u64, ident: u64) -> Option<ThreadFrame<Frame>> {
        let (frame, watch) = self.pool.next_frame(function, thread, ident)?;
        if watch {
            let (pool, waker) = (self.pool.clone(), self.waker.clone());
            spawn_restarted(&self.runtime, move || watchdog(pool.clone(), waker.clone()));
        }
        Some(frame)
    }
}

impl Lane for ThreadLane {
    fn attach(&self, waker: LaneWaker) {
        let _ = self.waker.set(waker);
    }

    fn room(&self, function: FunctionId) -> usize {
        self.pool.room(function)
    }

    fn parallelism(&self, function: FunctionId) -> usize {
        self.pool.width(function)
    }

    fn pool(&self, function: FunctionId) -> usize {
        function + 1
    }

    fn frame_calls(&self, function: FunctionId) -> usize {
        // The first call comes alone, to measure whether the function waits.
        if self.pool.is_known(function) { FRAME_CALLS } else { 1 }
    }

    fn shares_threads(&self) -> bool {
        true
    }

    fn run(&self, frame: Frame) {
        self.pool.push(frame);
    }

    fn complete_ended(&self) {
        self.pool.running().iter().for_each(|(_, running)| running.complete_ended());
    }

    fn in_flight(&self, now_ns: u64) -> Vec<InFlight> {
        let snapshot = |(_, running): (FunctionId, Arc<RunningFrame<Frame>>)| {
            let location = Location::Thread { number: running.thread(), ident: running.ident() };
            running.inspect(now_ns).map(|call| InFlight { call, location, stack: Stack::AskPython })
        };
        self.pool.running().into_iter().filter_map(snapshot).collect()
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![("abandoned_threads", self.pool.abandoned() as u64)]
    }

    fn close(&self) -> CloseFuture {
        self.pool.close();
        let pool = self.pool.clone();
        Box::pin(async move {
            loop {
                let ended = pool.ended.notified();
                if pool.is_gone() {
                    return;
                }
                ended.await;
            }
        })
    }
}

/// Watches the running calls until there are none.
async fn watchdog(pool: Arc<ThreadPool<Frame>>, waker: Arc<OnceLock<LaneWaker>>) {
    loop {
        tokio::time::sleep(TICK).await;
        let Some(slow) = pool.check() else { return };
        for function in slow {
            if pool.widen(function)
                && let Some(waker) = waker.get()
            {
                waker.wake();
            }
        }
    }
}
