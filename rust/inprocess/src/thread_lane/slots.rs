//! One function's share of the thread lane: its threads, the frames that wait for one, and how many
//! may run at a time. All fields are written under the lock of the pool.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::thread_lane::running_frame::{RunningFrame, Spent};

/// Mean run time of a call from which a function gets all its threads.
const LONG_NS: u64 = 100_000;

/// Whether a function is ready for calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setup {
    Needed,
    Running,
    Done,
}

/// Who is to take a frame that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assigned {
    /// A thread that is on its way, or the next that is free.
    Nothing,
    /// A thread that waits: it must be woken.
    Wake,
    /// A thread that must be started.
    Start,
}

pub struct FunctionSlots<F> {
    /// The most threads that count.
    limit: usize,
    /// Frames that may run at a time now: 1 or `limit`.
    width: usize,
    waiting: VecDeque<F>,
    /// Frames that threads run, by thread.
    running: BTreeMap<u64, Arc<RunningFrame<F>>>,
    /// Threads that wait for work, those woken included.
    idle: usize,
    /// Of these, the ones that were woken and have not looked yet.
    woken: usize,
    /// Threads on their way to ask for work: being started, or between two frames.
    arriving: usize,
    /// Threads that count: all but the abandoned ones.
    threads: usize,
    abandoned: BTreeSet<u64>,
    setup: Setup,
    /// Mean run time of its calls, the last frames counting most.
    mean_ns: Option<u64>,
}

impl<F> FunctionSlots<F> {
    pub const fn new(limit: usize) -> Self {
        Self {
            limit,
            width: 1,
            waiting: VecDeque::new(),
            running: BTreeMap::new(),
            idle: 0,
            woken: 0,
            arriving: 0,
            threads: 0,
            abandoned: BTreeSet::new(),
            setup: Setup::Needed,
            mean_ns: None,
        }
    }

    pub const fn width(&self) -> usize {
        self.width
    }

    /// How many more frames it would take now.
    pub fn room(&self) -> usize {
        self.width.saturating_sub(self.running.len() + self.waiting.len())
    }

    /// Whether a frame has told how long the calls take.
    pub const fn is_known(&self) -> bool {
        self.mean_ns.is_some()
    }

    pub fn running(&self) -> impl Iterator<Item = &Arc<RunningFrame<F>>> {
        self.running.values()
    }

    pub fn of_thread(&self, thread: u64) -> Option<&Arc<RunningFrame<F>>> {
        self.running.get(&thread)
    }

    pub fn abandoned(&self) -> usize {
        self.abandoned.len()
    }

    pub fn is_abandoned(&self, thread: u64) -> bool {
        self.abandoned.contains(&thread)
    }

    pub const fn has_threads(&self) -> bool {
        self.threads > 0
    }

    pub fn push(&mut self, frame: F) {
        self.waiting.push_back(frame);
    }

    /// Who takes what waits; counted as on its way from here on.
    pub fn assign(&mut self) -> Assigned {
        if self.waiting.len() <= self.arriving + self.woken {
            Assigned::Nothing
        } else if self.idle > self.woken {
            self.woken += 1;
            Assigned::Wake
        } else if self.threads < self.limit {
            self.start_thread();
            Assigned::Start
        } else {
            Assigned::Nothing
        }
    }

    /// A thread was ordered.
    pub const fn start_thread(&mut self) {
        self.threads += 1;
        self.arriving += 1;
    }

    /// A thread that was on its way asks for work.
    pub const fn arrived(&mut self) {
        self.arriving = self.arriving.saturating_sub(1);
    }

    pub const fn begin_wait(&mut self) {
        self.idle += 1;
    }

    pub const fn end_wait(&mut self) {
        self.idle -= 1;
        self.woken = self.woken.saturating_sub(1);
    }

    /// The next frame, and whether its thread must run `setup()` first; none while that runs.
    pub fn take(&mut self) -> Option<(F, bool)> {
        if self.setup == Setup::Running {
            return None;
        }
        let frame = self.waiting.pop_front()?;
        let sets_up = self.setup == Setup::Needed;
        if sets_up {
            self.setup = Setup::Running;
        }
        Some((frame, sets_up))
    }

    pub fn begin(&mut self, running: Arc<RunningFrame<F>>) {
        self.running.insert(running.thread(), running);
    }

    /// A thread has run its frame, and comes for another.
    pub fn finish(&mut self, thread: u64, spent: Spent) {
        if self.running.remove(&thread).is_some() {
            self.arriving += 1;
            self.learn(spent);
        }
    }

    /// A thread counts no more, nor does what it brings; how many such there are, unless it had
    /// nothing in hand.
    pub fn abandon(&mut self, thread: u64, in_setup: bool) -> Option<u64> {
        self.running.remove(&thread)?;
        self.threads -= 1;
        self.abandoned.insert(thread);
        if in_setup {
            self.setup = Setup::Needed;
        }
        Some(self.abandoned.len() as u64)
    }

