//! One event loop of the asyncio lane: what waits for it, what it has in hand, whether it turns.
//!
//! - Y-1  A loop is woken once for all frames that arrive before it looks.
//! - Y-2  `timeout` is the loop's to hold: it cancels the call. At `timeout + grace` the watch ends the call's cell, whatever the loop does: a
//!   coroutine that ignores cancellation, or blocks its loop, keeps no batch waiting.
//! - Y-3  A loop that has been silent for half a second with work in hand is reported, once per silence. One that was silent from before a
//!   call's timeout until its end by the watch is replaced: a new loop, of the next generation, takes over what was not started. While C
//!   code keeps the GIL nobody can look at what blocks the loop: then the call is named that ends first, before the loop turns.
//! - Y-4  Time is watched only while a loop has work.
//! - Y-5  A loop that has ended holds nothing: what it had in hand is ended or goes back to the scheduler. A frame knows its scheduler, and that
//!   its lanes: one kept here would keep them all, and its batch.
//! - Y-6  A loop that has ended of itself (it could not be made, user code closed it) is followed by another as soon as there is work.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use guerdon_core::clock::Clock;
use guerdon_core::frame::Frame;
use guerdon_core::function::{Function, FunctionId};
use guerdon_core::in_flight::InFlightCall;
use guerdon_core::wake::Wake;
use parking_lot::{Mutex, MutexGuard};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tokio::sync::Notify;

use crate::lanes::aio::flight::Held;
use crate::lanes::aio::jobs::Jobs;
use crate::lanes::orders::{Order, Orders};
use crate::lanes::report;

/// The silence of a loop with work after which it is reported (Y-3).
const SILENCE_NS: u64 = 500_000_000;
/// What the thread of such a loop must have run since it turned, for a call to be blamed: on a busy machine it may just not have run.
const RAN_NS: u64 = 100_000_000;
/// Bounds of the loop's own ticks, in seconds.
const SHORTEST_NAP: f64 = 0.005;
const LONGEST_NAP: f64 = 0.05;

struct State {
    closed: bool,
    /// Of the newest loop; 0 before the first.
    generation: u64,
    waiting: VecDeque<Frame>,
    /// What the loop has in hand, and what it must still be told; of replaced loops too.
    held: Vec<Arc<Held>>,
    /// Wakes the loop that gets the work; none before the first, and when it has ended (Y-6).
    wake: Option<Arc<Wake>>,
    woken: bool,
    reported: bool,
    /// When the watch ended a call that the loop should have cancelled and could not, if it has not turned since.
    hung_ns: Option<u64>,
    /// Functions whose `setup()` runs on the loop, and since when.
    in_setup: BTreeMap<FunctionId, u64>,
    /// Loops there are, replaced ones included.
    alive: usize,
}

/// One named loop.
pub struct Loop {
    index: usize,
    name: String,
    pub clock: Clock,
    functions: Arc<[Function]>,
    orders: Arc<Orders>,
    /// Written by frames that arrive, by the loop and by the watch.
    state: Mutex<State>,
    /// When the loop last showed that it turns. Written by the loop, and when work arrives at an idle one.
    beat_ns: AtomicU64,
    /// The loop was asked to show its next turn, and has not yet. Written by the loop.
    marked: AtomicBool,
    /// What its thread had run by then. Written by the loop.
    cpu_ns: AtomicU64,
    /// It was reported, and not said yet what blocks it. Written by the watch, and by who says that: the keeper, or the loop.
    nameless: AtomicBool,
    gone: Arc<Notify>,
}

