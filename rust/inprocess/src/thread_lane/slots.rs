//! One function's part of the thread lane: its threads, the frames that wait for one, and how many
//! may run at a time. All fields are written under the lock of the pool.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::sync::Condvar;
use crate::thread_lane::running_frame::{FrameTimes, RunningFrame};
use crate::thread_lane::threads::{StateKind, ThreadState, Threads};

/// Mean run time of a call from which on a function gets all its threads.
const LONG_NS: u64 = 100_000;

/// Number of threads hanging in a function's calls from which on its calls fail at once: each takes
/// one of the threads and some of the memory that the trainer may have.
const MOST_ABANDONED: usize = 64;

/// State of a function's setup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setup {
    Needed,
    Running,
    Done,
}

/// Thread for a waiting frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assignment {
    /// A thread that exists or is being started.
    Nothing,
    /// A thread that must be started.
    Start,
}

/// State that a thread leaves behind when it ends.
pub struct ThreadRemains<F> {
    /// It must run the function's `close()` first.
    pub close: bool,
    /// It could not be started, or died before it requested work.
    pub unused: bool,
    /// The frame in which it died.
    pub died_in: Option<Arc<RunningFrame<F>>>,
    /// Frames that no thread is left to take, because it ended before it requested work.
    pub stranded: VecDeque<F>,
}

pub struct FunctionSlots<F> {
    /// The most counted threads.
    limit: usize,
    /// Frames that may run at a time now: 1 or `limit`.
    width: usize,
    waiting: VecDeque<F>,
    threads: Threads<F>,
    setup: Setup,
    /// The thread that runs `setup()`.
    sets_up: Option<u64>,
    /// Mean run time of its calls, the last frames counting most.
    mean_ns: Option<u64>,
    /// Number of abandoned threads at which the next warning is due.
    warn_at: u64,
}

impl<F> FunctionSlots<F> {
    pub const fn new(limit: usize) -> Self {
        Self {
            limit,
            width: 1,
            waiting: VecDeque::new(),
            threads: Threads::new(),
            setup: Setup::Needed,
            sets_up: None,
            mean_ns: None,
            warn_at: 1,
        }
    }

    pub const fn width(&self) -> usize {
        self.width
    }

    /// Returns the number of further frames that it takes now.
    pub fn room(&self) -> usize {
        self.width.saturating_sub(self.threads.count(StateKind::Running) + self.waiting.len())
    }

    /// Returns whether a frame has shown how long the calls take.
    pub const fn is_known(&self) -> bool {
        self.mean_ns.is_some()
    }

    pub fn running(&self) -> impl Iterator<Item = &Arc<RunningFrame<F>>> {
        self.threads.running()
    }

    pub fn of_thread(&self, thread: u64) -> Option<&Arc<RunningFrame<F>>> {
        if let Some(ThreadState::Running(frame)) = self.threads.get(thread) { Some(frame) } else { None }
    }

    pub const fn abandoned(&self) -> usize {
        self.threads.count(StateKind::Abandoned)
    }

    /// Returns the reason why its calls fail at once; `None` if they don't.
    pub fn refuses(&self) -> Option<String> {
        let abandoned = self.abandoned();
        (abandoned >= MOST_ABANDONED).then(|| {
            format!(
                "{abandoned} threads hang in earlier calls of this function, and a thread can't be killed: its calls fail until \
                 some of these return. Give what it waits for a timeout of its own, or use lane=\"process\", whose workers \
                 can be killed"
            )
        })
    }

    /// Returns whether a warning is due: with 1, 2, 4, 8, … abandoned threads.
    pub const fn warns(&mut self, abandoned: u64) -> bool {
        let due = abandoned >= self.warn_at;
        if due {
            self.warn_at = abandoned.saturating_mul(2);
        }
        due
    }

    pub fn has_threads(&self) -> bool {
        self.threads.counting() > 0
    }

    pub fn push(&mut self, frame: F) {
        self.waiting.push_back(frame);
    }

    /// Wakes a thread for a waiting frame, or returns that one must be started. Either thread
    /// counts as on its way afterwards.
    pub fn assign(&mut self) -> Assignment {
        let coming = [StateKind::Ordered, StateKind::Arriving, StateKind::Woken].map(|kind| self.threads.count(kind));
        if self.waiting.len() <= coming.iter().sum() || self.threads.wake_one() {
            return Assignment::Nothing;
        }
        if self.threads.counting() < self.limit { Assignment::Start } else { Assignment::Nothing }
    }

    /// Records that a thread was requested.
    pub fn start_thread(&mut self, thread: u64) {
        self.threads.set(thread, Some(ThreadState::Ordered));
    }

    /// Records that a thread requests work; false if it must end.
    pub fn arrives(&mut self, thread: u64) -> bool {
        match self.threads.get(thread) {
            None | Some(ThreadState::Abandoned) => false,
            Some(_) => {
                self.threads.set(thread, Some(ThreadState::Arriving));
                true
            }
        }
    }

