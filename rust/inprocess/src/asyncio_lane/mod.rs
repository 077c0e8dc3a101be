//! The asyncio lane: event loops, each a Python thread, that take frames and run their calls side
//! by side. This module maps functions to loops and has the watchdog of all loops, which runs only
//! while a loop has work.

mod call_slots;
mod call_states;
mod call_timeouts;
mod event_loop;
mod heartbeat;
mod in_flight;
mod inspect;
mod loop_queue;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use guerdon_core::clock::Clock;
use guerdon_core::frame::Frame;
use guerdon_core::function::{Function, FunctionId};
use guerdon_core::in_flight::InFlight;
use guerdon_core::lane::{CallsRun, CloseFuture, Lane, LaneWaker};
use guerdon_core::task::spawn_restarted;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::supervisor::{SupervisedLane, SupervisorQueue};
pub use call_slots::LoopFunction;
pub use call_timeouts::Overdue;
pub use event_loop::EventLoop;
pub use in_flight::Next;
pub use loop_queue::{Beat, LoopFrame, LoopQueue};

/// Interval at which the watchdog checks loops with work.
const TICK: Duration = Duration::from_millis(25);

pub struct AsyncioLane {
    runtime: Handle,
    clock: Clock,
    functions: Arc<[LoopFunction]>,
    loops: Vec<Arc<EventLoop<Frame>>>,
    /// The loop of each function of this lane.
    loop_of: Vec<Option<usize>>,
    supervisor: Arc<SupervisorQueue>,
    /// True while the watchdog runs. Written by frames that arrive and by the watchdog.
    watched: Arc<Mutex<bool>>,
    ended: Arc<Notify>,
    waker: Arc<OnceLock<LaneWaker>>,
}

impl AsyncioLane {
    /// Makes the lane; `names` has the loop's name of each function of this lane.
    pub fn new(
        runtime: &Handle,
        clock: Clock,
        functions: &[Function],
        names: &[Option<String>],
        supervisor: &Arc<SupervisorQueue>,
    ) -> Self {
        let functions: Arc<[LoopFunction]> = functions.iter().map(|one| LoopFunction::new(&one.policy)).collect();
        let (ended, waker) = (Arc::new(Notify::new()), Arc::default());
        let mut loops: Vec<Arc<EventLoop<Frame>>> = Vec::new();
        let mut loop_of = Vec::with_capacity(names.len());
        for name in names {
            let Some(name) = name else {
                loop_of.push(None);
                continue;
            };
            let known = loops.iter().position(|one| one.name() == name);
            loop_of.push(Some(known.unwrap_or(loops.len())));
            if known.is_none() {
                let (index, functions, supervisor) = (loops.len(), functions.clone(), supervisor.clone());
                let one = EventLoop::new(index, name.clone(), clock, functions, supervisor, ended.clone());
                loops.push(Arc::new(one.waking(&waker)));
            }
        }
        let (supervisor, watched) = (supervisor.clone(), Arc::new(Mutex::new(false)));
        Self { runtime: runtime.clone(), clock, functions, loops, loop_of, supervisor, watched, ended, waker }
    }

    /// Returns the queue of a loop that was requested.
    pub fn open(&self, index: usize, generation: u64) -> Option<LoopQueue<Frame>> {
        LoopQueue::new(self.loops.get(index)?.clone(), generation)
    }

    pub fn functions_of(&self, index: usize) -> Vec<FunctionId> {
        (0..self.loop_of.len()).filter(|function| self.loop_of[*function] == Some(index)).collect()
    }

    pub fn name_of(&self, index: usize) -> String {
        self.loops.get(index).map_or_else(String::new, |one| one.name().to_owned())
    }

    fn watch(&self) {
        if std::mem::replace(&mut *self.watched.lock(), true) {
            return;
        }
        let (clock, loops, watched) = (self.clock, self.loops.clone(), self.watched.clone());
        spawn_restarted(&self.runtime, move || watchdog(clock, loops.clone(), watched.clone()));
    }
}

/// Watches the loops until none has work.
async fn watchdog(clock: Clock, loops: Vec<Arc<EventLoop<Frame>>>, watched: Arc<Mutex<bool>>) {
    loop {
        tokio::time::sleep(TICK).await;
        let busy = loops.iter().filter(|one| one.check(clock.now_ns())).count();
        if busy == 0 {
            let mut watched = watched.lock();
            // A frame that arrived since then found `watched` set and started no watchdog.
            if !loops.iter().any(|one| one.is_busy()) {
                *watched = false;
                return;
            }
        }
    }
}

impl Lane for AsyncioLane {
    fn attach(&self, waker: LaneWaker) {
        let _ = self.waker.set(waker);
    }

    fn room(&self, function: FunctionId) -> usize {
        self.functions[function].slots.room()
    }

    fn parallelism(&self, function: FunctionId) -> usize {
        self.functions[function].slots.concurrency()
    }

    fn pool(&self, function: FunctionId) -> usize {
        function + 1
    }

    fn frame_calls(&self, function: FunctionId) -> usize {
        self.functions[function].slots.room().max(1)
    }

    fn calls_run(&self, _function: FunctionId) -> CallsRun {
        CallsRun::Concurrent
    }

    fn shares_threads(&self) -> bool {
        true
    }

    fn run(&self, mut frame: Frame) {
        let Some(owner) = self.loop_of[frame.function_id()].and_then(|index| self.loops.get(index)) else {
            // Failed, because a dropped frame would be handed out again and again.
            frame.fail_setup("the function has no event loop".to_owned(), None);
            return;
        };
        owner.push(frame);
        self.watch();
    }

    fn in_flight(&self, now_ns: u64) -> Vec<InFlight> {
        self.loops.iter().flat_map(|one| one.inspect(now_ns)).collect()
    }

    fn close(&self) -> CloseFuture {
        for one in &self.loops {
            one.close();
        }
        let (loops, supervisor, ended) = (self.loops.clone(), self.supervisor.clone(), self.ended.clone());
        if loops.iter().all(|one| one.is_gone()) {
            supervisor.close(SupervisedLane::Asyncio);
        }
        Box::pin(async move {
            loop {
                let next = ended.notified();
                if loops.iter().all(|one| one.is_gone()) {
                    supervisor.close(SupervisedLane::Asyncio);
                    return;
                }
                next.await;
            }
        })
    }
}
