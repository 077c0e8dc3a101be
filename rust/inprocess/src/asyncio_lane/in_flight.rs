//! The calls of a frame that an event loop runs: which are in flight, which is next, how each ends.
//!
//! - A call is ended once: by its coroutine, or by the watchdog at `timeout + grace`.
//! - A call that was cancelled, or ran past its timeout, timed out, whatever its later result.
//! - The frame is dropped with its last call.
//! - A loop that has run calls for `TURN_NS` without turning gets no other call until it has
//!   turned. That is reported, not guessed: after `REPORT_NS` the loop must report its next turn.

use std::sync::Arc;

use guerdon_core::frame::Frame;
use guerdon_core::function::FunctionId;
use guerdon_core::in_flight::{InFlightCall, Phase};
use guerdon_core::outcome::{Failure, FailureKind, Times};
use guerdon_core::timeout_messages::{no_answer, timed_out};

use crate::asyncio_lane::call_slots::CallSlots;
use crate::asyncio_lane::call_states::{CallStates, LockedCalls, Progress};
use crate::asyncio_lane::heartbeat::Heartbeat;
use crate::frame::{CallFrame, Timeouts};
use crate::sync::{AtomicBool, Mutex, Ordering};

/// Longest time that calls run one after the other before the loop turns.
const TURN_NS: u64 = 2_000_000;
/// Part of that time after which the loop must report its next turn.
const REPORT_NS: u64 = 500_000;
/// Calls that wait on the loop for this long, while all its slots are taken, go back to the
/// scheduler, which may have other calls to send first.
const TAKE_BACK_NS: u64 = 20_000_000;

/// Next step of a runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// No call is left to start.
    Nothing,
    /// Run this call, which has begun; with `report`, the loop must report its next turn.
    Call { index: usize, report: bool },
    /// Let the loop turn first. `long`: this runner has run calls since the last turn, so other
    /// runners go first.
    Turn { long: bool, report: bool },
}

/// Loop that took a frame, and the time.
pub struct Origin {
    pub heartbeat: Arc<Heartbeat>,
    pub generation: u64,
    pub number: u64,
    pub taken_ns: u64,
}

/// Calls that the loop does not run any more, if the frame had any left.
pub struct FinishedCalls<F> {
    /// The frame, to be dropped without a lock held.
    pub frame: Option<F>,
    /// The loop was notified of all calls that were ended without it, so the queue need not keep
    /// them.
    pub forget: bool,
}

/// Consequence of a call's end: usually only the next call.
pub type EndStep<F> = (Next, Option<Box<FinishedCalls<F>>>);

pub struct CallsInFlight<F> {
    heartbeat: Arc<Heartbeat>,
    /// Number of the loop that runs them.
    generation: u64,
    /// The number of the frame, unique among all generations.
    number: u64,
    taken_ns: u64,
    /// Slots of the function, over all its frames.
    slots: Arc<CallSlots>,
    pub(super) id: u64,
    pub(super) function: FunctionId,
    pub(super) timeouts: Timeouts,
    /// True while the frame is here. Written under the lock of `state`, read without it, because a
    /// reader may hold a lock that comes later in the order.
    active: AtomicBool,
    /// Written by the loop and by the watchdog.
    pub(super) state: Mutex<CallStates<F>>,
}

impl<F> CallsInFlight<F> {
    #[inline]
    pub(super) fn lock(&self) -> LockedCalls<'_, F> {
        LockedCalls::new(self.state.lock(), &self.slots)
    }

    pub const fn generation(&self) -> u64 {
        self.generation
    }

    pub const fn number(&self) -> u64 {
        self.number
    }

    /// Number of the loop that runs them.
    pub fn heartbeat(&self) -> &Heartbeat {
        &self.heartbeat
    }

    pub fn slots(&self) -> &CallSlots {
        &self.slots
    }

    pub const fn function(&self) -> FunctionId {
        self.function
    }

    pub const fn id(&self) -> u64 {
        self.id
    }

    /// Returns whether the watchdog has to check these calls.
    pub fn is_active(&self) -> bool {
        self.active.load(Ordering::Acquire)
    }

    pub(super) fn take_frame(&self, state: &mut CallStates<F>) -> Option<F> {
        self.active.store(false, Ordering::Release);
        if let Some(mean_ns) = state.run_ns.checked_div(state.ended) {
            self.slots.learn(mean_ns);
        }
        state.frame.take()
    }

    /// Removes the frame with its last call.
    pub(super) fn finish(&self, state: &mut CallStates<F>) -> Option<Box<FinishedCalls<F>>> {
        state.is_over().then(|| {
            let frame = self.take_frame(state);
            let forget = !state.started().any(|(_, progress, _)| progress == Progress::Lost);
            Box::new(FinishedCalls { frame, forget })
        })
    }
}

