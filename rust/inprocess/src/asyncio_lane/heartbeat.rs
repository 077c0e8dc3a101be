//! Tells if an event loop turns: when it last did, whether it was asked to report its next turn,
//! and whether a silence of it is still to be explained.

use crate::sync::{AtomicBool, AtomicU64, Ordering};
use crate::time::thread_cpu_ns;

/// Processor time of a silent loop's thread since it turned, from which on a call is blamed: on a
/// busy machine it may just not have run.
const RAN_NS: u64 = 100_000_000;

#[derive(Default)]
pub struct Heartbeat {
    /// When the loop last showed that it turns. Written by the loop, and when work comes to an idle
    /// one.
    turned_ns: AtomicU64,
    /// It was asked to report its next turn, and has not yet. Written by the loop.
    report_requested: AtomicBool,
    /// Processor time of its thread by then. Written by the loop.
    cpu_ns: AtomicU64,
    /// True if it was reported as blocked, and the cause is not known yet. Written by the watchdog,
    /// and by who says it: the thread supervisor, or the loop.
    unexplained: AtomicBool,
}

impl Heartbeat {
    /// The loop turns now, or has nothing to do.
    #[inline]
    pub fn beat(&self, now_ns: u64) {
        self.turned_ns.store(now_ns, Ordering::Relaxed);
        self.report_requested.store(false, Ordering::Relaxed);
        self.unexplained.store(false, Ordering::Relaxed);
    }

    /// The loop turns now, and this is its thread.
    #[inline]
    pub fn beat_here(&self, now_ns: u64) {
        self.beat(now_ns);
        self.cpu_ns.store(thread_cpu_ns(), Ordering::Relaxed);
    }

    #[inline]
    pub fn turned_ns(&self) -> u64 {
        self.turned_ns.load(Ordering::Relaxed)
    }

    /// Returns whether the loop is yet to be asked to report its next turn; it counts as asked from
    /// here on.
    #[inline]
    pub fn request_report(&self) -> bool {
        !self.report_requested.swap(true, Ordering::Relaxed)
    }

    /// The loop is blocked, by something that is to be found.
    #[inline]
    pub fn blocked(&self) {
        self.unexplained.store(true, Ordering::Relaxed);
    }

    /// Returns whether it has not turned since, and the cause is not known yet.
    #[inline]
    pub fn is_blocked(&self) -> bool {
        self.unexplained.load(Ordering::Relaxed)
    }

    /// Returns the same, and counts the cause as reported.
    #[inline]
    pub fn explain(&self) -> bool {
        self.unexplained.swap(false, Ordering::Relaxed)
    }

    /// Returns whether the call that ends now, on the loop's thread, is what blocked it.
    #[inline]
    pub fn was_blocked_here(&self) -> bool {
        if !self.is_blocked() {
            return false;
        }
        let ran_ns = thread_cpu_ns().saturating_sub(self.cpu_ns.load(Ordering::Relaxed));
        ran_ns >= RAN_NS && self.explain()
    }
}
