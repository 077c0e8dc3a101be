//! A frame that a Python thread runs: one call at a time, each ended before the next is started.
//!
//! - Its thread or the watchdog ends a call, whichever comes first; the other finds no frame.
//! - A call that came back after its timeout timed out, even before the watchdog's next check.
//! - The stack of a call that is out of time is requested before the call is ended, and must come
//!   within `STACK_NS`, since C code may hold the GIL.

use guerdon_core::frame::Frame;
use guerdon_core::in_flight::{InFlightCall, Phase};
use guerdon_core::outcome::{Failure, FailureKind, Times, Traceback};
use guerdon_core::timeout_messages::{no_answer, timed_out};

use crate::frame::{CallFrame, Timeouts};
use crate::sync::{Mutex, MutexGuard};
use crate::time::thread_cpu_ns;

/// Time in which Python must locate a call. While C code holds the GIL, callers that wait for the
/// outcome also wait for the GIL, so a longer time costs them nothing, and a busy machine needs it.
const STACK_NS: u64 = 500_000_000;
/// Age of a call, or of the whole frame, at which the calls behind it go back to the scheduler.
const TAKE_BACK_NS: u64 = 20_000_000;
/// Time of a call above which its function counts as slow.
const SLOW_NS: u64 = 2_000_000;

/// Times of a frame's calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct FrameTimes {
    pub calls: u64,
    pub run_ns: u64,
    /// Processor time of the thread, over the whole frame.
    pub cpu_ns: u64,
}

/// Next step after a call.
pub enum Step<F> {
    /// The next call has begun; `skipped` calls before it had ended meanwhile.
    Call { skipped: usize },
    /// It was the last call.
    Finished { spent: FrameTimes, frame: Box<F> },
    /// The watchdog has taken the frame.
    Taken,
}

/// Result of a check by the watchdog.
#[derive(Debug)]
pub enum CheckResult<F> {
    InTime,
    /// The running call takes long.
    Slow,
    /// It is out of time: the stack of its thread must be requested.
    OutOfTime,
    /// Its thread was abandoned; drop the frame without a lock held.
    Abandoned(Box<F>),
}

/// Reason for abandoning a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abandon {
    /// Its call ran past the timeout.
    TimedOut,
    /// Its call was ended by the scheduler.
    Swept,
    /// `setup()` ran past `setup_timeout`.
    InSetup,
}

/// Cause that ended a thread with a running frame.
#[derive(Clone, Copy, Debug)]
pub struct Death<'a> {
    pub reason: &'a str,
    pub traceback: Option<&'a str>,
}

impl Default for Death<'_> {
    fn default() -> Self {
        Self { reason: "its thread ended before it did", traceback: None }
    }
}

struct RunState<F> {
    /// Taken by its thread or by the watchdog, which then ends the frame.
    frame: Option<F>,
    /// The next call to start, and the end of the calls that were not taken back.
    cursor: usize,
    end: usize,
    current: Option<usize>,
    /// The call whose stack was requested, and when; then its stack.
    stack_request: Option<(usize, u64)>,
    stack: Option<String>,
    /// `setup()` has been running since `started_ns`.
    in_setup: bool,
    started_ns: u64,
    /// The start of the first call.
    began_ns: u64,
    spent: FrameTimes,
    cpu_from_ns: u64,
}

pub struct RunningFrame<F> {
    thread: u64,
    /// Python's id of the thread.
    ident: u64,
    timeouts: Timeouts,
    /// Written by the frame's thread and by the watchdog.
    state: Mutex<RunState<F>>,
}

impl<F: CallFrame> RunningFrame<F> {
    pub fn new(thread: u64, ident: u64, timeouts: Timeouts, frame: F, in_setup: bool, now_ns: u64) -> Self {
        let state = RunState {
            cursor: 0,
            end: frame.calls(),
            current: None,
            stack_request: None,
            stack: None,
            in_setup,
            started_ns: now_ns,
            began_ns: 0,
            spent: FrameTimes::default(),
            cpu_from_ns: thread_cpu_ns(),
            frame: Some(frame),
        };
        Self { thread, ident, timeouts, state: Mutex::new(state) }
    }

