//! The threads of the lane: which waits, which runs what, and when another is needed.
//!
//! A function has at most its limit of counted threads. A thread whose call ran past its timeout,
//! or was ended by the scheduler, is abandoned: another thread may take its place, later results
//! are dropped, and the thread ends when it comes back. While too many threads of a function hang,
//! its calls fail at once. `setup()` runs once, on the first thread, while the others wait (and
//! again with the next batch after a failure); `close()` runs once, on the last. A thread that dies
//! fails its running call, and another is started for the waiting frames.

use std::collections::VecDeque;
use std::sync::Arc;

use guerdon_core::clock::Clock;
use guerdon_core::function::{Function, FunctionId, Shape};
use guerdon_core::outcome::{Failure, Times};
use guerdon_core::tracer::Executor;
use tokio::sync::Notify;

use crate::frame::{CallFrame, Timeouts};
use crate::supervisor::{SupervisedLane, SupervisorQueue, SupervisorRequest};
use crate::sync::Mutex;
use crate::thread_lane::running_frame::{Abandon, CheckResult, Death, FrameTimes, RunningFrame, Step};
use crate::thread_lane::slots::{Assignment, FunctionSlots};
use crate::time;

/// Threads of a function without a `concurrency`.
const THREADS: usize = 8;

struct Slots<F> {
    closed: bool,
    /// True while the watchdog runs.
    watched: bool,
    functions: Vec<FunctionSlots<F>>,
    last_thread: u64,
    /// Number of existing threads, abandoned ones included.
    alive: usize,
}

pub struct ThreadPool<F> {
    clock: Clock,
    supervisor: Arc<SupervisorQueue>,
    timeouts: Vec<Timeouts>,
    /// Written by the scheduler's frames, by the threads and by the watchdog.
    slots: Mutex<Slots<F>>,
    /// Notified when a thread has ended.
    pub ended: Notify,
}

/// A frame that one thread runs. Only this thread calls these methods.
pub struct ThreadFrame<F: CallFrame> {
    pool: Arc<ThreadPool<F>>,
    function: FunctionId,
    running: Arc<RunningFrame<F>>,
    in_setup: bool,
}

/// The most threads that a function has at a time.
#[must_use]
pub fn most_threads(function: &Function) -> usize {
    let usual = if function.shape == Shape::Batch { 1 } else { THREADS };
    function.policy.concurrency.unwrap_or(usual)
}

impl<F: CallFrame> ThreadPool<F> {
    pub fn new(clock: Clock, functions: &[Function], supervisor: Arc<SupervisorQueue>) -> Self {
        let slots = Slots {
            closed: false,
            watched: false,
            functions: functions.iter().map(|function| FunctionSlots::new(most_threads(function))).collect(),
            last_thread: 0,
            alive: 0,
        };
        Self {
            clock,
            supervisor,
            timeouts: functions.iter().map(|function| Timeouts::from(&function.policy)).collect(),
            slots: Mutex::new(slots),
            ended: Notify::new(),
        }
    }

    pub fn room(&self, function: FunctionId) -> usize {
        let slots = self.slots.lock();
        if slots.closed { 0 } else { slots.functions.get(function).map_or(0, FunctionSlots::room) }
    }

    pub fn width(&self, function: FunctionId) -> usize {
        self.slots.lock().functions.get(function).map_or(1, FunctionSlots::width)
    }

    pub fn is_known(&self, function: FunctionId) -> bool {
        self.slots.lock().functions.get(function).is_some_and(FunctionSlots::is_known)
    }

    /// Number of threads that were abandoned and have not come back.
    pub fn abandoned(&self) -> usize {
        self.slots.lock().functions.iter().map(FunctionSlots::abandoned).sum()
    }

    /// Returns whether no thread is left.
    pub fn is_gone(&self) -> bool {
        self.slots.lock().alive == 0
    }

    /// Returns the frames that threads run, without those of abandoned threads.
    pub fn running(&self) -> Vec<(FunctionId, Arc<RunningFrame<F>>)> {
        Self::all_running(&self.slots.lock())
    }

    fn all_running(slots: &Slots<F>) -> Vec<(FunctionId, Arc<RunningFrame<F>>)> {
        let each = slots.functions.iter().enumerate();
        each.flat_map(|(function, one)| one.running().map(move |running| (function, running.clone()))).collect()
    }

    pub fn push(&self, frame: F) {
        let function = frame.function_id();
        let mut slots = self.slots.lock();
        if slots.closed {
            drop(slots);
            drop(frame);
            return;
        }
        slots.functions[function].push(frame);
        if slots.functions[function].refuses().is_some() {
            drop(slots);
            self.refuse_waiting(function);
            return;
        }
        self.assign(&mut slots, function);
    }

