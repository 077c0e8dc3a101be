//! Stalls: calls are with the lanes, and none has ended for long.
//!
//! - Only time in which the detector was called counts: while the process is stopped (a signal, a
//!   debugger, a frozen container) no stall grows.
//! - A stall is reported at `after`, and again each time that its duration has doubled. A stall
//!   that ends is forgotten.
//! - If no call is in flight, or all calls wait on purpose, no time passes.

use std::time::Duration;

use crate::clock::nanos;

/// Number of checks within `after`.
const LOOKS: u32 = 16;
/// The shortest pause between two checks.
const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(5);

/// Activity of an engine at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activity {
    /// True if lanes have calls that run. Calls that wait for a limit or an open circuit breaker
    /// don't count.
    pub running: bool,
    /// Numbers that change whenever a call or an attempt ends.
    pub ended: (u64, u64),
}

/// Detects stalls.
#[derive(Debug)]
pub struct StallDetector {
    after_ns: u64,
    tick_ns: u64,
    /// The last check: its time, and the numbers of ended calls.
    last: Option<(u64, (u64, u64))>,
    stalled_ns: u64,
    /// The duration at which the stall is reported next.
    next_ns: u64,
}

impl StallDetector {
    #[must_use]
    pub fn new(after: Duration) -> Self {
        let tick_ns = nanos((after / LOOKS).clamp(SHORTEST, LONGEST));
        Self { after_ns: nanos(after), tick_ns, last: None, stalled_ns: 0, next_ns: nanos(after) }
    }

    /// Returns the pause between two checks.
    #[must_use]
    pub const fn tick(&self) -> Duration {
        Duration::from_nanos(self.tick_ns)
    }

    /// Makes a check; returns the duration of the stall if it is to be reported now.
    pub fn look(&mut self, now_ns: u64, seen: Activity) -> Option<Duration> {
        let last = self.last.replace((now_ns, seen.ended));
        let Some((last_ns, _)) = last.filter(|(_, ended)| *ended == seen.ended) else {
            (self.stalled_ns, self.next_ns) = (0, self.after_ns);
            return None;
        };
        if !seen.running {
            return None;
        }
        // Time far beyond the pause was spent with the process stopped.
        self.stalled_ns += now_ns.saturating_sub(last_ns).min(2 * self.tick_ns);
        if self.stalled_ns < self.next_ns {
            return None;
        }
        self.next_ns = self.stalled_ns.max(self.next_ns).saturating_mul(2);
        Some(Duration::from_nanos(self.stalled_ns))
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    /// A detector of 120 s, which checks every 5 s the running and the ended calls of a day.
    struct Day {
        detector: StallDetector,
        now_ns: u64,
        reports: Vec<u64>,
    }

    impl Day {
        fn new() -> Self {
            Self { detector: StallDetector::new(Duration::from_secs(120)), now_ns: 77 * S, reports: Vec::new() }
        }

        fn goes_by(&mut self, seconds: u64, running: bool, ended: impl Fn(u64) -> u64) {
            let tick_ns = nanos(self.detector.tick());
            let end_ns = self.now_ns + seconds * S;
            while self.now_ns < end_ns {
                self.now_ns += tick_ns;
                let seen = Activity { running, ended: (ended(self.now_ns / S), 0) };
                self.reports.extend(self.detector.look(self.now_ns, seen).map(|stalled| stalled.as_secs()));
            }
        }
    }

    #[test]
    fn a_stall_is_reported_at_its_time_and_each_time_it_has_doubled() {
        let mut day = Day::new();
        day.goes_by(10, true, |_| 1);
        day.goes_by(1000, true, |_| 2);
        assert_eq!(day.reports, [120, 240, 480, 960]);
    }

    #[test]
    fn one_call_that_ends_makes_it_begin_again() {
        let mut day = Day::new();
        day.goes_by(115, true, |_| 1);
        day.goes_by(3600, true, |now| now / 100); // one each 100 s
        assert_eq!(day.reports, [0_u64; 0]);
        day.goes_by(130, true, |_| 9);
        assert_eq!(day.reports, [120]);
        day.goes_by(100, true, |now| now);
        day.goes_by(130, true, |_| 9);
        assert_eq!(day.reports, [120, 120]);
    }

    #[test]
    fn nothing_in_flight_is_no_stall_and_waiting_on_purpose_none_either() {
        let mut day = Day::new();
        day.goes_by(86_400, false, |_| 1);
        assert_eq!(day.reports, [0_u64; 0]);
        // Throttled for an hour in the middle of a stall: that hour does not count.
        day.goes_by(100, true, |_| 2);
        day.goes_by(3600, false, |_| 2);
        assert_eq!(day.reports, [0_u64; 0]);
        day.goes_by(30, true, |_| 2);
        assert_eq!(day.reports, [120]);
    }

    #[test]
    fn a_process_that_was_stopped_does_not_cry() {
        let mut day = Day::new();
        day.goes_by(60, true, |_| 1);
        for _ in 0..5 {
            day.now_ns += 3600 * S; // SIGSTOP, SIGCONT
            day.goes_by(5, true, |_| 1);
        }
        assert_eq!(day.reports, [0_u64; 0]);
        day.goes_by(120, true, |_| 1);
        assert_eq!(day.reports, [120]);
    }

    #[test]
    fn a_clock_that_stands_still_or_jumps_harms_nothing() {
        let mut detector = StallDetector::new(Duration::from_secs(120));
        let seen = Activity { running: true, ended: (1, 1) };
        assert_eq!(detector.look(5, seen), None);
        assert_eq!(detector.look(5, seen), None);
        assert_eq!(detector.look(1, seen), None);
        assert_eq!(detector.look(u64::MAX, seen), None);
        let mut longest = StallDetector::new(Duration::MAX);
        assert_eq!(longest.look(0, seen), None);
        assert_eq!(longest.look(u64::MAX, seen), None);
    }

    #[test]
    fn looks_are_few() {
        let tick = |seconds| StallDetector::new(Duration::from_secs_f64(seconds)).tick();
        assert_eq!(tick(120.0), LONGEST);
        assert_eq!(tick(8.0), Duration::from_millis(500));
        assert_eq!(tick(0.01), SHORTEST);
    }
}