    /// A thread is about to end; true if it must run the function's `close()` first.
    pub fn leave(&mut self, thread: u64, closed: bool) -> bool {
        if !self.abandoned.remove(&thread) {
            self.threads -= 1;
        }
        let close = closed && self.needs_close();
        if close {
            self.setup = Setup::Needed;
        }
        close
    }

    /// Whether the function was set up, and no thread is there to close it.
    pub fn needs_close(&self) -> bool {
        self.threads == 0 && self.setup == Setup::Done
    }

    /// A thread that was ordered could not be started; what no other will take.
    pub fn not_started(&mut self) -> VecDeque<F> {
        self.arriving -= 1;
        self.threads -= 1;
        if self.threads == 0 { self.drain() } else { VecDeque::new() }
    }

    /// `setup()` has ended; what fails with it.
    pub fn end_setup(&mut self, ok: bool) -> VecDeque<F> {
        self.setup = if ok { Setup::Done } else { Setup::Needed };
        if ok { VecDeque::new() } else { self.drain() }
    }

    pub fn drain(&mut self) -> VecDeque<F> {
        std::mem::take(&mut self.waiting)
    }

    /// All threads from now on; whether that is more than before.
    pub const fn widen(&mut self) -> bool {
        let wider = self.width < self.limit;
        self.width = self.limit;
        wider
    }

    /// Cheap calls get one thread: the GIL lets one run at a time anyway, and a hand-over costs
    /// more than such a call. Calls that take long, or wait, get all.
    fn learn(&mut self, spent: Spent) {
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
    use crate::fake_frame::FakeFrame;
    use crate::frame::Timeouts;

    fn slots(limit: usize) -> FunctionSlots<FakeFrame> {
        FunctionSlots::new(limit)
    }

    /// A thread takes the next frame.
    fn take(slots: &mut FunctionSlots<FakeFrame>, thread: u64) -> bool {
        slots.arrived();
        let Some((frame, sets_up)) = slots.take() else { return false };
        let timeouts = Timeouts::of(Duration::from_secs(1), Duration::ZERO, Duration::from_secs(1));
        slots.begin(Arc::new(RunningFrame::new(thread, thread, timeouts, frame, sets_up, 0)));
        true
    }

    #[test]
    fn a_frame_wakes_an_idle_thread_before_another_is_started() {
        let mut slots = slots(2);
        slots.push(FakeFrame::new(1));
        assert_eq!(slots.assign(), Assigned::Start);
        assert_eq!(slots.assign(), Assigned::Nothing, "one is on its way");
        assert!(take(&mut slots, 1));
        slots.end_setup(true);
        slots.finish(1, Spent::default());
        slots.arrived();
        slots.begin_wait();
        slots.push(FakeFrame::new(1));
        assert_eq!((slots.assign(), slots.assign()), (Assigned::Wake, Assigned::Nothing));
        slots.push(FakeFrame::new(1));
        assert_eq!(slots.assign(), Assigned::Start);
        slots.push(FakeFrame::new(1));
        assert_eq!(slots.assign(), Assigned::Nothing, "two threads are the limit");
    }

    #[test]
    fn only_calls_that_take_long_or_wait_get_all_threads() {
        let mut slots = slots(8);
        let spent = |run_ns, cpu_ns| Spent { calls: 1, run_ns, cpu_ns };
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
        for _ in 0..2 {
            slots.push(FakeFrame::new(1));
            assert_eq!(slots.assign(), Assigned::Start);
        }
        assert!(take(&mut slots, 1));
        assert!(!take(&mut slots, 2), "setup() runs");
        assert!(slots.end_setup(true).is_empty());
        assert!(take(&mut slots, 2));
        slots.finish(1, Spent::default());
        slots.finish(2, Spent::default());
        assert!(!slots.leave(1, true));
        assert!(slots.leave(2, true));
        assert!(!slots.needs_close(), "once");
    }

    #[test]
    fn an_abandoned_thread_makes_room_and_is_forgotten_when_it_ends() {
        let mut slots = slots(1);
        slots.push(FakeFrame::new(1));
        assert_eq!(slots.assign(), Assigned::Start);
        assert!(take(&mut slots, 1));
        slots.push(FakeFrame::new(1));
        assert_eq!(slots.assign(), Assigned::Nothing);
        assert_eq!(slots.abandon(1, true), Some(1));
        assert_eq!(slots.abandon(1, true), None);
        assert_eq!(slots.assign(), Assigned::Start, "another takes its place");
        assert!(!slots.leave(1, false) && slots.abandoned() == 0);
        assert!(take(&mut slots, 2), "setup() is tried again");
        assert_eq!(slots.end_setup(false).len(), 0);
    }
}