impl<F: CallFrame> CallsInFlight<F> {
    /// Makes the state of a frame whose calls are counted as waiting.
    pub fn new(origin: Origin, timeouts: Timeouts, slots: Arc<CallSlots>, frame: F) -> Self {
        let (id, function) = (frame.id(), frame.function_id());
        let (active, state) = (AtomicBool::new(true), Mutex::new(CallStates::new(frame)));
        let Origin { heartbeat, generation, number, taken_ns } = origin;
        Self { heartbeat, generation, number, taken_ns, slots, id, function, timeouts, active, state }
    }

    /// Returns the value that `read` gives for the frame; `None` if it was taken.
    pub fn read<T>(&self, read: impl FnOnce(&mut F) -> T) -> Option<T> {
        self.state.lock().frame.as_mut().map(read)
    }

    /// Takes the frame, so that no further call is started.
    pub fn take(&self) -> Option<F> {
        let mut guard = self.lock();
        let state = &mut *guard.state;
        let frame = self.take_frame(state)?;
        state.cursor = state.calls.len();
        Some(frame)
    }

    /// Starts the next call.
    pub fn start(&self, now_ns: u64) -> EndStep<F> {
        self.advance(self.lock(), now_ns, None)
    }

    /// Ends a call and starts the next.
    pub fn end(&self, now_ns: u64, call: usize, stack: Option<String>, end: impl FnOnce(&mut F, Times)) -> EndStep<F> {
        let mut guard = self.lock();
        let state = &mut *guard.state;
        let Some((progress, started_ns)) = state.calls.get(call).copied() else { return (Next::Nothing, None) };
        if progress == Progress::Lost {
            state.calls[call].0 = Progress::Over;
            return (Next::Nothing, self.finish(state));
        }
        let in_flight = matches!(progress, Progress::Running | Progress::Cancelled);
        let Some(frame) = state.frame.as_mut().filter(|_| in_flight) else { return (Next::Nothing, None) };
        let times = Times { started_ns, run_ns: now_ns.saturating_sub(started_ns) };
        if progress == Progress::Cancelled || times.run_ns > self.timeouts.call_ns {
            frame.fail(call, timed_out(no_answer(self.timeouts.call), stack), times);
        } else {
            end(frame, times);
        }
        state.calls[call].0 = Progress::Over;
        state.in_flight -= 1;
        state.ended += 1;
        state.run_ns += times.run_ns;
        if call == state.low {
            state.raise_low();
        }
        if progress == Progress::Cancelled {
            // The runner ends, and starts no other call.
            return (Next::Nothing, self.finish(state));
        }
        self.advance(guard, now_ns, Some(started_ns))
    }

    /// Starts the next call. `ended_ns` is the start of the runner's last call.
    fn advance(&self, mut guard: LockedCalls<'_, F>, now_ns: u64, ended_ns: Option<u64>) -> EndStep<F> {
        let state = &mut *guard.state;
        let Some(frame) = state.frame.as_ref() else { return (Next::Nothing, None) };
        let turned_ns = self.heartbeat.turned_ns();
        let unturned_ns = now_ns.saturating_sub(turned_ns);
        if unturned_ns > TURN_NS && state.cursor < state.calls.len() {
            let long = ended_ns.is_some_and(|started_ns| started_ns >= turned_ns);
            return (Next::Turn { long, report: self.heartbeat.request_report() }, None);
        }
        while state.cursor < state.calls.len() {
            let call = state.cursor;
            state.cursor += 1;
            if frame.is_pending(call) && frame.is_open(call) {
                state.calls[call] = (Progress::Running, now_ns);
                state.in_flight += 1;
                let report = unturned_ns > REPORT_NS && self.heartbeat.request_report();
                return (Next::Call { index: call, report }, None);
            }
            state.calls[call].0 = Progress::Over;
        }
        (Next::Nothing, self.finish(state))
    }

