//! The one clock of the engine: nanoseconds of `CLOCK_MONOTONIC`, so stamps that a worker process
//! takes by itself can be compared. Under tokio's paused time it stops, so tests take no time.

use std::sync::LazyLock;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

/// One moment, as an `Instant` and in nanoseconds. All clocks of a process are derived from it:
/// engines that share a limit compare their times, and separate readings would differ by any pause
/// between the two calls.
static MOMENT: LazyLock<(std::time::Instant, u64)> = LazyLock::new(|| {
    let read = || {
        let before = std::time::Instant::now();
        let ns = system_ns();
        (before.elapsed(), (before, ns))
    };
    // The shortest of several readings was interrupted least.
    let shorter = |best: (Duration, _), next: (Duration, _)| if next.0 < best.0 { next } else { best };
    (0..8).fold(read(), |best, _| shorter(best, read())).1
});

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
        let (moment, moment_ns) = *MOMENT;
        let origin = Instant::now();
        let (now, before) = (origin.into_std(), origin.into_std() < moment);
        let origin_ns =
            if before { moment_ns.saturating_sub(nanos(moment - now)) } else { moment_ns + nanos(now - moment) };
        Self { origin, origin_ns }
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

fn system_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// A time in seconds, as Python expects it.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "a float has nanoseconds enough for a hundred days")]
pub const fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
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

    #[tokio::test(start_paused = true)]
    async fn clocks_that_start_one_after_another_show_the_same_time() {
        let first = Clock::start();
        let until_ns = system_ns() + 20_000_000;
        while system_ns() < until_ns {
            std::thread::yield_now();
        }
        assert_eq!(Clock::start().now_ns(), first.now_ns());
    }

    #[test]
    fn the_scale_is_the_systems_monotonic_clock() {
        let clock = Clock::start();
        assert!(clock.now_ns().abs_diff(system_ns()) < 1_000_000_000);
    }
}
