//! Which frames run, on how many threads.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use guerdon_core::frame::Frame;
use guerdon_core::function::FunctionId;
use guerdon_core::in_flight::InFlightCall;
use guerdon_core::lane::{Closing, Lane, LaneWaker};
use guerdon_kernels::Kernel;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::running_frame::RunningFrame;

/// The most calls in a frame: a frame of cheap ones is to take a few milliseconds.
const FRAME_CALLS: usize = 1024;
/// Frames for each thread: one that runs, and one that waits so that no thread waits for it.
const FRAMES_A_THREAD: usize = 2;

/// See the module.
pub struct NativeLane {
    runtime: Handle,
    shared: Arc<Shared>,
}

struct Shared {
    /// Of each function that this lane runs.
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
}

impl NativeLane {
    /// `kernels` has one for each function of this lane; so many run at a time.
    #[must_use]
    pub fn new(runtime: &Handle, kernels: Vec<Option<Arc<dyn Kernel>>>, threads: usize) -> Self {
        let (queue, closed, gone) = (Mutex::default(), AtomicBool::new(false), Notify::new());
        let shared = Arc::new(Shared { kernels, threads: threads.max(1), queue, closed, gone });
        Self { runtime: runtime.clone(), shared }
    }

    /// The calls in hand.
    #[must_use]
    pub fn inspect(&self, now_ns: u64) -> Vec<InFlightCall> {
        self.shared.running().iter().filter_map(|one| one.inspect(now_ns)).collect()
    }
}

impl Shared {
    fn running(&self) -> Vec<Arc<RunningFrame>> {
        self.queue.lock().running.clone()
    }

    /// Runs frames until none waits.
    fn work(&self) {
        while let Some((function, frame)) = self.next() {
            let kernel = self.kernels.get(function).and_then(Option::as_ref);
            let ended = kernel.and_then(|kernel| frame.run(&**kernel, &self.closed));
            // Its place is free before the frame is dropped.
            self.queue.lock().running.retain(|other| !Arc::ptr_eq(other, &frame));
            drop(ended);
        }
        self.gone.notify_waiters();
    }

    /// Takes a frame over, and says of which function it is.
    fn next(&self) -> Option<(FunctionId, Arc<RunningFrame>)> {
        let mut queue = self.queue.lock();
        let Some(frame) = queue.waiting.pop_front() else {
            queue.threads -= 1;
            return None;
        };
        let function = frame.function_id();
        let running = Arc::new(RunningFrame::new(frame));
        queue.running.push(running.clone());
        Some((function, running))
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
        if queue.threads < self.shared.threads {
            queue.threads += 1;
            let shared = self.shared.clone();
            self.runtime.spawn_blocking(move || shared.work());
        }
    }

    fn complete_ended(&self) {
        self.shared.running().iter().for_each(|running| running.complete_ended());
    }

    fn close(&self) -> Closing {
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
