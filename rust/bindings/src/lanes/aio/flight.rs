//! The calls of a frame in the hands of an event loop: which are in flight, which is next, how each ends. The rules are those of `jobs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use guerdon_core::frame::Frame;
use guerdon_core::function::FunctionId;
use guerdon_core::in_flight::{InFlightCall, Phase as Before};
use guerdon_core::outcome::Times;
use guerdon_core::timeout_messages::{no_answer, timed_out};
use parking_lot::{Mutex, MutexGuard};

use crate::lanes::aio::event_loop::Loop;
use crate::lanes::report;

/// Instead of an index: turn the loop first. One less: and have it show that turn.
const YIELD: isize = -2;
/// The same, to a runner that has run calls since the last turn: others go first.
const YIELD_LONG: isize = -4;
/// An index, counted downwards from here: start that call, and have the loop show its next turn.
const MARKED: isize = -6;
/// How long calls may run one after the other before the loop turns (J-4).
const TURN_NS: u64 = 2_000_000;
/// After how much of that the loop is asked to show when it turns.
const MARK_NS: u64 = 500_000;

/// How far a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Waiting,
    Running,
    /// The loop was told to cancel it.
    Told,
    /// Its cell was ended by the watch; the loop does not know yet.
    Lost,
    Over,
}

pub struct Inner {
    /// Taken with the last call (J-3).
    pub frame: Option<Frame>,
    /// How far each call is, and when it was started.
    phases: Vec<(Phase, u64)>,
    /// The first call that was never started.
    cursor: usize,
    /// All calls before it are over.
    low: usize,
    in_flight: usize,
}

/// The part of the jobs that the watch sees.
pub struct Held {
    pub owner: Arc<Loop>,
    /// Of the loop that has it in hand.
    pub generation: u64,
    id: u64,
    function: FunctionId,
    timeout_ns: u64,
    grace_ns: u64,
    /// The frame is here. Written under the lock of `inner`, read without it: whoever asks may hold a lock that comes after (N-3 of the lanes).
    active: AtomicBool,
    /// Written by the loop and by the watch.
    pub inner: Mutex<Inner>,
}

impl Inner {
    fn running(&self) -> impl Iterator<Item = (usize, Phase, u64)> {
        (self.low..self.cursor).map(|call| (call, self.phases[call].0, self.phases[call].1))
    }

    fn is_over(&self) -> bool {
        self.in_flight == 0 && self.cursor >= self.phases.len()
    }

    /// No call is started any more.
    pub const fn start_no_more(&mut self) {
        self.cursor = self.phases.len();
    }

    fn close(&mut self, call: usize, phase: Phase) {
        self.phases[call].0 = phase;
        self.in_flight -= 1;
    }

    fn raise_low(&mut self) {
        while self.low < self.cursor && self.phases[self.low].0 == Phase::Over {
            self.low += 1;
        }
    }
}

impl Held {
    pub fn new(owner: Arc<Loop>, generation: u64, frame: Frame) -> Self {
        let function = frame.function_id();
        let policy = &owner.function(function).policy;
        let (timeout_ns, grace_ns) = (report::limit_ns(policy.timeout), report::limit_ns(policy.grace));
        let phases = vec![(Phase::Waiting, 0); frame.len()];
        let id = frame.id();
        let inner = Inner { frame: Some(frame), phases, cursor: 0, low: 0, in_flight: 0 };
        let (active, inner) = (AtomicBool::new(true), Mutex::new(inner));
        Self { owner, generation, id, function, timeout_ns, grace_ns, active, inner }
    }

    pub const fn function(&self) -> FunctionId {
        self.function
    }

    /// The calls in flight, for people, each with its index; and, if `setup()` runs since a time, the calls that wait for that.
    pub fn doing(&self, now_ns: u64, setup_ns: Option<u64>) -> Vec<(InFlightCall, u64)> {
        let inner = self.inner.lock();
        let Some(frame) = inner.frame.as_ref() else { return Vec::new() };
        if let Some(since_ns) = setup_ns {
            return vec![(InFlightCall::before(frame, Before::Setup, now_ns.saturating_sub(since_ns)), 0)];
        }
        let in_flight = inner.running().filter(|(_, how, _)| matches!(how, Phase::Running | Phase::Told));
        let told =
            |(call, _, started_ns)| (InFlightCall::call(frame, call, now_ns.saturating_sub(started_ns)), call as u64);
        in_flight.map(told).collect()
    }

