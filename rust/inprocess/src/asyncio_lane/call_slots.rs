//! Counts of one function's running and waiting calls on its loop, and the room for more.
//!
//! - Calls that wait on the loop are beyond the scheduler's order. A loop therefore takes as many
//!   as fill its free slots and as are expected to start within `AHEAD_NS`: long calls one by one,
//!   cheap calls by the thousand.
//! - A scheduler that was refused is woken once there is room. The refusal and the counts are in
//!   one word, so that no refusal is lost.
use std::sync::Arc;

use guerdon_core::function::Policy;

use crate::frame::Timeouts;
use crate::sync::{AtomicU64, Ordering};

/// Calls at a time of a function without a `concurrency`.
const CONCURRENCY: usize = 256;
/// A loop has as many calls waiting as start within this time, in nanoseconds, which keeps it busy
/// until the next frame comes.
const AHEAD_NS: u64 = 4_000_000;
/// The least expected run time of calls after some have taken long.
const LONG_NS: u64 = 20_000_000;
/// The most calls that wait on a loop beyond its free slots.
const MOST_AHEAD: u64 = 4096;

/// One waiting call; running calls are counted in the bits below.
const WAITING: u64 = 1 << 32;
/// The scheduler requested room and got none.
const REFUSED: u64 = 1 << 63;

/// Calls of one function on its loop.
pub struct CallSlots {
    concurrency: u64,
    /// Calls that run, calls that wait, and `REFUSED`. Written by frames that arrive, by the loop,
    /// by the watchdog and by the scheduler.
    counts: AtomicU64,
    /// Expected run time of a call, 0 before the first measurement. Written by the loop and by the
    /// watchdog.
    mean_ns: AtomicU64,
}

/// Numbers of a frame's waiting and running calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub waiting: usize,
    pub running: usize,
}

impl Counts {
    const fn word(self) -> u64 {
        self.waiting as u64 * WAITING + self.running as u64
    }
}

impl CallSlots {
    pub fn new(concurrency: usize) -> Self {
        let concurrency = (concurrency as u64).min(1 << 30);
        Self { concurrency, counts: AtomicU64::new(0), mean_ns: AtomicU64::new(0) }
    }

    pub fn concurrency(&self) -> usize {
        usize::try_from(self.concurrency).unwrap_or(usize::MAX)
    }

    /// Returns the number of further calls that the loop takes now. If it is 0, the scheduler will
    /// be woken.
    pub fn room(&self) -> usize {
        let mut counts = self.counts.load(Ordering::Acquire);
        loop {
            let room = self.room_of(counts);
            if room > 0 || counts & REFUSED != 0 {
                return usize::try_from(room).unwrap_or(usize::MAX);
            }
            let refused = counts | REFUSED;
            match self.counts.compare_exchange_weak(counts, refused, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return 0,
                Err(now) => counts = now,
            }
        }
    }

    /// Updates the counts after calls of a frame came, started or ended.
    #[inline]
    pub fn change(&self, from: Counts, to: Counts) {
        // Carries and borrows between the two halves cancel out, because the sum is over all
        // frames.
        let change = to.word().wrapping_sub(from.word());
        if change != 0 {
            self.counts.fetch_add(change, Ordering::AcqRel);
        }
    }

    /// Returns whether the scheduler was refused and must be woken; it counts as woken afterwards.
    #[inline]
    pub fn must_wake(&self) -> bool {
        let counts = self.counts.load(Ordering::Acquire);
        // Half of the number that may wait, so that cheap calls come in large frames.
        counts & REFUSED != 0
            && self.room_of(counts) >= (self.ahead() / 2).max(1)
            && self.counts.fetch_and(!REFUSED, Ordering::AcqRel) & REFUSED != 0
    }

    /// Updates the expected run time with the mean of a frame's ended calls.
    pub fn learn(&self, mean_ns: u64) {
        let known = self.mean_ns.load(Ordering::Relaxed);
        let mean_ns = if known == 0 { mean_ns } else { known - known / 4 + mean_ns / 4 };
        self.mean_ns.store(mean_ns.max(1), Ordering::Relaxed);
    }

    /// Raises the expected run time, because calls waited far longer than expected.
    pub fn expect_longer(&self) {
        let known = self.mean_ns.load(Ordering::Relaxed);
        self.mean_ns.store(known.saturating_mul(2).max(LONG_NS), Ordering::Relaxed);
    }

    /// Returns whether all slots are taken.
    pub fn is_full(&self) -> bool {
        self.counts.load(Ordering::Acquire) % WAITING >= self.concurrency
    }

    /// Number of calls that start within `AHEAD_NS`.
    fn ahead(&self) -> u64 {
        let mean_ns = self.mean_ns.load(Ordering::Relaxed);
        (self.concurrency * AHEAD_NS).checked_div(mean_ns).unwrap_or(0).min(MOST_AHEAD)
    }

    fn room_of(&self, counts: u64) -> u64 {
        let (waiting, running) = ((counts & !REFUSED) / WAITING, counts % WAITING);
        self.concurrency.saturating_sub(running).max(self.ahead()).saturating_sub(waiting)
    }
}

/// A function's state on its loop.
pub struct LoopFunction {
    pub timeouts: Timeouts,
    pub slots: Arc<CallSlots>,
}

impl LoopFunction {
    pub fn new(policy: &Policy) -> Self {
        let slots = Arc::new(CallSlots::new(policy.concurrency.unwrap_or(CONCURRENCY)));
        Self { timeouts: Timeouts::from(policy), slots }
    }

    /// Updates the counts after calls of a frame that no loop took came or went.
    pub fn count_waiting(&self, from: usize, to: usize) {
        let waiting = |waiting| Counts { waiting, running: 0 };
        self.slots.change(waiting(from), waiting(to));
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn counts(waiting: usize, running: usize) -> Counts {
        Counts { waiting, running }
    }

    #[test]
    fn long_calls_fill_the_slots_and_no_more() {
        let slots = CallSlots::new(256);
        assert_eq!(slots.room(), 256, "nothing is known yet");
        slots.change(counts(0, 0), counts(256, 0));
        assert_eq!(slots.room(), 0);
        slots.change(counts(256, 0), counts(0, 256));
        slots.learn(30_000 * MS);
        assert!(slots.room() == 0 && !slots.must_wake());
        slots.change(counts(0, 256), counts(0, 253));
        assert!(slots.must_wake() && !slots.must_wake(), "once");
        assert_eq!(slots.room(), 3);
    }

    #[test]
    fn cheap_calls_come_by_the_thousand_until_they_take_long() {
        let slots = CallSlots::new(256);
        slots.learn(1000);
        assert_eq!(slots.room(), 4096);
        slots.change(counts(0, 0), counts(4096, 0));
        assert_eq!(slots.room(), 0);
        slots.change(counts(4096, 0), counts(3000, 256));
        assert!(!slots.must_wake(), "it has enough");
        slots.change(counts(3000, 256), counts(1000, 256));
        assert!(slots.must_wake());
        for room in [0, 0, 0] {
            slots.expect_longer();
            assert_eq!(slots.room(), room);
        }
    }

    #[test]
    fn calls_of_some_milliseconds_have_others_waiting() {
        let slots = CallSlots::new(256);
        slots.learn(10 * MS);
        slots.change(counts(0, 0), counts(0, 256));
        assert_eq!(slots.room(), 102);
    }
}
