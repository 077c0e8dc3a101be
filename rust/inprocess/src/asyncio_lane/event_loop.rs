//! One event loop of the asyncio lane: its waiting frames, its frames in flight, its heartbeat.
//!
//! - It is woken once for all frames that arrive until it takes the first.
//! - It cancels a call at its timeout. The watchdog ends the call at `timeout + grace`, whatever
//!   the loop's state: a coroutine that ignores cancellation, or blocks, keeps no batch waiting.
//! - After some milliseconds without a turn Python inspects it and names the call that blocks it.
//! - After half a second without a turn, with work, it counts as blocked. If it does not turn from
//!   a call's timeout until the watchdog ends the call, a loop of the next generation replaces it.
//! - A loop that has ended keeps no frames; if it ended by itself, another follows.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, OnceLock};

use guerdon_core::clock::Clock;
use guerdon_core::function::FunctionId;
use guerdon_core::lane::LaneWaker;
use guerdon_core::tracer::Executor;
use guerdon_core::wake::Wake;
use tokio::sync::Notify;
use tracing::warn;

use crate::asyncio_lane::call_slots::LoopFunction;
use crate::asyncio_lane::call_timeouts::Overdue;
use crate::asyncio_lane::heartbeat::Heartbeat;
use crate::asyncio_lane::in_flight::{CallsInFlight, FinishedCalls, Origin};
use crate::frame::{CallFrame, Timeouts};
use crate::supervisor::{SupervisorQueue, SupervisorRequest};
use crate::sync::{Mutex, MutexGuard};
use crate::time;

/// The silence of a loop with work after which it counts as blocked.
const SILENCE_NS: u64 = 500_000_000;
/// The silence after which Python inspects the loop: its longest step between two calls.
const STEP_NS: u64 = 2_000_000;

pub(super) struct LoopState<F> {
    closed: bool,
    /// Number of the newest loop; 0 before the first.
    pub(super) generation: u64,
    waiting: VecDeque<F>,
    /// Frames on the loop, by number, including those of replaced loops. Frames that no loop took
    /// yet are in `waiting`.
    pub(super) in_flight: BTreeMap<u64, Arc<CallsInFlight<F>>>,
    /// Number of frames that loops took.
    taken: u64,
    /// Heartbeat of the newest loop.
    heartbeat: Arc<Heartbeat>,
    /// Wakes the loop that gets the work; `None` before the first, and after its end.
    wake: Option<Arc<Wake>>,
    woken: bool,
    reported: bool,
    /// The watchdog ended a call that the loop should have cancelled, and the loop has not turned
    /// since.
    hung: bool,
    /// Functions whose `setup()` runs on the loop, with its start.
    pub(super) in_setup: BTreeMap<FunctionId, u64>,
    /// Number of existing loops, replaced ones included.
    alive: usize,
}

/// One named loop.
pub struct EventLoop<F> {
    pub(super) index: usize,
    name: String,
    clock: Clock,
    functions: Arc<[LoopFunction]>,
    supervisor: Arc<SupervisorQueue>,
    /// Written by frames that arrive, by the loop and by the watchdog.
    pub(super) state: Mutex<LoopState<F>>,
    ended: Arc<Notify>,
    waker: Arc<OnceLock<LaneWaker>>,
}

impl<F: CallFrame> EventLoop<F> {
    pub fn new(
        index: usize,
        name: String,
        clock: Clock,
        functions: Arc<[LoopFunction]>,
        supervisor: Arc<SupervisorQueue>,
        ended: Arc<Notify>,
    ) -> Self {
        let state = LoopState {
            closed: false,
            generation: 0,
            waiting: VecDeque::new(),
            in_flight: BTreeMap::new(),
            taken: 0,
            heartbeat: Arc::default(),
            wake: None,
            woken: false,
            reported: false,
            hung: false,
            in_setup: BTreeMap::new(),
            alive: 0,
        };
        Self { index, name, clock, functions, supervisor, state: Mutex::new(state), ended, waker: Arc::default() }
    }