impl Loop {
    pub fn new(
        index: usize,
        name: String,
        clock: Clock,
        functions: Arc<[Function]>,
        orders: Arc<Orders>,
        gone: Arc<Notify>,
    ) -> Self {
        let state = State {
            closed: false,
            generation: 0,
            waiting: VecDeque::new(),
            held: Vec::new(),
            wake: None,
            woken: false,
            reported: false,
            hung_ns: None,
            in_setup: BTreeMap::new(),
            alive: 0,
        };
        let (state, beat_ns, marked) = (Mutex::new(state), AtomicU64::new(0), AtomicBool::new(false));
        let (cpu_ns, nameless) = (AtomicU64::new(0), AtomicBool::new(false));
        Self { index, name, clock, functions, orders, state, beat_ns, marked, cpu_ns, nameless, gone }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the loop of this generation takes its work from.
    pub fn queue(self: &Arc<Self>, generation: u64) -> Option<LoopQueue> {
        let wake = self.state.lock().wake.clone()?;
        Some(LoopQueue { owner: self.clone(), generation, wake })
    }

    pub fn function(&self, function: FunctionId) -> &Function {
        &self.functions[function]
    }

    /// The loop turns now, or has nothing to do.
    fn turn(&self, now_ns: u64) {
        self.beat_ns.store(now_ns, Ordering::Relaxed);
        self.marked.store(false, Ordering::Relaxed);
        self.nameless.store(false, Ordering::Relaxed);
    }

    /// The loop turns now, and this is its thread.
    fn turn_here(&self) {
        self.turn(self.clock.now_ns());
        self.cpu_ns.store(report::thread_cpu_ns(), Ordering::Relaxed);
    }

    /// Whether the loop is yet to be asked to show its next turn; it counts as asked from here on.
    pub fn to_be_marked(&self) -> bool {
        !self.marked.swap(true, Ordering::Relaxed)
    }

    /// When it last did.
    pub fn turned_ns(&self) -> u64 {
        self.beat_ns.load(Ordering::Relaxed)
    }

    pub fn push(&self, frame: Frame) {
        let mut state = self.state.lock();
        if state.closed {
            drop(state);
            drop(frame);
            return;
        }
        if state.held.is_empty() && state.waiting.is_empty() {
            self.turn(self.clock.now_ns());
        }
        state.waiting.push_back(frame);
        if state.wake.is_none() {
            self.start(state);
        } else if !std::mem::replace(&mut state.woken, true)
            && let Some(wake) = &state.wake
        {
            wake.notify();
        }
    }

    /// Asks for a loop, or fails what waits for one.
    fn start(&self, mut state: MutexGuard<'_, State>) {
        if let Err(error) = self.next_generation(&mut state) {
            drop(state);
            self.not_started(&error.to_string());
        }
    }

    /// Asks for a loop, the first or one that takes over.
    fn next_generation(&self, state: &mut State) -> io::Result<()> {
        let wake = Wake::new()?;
        wake.notify();
        state.wake = Some(Arc::new(wake));
        state.woken = true;
        state.generation += 1;
        state.alive += 1;
        state.reported = false;
        state.hung_ns = None;
        state.in_setup.clear();
        self.turn(self.clock.now_ns());
        self.orders.give(Order::Loop { index: self.index, generation: state.generation });
        Ok(())
    }

    /// There is no loop to run what waits.
    fn not_started(&self, reason: &str) {
        let stranded = std::mem::take(&mut self.state.lock().waiting);
        for mut frame in stranded {
            frame.fail_setup(format!("no event loop could be started: {reason}"), None);
        }
    }

    /// What its loops have in hand, for people, and where: index, generation, frame, call.
    pub fn doing(&self, now_ns: u64) -> Vec<(InFlightCall, Vec<u64>)> {
        let (held, in_setup, generation) = {
            let state = self.state.lock();
            (state.held.clone(), state.in_setup.clone(), state.generation)
        };
        let mut all = Vec::new();
        for one in held {
            // `setup()` is noted of the newest loop only.
            let setup_ns = in_setup.get(&one.function()).copied().filter(|_| one.generation == generation);
            let place = |call| vec![self.index as u64, one.generation, one.id(), call];
            all.extend(one.doing(now_ns, setup_ns).into_iter().map(|(doing, call)| (doing, place(call))));
        }
        all
    }

    /// A call of this function ends, on the loop's thread: if the loop was reported and has not turned, that is what blocked it (Y-3).
    pub fn ends(&self, generation: u64, function: FunctionId) {
        if !self.nameless.load(Ordering::Relaxed) {
            return;
        }
        let ran_ns = report::thread_cpu_ns().saturating_sub(self.cpu_ns.load(Ordering::Relaxed));
        if ran_ns >= RAN_NS && self.nameless.swap(false, Ordering::Relaxed) {
            self.orders.give(Order::Blocked { index: self.index, generation, function });
        }
    }

    /// A frame is done.
    pub fn let_go(&self, held: &Arc<Held>) {
        self.state.lock().held.retain(|one| !Arc::ptr_eq(one, held));
    }

    pub fn is_busy(&self) -> bool {
        let state = self.state.lock();
        !state.waiting.is_empty() || state.held.iter().any(|one| one.is_active())
    }

    pub fn is_gone(&self) -> bool {
        self.state.lock().alive == 0
    }

    pub fn shut(&self) {
        let dropped = {
            let mut state = self.state.lock();
            state.closed = true;
            if let Some(wake) = &state.wake {
                wake.notify();
            }
            std::mem::take(&mut state.waiting)
        };
        drop(dropped);
    }

    /// One look of the watch (Y-2, Y-3); whether the loop has work.
    pub fn look(&self) -> bool {
        let now_ns = self.clock.now_ns();
        let turned_ns = self.turned_ns();
        let silent = now_ns.saturating_sub(turned_ns) > SILENCE_NS;
        let (held, late_setup) = {
            let state = self.state.lock();
            let late = |(function, since): (&FunctionId, &u64)| {
                let policy = &self.functions[*function].policy;
                let limit_ns = report::limit_ns(policy.setup_timeout.saturating_add(policy.grace));
                (now_ns.saturating_sub(*since) > limit_ns).then_some(*function)
            };
            (state.held.clone(), state.in_setup.iter().find_map(late))
        };
        let mut hung = silent && late_setup.is_some();
        let mut over = Vec::new();
        for one in &held {
            let (frame, its_loop_hung) = one.look(now_ns, turned_ns, late_setup == Some(one.function()));
            over.extend(frame);
            hung |= its_loop_hung;
        }
        drop(over);
        if self.judge(now_ns, silent, hung) {
            for one in &held {
                one.give_back_rest();
            }
        }
        self.is_busy()
    }

    /// What follows from the loop's silence; true if it was replaced (Y-3).
    fn judge(&self, now_ns: u64, silent: bool, hung: bool) -> bool {
        let mut state = self.state.lock();
        if !silent {
            state.reported = false;
            state.hung_ns = None;
        }
        if hung {
            state.hung_ns = Some(now_ns);
        }
        // A `setup()` that loads a model on its loop is no mistake.
        if silent && (hung || state.in_setup.is_empty()) && !std::mem::replace(&mut state.reported, true) {
            self.nameless.store(true, Ordering::Relaxed);
            self.orders.give(Order::Stalled { index: self.index, generation: state.generation });
        }
        silent && state.hung_ns.is_some() && !state.closed && self.next_generation(&mut state).is_ok()
    }
}

/// Work for one event loop. Its methods are for the loop's own thread.
#[pyclass(frozen, module = "guerdon._native")]
pub struct LoopQueue {
    owner: Arc<Loop>,
    generation: u64,
    wake: Arc<Wake>,
}

#[pymethods]
impl LoopQueue {
    fn fileno(&self) -> i32 {
        self.wake.fd().as_raw_fd()
    }

