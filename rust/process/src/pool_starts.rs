//! Decides whether workers of one pool can be started: how wide it runs, and which slot tries
//! again.
//!
//! - A pool with a ready worker never refuses calls. A failed start makes it narrow: it runs with
//!   the workers it has, and one slot at a time tries whether there is room for more.
//! - If no worker is ready, one slot tries repeatedly. Calls fail with the reason after that has
//!   gone on for a while; for longer if a worker of another pool can make room.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Failed starts in a row, and their time, after which calls fail with the reason instead of
/// waiting. A few starts may be killed in a row by another cause.
const FAILURES: u32 = 3;
const PATIENCE: Duration = Duration::from_secs(2);
/// The same if other pools have workers that can make room after their calls.
const PATIENCE_WITH_OTHERS: Duration = Duration::from_secs(60);
/// Time between two attempts while no worker is ready: doubled up to the first bound, and up to the
/// second once calls fail.
const AGAIN: Duration = Duration::from_millis(20);
const AGAIN_DOUBLINGS: u32 = 5;
const BROKEN_DOUBLINGS: u32 = 7;
/// Time until a narrow pool tries to widen, doubled with each failed attempt.
const WIDEN: Duration = Duration::from_millis(250);
const WIDEN_DOUBLINGS: u32 = 7;
/// Time without a failed start after which the next failure counts as the first.
const CALM: Duration = Duration::from_secs(120);

/// The starts of one pool's workers.
#[derive(Default)]
pub(super) struct PoolStarts {
    state: Mutex<State>,
    /// True if only the slot that tries may start a worker. Written with `state` held.
    narrow: AtomicBool,
    /// True if `State::broken` is set. Written with `state` held.
    is_broken: AtomicBool,
    /// Slots between their first frame and a ready worker. Written by the slots.
    pub slots_starting: AtomicUsize,
}

#[derive(Default)]
struct State {
    /// Workers that serve, and processes that will be ready soon.
    ready: usize,
    starting: usize,
    prober: Option<(usize, Mode)>,
    /// Failures since a worker was ready: of all starts, and of processes that died.
    failures: u32,
    deaths: u32,
    since: Option<Instant>,
    tries: u32,
    /// Number of failed attempts to widen.
    narrow_tries: u32,
    last_failure: Option<Instant>,
    warned: bool,
    /// The reason why no worker can be started.
    broken: Option<String>,
}

/// Condition for the next attempt of the slot that tries again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// The slot tries without a frame, because the pool has no worker.
    Again,
    /// The slot tries with the next frame for which no worker is free.
    Widen,
}

/// Next step of a slot after its start failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Wait until the pool is wide again.
    StandBack,
    /// Try again with the next frame, after this time.
    Widen(Duration),
    /// Try again after this time.
    Again(Duration),
}

/// Consequences of a failed start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StartFailure {
    pub next: Next,
    /// Number of the pool's workers when it first became narrow.
    pub narrowed: Option<usize>,
    /// True if calls fail from now on.
    pub breaks: bool,
}

/// Cause of a failed start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failure<'a> {
    pub why: &'a str,
    /// True if a process was started, and died.
    pub died: bool,
    /// True if other pools have workers that can make room.
    pub others: bool,
}

impl PoolStarts {
    /// Returns whether a slot without a worker must not start one.
    pub(super) fn is_narrow(&self) -> bool {
        self.narrow.load(Ordering::Acquire)
    }

    /// Returns the reason why calls can't run at all, if they can't.
    pub(super) fn broken(&self) -> Option<String> {
        if self.is_broken.load(Ordering::Acquire) { self.state.lock().broken.clone() } else { None }
    }

    /// Workers that serve.
    pub(super) fn ready_workers(&self) -> usize {
        self.state.lock().ready
    }

    /// Returns whether there is a process, ready or starting.
    pub(super) fn has_process(&self) -> bool {
        let state = self.state.lock();
        state.ready + state.starting > 0
    }

    /// Counts a process until the guard is dropped.
    pub(super) fn started(self: &Arc<Self>, slot: usize) -> Start {
        self.state.lock().starting += 1;
        Start { pool: self.clone(), slot, ready: false }
    }