    /// Gives the calls that were not started back to the scheduler, because the loop hangs or its
    /// calls take longer than expected.
    pub fn give_back_rest(&self) -> Option<Box<FinishedCalls<F>>> {
        let mut guard = self.lock();
        let state = &mut *guard.state;
        let rest = state.cursor..state.calls.len();
        state.cursor = rest.end;
        for call in rest.clone() {
            state.calls[call].0 = Progress::Over;
        }
        if let Some(frame) = state.frame.as_mut() {
            frame.give_back(rest);
        }
        self.finish(state)
    }

    /// Ends the calls of a loop that has ended: calls in flight fail, the others go back to the
    /// scheduler with the frame.
    pub fn abandon(&self, now_ns: u64) -> Option<F> {
        let mut guard = self.lock();
        let state = &mut *guard.state;
        let mut frame = self.take_frame(state)?;
        for (call, progress, started_ns) in state.started() {
            if matches!(progress, Progress::Running | Progress::Cancelled) {
                let times = Times { started_ns, run_ns: now_ns.saturating_sub(started_ns) };
                let reason = "CancelledError: its event loop ended before it did".to_owned();
                frame.fail(call, Failure::new(FailureKind::Error, reason), times);
            }
        }
        (state.cursor, state.in_flight) = (state.calls.len(), 0);
        Some(frame)
    }

    /// Returns whether calls wait here for a free slot longer than expected.
    pub fn waits_long(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.taken_ns) > TAKE_BACK_NS
            && self.slots.is_full()
            && self.state.lock().counts().waiting > 0
    }
}