    pub const fn id(&self) -> u64 {
        self.id
    }

    /// One look of the watch; `turned_ns` is when the loop last turned. The result is the frame, to be dropped without a lock held, if nothing
    /// is left of it; and whether the loop did not turn when it should have cancelled a call.
    pub fn look(&self, now_ns: u64, turned_ns: u64, setup_late: bool) -> (Option<Frame>, bool) {
        let policy = &self.owner.function(self.function).policy;
        let mut guard = self.inner.lock();
        let inner = &mut *guard;
        let Some(frame) = inner.frame.as_mut() else { return (None, false) };
        if setup_late {
            frame.time_out_setup(None);
        }
        let mut hung = false;
        for call in inner.low..inner.cursor {
            let (phase, started_ns) = inner.phases[call];
            let end_ns = started_ns.saturating_add(self.timeout_ns).saturating_add(self.grace_ns);
            if matches!(phase, Phase::Running | Phase::Told) && now_ns >= end_ns {
                let times = Times { started_ns, run_ns: now_ns - started_ns };
                frame.fail(call, timed_out(no_answer(policy.timeout), None), times);
                inner.phases[call].0 = Phase::Lost;
                inner.in_flight -= 1;
                hung |= turned_ns < started_ns.saturating_add(self.timeout_ns);
            }
        }
        // The loop is told of the calls that it lost before these jobs are forgotten.
        let frame = if inner.is_over() { self.take_frame(inner) } else { None };
        (frame, hung)
    }

    /// Gives what was not started back to the scheduler: the loop hangs.
    pub fn give_back_rest(self: &Arc<Self>) {
        let mut inner = self.inner.lock();
        let rest = inner.cursor..inner.phases.len();
        inner.cursor = rest.end;
        for call in rest.clone() {
            inner.phases[call].0 = Phase::Over;
        }
        if let Some(frame) = inner.frame.as_mut() {
            frame.give_back(rest);
        }
        self.end_if_over(inner);
    }

    /// The loop has ended: calls in flight failed, the others go back to the scheduler with the frame.
    pub fn abandon(&self) {
        let now_ns = self.owner.clock.now_ns();
        let mut guard = self.inner.lock();
        let inner = &mut *guard;
        let Some(mut frame) = self.take_frame(inner) else { return };
        for (call, phase, started_ns) in inner.running() {
            if matches!(phase, Phase::Running | Phase::Told) {
                let times = Times { started_ns, run_ns: now_ns.saturating_sub(started_ns) };
                let reason = "CancelledError: its event loop ended before it did".to_owned();
                frame.fail(call, report::failure(reason, None, true, None, None), times);
            }
        }
        (inner.cursor, inner.in_flight) = (inner.phases.len(), 0);
        drop(guard);
        drop(frame);
    }

    /// Whether the watch has anything to do here.
    pub fn is_active(&self) -> bool {
        self.active.load(Ordering::Acquire)
    }

    pub fn take_frame(&self, inner: &mut Inner) -> Option<Frame> {
        self.active.store(false, Ordering::Release);
        inner.frame.take()
    }

    /// Seconds until the next call is due, `None` when one is.
    pub fn due_in(&self, now_ns: u64) -> Option<f64> {
        let inner = self.inner.lock();
        let mut soonest = self.timeout_ns;
        for (call, phase, started_ns) in inner.running() {
            match phase {
                Phase::Lost => return None,
                Phase::Running => {
                    let age_ns = now_ns.saturating_sub(started_ns);
                    let swept = inner.frame.as_ref().is_some_and(|frame| !frame.is_open(call));
                    if swept || age_ns >= self.timeout_ns {
                        return None;
                    }
                    soonest = soonest.min(self.timeout_ns - age_ns);
                }
                Phase::Waiting | Phase::Told | Phase::Over => {}
            }
        }
        #[expect(clippy::cast_precision_loss, reason = "a nap need not be exact")]
        let seconds = soonest as f64 / 1e9;
        Some(seconds)
    }