    /// Waits for work for this thread (`ident` in Python); `None` if it must end. The flag beside
    /// the frame is true if the watchdog must be started.
    pub fn next_frame(
        self: &Arc<Self>,
        function: FunctionId,
        thread: u64,
        ident: u64,
    ) -> Option<(ThreadFrame<F>, bool)> {
        let mut slots = self.slots.lock();
        loop {
            let closed = slots.closed;
            let one = slots.functions.get_mut(function)?;
            if !one.arrives(thread) || closed {
                return None;
            }
            if let Some((mut frame, in_setup)) = one.take(thread) {
                frame.set_executor(|| Executor::Thread(thread));
                let now_ns = time::now_ns(self.clock);
                let running = RunningFrame::new(thread, ident, self.timeouts[function], frame, in_setup, now_ns);
                let running = Arc::new(running);
                one.begin(running.clone());
                let watch = !std::mem::replace(&mut slots.watched, true);
                return Some((ThreadFrame { pool: self.clone(), function, running, in_setup }, watch));
            }
            one.begin_wait(thread).wait(&mut slots);
        }
    }

    /// Removes a thread that is about to end, by itself or because of an exception; true if it must
    /// run the function's `close()` first.
    pub fn leave(&self, function: FunctionId, thread: u64, death: Option<Death<'_>>) -> bool {
        let left = {
            let mut slots = self.slots.lock();
            let closed = slots.closed;
            let Some(one) = slots.functions.get_mut(function) else { return false };
            let left = one.leave(thread, closed);
            if !closed {
                // It may have been about to take a waiting frame, or to end `setup()`.
                one.wake_all();
                // If no thread can be started, another attempt would fail too: the present threads
                // take the waiting frames.
                if !left.unused {
                    self.assign(&mut slots, function);
                }
            }
            left
        };
        let death = death.unwrap_or_default();
        if let Some(running) = left.died_in {
            drop(running.die(time::now_ns(self.clock), death));
        }
        fail(left.stranded, &format!("no thread could be started: {}", death.reason));
        left.close
    }

    /// Sets the stack of a thread after a request.
    pub fn set_stack(&self, thread: u64, stack: String) {
        let running = self.slots.lock().functions.iter().find_map(|one| one.of_thread(thread).cloned());
        if let Some(running) = running {
            running.set_stack(stack);
        }
    }

    /// Records that a thread has ended.
    pub fn thread_ended(&self) {
        {
            let mut slots = self.slots.lock();
            slots.alive -= 1;
            self.release_supervisor(&slots);
        }
        self.ended.notify_waiters();
    }

    /// Makes a check for the watchdog. Returns the functions that turned out to take long, or
    /// `None` if nothing runs and the watchdog may stop.
    pub fn check(&self) -> Option<Vec<FunctionId>> {
        let running = {
            let mut slots = self.slots.lock();
            let running = Self::all_running(&slots);
            if running.is_empty() {
                slots.watched = false;
                return None;
            }
            running
        };
        let now_ns = time::now_ns(self.clock);
        let slow = |(function, frame): (FunctionId, Arc<RunningFrame<F>>)| {
            self.check_frame(function, &frame, now_ns).then_some(function)
        };
        Some(running.into_iter().filter_map(slow).collect())
    }

    /// Returns whether the frame's call takes long.
    pub(crate) fn check_frame(&self, function: FunctionId, frame: &RunningFrame<F>, now_ns: u64) -> bool {
        let thread = frame.thread();
        match frame.check(now_ns, |why| self.abandon(function, frame.thread(), why)) {
            CheckResult::InTime => false,
            CheckResult::Slow => true,
            CheckResult::OutOfTime => {
                self.supervisor.push(SupervisorRequest::ReadStack { thread: frame.thread(), ident: frame.ident() });
                true
            }
            CheckResult::Abandoned(frame) => {
                frame.trace_abandoned(thread);
                drop(frame);
                self.refuse_waiting(function);
                false
            }
        }
    }

    /// Allows a function all its threads; true if that makes room.
    pub fn widen(&self, function: FunctionId) -> bool {
        self.slots.lock().functions[function].widen()
    }

    /// Ends the threads as they come back. A second call does nothing: the supervisor may have
    /// ended, and the first call decided what a function's last thread does.
    pub fn close(&self) {
        let mut dropped = Vec::new();
        {
            let mut slots = self.slots.lock();
            if std::mem::replace(&mut slots.closed, true) {
                return;
            }
            for function in 0..slots.functions.len() {
                let one = &mut slots.functions[function];
                dropped.extend(one.drain());
                one.wake_all();
                if one.needs_close() {
                    self.order_thread(&mut slots, function); // it runs `close()`
                }
            }
            self.release_supervisor(&slots);
        }
        drop(dropped);
    }

    /// Assigns a thread to the waiting frames of this function.
    fn assign(&self, slots: &mut Slots<F>, function: FunctionId) {
        if slots.functions[function].assign() == Assignment::Start {
            self.order_thread(slots, function);
        }
    }