    /// Returns the value that `read` gives for the frame and the running call; `None` if the frame
    /// was taken.
    pub fn read<T>(&self, read: impl FnOnce(&mut F, Option<usize>) -> T) -> Option<T> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        state.frame.as_mut().map(|frame| read(frame, state.current))
    }

    /// Sets the stack of the call for which it was requested.
    pub fn set_stack(&self, stack: String) {
        let mut state = self.state.lock();
        if state.stack_request.is_some_and(|(call, _)| state.current == Some(call)) {
            state.stack = Some(stack);
        }
    }

    /// Starts the first call.
    pub fn start(&self, now_ns: u64) -> Step<F> {
        let mut state = self.state.lock();
        state.began_ns = now_ns;
        Self::advance(state, now_ns)
    }

    /// Ends the running call and starts the next.
    pub fn end(&self, now_ns: u64, end: impl FnOnce(&mut F, usize, Times)) -> Step<F> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let started_ns = state.started_ns;
        let Some(call) = state.current.take() else { return Step::Taken };
        let Some(frame) = state.frame.as_mut() else { return Step::Taken };
        let times = Times { started_ns, run_ns: now_ns.saturating_sub(started_ns) };
        if times.run_ns > self.timeouts.call_ns {
            let stack = state.stack.take().filter(|_| state.stack_request.is_some_and(|(asked, _)| asked == call));
            frame.fail(call, timed_out(no_answer(self.timeouts.call), stack), times);
        } else {
            end(frame, call, times);
        }
        state.spent.calls += 1;
        state.spent.run_ns += times.run_ns;
        Self::advance(guard, now_ns)
    }

    /// Starts no more calls: the rest goes back to the scheduler with the frame.
    pub fn give_up(&self) -> Step<F> {
        let mut state = self.state.lock();
        state.cursor = state.end;
        Self::advance(state, 0)
    }

    /// Ends the calls after the death of their thread. The running call fails, or the next one if
    /// none ran, so that a frame which kills every thread comes to an end. The remaining calls go
    /// back to the scheduler with the frame, which must be dropped without a lock held.
    pub fn die(&self, now_ns: u64, death: Death<'_>) -> Option<Box<F>> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let mut frame = state.frame.take()?;
        let (reason, traceback) = (death.reason.to_owned(), death.traceback.map(str::to_owned));
        if state.in_setup {
            frame.fail_setup(reason, traceback);
            return Some(Box::new(frame));
        }
        frame.complete_ended();
        let started_ns = if state.current.is_some() { state.started_ns } else { now_ns };
        let next = || (state.cursor..state.end).find(|call| frame.is_pending(*call) && frame.is_open(*call));
        if let Some(call) = state.current.take().or_else(next) {
            let traceback = traceback.map(Traceback::Raised);
            let failure = Failure { traceback, ..Failure::new(FailureKind::Error, reason) };
            frame.fail(call, failure, Times { started_ns, run_ns: now_ns.saturating_sub(started_ns) });
        }
        Some(Box::new(frame))
    }

    /// Records that `setup()` succeeded; false if the watchdog has abandoned it.
    pub fn end_setup(&self) -> bool {
        let mut state = self.state.lock();
        state.in_setup = false;
        state.frame.is_some()
    }

    /// Fails all calls, because `setup()` failed; false if the watchdog has abandoned it.
    pub fn fail_setup(&self, reason: &str, traceback: Option<&str>) -> bool {
        let mut state = self.state.lock();
        state.in_setup = false;
        let Some(frame) = state.frame.as_mut() else { return false };
        frame.fail_setup(reason.to_owned(), traceback.map(str::to_owned));
        state.cursor = state.end;
        true
    }

    /// Completes the calls that have ended.
    pub fn complete_ended(&self) {
        if let Some(frame) = self.state.lock().frame.as_mut() {
            frame.complete_ended();
        }
    }

    /// Makes a check for the watchdog. `abandon` is called with the frame locked, so that its
    /// thread can't request another frame meanwhile.
    pub fn check(&self, now_ns: u64, abandon: impl FnOnce(Abandon)) -> CheckResult<F> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let Some(frame) = state.frame.as_mut() else { return CheckResult::InTime };
        let age_ns = now_ns.saturating_sub(state.started_ns);
        let why = if state.in_setup {
            if age_ns < self.timeouts.setup_ns {
                return CheckResult::InTime;
            }
            frame.time_out_setup(None);
            Abandon::InSetup
        } else {
            frame.complete_ended();
            let Some(call) = state.current else { return CheckResult::InTime };
            let swept = !frame.is_open(call);
            if !swept && age_ns < self.timeouts.call_ns {
                return Self::check_pace(state, now_ns, age_ns);
            }
            if !swept {
                match state.stack_request.filter(|(asked, _)| *asked == call) {
                    None => {
                        (state.stack_request, state.stack) = (Some((call, now_ns)), None);
                        return CheckResult::OutOfTime;
                    }
                    Some((_, at_ns)) if state.stack.is_none() && now_ns.saturating_sub(at_ns) < STACK_NS => {
                        return CheckResult::Slow;
                    }
                    Some(_) => {}
                }
                let times = Times { started_ns: state.started_ns, run_ns: age_ns };
                frame.fail(call, timed_out(no_answer(self.timeouts.call), state.stack.take()), times);
            }
            if swept { Abandon::Swept } else { Abandon::TimedOut }
        };
        abandon(why);
        state.frame.take().map_or(CheckResult::InTime, |frame| CheckResult::Abandoned(Box::new(frame)))
    }

    /// Takes back the calls behind a slow one, or the rest of a frame that has taken long.
    fn check_pace(state: &mut RunState<F>, now_ns: u64, age_ns: u64) -> CheckResult<F> {
        let frame_ns = now_ns.saturating_sub(state.began_ns);
        if let Some(frame) = state.frame.as_mut()
            && age_ns.max(frame_ns) >= TAKE_BACK_NS
            && state.cursor < state.end
        {
            let behind = state.cursor..state.end;
            state.end = state.cursor;
            frame.observe(age_ns.max(frame_ns / (state.spent.calls + 1)));
            frame.give_back(behind);
        }
        if age_ns >= SLOW_NS { CheckResult::Slow } else { CheckResult::InTime }
    }

    fn advance(mut guard: MutexGuard<'_, RunState<F>>, now_ns: u64) -> Step<F> {
        let state = &mut *guard;
        let Some(frame) = state.frame.as_ref() else { return Step::Taken };
        let behind = state.cursor;
        while state.cursor < state.end {
            let call = state.cursor;
            state.cursor += 1;
            if frame.is_pending(call) && frame.is_open(call) {
                state.current = Some(call);
                state.started_ns = now_ns;
                return Step::Call { skipped: call - behind };
            }
        }
        state.spent.cpu_ns = thread_cpu_ns().saturating_sub(state.cpu_from_ns);
        let spent = state.spent;
        let frame = state.frame.take();
        frame.map_or(Step::Taken, |frame| Step::Finished { spent, frame: Box::new(frame) })
    }

    /// Fails the running call.
    pub fn fail(&self, now_ns: u64, failure: Failure) -> Step<F> {
        self.end(now_ns, |frame, call, times| frame.fail(call, failure, times))
    }
}