    /// Records that a thread found no work. Returns the condition variable that wakes it.
    pub fn begin_wait(&mut self, thread: u64) -> Arc<Condvar> {
        let wake = match self.threads.set(thread, None) {
            Some(ThreadState::Waiting(wake) | ThreadState::Woken(wake)) => wake,
            _ => Arc::new(Condvar::new()),
        };
        self.threads.set(thread, Some(ThreadState::Waiting(wake.clone())));
        wake
    }

    /// Wakes all waiting threads, which then check whether they must end.
    pub fn wake_all(&self) {
        self.threads.wake_all();
    }

    /// Takes the next frame for this thread; the flag is true if the thread must run `setup()`
    /// first. `None` while another thread runs `setup()`.
    pub fn take(&mut self, thread: u64) -> Option<(F, bool)> {
        if self.setup == Setup::Running {
            return None;
        }
        let frame = self.waiting.pop_front()?;
        let sets_up = self.setup == Setup::Needed;
        if sets_up {
            self.setup = Setup::Running;
            self.sets_up = Some(thread);
        }
        Some((frame, sets_up))
    }

    pub fn begin(&mut self, running: Arc<RunningFrame<F>>) {
        self.threads.set(running.thread(), Some(ThreadState::Running(running)));
    }

    /// Records that a thread has run its frame and comes for another.
    pub fn finish(&mut self, thread: u64, spent: FrameTimes) {
        if self.of_thread(thread).is_some() {
            self.threads.set(thread, Some(ThreadState::Arriving));
            self.learn(spent);
        }
    }

    /// Abandons a thread, whose results don't count any more. Returns the number of abandoned
    /// threads, `None` if it ran nothing.
    pub fn abandon(&mut self, thread: u64, in_setup: bool) -> Option<u64> {
        self.of_thread(thread)?;
        self.threads.set(thread, Some(ThreadState::Abandoned));
        if in_setup {
            self.setup = Setup::Needed;
        }
        Some(self.abandoned() as u64)
    }

    /// Removes a thread that is about to end.
    pub fn leave(&mut self, thread: u64, closed: bool) -> ThreadRemains<F> {
        let before = self.threads.set(thread, None);
        let unused = matches!(before, Some(ThreadState::Ordered));
        let stranded = if unused && !self.has_threads() { self.drain() } else { VecDeque::new() };
        let died_in = if let Some(ThreadState::Running(frame)) = before { Some(frame) } else { None };
        if self.setup == Setup::Running && self.sets_up == Some(thread) {
            self.setup = Setup::Needed;
        }
        let close = closed && self.needs_close();
        if close {
            self.setup = Setup::Needed;
        }
        ThreadRemains { close, unused, died_in, stranded }
    }

    /// Returns whether the function was set up and no thread is left to close it.
    pub fn needs_close(&self) -> bool {
        !self.has_threads() && self.setup == Setup::Done
    }

    /// Records the end of `setup()`. Returns the frames that fail with it.
    pub fn end_setup(&mut self, ok: bool) -> VecDeque<F> {
        self.setup = if ok { Setup::Done } else { Setup::Needed };
        if ok { VecDeque::new() } else { self.drain() }
    }

    pub fn drain(&mut self) -> VecDeque<F> {
        std::mem::take(&mut self.waiting)
    }

    /// Allows all threads from now on; true if that is more than before.
    pub const fn widen(&mut self) -> bool {
        let wider = self.width < self.limit;
        self.width = self.limit;
        wider
    }

