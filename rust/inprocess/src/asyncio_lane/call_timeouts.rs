//! Timeouts of the calls of an event loop: which ones the watchdog ends, and which ones the loop
//! must cancel.
//! - The loop cancels a call's task at `timeout`; the watchdog ends the call without the loop at
//!   `timeout + grace`.
//! - A call that the scheduler swept is cancelled in the same way.

use guerdon_core::function::FunctionId;
use guerdon_core::outcome::Times;
use guerdon_core::timeout_messages::{no_answer, timed_out};

use crate::asyncio_lane::call_states::{CallStates, Progress};
use crate::asyncio_lane::in_flight::{CallsInFlight, FinishedCalls};
use crate::frame::CallFrame;

/// A call for the loop to cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overdue {
    pub function: FunctionId,
    pub frame: u64,
    pub call: usize,
    /// It ignored its cancellation, and was ended without its coroutine.
    pub ended: bool,
}

/// Result of a check by the watchdog.
pub struct TimeoutCheck<F> {
    /// The finished frame, to be dropped without a lock held.
    pub frame: Option<F>,
    /// The loop has not turned since it should have cancelled a call.
    pub hung: bool,
}

impl<F: CallFrame> CallsInFlight<F> {
    /// Makes a check for the watchdog. The frame is taken here, but the calls stay registered: the
    /// loop is still notified of those that it lost.
    pub fn look(&self, now_ns: u64, setup_late: bool) -> TimeoutCheck<F> {
        let turned_ns = self.heartbeat().turned_ns();
        let mut guard = self.lock();
        let state = &mut *guard.state;
        let Some(frame) = state.frame.as_mut() else { return TimeoutCheck { frame: None, hung: false } };
        if setup_late {
            frame.time_out_setup(None);
        }
        let mut hung = false;
        for call in state.low..state.cursor {
            let (progress, started_ns) = state.calls[call];
            let cancel_ns = started_ns.saturating_add(self.timeouts.call_ns);
            let in_flight = matches!(progress, Progress::Running | Progress::Cancelled);
            if in_flight && now_ns >= cancel_ns.saturating_add(self.timeouts.grace_ns) {
                let times = Times { started_ns, run_ns: now_ns - started_ns };
                frame.fail(call, timed_out(no_answer(self.timeouts.call), None), times);
                state.calls[call].0 = Progress::Lost;
                state.in_flight -= 1;
                hung |= turned_ns < cancel_ns;
            }
        }
        let frame = if state.is_over() { self.take_frame(state) } else { None };
        TimeoutCheck { frame, hung }
    }

    /// Nanoseconds until the next call is due, `None` if one is due now.
    pub fn due_in(&self, now_ns: u64) -> Option<u64> {
        let state = self.state.lock();
        let mut soonest = self.timeouts.call_ns;
        for (call, progress, started_ns) in state.started() {
            match progress {
                Progress::Lost => return None,
                Progress::Running => {
                    let age_ns = now_ns.saturating_sub(started_ns);
                    if Self::is_swept(&state, call) || age_ns >= self.timeouts.call_ns {
                        return None;
                    }
                    soonest = soonest.min(self.timeouts.call_ns - age_ns);
                }
                Progress::Waiting | Progress::Cancelled | Progress::Over => {}
            }
        }
        Some(soonest)
    }

    /// Returns the calls that the loop must cancel, or that were ended without their coroutine,
    /// each once.
    pub fn overdue(&self, now_ns: u64) -> (Vec<Overdue>, Option<Box<FinishedCalls<F>>>) {
        let mut guard = self.lock();
        let state = &mut *guard.state;
        let mut found = Vec::new();
        for call in state.low..state.cursor {
            let (progress, started_ns) = state.calls[call];
            let next = match progress {
                Progress::Lost => Progress::Over,
                Progress::Running => {
                    let late = now_ns.saturating_sub(started_ns) >= self.timeouts.call_ns;
                    if !late && !Self::is_swept(state, call) {
                        continue;
                    }
                    Progress::Cancelled
                }
                Progress::Waiting | Progress::Cancelled | Progress::Over => continue,
            };
            state.calls[call].0 = next;
            found.push(Overdue { function: self.function, frame: self.id, call, ended: next == Progress::Over });
        }
        state.raise_low();
        (found, self.finish(state))
    }

    fn is_swept(state: &CallStates<F>, call: usize) -> bool {
        state.frame.as_ref().is_some_and(|frame| !frame.is_open(call))
    }
}
