//! Running frames, and the number of their threads.
//!
//! - A thread is counted from before its spawn until its end, however it ends: closing never waits
//!   for a missing thread.
//! - While a frame runs or waits, a task checks the lane at intervals and gives the calls behind a
//!   long call to other threads, even if the long call's kernel never checks whether to stop.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::kernels::Kernel;
use guerdon_core::frame::Frame;
use guerdon_core::function::FunctionId;
use guerdon_core::in_flight::{InFlight, Location, Stack};
use guerdon_core::lane::{CloseFuture, Lane, LaneWaker};
use guerdon_core::task::spawn_restarted;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::running_frame::RunningFrame;

/// The most calls in a frame; a frame of cheap calls should take a few milliseconds.
const FRAME_CALLS: usize = 1024;
/// Frames for each thread: a running one, and a waiting one so that the thread need not wait.
const FRAMES_A_THREAD: usize = 2;
/// Interval of checks on the lane.
const TICK: Duration = Duration::from_millis(10);
/// The interval when the system allowed no thread.
const WITHOUT_THREADS: Duration = Duration::from_secs(1);

/// See the module.
pub struct NativeLane {
    runtime: Handle,
    shared: Arc<LaneState>,
}

struct LaneState {
    /// Kernel of each function that this lane runs.
    kernels: Vec<Option<Arc<dyn Kernel>>>,
    threads: usize,
    queue: Mutex<Queue>,
    closed: AtomicBool,
    gone: Notify,
}

/// Written by `run`, by threads and by `close`.
#[derive(Default)]
struct Queue {
    waiting: VecDeque<Frame>,
    running: Vec<Arc<RunningFrame>>,
    /// Number of threads that take frames.
    threads: usize,
    /// True if a task checks the lane.
    watched: bool,
}

impl NativeLane {
    /// Makes the lane; `kernels` has one for each of its functions, and `threads` frames run at a
    /// time.
    #[must_use]
    pub fn new(runtime: &Handle, kernels: Vec<Option<Arc<dyn Kernel>>>, threads: usize) -> Self {
        let (queue, closed, gone) = (Mutex::default(), AtomicBool::new(false), Notify::new());
        let shared = Arc::new(LaneState { kernels, threads: threads.max(1), queue, closed, gone });
        Self { runtime: runtime.clone(), shared }
    }
}

impl LaneState {
    fn running(&self) -> Vec<Arc<RunningFrame>> {
        self.queue.lock().running.clone()
    }

    /// Spawns threads for the waiting frames, up to the limit; false if the system allows none.
    fn staff(self: &Arc<Self>, runtime: &Handle) -> bool {
        // Bounded, because a runtime that ends accepts threads and runs none.
        for _ in 0..self.threads {
            let thread = {
                let mut queue = self.queue.lock();
                let wanted = self.threads.min(queue.running.len() + queue.waiting.len());
                if queue.waiting.is_empty() || queue.threads >= wanted {
                    return true;
                }
                queue.threads += 1;
                Thread { shared: self.clone(), counts: true }
            };
            // Tokio panics if the system refuses its first thread.
            if catch_unwind(AssertUnwindSafe(|| drop(runtime.spawn_blocking(move || thread.work())))).is_err() {
                return false;
            }
        }
        true
    }

    /// Checks the lane at intervals until it is idle.
    async fn watch(self: Arc<Self>, runtime: Handle) {
        let mut pause = TICK;
        loop {
            tokio::time::sleep(pause).await;
            {
                let mut queue = self.queue.lock();
                if queue.running.is_empty() && queue.waiting.is_empty() {
                    queue.watched = false;
                    return;
                }
            }
            self.running().iter().for_each(|running| running.check_calls());
            pause = if self.staff(&runtime) { TICK } else { WITHOUT_THREADS };
        }
    }
}

/// A thread that takes frames.
struct Thread {
    shared: Arc<LaneState>,
    /// True if the queue counts this thread.
    counts: bool,
}

impl Thread {
    /// Runs frames until none waits.
    fn work(mut self) {
        while let Some((function, frame)) = self.next() {
            let shared = &self.shared;
            let kernel = shared.kernels.get(function).and_then(Option::as_ref);
            // After a panic the frame is still dropped, which gives its calls back.
            let ended = catch_unwind(AssertUnwindSafe(|| frame.run(&**kernel?, &shared.closed)));
            // Its place is free before the frame is dropped.
            shared.queue.lock().running.retain(|other| !Arc::ptr_eq(other, &frame));
            drop(ended);
        }
    }

    /// Takes the next frame, and returns the function of its calls.
    fn next(&mut self) -> Option<(FunctionId, Arc<RunningFrame>)> {
        let mut queue = self.shared.queue.lock();
        let Some(frame) = queue.waiting.pop_front() else {
            // Under the same lock, so that a frame that comes now gets another thread.
            queue.threads -= 1;
            self.counts = false;
            return None;
        };
        let function = frame.function_id();
        let running = Arc::new(RunningFrame::new(frame));
        queue.running.push(running.clone());
        Some((function, running))
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        if self.counts {
            self.shared.queue.lock().threads -= 1;
        }
        self.shared.gone.notify_waiters();
    }
}

impl Lane for NativeLane {
    fn attach(&self, _waker: LaneWaker) {}

    fn room(&self, _function: FunctionId) -> usize {
        let queue = self.shared.queue.lock();
        (self.shared.threads * FRAMES_A_THREAD).saturating_sub(queue.waiting.len() + queue.running.len())
    }

    fn parallelism(&self, _function: FunctionId) -> usize {
        self.shared.threads
    }

    fn pool(&self, _function: FunctionId) -> usize {
        0
    }

    fn frame_calls(&self, _function: FunctionId) -> usize {
        FRAME_CALLS
    }

    fn run(&self, frame: Frame) {
        let mut queue = self.shared.queue.lock();
        if self.shared.closed.load(Ordering::Acquire) {
            drop(queue);
            return; // dropped, which gives its calls back
        }
        queue.waiting.push_back(frame);
        let is_watched = std::mem::replace(&mut queue.watched, true);
        drop(queue);
        self.shared.staff(&self.runtime);
        if !is_watched {
            let (shared, runtime) = (self.shared.clone(), self.runtime.clone());
            spawn_restarted(&self.runtime, move || shared.clone().watch(runtime.clone()));
        }
    }

    fn complete_ended(&self) {
        self.shared.running().iter().for_each(|running| running.complete_ended());
    }

    fn in_flight(&self, now_ns: u64) -> Vec<InFlight> {
        let stack = || Stack::Absent("it is no Python".to_owned());
        let calls = self.shared.running().into_iter().filter_map(|one| one.inspect(now_ns));
        calls.map(|call| InFlight { call, location: Location::Native, stack: stack() }).collect()
    }

    fn close(&self) -> CloseFuture {
        let shared = self.shared.clone();
        let waiting = {
            let mut queue = shared.queue.lock();
            shared.closed.store(true, Ordering::Release);
            std::mem::take(&mut queue.waiting)
        };
        drop(waiting);
        Box::pin(async move {
            loop {
                let next = shared.gone.notified();
                if shared.queue.lock().threads == 0 {
                    return;
                }
                next.await;
            }
        })
    }
}