impl<F> RunningFrame<F> {
    pub const fn thread(&self) -> u64 {
        self.thread
    }

    pub const fn ident(&self) -> u64 {
        self.ident
    }
}

impl RunningFrame<Frame> {
    /// Returns a snapshot of the running call.
    pub fn inspect(&self, now_ns: u64) -> Option<InFlightCall> {
        let state = self.state.lock();
        let frame = state.frame.as_ref()?;
        let age_ns = now_ns.saturating_sub(state.started_ns);
        if state.in_setup {
            return Some(InFlightCall::before(frame, Phase::Setup, age_ns));
        }
        state.current.map(|call| InFlightCall::call(frame, call, age_ns))
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::tests::fake_frame::FakeFrame;

    const MS: u64 = 1_000_000;

    fn running(calls: usize, in_setup: bool) -> (RunningFrame<FakeFrame>, FakeFrame) {
        let frame = FakeFrame::new(calls);
        let timeouts = Timeouts::of(Duration::from_millis(100), Duration::ZERO, Duration::from_millis(100));
        (RunningFrame::new(1, 1, timeouts, frame.clone(), in_setup, 0), frame)
    }

    fn skipped(step: &Step<FakeFrame>) -> Option<usize> {
        if let Step::Call { skipped } = step { Some(*skipped) } else { None }
    }

    fn ok(running: &RunningFrame<FakeFrame>, now_ns: u64) -> Step<FakeFrame> {
        running.end(now_ns, |frame, call, _| frame.complete(call))
    }

    #[test]
    fn calls_run_one_after_the_other_past_those_that_count_no_more() {
        let (running, frame) = running(4, false);
        frame.sweep(1);
        frame.sweep(2);
        assert_eq!(skipped(&running.start(0)), Some(0));
        assert_eq!(skipped(&ok(&running, MS)), Some(2));
        let Step::Finished { spent, .. } = ok(&running, 3 * MS) else { panic!("the last call") };
        assert_eq!((spent.calls, spent.run_ns), (2, 3 * MS));
        assert_eq!(frame.ends(), ["completed", "", "", "completed"]);
        assert!(matches!(running.give_up(), Step::Taken));
    }

    #[test]
    fn a_call_that_comes_back_late_timed_out() {
        let (running, frame) = running(1, false);
        running.start(0);
        assert!(matches!(ok(&running, 101 * MS), Step::Finished { .. }));
        assert_eq!(frame.ends(), ["no answer within the timeout of 0.1 s"]);
    }

    #[test]
    fn a_hanging_call_is_asked_for_its_stack_and_then_abandoned() {
        let (running, frame) = running(2, false);
        running.start(0);
        let check = |at: u64| running.check(at * MS, |why| assert_eq!(why, Abandon::TimedOut));
        assert!(matches!(check(10), CheckResult::Slow));
        assert!(matches!(check(100), CheckResult::OutOfTime));
        assert!(matches!(check(105), CheckResult::Slow), "it has half a second to answer");
        running.set_stack("the stack".to_owned());
        assert!(matches!(check(110), CheckResult::Abandoned(_)));
        assert!(frame.ends()[0].ends_with("(with a stack)"), "{:?}", frame.ends());
        assert!(matches!(ok(&running, 111 * MS), Step::Taken), "what it brings is dropped");
        assert!(matches!(check(115), CheckResult::InTime));
    }

    #[test]
    fn calls_behind_a_slow_one_go_back() {
        let (running, frame) = running(3, false);
        running.start(0);
        assert!(matches!(running.check(25 * MS, |_| panic!("it is in time")), CheckResult::Slow));
        assert_eq!(frame.ends(), ["", "given back", "given back"]);
        assert!(matches!(ok(&running, 30 * MS), Step::Finished { .. }));
    }

    #[test]
    fn a_swept_call_abandons_its_thread_and_a_late_setup_fails_all() {
        let (swept, frame) = running(1, false);
        swept.start(0);
        frame.sweep(0);
        assert!(matches!(swept.check(1, |why| assert_eq!(why, Abandon::Swept)), CheckResult::Abandoned(_)));
        let (late, frame) = running(1, true);
        assert!(matches!(late.check(99 * MS, |_| panic!("it is in time")), CheckResult::InTime));
        assert!(matches!(late.check(100 * MS, |why| assert_eq!(why, Abandon::InSetup)), CheckResult::Abandoned(_)));
        assert_eq!(frame.setup_failure(), "timed out");
        assert!(!late.end_setup() && !late.fail_setup("too late", None));
    }
}
