//! The thread lane: Python threads that take frames ("chunks") and run them.
//!
//! - T-1  A function has at most its limit of threads that count. A thread whose call ran past its timeout, or was swept by the scheduler, is
//!   left behind: it counts no more, another may take its place, what it brings later is dropped, and it ends when it comes back.
//! - T-2  Cheap functions run on one thread: the GIL lets one run at a time anyway, and every hand-over costs more than such a call. A function
//!   gets all its threads once its calls are seen to take long, or to wait.
//! - T-3  `setup()` runs once, on the function's first thread, while the others wait; `close()` once, on the last. A `setup()` that failed is
//!   tried again with the next batch.
//! - T-4  What lies behind a call that takes longer than 20 ms goes back to the scheduler; so does what is left of a chunk that has taken so long.
//! - T-5  Time is watched only while a chunk is out.
//! - T-6  Cheap calls that ended are settled together (`frame::ended` of the core): half a millisecond after the first of them began, with their
//!   chunk, or when the watch looks, so at most a tick late while the call behind them takes long; and before a deadline, a budget or a
//!   cancellation ends what is open, so that what they gave in time counts.
//!
//! `place` is one function's threads and work, `chunk` a frame in the hands of a thread.

pub mod chunk;
mod place;

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use guerdon_core::clock::Clock;
use guerdon_core::frame::Frame;
use guerdon_core::function::{Function, FunctionId, Shape};
use guerdon_core::lane::{Closing, Lane, LaneWaker};
use parking_lot::{Condvar, Mutex};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::lanes::orders::{Done, Order, Orders};
use crate::lanes::thread::chunk::{Chunk, Held, Spent, Watched};
use crate::lanes::thread::place::{Place, Setup};

/// Threads of a function that says nothing else.
const THREADS: usize = 8;
/// The most calls in a chunk. Only those of cheap functions are so many: a frame is to take a few milliseconds.
const CHUNK_CALLS: usize = 4096;
/// How often chunks are looked at while some are out.
const TICK: Duration = Duration::from_millis(5);
/// How long a call may take before its function is seen to take long (T-2).
pub const SLOW_NS: u64 = 2_000_000;

struct State {
    closed: bool,
    ticking: bool,
    places: Vec<Place>,
    last_thread: u64,
    /// Threads there are, those left behind included.
    alive: usize,
}

/// The lane.
pub struct ThreadLane {
    shared: Arc<Shared>,
}

/// What the lane, its chunks and its watch share.
pub struct Shared {
    runtime: Handle,
    pub clock: Clock,
    orders: Arc<Orders>,
    functions: Vec<Function>,
    /// Written by the scheduler's frames, by the threads and by the watch.
    state: Mutex<State>,
    /// Per function: there is work, or the end.
    news: Vec<Condvar>,
    waker: OnceLock<LaneWaker>,
    /// A thread is gone.
    gone: Notify,
}