    /// Sets the waker of the scheduler.
    pub fn waking(self, waker: &Arc<OnceLock<LaneWaker>>) -> Self {
        Self { waker: waker.clone(), ..self }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn now_ns(&self) -> u64 {
        time::now_ns(self.clock)
    }

    /// Returns the wake-up of the loop of this generation, and its heartbeat; `None` if a newer
    /// loop was requested since.
    pub fn open(&self, generation: u64) -> Option<(Arc<Wake>, Arc<Heartbeat>)> {
        let state = self.state.lock();
        let wake = state.wake.as_ref().filter(|_| state.generation == generation)?;
        Some((wake.clone(), state.heartbeat.clone()))
    }

    pub fn push(&self, frame: F) {
        let mut state = self.state.lock();
        if state.closed {
            drop(state);
            drop(frame);
            return;
        }
        if state.in_flight.is_empty() && state.waiting.is_empty() {
            state.heartbeat.beat(self.now_ns());
        }
        self.functions[frame.function_id()].count_waiting(0, frame.calls());
        state.waiting.push_back(frame);
        if state.wake.is_none() {
            self.start(state);
        } else if !std::mem::replace(&mut state.woken, true)
            && let Some(wake) = &state.wake
        {
            wake.notify();
        }
    }

    /// The next frame that waits for the loop of this generation.
    pub fn take(&self, generation: u64) -> Option<Arc<CallsInFlight<F>>> {
        let now_ns = self.now_ns();
        let mut state = self.state.lock();
        if state.generation != generation {
            return None;
        }
        state.heartbeat.beat_here(now_ns);
        let Some(mut frame) = state.waiting.pop_front() else {
            state.woken = false;
            return None;
        };
        frame.set_executor(|| Executor::Loop(self.index));
        state.taken += 1;
        let number = state.taken;
        let origin = Origin { heartbeat: state.heartbeat.clone(), generation, number, taken_ns: now_ns };
        let LoopFunction { timeouts, slots } = &self.functions[frame.function_id()];
        let calls = Arc::new(CallsInFlight::new(origin, *timeouts, slots.clone(), frame));
        state.in_flight.insert(number, calls.clone());
        Some(calls)
    }

    /// Returns whether the loop of this generation is to end.
    pub fn is_over(&self, generation: u64) -> bool {
        let state = self.state.lock();
        state.closed || state.generation != generation
    }

    /// Returns the frames on the loop of this generation.
    pub fn in_flight(&self, generation: u64) -> Vec<Arc<CallsInFlight<F>>> {
        self.state.lock().in_flight.values().filter(|one| one.generation() == generation).cloned().collect()
    }

    /// Returns the calls that the loop of this generation must cancel, or that ignored their
    /// cancellation, each once.
    pub fn overdue(&self, generation: u64) -> Vec<Overdue> {
        let now_ns = self.now_ns();
        let mut all = Vec::new();
        for calls in self.in_flight(generation) {
            let (found, finished) = calls.overdue(now_ns);
            all.extend(found);
            self.finish(&calls, finished);
        }
        all
    }

    /// Records that a call of this frame ends, on the loop's thread.
    pub fn call_ends(&self, calls: &CallsInFlight<F>) {
        if calls.heartbeat().was_blocked_here() {
            let (generation, function) = (calls.generation(), calls.function());
            self.supervisor.push(SupervisorRequest::LoopWasBlocked { index: self.index, generation, function });
        }
    }

    /// Removes calls that have all ended.
    pub fn finish(&self, calls: &Arc<CallsInFlight<F>>, finished: Option<Box<FinishedCalls<F>>>) {
        let Some(finished) = finished else { return };
        if finished.forget {
            self.forget(calls);
        }
        drop(finished);
    }

    /// Wakes the scheduler for more calls of a function, if it was refused and there is room now.
    #[inline]
    pub fn refill(&self, calls: &CallsInFlight<F>) {
        if calls.slots().must_wake()
            && let Some(waker) = self.waker.get()
        {
            waker.wake();
        }
    }

    pub fn forget(&self, calls: &Arc<CallsInFlight<F>>) {
        self.state.lock().in_flight.remove(&calls.number());
    }

    pub fn setup_begins(&self, generation: u64, function: FunctionId) {
        let mut state = self.state.lock();
        if state.generation == generation {
            state.in_setup.insert(function, self.now_ns());
        }
    }

    pub fn setup_ends(&self, generation: u64, function: FunctionId) {
        let mut state = self.state.lock();
        if state.generation == generation {
            state.in_setup.remove(&function);
        }
    }

    /// Fails the waiting frames, because the loop of this generation can't be started.
    pub fn fail_waiting(&self, generation: u64, reason: &str) {
        let stranded = {
            let mut state = self.state.lock();
            // A newer loop takes the frames.
            if state.generation == generation { self.take_waiting(&mut state) } else { VecDeque::new() }
        };
        for mut frame in stranded {
            frame.fail_setup(format!("no event loop could be started: {reason}"), None);
        }
    }

    /// Returns the frames that no loop took.
    fn take_waiting(&self, state: &mut LoopState<F>) -> VecDeque<F> {
        let waiting = std::mem::take(&mut state.waiting);
        waiting.iter().for_each(|frame| self.functions[frame.function_id()].count_waiting(frame.calls(), 0));
        waiting
    }

    /// Records that the loop of this generation has ended.
    pub fn loop_ended(&self, generation: u64) {
        let left: Vec<Arc<CallsInFlight<F>>> = {
            let mut state = self.state.lock();
            state.alive -= 1;
            let left = state.in_flight.extract_if(.., |_, one| one.generation() == generation);
            let left = left.map(|(_, calls)| calls).collect();
            if state.generation == generation {
                state.wake = None;
                if !state.closed && !state.waiting.is_empty() {
                    self.start(state);
                }
            }
            left
        };
        for calls in left {
            drop(calls.abandon(self.now_ns()));
        }
        self.ended.notify_waiters();
    }

    pub fn is_busy(&self) -> bool {
        let state = self.state.lock();
        !state.waiting.is_empty() || state.in_flight.values().any(|one| one.is_active())
    }

    /// Returns whether no loop is left.
    pub fn is_gone(&self) -> bool {
        self.state.lock().alive == 0
    }

    pub fn close(&self) {
        let dropped = {
            let mut state = self.state.lock();
            state.closed = true;
            if let Some(wake) = &state.wake {
                wake.notify();
            }
            self.take_waiting(&mut state)
        };
        drop(dropped);
    }

    /// Makes a check for the watchdog; true if the loop has work.
    pub fn check(&self, now_ns: u64) -> bool {
        let (in_flight, late_setup, newest, turned_ns) = {
            let state = self.state.lock();
            let late = |(function, since): (&FunctionId, &u64)| {
                let Timeouts { setup_ns, grace_ns, .. } = self.functions[*function].timeouts;
                (now_ns.saturating_sub(*since) > setup_ns.saturating_add(grace_ns)).then_some(*function)
            };
            let in_flight: Vec<_> = state.in_flight.values().cloned().collect();
            (in_flight, state.in_setup.iter().find_map(late), state.generation, state.heartbeat.turned_ns())
        };
        let silence_ns = now_ns.saturating_sub(turned_ns);
        let silent = silence_ns > SILENCE_NS;
        let mut hung = silent && late_setup.is_some();
        let mut over = Vec::new();
        for calls in &in_flight {
            let looked = calls.look(now_ns, late_setup == Some(calls.function()));
            over.extend(looked.frame);
            // Calls of a replaced loop are not evidence about the newest one.
            hung |= looked.hung && calls.generation() == newest;
        }
        drop(over);
        let replaced = self.check_silence(silent, hung);
        for calls in &in_flight {
            if !replaced && calls.waits_long(now_ns) {
                calls.slots().expect_longer();
            } else if !replaced {
                continue;
            }
            self.finish(calls, calls.give_back_rest());
        }
        in_flight.iter().for_each(|calls| self.refill(calls));
        let busy = self.is_busy();
        if busy && silence_ns > STEP_NS {
            self.supervisor.push_once(SupervisorRequest::InspectLoop { index: self.index, generation: newest });
        }
        busy
    }

    /// Acts on the loop's silence; true if the loop was replaced.
    fn check_silence(&self, silent: bool, hung: bool) -> bool {
        let mut state = self.state.lock();
        if !silent {
            state.reported = false;
            state.hung = false;
        }
        state.hung |= hung;
        // A `setup()` that loads a model on its loop is not an error.
        if silent && (hung || state.in_setup.is_empty()) && !std::mem::replace(&mut state.reported, true) {
            state.heartbeat.blocked();
            warn!(index = self.index, "event loop blocked");
        }
        silent && state.hung && !state.closed && self.next_generation(&mut state).is_ok()
    }

    /// Requests a loop, or fails the frames that wait for one.
    fn start(&self, mut state: MutexGuard<'_, LoopState<F>>) {
        if let Err(error) = self.next_generation(&mut state) {
            let generation = state.generation;
            drop(state);
            self.fail_waiting(generation, &error.to_string());
        }
    }

    /// Requests the first loop, or one that takes over.
    fn next_generation(&self, state: &mut LoopState<F>) -> io::Result<()> {
        let wake = Wake::new()?;
        wake.notify();
        if let Some(replaced) = state.wake.replace(Arc::new(wake)) {
            replaced.notify(); // it must end, and may have no call in flight that wakes it
        }
        state.woken = true;
        state.generation += 1;
        state.alive += 1;
        state.reported = false;
        state.hung = false;
        state.in_setup.clear();
        state.heartbeat = Arc::default();
        state.heartbeat.beat(self.now_ns());
        let generation = state.generation;
        self.supervisor.push(SupervisorRequest::StartLoop { index: self.index, generation });
        Ok(())
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use std::thread::sleep;
    use std::time::Duration;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;
    use crate::asyncio_lane::call_slots::CallSlots;
    use crate::asyncio_lane::in_flight::Next;
    use crate::asyncio_lane::loop_queue::{LoopFrame, LoopQueue};
    use crate::tests::fake_frame::FakeFrame;

    const TIMEOUT: Duration = Duration::from_secs(1);
    const TIMEOUT_NS: u64 = 1_000_000_000;

    fn take_and_start(queue: &LoopQueue<FakeFrame>) -> Option<LoopFrame<FakeFrame>> {
        queue.take().inspect(|calls| {
            // A loop that has not turned for a while is to turn first, and this thread may wait.
            let mut starts = std::iter::repeat_with(|| {
                queue.turned();
                matches!(calls.start(), Next::Call { .. })
            });
            assert!(starts.by_ref().take(100).any(|started| started));
        })
    }

    fn is_woken(queue: &LoopQueue<FakeFrame>) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(&queue.fd(), PollFlags::IN)], Some(&now)) == Ok(1)
    }

    #[test]
    fn a_replaced_loop_is_woken_and_its_late_calls_replace_no_other() {
        let function = LoopFunction {
            timeouts: Timeouts::of(TIMEOUT, Duration::ZERO, Duration::MAX),
            slots: Arc::new(CallSlots::new(1)),
        };
        let (supervisor, functions) = (Arc::default(), [function].into());
        let owner = EventLoop::new(0, "loop".to_owned(), Clock::start(), functions, supervisor, Arc::default());
        let owner = Arc::new(owner);
        let late = FakeFrame::new(1);
        owner.push(FakeFrame::new(1));
        owner.push(late.clone());
        let hangs = LoopQueue::new(owner.clone(), 1).unwrap();
        let early = take_and_start(&hangs);
        let early_ends_ns = owner.now_ns() + TIMEOUT_NS;
        sleep(Duration::from_millis(5));
        assert!(early.is_some() && take_and_start(&hangs).is_some());
        hangs.drain();
        owner.check(early_ends_ns);
        assert!(owner.is_over(1) && !owner.is_over(2));
        assert!(is_woken(&hangs), "it is not told that it is to end");
        assert!(late.ends()[0].is_empty());
        // The second loop has nothing to do, so it shows nothing.
        owner.check(early_ends_ns + TIMEOUT_NS);
        assert!(late.ends()[0].starts_with("no answer"));
        assert!(!owner.is_over(2), "a loop without work was replaced");
    }
}
