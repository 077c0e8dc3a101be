//! The one clock of the engine: nanoseconds of `CLOCK_MONOTONIC`, so stamps that a worker process
//! takes by itself can be compared. Under tokio's paused time it stops, so tests take no time.

use std::time::Duration;

use tokio::time::Instant;

/// Reads and waits for the engine's time.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
    origin_ns: u64,
}

impl Clock {
    /// The clock, set to the system's monotonic time.
    #[must_use]
    pub fn start() -> Self {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let origin_ns =
            u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0);
        Self { origin: Instant::now(), origin_ns }
    }

    /// Now, in nanoseconds.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.origin_ns + nanos(self.origin.elapsed())
    }

    /// Waits until the clock shows `ns`; at once if it did already.
    pub async fn sleep_until_ns(&self, ns: u64) {
        tokio::time::sleep_until(self.origin + Duration::from_nanos(ns.saturating_sub(self.origin_ns))).await;
    }
}

/// A duration in nanoseconds; five centuries at most.
#[must_use]
pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn time_stands_still_until_someone_waits() {
        let clock = Clock::start();
        let before = clock.now_ns();
        assert_eq!(clock.now_ns(), before);
        clock.sleep_until_ns(before + 5_000_000_000).await;
        assert_eq!(clock.now_ns(), before + 5_000_000_000);
    }

    #[test]
    fn the_scale_is_the_systems_monotonic_clock() {
        let clock = Clock::start();
        let system = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let system_ns = u64::try_from(system.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(system.tv_nsec).unwrap();
        assert!(clock.now_ns().abs_diff(system_ns) < 1_000_000_000);
    }
}
