//! Detects whether the other end is alive: it gets questions, and must show some progress in time.
//!
//! Time is counted in checks rather than by the clock, so that a process that was stopped, or a
//! machine that slept, does not count the other end as lost.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

/// Longest time without progress.
#[derive(Clone, Copy, Debug)]
pub struct Patience(pub Duration);

/// Number of checks within that time.
const LOOKS: u32 = 10;

/// True if bytes of the other end came since the last check. That the socket takes our bytes is not
/// progress, since the kernel does that.
#[derive(Default)]
pub struct Progress(AtomicBool);

impl Progress {
    pub fn made(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns after too long a time without progress; `ask` is called at each check.
pub async fn silence(patience: Patience, progress: &Progress, ask: impl Fn()) {
    let mut looks = interval((patience.0 / LOOKS).max(Duration::from_millis(1)));
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    looks.tick().await; // the first tick is immediate
    let mut missed = 0;
    while missed < LOOKS {
        ask();
        looks.tick().await;
        missed = if progress.0.swap(false, Ordering::Relaxed) { 0 } else { missed + 1 };
    }
}
