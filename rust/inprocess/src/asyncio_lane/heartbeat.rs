//! Heartbeat of an event loop: the time of its last turn, whether it must report its next turn, and
//! whether a silence still has to be explained.

use crate::sync::{AtomicBool, AtomicU64, Ordering};
use crate::time::thread_cpu_ns;

/// Processor time of a silent loop's thread since its last turn, from which on a call counts as the
/// cause. If it is less, a busy machine may not have run the thread.
const RAN_NS: u64 = 100_000_000;

#[derive(Default)]
pub struct Heartbeat {
    /// The time of the last turn. Written by the loop, and when work comes to an idle loop.
    turned_ns: AtomicU64,
    /// The loop must report its next turn. Written by the loop.
    report_requested: AtomicBool,
    /// Processor time of its thread at that turn. Written by the loop.
    cpu_ns: AtomicU64,
    /// True if the loop was reported as blocked and the cause was not found yet. Written by the
    /// watchdog, and by the finder of the cause: the thread supervisor, or the loop.
    unexplained: AtomicBool,
}

impl Heartbeat {
    /// Records that the loop turns, or is idle.
    #[inline]
    pub fn beat(&self, now_ns: u64) {
        self.turned_ns.store(now_ns, Ordering::Relaxed);
        self.report_requested.store(false, Ordering::Relaxed);
        self.unexplained.store(false, Ordering::Relaxed);
    }

    /// Records that the loop turns, from its thread.
    #[inline]
    pub fn beat_here(&self, now_ns: u64) {
        self.beat(now_ns);
        self.cpu_ns.store(thread_cpu_ns(), Ordering::Relaxed);
    }

    #[inline]
    pub fn turned_ns(&self) -> u64 {
        self.turned_ns.load(Ordering::Relaxed)
    }

    /// Returns whether the loop must be requested to report its next turn; it counts as requested
    /// afterwards.
    #[inline]
    pub fn request_report(&self) -> bool {
        !self.report_requested.swap(true, Ordering::Relaxed)
    }

    /// Records that the loop is blocked by a cause that must be found.
    #[inline]
    pub fn blocked(&self) {
        self.unexplained.store(true, Ordering::Relaxed);
    }

    /// Returns whether it has not turned since, and the cause was not found yet.
    #[inline]
    pub fn is_blocked(&self) -> bool {
        self.unexplained.load(Ordering::Relaxed)
    }

    /// Like `is_blocked`, and counts the cause as reported.
    #[inline]
    pub fn explain(&self) -> bool {
        self.unexplained.swap(false, Ordering::Relaxed)
    }

    /// Returns whether the call that ends now, on the loop's thread, has blocked the loop.
    #[inline]
    pub fn was_blocked_here(&self) -> bool {
        if !self.is_blocked() {
            return false;
        }
        let ran_ns = thread_cpu_ns().saturating_sub(self.cpu_ns.load(Ordering::Relaxed));
        ran_ns >= RAN_NS && self.explain()
    }
}