    fn order_thread(&self, slots: &mut Slots<F>, function: FunctionId) {
        slots.alive += 1;
        slots.last_thread += 1;
        slots.functions[function].start_thread(slots.last_thread);
        self.supervisor.push(SupervisorRequest::StartThread { function, thread: slots.last_thread });
    }

    fn abandon(&self, function: FunctionId, thread: u64, why: Abandon) {
        let mut slots = self.slots.lock();
        let one = &mut slots.functions[function];
        let Some(count) = one.abandon(thread, why == Abandon::InSetup) else { return };
        if why != Abandon::Swept && one.warns(count) {
            self.supervisor.push(SupervisorRequest::ThreadAbandoned { function, count });
        }
        self.assign(&mut slots, function);
        self.release_supervisor(&slots);
    }

    /// Fails the waiting frames of a function with too many hanging threads.
    fn refuse_waiting(&self, function: FunctionId) {
        let (waiting, reason) = {
            let mut slots = self.slots.lock();
            let one = &mut slots.functions[function];
            let Some(reason) = one.refuses() else {
                return self.assign(&mut slots, function); // one has returned just now
            };
            (one.drain(), reason)
        };
        fail(waiting, &reason);
    }

    /// Records the end of `setup()`. If it failed, the waiting frames fail too.
    fn end_setup(&self, function: FunctionId, failed: Option<(&str, Option<&str>)>) {
        let waiting: VecDeque<F> = {
            let mut slots = self.slots.lock();
            let one = &mut slots.functions[function];
            one.wake_all();
            one.end_setup(failed.is_none())
        };
        if let Some((reason, traceback)) = failed {
            for mut frame in waiting {
                frame.fail_setup(reason.to_owned(), traceback.map(str::to_owned));
            }
        }
    }

    fn finish(&self, function: FunctionId, thread: u64, spent: FrameTimes) {
        self.slots.lock().functions[function].finish(thread, spent);
    }

    fn release_supervisor(&self, slots: &Slots<F>) {
        if slots.closed && !slots.functions.iter().any(FunctionSlots::has_threads) {
            self.supervisor.close(SupervisedLane::Thread);
        }
    }
}

/// Fails all calls of these frames, none of which has begun.
fn fail<F: CallFrame>(frames: VecDeque<F>, reason: &str) {
    for mut frame in frames {
        frame.fail_setup(reason.to_owned(), None);
    }
}

impl<F: CallFrame> ThreadFrame<F> {
    /// Returns whether this thread must run the function's `setup()` first.
    pub const fn in_setup(&self) -> bool {
        self.in_setup
    }

    /// Returns the value that `read` gives for the frame and the running call; `None` if the
    /// watchdog has taken it.
    pub fn read<T>(&self, read: impl FnOnce(&mut F, Option<usize>) -> T) -> Option<T> {
        self.running.read(read)
    }

    pub fn end_setup(&self) {
        if self.running.end_setup() {
            self.pool.end_setup(self.function, None);
        }
    }

    pub fn fail_setup(&self, reason: &str, traceback: Option<&str>) {
        if self.running.fail_setup(reason, traceback) {
            self.pool.end_setup(self.function, Some((reason, traceback)));
            self.next(self.running.give_up());
        }
    }

    /// Starts the first call. Like the functions that end a call, it returns how many calls were
    /// skipped before the next one; `None` if no call is left.
    pub fn start(&self) -> Option<usize> {
        self.next(self.running.start(time::now_ns(self.pool.clock)))
    }

    /// Ends the running call and starts the next.
    pub fn end(&self, end: impl FnOnce(&mut F, usize, Times)) -> Option<usize> {
        self.next(self.running.end(time::now_ns(self.pool.clock), end))
    }

    /// Fails the running call and starts the next.
    pub fn fail(&self, failure: Failure) -> Option<usize> {
        self.next(self.running.fail(time::now_ns(self.pool.clock), failure))
    }

    fn next(&self, step: Step<F>) -> Option<usize> {
        match step {
            Step::Call { skipped } => return Some(skipped),
            Step::Taken => {}
            Step::Finished { spent, frame } => {
                // The slot becomes free before the frame is dropped, so that the scheduler finds
                // room. The frame is dropped before the thread requests another, so that one is
                // available.
                self.pool.finish(self.function, self.running.thread(), spent);
                drop(frame);
            }
        }
        None
    }
}

/// A thread that drops its frame early has died.
impl<F: CallFrame> Drop for ThreadFrame<F> {
    fn drop(&mut self) {
        if let Some(frame) = self.running.die(time::now_ns(self.pool.clock), Death::default()) {
            self.pool.finish(self.function, self.running.thread(), FrameTimes::default());
            drop(frame);
        }
    }
}