    /// The calls that are to be cancelled, or were ended without their coroutine; each is told once.
    pub fn overdue(self: &Arc<Self>, now_ns: u64) -> Vec<[u64; 4]> {
        let mut guard = self.inner.lock();
        let inner = &mut *guard;
        let mut found = Vec::new();
        for call in inner.low..inner.cursor {
            let (phase, started_ns) = inner.phases[call];
            let told = match phase {
                Phase::Lost => Phase::Over,
                Phase::Running => {
                    let swept = inner.frame.as_ref().is_some_and(|frame| !frame.is_open(call));
                    if !swept && now_ns.saturating_sub(started_ns) < self.timeout_ns {
                        continue;
                    }
                    Phase::Told
                }
                Phase::Waiting | Phase::Told | Phase::Over => continue,
            };
            inner.phases[call].0 = told;
            found.push([self.function as u64, self.id, call as u64, u64::from(told == Phase::Over)]);
        }
        inner.raise_low();
        self.end_if_over(guard);
        found
    }

    /// Starts the next call; its index, or what to do first. `ended_ns` is the start of the runner's last call.
    pub fn advance(self: &Arc<Self>, mut guard: MutexGuard<'_, Inner>, now_ns: u64, ended_ns: Option<u64>) -> isize {
        let inner = &mut *guard;
        let Some(frame) = inner.frame.as_ref() else { return -1 };
        let turned_ns = self.owner.turned_ns();
        let unturned_ns = now_ns.saturating_sub(turned_ns);
        if unturned_ns > TURN_NS && inner.cursor < inner.phases.len() {
            let long = ended_ns.is_some_and(|started_ns| started_ns >= turned_ns);
            return if long { YIELD_LONG } else { YIELD } - isize::from(self.owner.to_be_marked());
        }
        while inner.cursor < inner.phases.len() {
            let call = inner.cursor;
            inner.cursor += 1;
            if frame.is_pending(call) && frame.is_open(call) {
                inner.phases[call] = (Phase::Running, now_ns);
                inner.in_flight += 1;
                let index = report::index_or_none(Some(call));
                return if unturned_ns > MARK_NS && self.owner.to_be_marked() { MARKED - index } else { index };
            }
            inner.phases[call].0 = Phase::Over;
        }
        self.end_if_over(guard);
        -1
    }

    /// Lets the frame go with its last call (J-3), and itself once the loop knows of all calls that were ended without it.
    fn end_if_over(self: &Arc<Self>, mut inner: MutexGuard<'_, Inner>) {
        if !inner.is_over() {
            return;
        }
        let frame = self.take_frame(&mut inner);
        let known = !inner.running().any(|(_, phase, _)| phase == Phase::Lost);
        drop(inner);
        if known {
            self.owner.let_go(self);
        }
        drop(frame);
    }

    /// Ends a call and starts the next.
    pub fn end(self: &Arc<Self>, call: usize, traceback: Option<String>, end: impl FnOnce(&mut Frame, Times)) -> isize {
        let now_ns = self.owner.clock.now_ns();
        self.owner.ends(self.generation, self.function);
        let mut guard = self.inner.lock();
        let inner = &mut *guard;
        let Some((phase, started_ns)) = inner.phases.get(call).copied() else { return -1 };
        if phase == Phase::Lost {
            inner.phases[call].0 = Phase::Over;
            self.end_if_over(guard);
            return -1;
        }
        let Some(frame) = inner.frame.as_mut().filter(|_| matches!(phase, Phase::Running | Phase::Told)) else {
            return -1;
        };
        let times = Times { started_ns, run_ns: now_ns.saturating_sub(started_ns) };
        if phase == Phase::Told || times.run_ns > self.timeout_ns {
            let timeout = self.owner.function(self.function).policy.timeout;
            frame.fail(call, timed_out(no_answer(timeout), traceback), times);
        } else {
            end(frame, times);
        }
        inner.close(call, Phase::Over);
        if call == inner.low {
            inner.raise_low();
        }
        if phase == Phase::Told {
            // Its runner ends: it starts no other call.
            self.end_if_over(guard);
            return -1;
        }
        self.advance(guard, now_ns, Some(started_ns))
    }
}