    /// Takes the wake-up. To be called first, whatever comes after it: the descriptor stays readable until then.
    fn drain(&self) {
        self.wake.drain();
    }

    /// The next frame that arrived.
    fn take(&self) -> Option<Jobs> {
        let owner = &self.owner;
        owner.turn_here();
        let mut state = owner.state.lock();
        if state.generation != self.generation {
            return None;
        }
        let Some(frame) = state.waiting.pop_front() else {
            state.woken = false;
            return None;
        };
        let jobs = Jobs::new(owner.clone(), self.generation, frame);
        state.held.push(jobs.held().clone());
        Some(jobs)
    }

    /// Whether the loop is to end.
    #[getter]
    fn ended(&self) -> bool {
        let state = self.owner.state.lock();
        state.closed || state.generation != self.generation
    }

    /// Shows that the loop turns. The result is the time in seconds until it is to do so again; negative: `overdue` has something; 0: nothing
    /// is in hand.
    fn beat(&self) -> f64 {
        let owner = &self.owner;
        owner.turn_here();
        let now_ns = owner.turned_ns();
        let held = self.held();
        if held.is_empty() {
            return 0.0;
        }
        let mut nap = LONGEST_NAP;
        for one in &held {
            match one.due_in(now_ns) {
                None => return -1.0,
                Some(due) => nap = nap.min(due),
            }
        }
        nap.max(SHORTEST_NAP)
    }

    /// Function, frame, call, and whether its cell was ended already, as 8 bytes each: of each call that is to be cancelled, or that ignored
    /// it. Each is told once.
    fn overdue<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let now_ns = self.owner.clock.now_ns();
        let found: Vec<[u64; 4]> = self.held().iter().flat_map(|one| one.overdue(now_ns)).collect();
        report::packed(py, found.into_iter().flatten().map(u64::to_ne_bytes))
    }

    /// The loop has turned, as it was asked to show (J-4 of `jobs`).
    fn turned(&self) {
        self.owner.turn_here();
    }

    fn setup_begins(&self, function: usize) {
        let mut state = self.owner.state.lock();
        if state.generation == self.generation {
            state.in_setup.insert(function, self.owner.clock.now_ns());
        }
    }

    fn setup_ends(&self, function: usize) {
        let mut state = self.owner.state.lock();
        if state.generation == self.generation {
            state.in_setup.remove(&function);
        }
    }

    fn to_be_named(&self) -> bool {
        self.owner.nameless.swap(false, Ordering::Relaxed)
    }

    /// The loop could not be started.
    fn not_started(&self, reason: &str) {
        self.owner.not_started(reason);
        self.gone();
    }

    /// The last word of a loop (Y-5, Y-6).
    fn gone(&self) {
        let left: Vec<Arc<Held>> = {
            let mut state = self.owner.state.lock();
            state.alive -= 1;
            let left = state.held.extract_if(.., |one| one.generation == self.generation).collect();
            if state.generation == self.generation {
                state.wake = None;
                if !state.closed && !state.waiting.is_empty() {
                    self.owner.start(state);
                }
            }
            left
        };
        for one in left {
            one.abandon();
        }
        self.owner.gone.notify_waiters();
    }
}

impl LoopQueue {
    /// What this loop has in hand.
    fn held(&self) -> Vec<Arc<Held>> {
        let state = self.owner.state.lock();
        state.held.iter().filter(|one| one.generation == self.generation).cloned().collect()
    }
}