    /// Updates the mean run time. Cheap calls get one thread: the GIL allows one at a time anyway,
    /// and a hand-over costs more than such a call. Calls that take long, or wait, get all threads.
    fn learn(&mut self, spent: FrameTimes) {
        let Some(mean) = spent.run_ns.checked_div(spent.calls) else { return };
        let mean = self.mean_ns.map_or(mean, |known| known.midpoint(mean));
        self.mean_ns = Some(mean);
        let waits = spent.cpu_ns < spent.run_ns / 2 && mean > LONG_NS / 10;
        self.width = if mean >= LONG_NS || waits { self.limit } else { 1 };
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::frame::Timeouts;
    use crate::tests::fake_frame::FakeFrame;

    fn slots(limit: usize) -> FunctionSlots<FakeFrame> {
        FunctionSlots::new(limit)
    }

    /// A frame comes; whether a thread is ordered for it.
    fn push(slots: &mut FunctionSlots<FakeFrame>, thread: u64) -> bool {
        slots.push(FakeFrame::new(1));
        let start = slots.assign() == Assignment::Start;
        if start {
            slots.start_thread(thread);
        }
        start
    }

    /// A thread takes the next frame.
    fn take(slots: &mut FunctionSlots<FakeFrame>, thread: u64) -> bool {
        assert!(slots.arrives(thread));
        let Some((frame, sets_up)) = slots.take(thread) else { return false };
        let timeouts = Timeouts::of(Duration::from_secs(1), Duration::ZERO, Duration::from_secs(1));
        slots.begin(Arc::new(RunningFrame::new(thread, thread, timeouts, frame, sets_up, 0)));
        true
    }

    #[test]
    fn a_frame_wakes_an_idle_thread_before_another_is_started() {
        let mut slots = slots(2);
        assert!(push(&mut slots, 1));
        assert_eq!(slots.assign(), Assignment::Nothing, "one is on its way");
        assert!(take(&mut slots, 1));
        slots.end_setup(true);
        slots.finish(1, FrameTimes::default());
        assert!(slots.arrives(1));
        slots.begin_wait(1);
        assert!(!push(&mut slots, 2), "it is woken");
        assert!(push(&mut slots, 2));
        assert!(!push(&mut slots, 3), "two threads are the limit");
    }

    #[test]
    fn only_calls_that_take_long_or_wait_get_all_threads() {
        let mut slots = slots(8);
        let spent = |run_ns, cpu_ns| FrameTimes { calls: 1, run_ns, cpu_ns };
        for (run_ns, cpu_ns, width) in [(1_000, 1_000, 1), (50_000_000, 50_000_000, 8), (0, 0, 8)] {
            slots.learn(spent(run_ns, cpu_ns));
            assert_eq!(slots.width(), width);
        }
        let mut waits = FunctionSlots::<FakeFrame>::new(8);
        waits.learn(spent(20_000, 1_000));
        assert_eq!((waits.width(), waits.widen()), (8, false));
    }

    #[test]
    fn setup_runs_on_one_thread_and_close_on_the_last() {
        let mut slots = slots(2);
        assert!(push(&mut slots, 1) && push(&mut slots, 2));
        assert!(take(&mut slots, 1));
        assert!(!take(&mut slots, 2), "setup() runs");
        assert!(slots.end_setup(true).is_empty());
        assert!(take(&mut slots, 2));
        slots.finish(1, FrameTimes::default());
        slots.finish(2, FrameTimes::default());
        assert!(!slots.leave(1, true).close);
        assert!(slots.leave(2, true).close);
        assert!(!slots.needs_close(), "once");
    }

    #[test]
    fn an_abandoned_thread_makes_room_and_is_forgotten_when_it_ends() {
        let mut slots = slots(1);
        assert!(push(&mut slots, 1));
        assert!(take(&mut slots, 1));
        assert!(!push(&mut slots, 2));
        assert_eq!(slots.abandon(1, true), Some(1));
        assert_eq!(slots.abandon(1, true), None);
        assert_eq!(slots.assign(), Assignment::Start, "another takes its place");
        slots.start_thread(2);
        assert!(slots.leave(1, false).died_in.is_none() && slots.abandoned() == 0);
        assert!(take(&mut slots, 2), "setup() is tried again");
        assert_eq!(slots.end_setup(false).len(), 0);
    }

    #[test]
    fn calls_fail_at_once_while_too_many_threads_hang() {
        let mut slots = slots(1);
        let mut warned = Vec::new();
        for thread in 0..64 {
            assert!(slots.refuses().is_none(), "{thread}");
            assert!(push(&mut slots, thread) && take(&mut slots, thread));
            let abandoned = slots.abandon(thread, true).unwrap();
            if slots.warns(abandoned) {
                warned.push(abandoned);
            }
        }
        assert!(slots.refuses().is_some_and(|reason| reason.contains("64 threads hang")));
        assert_eq!(warned, [1, 2, 4, 8, 16, 32, 64]);
        slots.leave(5, false);
        assert!(slots.refuses().is_none(), "one has returned");
    }

    #[test]
    fn a_thread_that_dies_is_followed_by_another_wherever_it_was() {
        let mut slots = slots(1);
        assert!(push(&mut slots, 1));
        assert_eq!(slots.leave(1, false).stranded.len(), 1, "it never asked for work");
        assert!(push(&mut slots, 2) && take(&mut slots, 2));
        assert!(slots.leave(2, false).died_in.is_some());
        assert!(push(&mut slots, 3) && take(&mut slots, 3), "it died in setup(), which is tried again");
        slots.end_setup(true);
        slots.finish(3, FrameTimes::default());
        assert!(slots.leave(3, false).died_in.is_none(), "between two frames");
        assert!(push(&mut slots, 4) && take(&mut slots, 4));
        slots.finish(4, FrameTimes::default());
        assert!(slots.arrives(4));
        slots.begin_wait(4);
        assert!(!push(&mut slots, 5));
        assert_eq!(slots.leave(4, false).stranded.len(), 0, "it was woken, and had asked before");
        assert_eq!(slots.assign(), Assignment::Start);
    }
}
