//! Tells if the other end is there: it is asked, and must show some progress in time.
//!
//! Time is counted in looks at it rather than by the clock, so that a process that was itself
//! stopped, or a machine that slept, does not take the other for lost.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

/// Longest silence.
#[derive(Clone, Copy, Debug)]
pub struct Patience(pub Duration);

/// Number of checks within that time.
const LOOKS: u32 = 10;

/// True if bytes of the other end came since the last check. That it takes ours says nothing: the
/// kernel does.
#[derive(Default)]
pub struct Progress(AtomicBool);

impl Progress {
    pub fn made(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns when there was no progress for too long; `ask` is called at each look.
pub async fn silence(patience: Patience, progress: &Progress, ask: impl Fn()) {
    let mut looks = interval((patience.0 / LOOKS).max(Duration::from_millis(1)));
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    looks.tick().await; // the first is at once
    let mut missed = 0;
    while missed < LOOKS {
        ask();
        looks.tick().await;
        missed = if progress.0.swap(false, Ordering::Relaxed) { 0 } else { missed + 1 };
    }
}
