//! A frame that a thread runs: one call at a time, each ended before the next is started.
//!
//! - The kernel runs without the lock, and checks at intervals whether it should go on.
//! - A call that came back after its timeout timed out.
//! - Calls behind one that takes long go back to the scheduler, for other threads, even if the
//!   kernel makes no checks.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::kernels::{Fault, InputForm, Kernel, Score};
use guerdon_core::clock::{Clock, nanos};
use guerdon_core::frame::Frame;
use guerdon_core::in_flight::InFlightCall;
use guerdon_core::outcome::{Cell, Failure, FailureKind, Times};
use guerdon_core::payload::SharedPayload;
use guerdon_core::timeout_messages::{no_answer, timed_out};
use parking_lot::Mutex;

use crate::inputs::{InputKind, read_input};

/// Age of a call at which the calls behind it go back.
const TAKE_BACK_NS: u64 = 20_000_000;

struct State {
    /// Taken by its thread, at the end.
    frame: Option<Frame>,
    /// The running call and its start.
    current: Option<(usize, u64)>,
}

/// See the module.
pub struct RunningFrame {
    /// Written by the frame's thread; other threads complete the ended calls.
    state: Mutex<State>,
    clock: Clock,
}

impl RunningFrame {
    pub fn new(frame: Frame) -> Self {
        let clock = frame.clock();
        Self { state: Mutex::new(State { frame: Some(frame), current: None }), clock }
    }

    /// Returns a snapshot of the running call.
    pub fn inspect(&self, now_ns: u64) -> Option<InFlightCall> {
        let state = self.state.lock();
        let (frame, (call, started_ns)) = (state.frame.as_ref()?, state.current?);
        Some(InFlightCall::call(frame, call, now_ns.saturating_sub(started_ns)))
    }

    pub fn complete_ended(&self) {
        if let Some(frame) = &mut self.state.lock().frame {
            frame.complete_ended();
        }
    }

    /// Completes the ended calls, and gives back the calls behind one that takes long.
    pub fn check_calls(&self) {
        let mut state = self.state.lock();
        let current = state.current;
        let Some(frame) = &mut state.frame else { return };
        frame.complete_ended();
        let Some((call, started_ns)) = current else { return };
        let age_ns = self.clock.now_ns().saturating_sub(started_ns);
        let behind = call + 1..frame.len();
        // This happens at most once per call, since no calls are left behind it afterwards.
        if age_ns > TAKE_BACK_NS && behind.clone().any(|call| frame.is_pending(call)) {
            frame.observe(age_ns);
            frame.give_back(behind);
        }
    }

    /// Runs the open calls, until `closed`. Drop the returned frame without a lock held: calls that
    /// did not run go back with it.
    pub fn run(&self, kernel: &dyn Kernel, closed: &AtomicBool) -> Option<Frame> {
        let (forms, mut next) = (kernel.inputs(), 0);
        let (payload, kinds, timeout_ns) = {
            let state = self.state.lock();
            let frame = state.frame.as_ref()?;
            let kinds: Vec<InputKind> = frame.names().into_iter().flatten().map(|name| InputKind::of(name)).collect();
            (frame.payload().cloned(), kinds, nanos(frame.function().policy.timeout))
        };
        while let Some((call, sample)) = self.start(next, closed) {
            let started_ns = self.clock.now_ns();
            self.state.lock().current = Some((call, started_ns));
            let stop = || {
                let age_ns = self.clock.now_ns().saturating_sub(started_ns);
                closed.load(Ordering::Acquire) || age_ns > timeout_ns || !self.is_open(call)
            };
            let score = catch_unwind(AssertUnwindSafe(|| {
                let columns = Columns { payload: payload.as_ref(), kinds: &kinds, forms: &forms };
                columns.score(kernel, self.function()?, sample, &stop)
            }));
            let score =
                score.unwrap_or_else(|_| Err(Fault::Invalid("the kernel panicked: please report it".to_owned())));
            self.end(call, score, started_ns);
            next = call + 1;
        }
        self.state.lock().frame.take()
    }

    fn function(&self) -> Result<usize, Fault> {
        self.state.lock().frame.as_ref().map(Frame::function_id).ok_or(Fault::Stopped)
    }

    /// Returns the next open call, and its sample.
    fn start(&self, from: usize, closed: &AtomicBool) -> Option<(usize, u32)> {
        let state = self.state.lock();
        let frame = state.frame.as_ref().filter(|_| !closed.load(Ordering::Acquire))?;
        let call = (from..frame.len()).find(|call| frame.is_pending(*call) && frame.is_open(*call))?;
        Some((call, u32::try_from(frame.first(call)).ok()?))
    }

    /// Returns whether the running call is still open.
    fn is_open(&self, call: usize) -> bool {
        self.state.lock().frame.as_ref().is_some_and(|frame| frame.is_open(call))
    }

    fn end(&self, call: usize, score: Result<Score, Fault>, started_ns: u64) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        state.current = None;
        let Some(frame) = &mut state.frame else { return };
        let times = Times { started_ns, run_ns: self.clock.now_ns().saturating_sub(started_ns) };
        let timeout = frame.function().policy.timeout;
        if times.run_ns > nanos(timeout) {
            frame.fail(call, timed_out(no_answer(timeout), None), times);
            return;
        }
        match score {
            Ok(Some(value)) => frame.complete_soon(call, value, times),
            Ok(None) => frame.complete(call, Cell::Abstained, times),
            Err(Fault::Invalid(reason) | Fault::Input(_, reason)) => {
                let failure = Failure { retryable: false, ..Failure::new(FailureKind::Error, reason) };
                frame.fail(call, failure, times);
            }
            Err(Fault::Stopped) => {} // ended from outside, or goes back with the frame
        }
    }
}

/// The texts of a frame's calls.
struct Columns<'a> {
    payload: Option<&'a SharedPayload>,
    kinds: &'a [InputKind],
    forms: &'a [InputForm],
}

impl Columns<'_> {
    fn score(
        &self,
        kernel: &dyn Kernel,
        function: usize,
        sample: u32,
        stop: &dyn Fn() -> bool,
    ) -> Result<Score, Fault> {
        let input = |(column, form): (usize, &InputForm)| {
            let raw = self.payload.and_then(|payload| payload.text(function, column, sample));
            let raw = raw.ok_or_else(|| Fault::Invalid(format!("there is no text in column {column}")))?;
            Ok(read_input(raw, self.kinds.get(column).copied().unwrap_or(InputKind::Text), *form))
        };
        let inputs = self.forms.iter().enumerate().map(input).collect::<Result<Vec<_>, Fault>>()?;
        kernel.score(&inputs, &stop)
    }
}