impl CallsInFlight<Frame> {
    /// Returns a snapshot of the calls in flight, each with its index. If `setup()` has run since
    /// `setup_ns`, it is the calls that wait for it.
    pub fn inspect(&self, now_ns: u64, setup_ns: Option<u64>) -> Vec<(InFlightCall, usize)> {
        let state = self.state.lock();
        let Some(frame) = state.frame.as_ref() else { return Vec::new() };
        if let Some(since_ns) = setup_ns {
            return vec![(InFlightCall::before(frame, Phase::Setup, now_ns.saturating_sub(since_ns)), 0)];
        }
        let running = state.started().filter(|(_, how, _)| matches!(how, Progress::Running | Progress::Cancelled));
        running
            .map(|(call, _, since_ns)| (InFlightCall::call(frame, call, now_ns.saturating_sub(since_ns)), call))
            .collect()
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::asyncio_lane::call_slots::Counts;
    use crate::asyncio_lane::call_timeouts::Overdue;
    use crate::tests::fake_frame::FakeFrame;

    const MS: u64 = 1_000_000;

    fn calls(count: usize) -> (CallsInFlight<FakeFrame>, FakeFrame, Arc<Heartbeat>) {
        let (frame, heartbeat) = (FakeFrame::new(count), Arc::new(Heartbeat::default()));
        let timeouts = Timeouts::of(Duration::from_millis(100), Duration::from_millis(50), Duration::from_secs(1));
        let slots = Arc::new(CallSlots::new(256));
        slots.change(Counts::default(), Counts { waiting: count, running: 0 });
        let origin = Origin { heartbeat: heartbeat.clone(), generation: 1, number: 1, taken_ns: 0 };
        (CallsInFlight::new(origin, timeouts, slots, frame.clone()), frame, heartbeat)
    }

    fn next(ended: &EndStep<FakeFrame>) -> Option<usize> {
        if let Next::Call { index, .. } = ended.0 { Some(index) } else { None }
    }

    fn ok(calls: &CallsInFlight<FakeFrame>, now_ns: u64, call: usize) -> EndStep<FakeFrame> {
        calls.end(now_ns, call, None, |frame, _| frame.complete(call))
    }

    #[test]
    fn calls_are_started_in_order_and_the_frame_goes_with_the_last() {
        let (calls, frame, _) = calls(3);
        frame.sweep(1);
        assert_eq!(next(&calls.start(0)), Some(0));
        assert_eq!(next(&calls.start(0)), Some(2));
        assert_eq!(next(&ok(&calls, 0, 2)), None);
        assert!(calls.is_active());
        let (left, finished) = ok(&calls, 0, 0);
        assert!(left == Next::Nothing && finished.is_some_and(|finished| finished.forget));
        assert!(!calls.is_active() && frame.is_dropped());
        assert_eq!(calls.slots().room(), 4096, "cheap calls, and none of them waits");
        assert_eq!(frame.ends(), ["completed", "", "completed"]);
    }

    #[test]
    fn a_loop_that_has_not_turned_for_long_turns_before_the_next_call() {
        let (calls, _, heartbeat) = calls(5);
        assert_eq!(calls.start(0).0, Next::Call { index: 0, report: false });
        assert_eq!(calls.start(MS).0, Next::Call { index: 1, report: true }, "it is asked once");
        assert_eq!(calls.start(MS).0, Next::Call { index: 2, report: false });
        assert_eq!(ok(&calls, 3 * MS, 1).0, Next::Turn { long: true, report: false });
        assert_eq!(calls.start(3 * MS).0, Next::Turn { long: false, report: false });
        heartbeat.beat(3 * MS);
        assert_eq!(ok(&calls, 4 * MS, 2).0, Next::Call { index: 3, report: true });
    }

    #[test]
    fn an_overdue_call_is_cancelled_once_and_times_out_whatever_it_brings() {
        let (calls, frame, _) = calls(2);
        calls.start(0);
        assert_eq!(calls.due_in(40 * MS), Some(60 * MS));
        assert_eq!(calls.due_in(100 * MS), None);
        let cancelled = Overdue { function: 0, frame: 7, call: 0, ended: false };
        assert_eq!((calls.overdue(100 * MS).0, calls.overdue(101 * MS).0), (vec![cancelled], vec![]));
        assert_eq!(ok(&calls, 102 * MS, 0).0, Next::Nothing, "its runner ends");
        assert_eq!(frame.ends(), ["no answer within the timeout of 0.1 s", ""]);
    }

    #[test]
    fn the_watchdog_ends_what_ignores_its_cancellation_and_the_loop_hears_of_it() {
        let (calls, frame, heartbeat) = calls(1);
        calls.start(0);
        calls.overdue(100 * MS);
        heartbeat.beat(148 * MS);
        let early = calls.look(149 * MS, false);
        assert!(early.frame.is_none() && !early.hung);
        let looked = calls.look(150 * MS, false);
        assert!(looked.frame.is_some() && !looked.hung, "the loop turns");
        let (overdue, finished) = calls.overdue(151 * MS);
        assert!(overdue == [Overdue { function: 0, frame: 7, call: 0, ended: true }]);
        assert!(finished.is_some_and(|finished| finished.forget));
        assert_eq!(ok(&calls, 152 * MS, 0).0, Next::Nothing);
        assert_eq!(frame.ends(), ["no answer within the timeout of 0.1 s"]);
    }

    #[test]
    fn a_hung_loop_gives_back_what_it_has_not_started() {
        let (calls, frame, heartbeat) = calls(3);
        calls.start(0);
        heartbeat.beat(10 * MS);
        assert!(calls.look(200 * MS, false).hung);
        assert!(calls.give_back_rest().is_some_and(|finished| !finished.forget), "one call was lost");
        assert_eq!(frame.ends()[1..], ["given back", "given back"]);
        assert_eq!(calls.slots().room(), 256);
    }

    #[test]
    fn calls_wait_long_where_all_slots_are_taken() {
        let (calls, _, _) = calls(300);
        (0..255).for_each(|_| drop(calls.start(0)));
        assert!(!calls.waits_long(50 * MS), "there is a free slot");
        calls.start(0);
        assert!(!calls.waits_long(20 * MS) && calls.waits_long(21 * MS));
    }

    #[test]
    fn an_ended_loop_fails_what_was_in_flight_and_returns_the_rest() {
        let (calls, frame, _) = calls(2);
        calls.start(0);
        drop(calls.abandon(MS));
        assert_eq!(frame.ends(), ["CancelledError: its event loop ended before it did", ""]);
        assert!(frame.is_dropped() && calls.abandon(MS).is_none() && ok(&calls, MS, 0).0 == Next::Nothing);
    }
}
