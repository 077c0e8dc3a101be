//! Progress of a frame's calls on an event loop, under their lock.

use crate::asyncio_lane::call_slots::{CallSlots, Counts};
use crate::frame::CallFrame;
use crate::sync::MutexGuard;

/// Progress of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Waiting,
    Running,
    /// The loop was requested to cancel it.
    Cancelled,
    /// The watchdog ended it; the loop has not been notified yet.
    Lost,
    Over,
}

/// Written by the loop and by the watchdog (`call_timeouts`).
pub(super) struct CallStates<F> {
    /// Taken at the end of the last call.
    pub(super) frame: Option<F>,
    /// Progress of each call, and its start.
    pub(super) calls: Vec<(Progress, u64)>,
    /// The first call that was not started.
    pub(super) cursor: usize,
    /// All calls before it are over.
    pub(super) low: usize,
    pub(super) in_flight: usize,
    /// Number of calls that ended without the watchdog, and their total run time.
    pub(super) ended: u64,
    pub(super) run_ns: u64,
}

impl<F: CallFrame> CallStates<F> {
    pub(super) fn new(frame: F) -> Self {
        let calls = vec![(Progress::Waiting, 0); frame.calls()];
        Self { frame: Some(frame), calls, cursor: 0, low: 0, in_flight: 0, ended: 0, run_ns: 0 }
    }
}

impl<F> CallStates<F> {
    pub(super) fn started(&self) -> impl Iterator<Item = (usize, Progress, u64)> {
        (self.low..self.cursor).map(|call| (call, self.calls[call].0, self.calls[call].1))
    }

    /// Returns the counts for its function's slots.
    pub(super) const fn counts(&self) -> Counts {
        if self.frame.is_some() {
            Counts { waiting: self.calls.len() - self.cursor, running: self.in_flight }
        } else {
            Counts { waiting: 0, running: 0 }
        }
    }

    pub(super) const fn is_over(&self) -> bool {
        self.in_flight == 0 && self.cursor >= self.calls.len()
    }

    pub(super) fn raise_low(&mut self) {
        while self.low < self.cursor && self.calls[self.low].0 == Progress::Over {
            self.low += 1;
        }
    }
}

/// The calls under their lock. Changes are counted before the lock is released.
pub(super) struct LockedCalls<'a, F> {
    pub(super) state: MutexGuard<'a, CallStates<F>>,
    slots: &'a CallSlots,
    before: Counts,
}

impl<'a, F> LockedCalls<'a, F> {
    #[inline]
    pub(super) fn new(state: MutexGuard<'a, CallStates<F>>, slots: &'a CallSlots) -> Self {
        let before = state.counts();
        Self { state, slots, before }
    }
}

impl<F> Drop for LockedCalls<'_, F> {
    #[inline]
    fn drop(&mut self) {
        self.slots.change(self.before, self.state.counts());
    }
}