impl ThreadLane {
    pub fn new(runtime: &Handle, clock: Clock, functions: &[Function], orders: &Arc<Orders>) -> Self {
        let limit = |function: &Function| {
            let usual = if function.shape == Shape::Batch { 1 } else { THREADS };
            function.policy.concurrency.unwrap_or(usual)
        };
        let state = State {
            closed: false,
            ticking: false,
            places: functions.iter().map(|function| Place::new(limit(function))).collect(),
            last_thread: 0,
            alive: 0,
        };
        let shared = Shared {
            runtime: runtime.clone(),
            clock,
            orders: orders.clone(),
            functions: functions.to_vec(),
            state: Mutex::new(state),
            news: functions.iter().map(|_| Condvar::new()).collect(),
            waker: OnceLock::new(),
            gone: Notify::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Threads that were left behind and have not come back.
    pub fn abandoned(&self) -> u64 {
        self.shared.state.lock().places.iter().map(|place| place.left_behind.len() as u64).sum()
    }

    /// The chunks that threads have in hand, those left behind not.
    pub fn held(&self) -> Vec<Arc<Held>> {
        self.shared.state.lock().places.iter().flat_map(|place| place.held.values().cloned()).collect()
    }

    /// Waits for work for this thread, which Python calls `ident`; `None` when it is to end.
    pub fn next_chunk(&self, function: FunctionId, thread: u64, ident: u64) -> Option<Chunk> {
        let shared = &self.shared;
        let mut state = shared.state.lock();
        let mut arrived = false;
        loop {
            let closed = state.closed;
            let place = state.places.get_mut(function)?;
            if place.left_behind.contains(&thread) {
                return None;
            }
            if !std::mem::replace(&mut arrived, true) {
                place.coming = place.coming.saturating_sub(1);
            }
            if closed {
                return None;
            }
            if place.setup != Setup::UnderWay
                && let Some(frame) = place.waiting.pop_front()
            {
                let setup = place.setup == Setup::Needed;
                if setup {
                    place.setup = Setup::UnderWay;
                }
                place.out += 1;
                let chunk = Chunk::new(shared.clone(), thread, ident, frame, setup);
                place.held.insert(thread, chunk.held().clone());
                if !std::mem::replace(&mut state.ticking, true) {
                    shared.runtime.spawn(watch(shared.clone()));
                }
                return Some(chunk);
            }
            place.idle += 1;
            shared.news[function].wait(&mut state);
            let place = &mut state.places[function];
            place.idle -= 1;
            place.called = place.called.saturating_sub(1);
        }
    }

    /// A thread is about to end; true if it must run the function's `close()` first (T-3).
    pub fn leave(&self, function: FunctionId, thread: u64) -> bool {
        let mut state = self.shared.state.lock();
        let closed = state.closed;
        let Some(place) = state.places.get_mut(function) else { return false };
        if !place.left_behind.remove(&thread) {
            place.live -= 1;
        }
        let close = closed && place.live == 0 && place.setup == Setup::Done;
        if close {
            place.setup = Setup::Needed;
        }
        close
    }

    /// Where a thread stands that was asked.
    pub fn stands(&self, thread: u64, stack: String) {
        let held = self.shared.state.lock().places.iter().find_map(|place| place.held.get(&thread).cloned());
        if let Some(held) = held {
            held.stands(stack);
        }
    }

    /// The last word of a thread.
    pub fn gone(&self) {
        {
            let mut state = self.shared.state.lock();
            state.alive -= 1;
            self.shared.let_keeper_go(&state);
        }
        self.shared.gone.notify_waiters();
    }

    /// A thread that was asked for could not be started.
    pub fn not_started(&self, function: FunctionId, reason: &str) {
        let stranded = {
            let mut state = self.shared.state.lock();
            let Some(place) = state.places.get_mut(function) else { return };
            place.coming -= 1;
            place.live -= 1;
            if place.live == 0 { std::mem::take(&mut place.waiting) } else { VecDeque::new() }
        };
        for mut frame in stranded {
            frame.fail_setup(format!("no thread could be started: {reason}"), None);
        }
        self.gone();
    }
}

impl Lane for ThreadLane {
    fn attach(&self, waker: LaneWaker) {
        let _ = self.shared.waker.set(waker);
    }

    fn room(&self, function: FunctionId) -> usize {
        let state = self.shared.state.lock();
        if state.closed {
            return 0;
        }
        state.places.get(function).map_or(0, |place| place.width.saturating_sub(place.out + place.waiting.len()))
    }

    fn parallelism(&self, function: FunctionId) -> usize {
        self.shared.state.lock().places.get(function).map_or(1, |place| place.width)
    }

    fn pool(&self, function: FunctionId) -> usize {
        function + 1
    }

    fn frame_calls(&self, function: FunctionId) -> usize {
        // The first call is on its own: whether the function waits is not known yet.
        let known = self.shared.state.lock().places.get(function).is_some_and(|place| place.mean_ns.is_some());
        if known { CHUNK_CALLS } else { 1 }
    }

    fn run(&self, frame: Frame) {
        let function = frame.function_id();
        let mut state = self.shared.state.lock();
        if state.closed {
            drop(state);
            drop(frame);
            return;
        }
        state.places[function].waiting.push_back(frame);
        self.shared.find_hands(&mut state, function);
    }

    fn complete_ended(&self) {
        self.held().iter().for_each(|chunk| chunk.complete_ended());
    }

    fn close(&self) -> Closing {
        self.shared.shut();
        let shared = self.shared.clone();
        Box::pin(async move {
            loop {
                let gone = shared.gone.notified();
                if shared.state.lock().alive == 0 {
                    return;
                }
                gone.await;
            }
        })
    }
}

impl Shared {
    pub fn function(&self, function: FunctionId) -> &Function {
        &self.functions[function]
    }

    /// Sees to it that a thread takes what waits for this function.
    fn find_hands(&self, state: &mut State, function: FunctionId) {
        let place = &mut state.places[function];
        if place.waiting.len() <= place.coming + place.called {
            return;
        }
        if place.idle > place.called {
            place.called += 1;
            self.news[function].notify_one();
        } else if place.live < place.limit {
            self.start_thread(state, function);
        }
    }

    fn start_thread(&self, state: &mut State, function: FunctionId) {
        let place = &mut state.places[function];
        place.live += 1;
        place.coming += 1;
        state.alive += 1;
        state.last_thread += 1;
        self.orders.give(Order::Thread { function, thread: state.last_thread });
    }

    /// Asks where a thread stands (H-4 of `chunk`).
    pub fn ask_where(&self, thread: u64, ident: u64) {
        self.orders.give(Order::Where { thread, ident });
    }

    /// A chunk is done: its thread is coming for another.
    pub fn chunk_over(&self, function: FunctionId, thread: u64, spent: Spent) {
        let mut state = self.state.lock();
        let place = &mut state.places[function];
        if place.held.remove(&thread).is_some() {
            place.out -= 1;
            place.coming += 1;
            place.learn(spent);
        }
    }

    /// A thread is left behind with its call (T-1). Called with the chunk locked, so that its thread cannot ask for another meanwhile.
    pub fn leave_behind(&self, function: FunctionId, thread: u64, warn: bool, in_setup: bool) {
        let mut state = self.state.lock();
        let place = &mut state.places[function];
        if place.held.remove(&thread).is_none() {
            return;
        }
        place.out -= 1;
        place.live -= 1;
        place.left_behind.insert(thread);
        if in_setup {
            place.setup = Setup::Needed;
        }
        let count = place.left_behind.len() as u64;
        if warn {
            self.orders.give(Order::LeftBehind { function, count });
        }
        self.find_hands(&mut state, function);
        self.let_keeper_go(&state);
    }

    /// `setup()` came back. When it failed, what waits fails with it.
    pub fn setup_over(&self, function: FunctionId, failed: Option<(&str, Option<&str>)>) {
        let waiting = {
            let mut state = self.state.lock();
            let place = &mut state.places[function];
            place.setup = if failed.is_some() { Setup::Needed } else { Setup::Done };
            if failed.is_some() { std::mem::take(&mut place.waiting) } else { VecDeque::new() }
        };
        self.news[function].notify_all();
        if let Some((reason, traceback)) = failed {
            for mut frame in waiting {
                frame.fail_setup(reason.to_owned(), traceback.map(str::to_owned));
            }
        }
    }

    /// Gives a function all its threads (T-2).
    fn widen(&self, function: FunctionId) {
        {
            let mut state = self.state.lock();
            let place = &mut state.places[function];
            if place.width == place.limit {
                return;
            }
            place.width = place.limit;
        }
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }

    fn shut(&self) {
        let mut dropped = Vec::new();
        {
            let mut state = self.state.lock();
            state.closed = true;
            for function in 0..state.places.len() {
                let place = &mut state.places[function];
                dropped.extend(place.waiting.drain(..));
                if place.live == 0 && place.setup == Setup::Done {
                    self.start_thread(&mut state, function); // for close() (T-3)
                }
                self.news[function].notify_all();
            }
            self.let_keeper_go(&state);
        }
        drop(dropped);
    }

    fn let_keeper_go(&self, state: &State) {
        if state.closed && state.places.iter().all(|place| place.live == 0) {
            self.orders.done(Done::Threads);
        }
    }
}

/// Watches the calls in hand until none is (T-4, T-5).
async fn watch(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(TICK).await;
        let held: Vec<Arc<Held>> = {
            let mut state = shared.state.lock();
            let held: Vec<_> = state.places.iter().flat_map(|place| place.held.values().cloned()).collect();
            if held.is_empty() {
                state.ticking = false;
                return;
            }
            held
        };
        let now_ns = shared.clock.now_ns();
        for chunk in held {
            match chunk.look(now_ns) {
                Watched::Fine => {}
                Watched::Slow => shared.widen(chunk.function()),
                Watched::Over(frame) => drop(frame),
            }
        }
    }
}
