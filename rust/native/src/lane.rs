//! Running frames, and the number of their threads.
//!
//! - A thread counts from before it is spawned until it finds no frame, however it ends: closing
//!   waits for no thread that is not there.
//! - While a frame runs or waits, a task looks after the lane: a long call hands on the calls
//!   behind it, whether its kernel asks or not.

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

/// The most calls in a frame: a frame of cheap ones is to take a few milliseconds.
const FRAME_CALLS: usize = 1024;
/// Frames for each thread: one that runs, and one that waits so that no thread waits for it.
const FRAMES_A_THREAD: usize = 2;
/// Between two looks after the lane.
const TICK: Duration = Duration::from_millis(10);
/// The same when the system had no thread to give.
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
    /// Threads that take frames.
    threads: usize,
    /// True if a task looks after the lane.
    watched: bool,
}

impl NativeLane {
    /// `kernels` has one for each function of this lane; `threads` of them run at a time.
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

    /// Spawns threads for the frames that wait, as many as may be; false where the system has none.
    fn staff(self: &Arc<Self>, runtime: &Handle) -> bool {
        // Not for ever: a runtime that ends takes threads and runs none.
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
            // Tokio panics where the system refuses a thread and it has none yet.
            if catch_unwind(AssertUnwindSafe(|| drop(runtime.spawn_blocking(move || thread.work())))).is_err() {
                return false;
            }
        }
        true
    }

    /// Looks after the lane until it is idle.
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
            self.running().iter().for_each(|running| running.look_after());
            pause = if self.staff(&runtime) { TICK } else { WITHOUT_THREADS };
        }
    }
}

/// A thread that takes frames.
struct Thread {
    shared: Arc<LaneState>,
    /// True if the queue counts it.
    counts: bool,
}

impl Thread {
    /// Runs frames until none waits.
    fn work(mut self) {
        while let Some((function, frame)) = self.next() {
            let shared = &self.shared;
            let kernel = shared.kernels.get(function).and_then(Option::as_ref);
            // After a panic the frame is dropped all the same: its calls go back.
            let ended = catch_unwind(AssertUnwindSafe(|| frame.run(&**kernel?, &shared.closed)));
            // Its place is free before the frame is dropped.
            shared.queue.lock().running.retain(|other| !Arc::ptr_eq(other, &frame));
            drop(ended);
        }
    }

    /// Takes a frame over, and says of which function it is.
    fn next(&mut self) -> Option<(FunctionId, Arc<RunningFrame>)> {
        let mut queue = self.shared.queue.lock();
        let Some(frame) = queue.waiting.pop_front() else {
            // Under the same lock: a frame that comes now gets a separate thread.
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
            return; // dropped: its calls go back
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
