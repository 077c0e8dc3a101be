//! The asyncio lane: event loops, each a Python thread, that take frames ("jobs") and run their calls side by side. One loop is in
//! `event_loop`, a frame in its hands in `jobs` (for Python) and `flight` (for the watch); here is which function has which loop, and the watch
//! over all.

pub mod event_loop;
mod flight;
pub mod jobs;

use std::sync::Arc;
use std::time::Duration;

use guerdon_core::clock::Clock;
use guerdon_core::frame::Frame;
use guerdon_core::function::{Function, FunctionId};
use guerdon_core::in_flight::InFlightCall;
use guerdon_core::lane::{Closing, Lane, LaneWaker};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::lanes::aio::event_loop::{Loop, LoopQueue};
use crate::lanes::orders::{Done, Orders};

/// Calls at a time of a function that says nothing else.
const CONCURRENCY: usize = 256;
/// How often the watch looks at loops with work.
const TICK: Duration = Duration::from_millis(25);
/// Room that never runs out: calls wait in the lane, which costs nothing.
const ROOM: usize = 1 << 16;

/// The lane.
pub struct AioLane {
    runtime: Handle,
    functions: Arc<[Function]>,
    loops: Vec<Arc<Loop>>,
    /// The loop of each function of this lane.
    loop_of: Vec<Option<usize>>,
    orders: Arc<Orders>,
    /// Whether the watch runs. Written by frames that arrive and by the watch.
    watching: Arc<Mutex<bool>>,
    gone: Arc<Notify>,
}

impl AioLane {
    /// `names` has the loop's name of each function of this lane.
    pub fn new(
        runtime: &Handle,
        clock: Clock,
        functions: &[Function],
        names: &[Option<String>],
        orders: &Arc<Orders>,
    ) -> Self {
        let functions: Arc<[Function]> = functions.into();
        let gone = Arc::new(Notify::new());
        let mut loops: Vec<Arc<Loop>> = Vec::new();
        let mut loop_of = Vec::with_capacity(names.len());
        for name in names {
            let Some(name) = name else {
                loop_of.push(None);
                continue;
            };
            let known = loops.iter().position(|one| one.name() == name);
            loop_of.push(Some(known.unwrap_or(loops.len())));
            if known.is_none() {
                let (functions, orders, gone) = (functions.clone(), orders.clone(), gone.clone());
                loops.push(Arc::new(Loop::new(loops.len(), name.clone(), clock, functions, orders, gone)));
            }
        }
        let watching = Arc::new(Mutex::new(false));
        Self { runtime: runtime.clone(), functions, loops, loop_of, orders: orders.clone(), watching, gone }
    }

    /// The queue of a loop that was ordered.
    pub fn open(&self, index: usize, generation: u64) -> Option<LoopQueue> {
        self.loops.get(index)?.queue(generation)
    }

    pub fn functions_of(&self, index: usize) -> Vec<FunctionId> {
        (0..self.loop_of.len()).filter(|function| self.loop_of[*function] == Some(index)).collect()
    }

    pub fn name_of(&self, index: usize) -> String {
        self.loops.get(index).map_or_else(String::new, |one| one.name().to_owned())
    }

    /// What all loops have in hand, for people, and where: index, generation, frame, call.
    pub fn doing(&self, now_ns: u64) -> Vec<(InFlightCall, Vec<u64>)> {
        self.loops.iter().flat_map(|one| one.doing(now_ns)).collect()
    }

    fn watch(&self) {
        if std::mem::replace(&mut *self.watching.lock(), true) {
            return;
        }
        let (loops, watching) = (self.loops.clone(), self.watching.clone());
        self.runtime.spawn(async move {
            loop {
                tokio::time::sleep(TICK).await;
                let busy = loops.iter().filter(|one| one.look()).count();
                if busy == 0 {
                    let mut watching = watching.lock();
                    // Work that arrived since then saw the watch running.
                    if !loops.iter().any(|one| one.is_busy()) {
                        *watching = false;
                        return;
                    }
                }
            }
        });
    }
}

impl Lane for AioLane {
    fn attach(&self, _poke: LaneWaker) {}

    fn room(&self, _function: FunctionId) -> usize {
        ROOM
    }

    fn parallelism(&self, function: FunctionId) -> usize {
        self.functions[function].policy.concurrency.unwrap_or(CONCURRENCY)
    }

    fn pool(&self, function: FunctionId) -> usize {
        function + 1
    }

    fn frame_calls(&self, _function: FunctionId) -> usize {
        usize::MAX
    }

    fn run(&self, frame: Frame) {
        let Some(owner) = self.loop_of[frame.function_id()].and_then(|index| self.loops.get(index)) else { return };
        owner.push(frame);
        self.watch();
    }

    fn close(&self) -> Closing {
        for one in &self.loops {
            one.shut();
        }
        let (loops, orders, gone) = (self.loops.clone(), self.orders.clone(), self.gone.clone());
        if loops.iter().all(|one| one.is_gone()) {
            orders.done(Done::Loops);
        }
        Box::pin(async move {
            loop {
                let next = gone.notified();
                if loops.iter().all(|one| one.is_gone()) {
                    orders.done(Done::Loops);
                    return;
                }
                next.await;
            }
        })
    }
}