    /// Records that a slot got no worker.
    pub(super) fn failed(&self, slot: usize, now: Instant, failure: Failure<'_>) -> StartFailure {
        let mut state = self.state.lock();
        let failed = state.failed(slot, now, failure);
        self.narrow.store(true, Ordering::Release);
        self.is_broken.store(state.broken.is_some(), Ordering::Release);
        failed
    }

    /// Returns whether this slot tries again without a frame.
    pub(super) fn tries_again(&self, slot: usize) -> bool {
        self.state.lock().prober == Some((slot, Mode::Again))
    }

    /// Returns whether this slot tries to widen the pool.
    pub(super) fn widens(&self, slot: usize) -> bool {
        self.state.lock().prober == Some((slot, Mode::Widen))
    }
}

impl State {
    fn failed(&mut self, slot: usize, now: Instant, failure: Failure<'_>) -> StartFailure {
        if self.prober.is_some_and(|(prober, _)| prober == slot) {
            self.prober = None;
        }
        if self.ready > 0 {
            if self.last_failure.is_some_and(|last| now - last >= CALM) {
                self.narrow_tries = 0;
            }
            self.last_failure = Some(now);
            let next = if self.prober.is_some() {
                Next::StandBack
            } else {
                let wait = WIDEN * (1 << self.narrow_tries.min(WIDEN_DOUBLINGS));
                self.narrow_tries = self.narrow_tries.saturating_add(1);
                self.prober = Some((slot, Mode::Widen));
                Next::Widen(wait)
            };
            // The first process that dies may have been killed by another cause.
            let counts = !failure.died || self.narrow_tries > 1;
            return StartFailure { next, narrowed: self.narrowed(counts), breaks: false };
        }
        self.failures = self.failures.saturating_add(1);
        self.deaths = self.deaths.saturating_add(u32::from(failure.died));
        let since = *self.since.get_or_insert(now);
        // A worker that is still loading may become ready, unless others died while loading.
        let hopeless = self.starting == 0 || self.deaths >= FAILURES;
        let patience = if failure.others { PATIENCE_WITH_OTHERS } else { PATIENCE };
        let breaks = self.failures >= FAILURES && now - since >= patience && hopeless && self.broken.is_none();
        if breaks {
            self.broken = Some(format!("no worker process could be started: {}", failure.why));
        }
        let next = if let Some((_, Mode::Again)) = self.prober {
            Next::StandBack
        } else {
            self.tries = self.tries.saturating_add(1);
            self.prober = Some((slot, Mode::Again));
            // Waits are shorter until calls fail, so that a failure is decided in time.
            let most = if self.broken.is_some() { BROKEN_DOUBLINGS } else { AGAIN_DOUBLINGS };
            Next::Again(AGAIN * (1 << self.tries.min(most)))
        };
        // If other workers are starting, the machine may have room for those only.
        let narrowed = self.narrowed(self.starting > 0 && !failure.died);
        StartFailure { next, narrowed, breaks }
    }

    /// Returns the number of workers, at the first failed start that shows that more can't be
    /// started.
    fn narrowed(&mut self, says_so: bool) -> Option<usize> {
        let first = says_so && !std::mem::replace(&mut self.warned, true);
        first.then_some(self.ready + self.starting)
    }

    /// Records that a worker is ready; true if other slots may start again.
    fn ready(&mut self, slot: usize) -> bool {
        self.starting -= 1;
        self.ready += 1;
        (self.failures, self.deaths, self.tries, self.since) = (0, 0, 0, None);
        self.broken = None;
        let widens = self.prober.is_none_or(|(prober, _)| prober == slot);
        if widens {
            self.prober = None;
        }
        widens
    }
}

/// A process that is ready or starting.
pub(super) struct Start {
    pool: Arc<PoolStarts>,
    slot: usize,
    ready: bool,
}

impl Start {
    /// Records that the worker serves.
    pub(super) fn ready(&mut self) {
        if !std::mem::replace(&mut self.ready, true) {
            let mut state = self.pool.state.lock();
            if state.ready(self.slot) {
                self.pool.narrow.store(false, Ordering::Release);
            }
            self.pool.is_broken.store(false, Ordering::Release);
        }
    }
}

impl Drop for Start {
    fn drop(&mut self) {
        let mut state = self.pool.state.lock();
        if self.ready { state.ready -= 1 } else { state.starting -= 1 }
    }
}

#[cfg(test)]
#[path = "pool_starts_tests.rs"]
mod tests;
