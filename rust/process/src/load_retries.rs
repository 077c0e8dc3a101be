//! Decides whether another loader is tried, or workers load the functions by themselves.
//!
//! One loader that dies is replaced at once. After two in a row workers load each function at its
//! first call, until another loader has loaded them; one is tried after a wait that doubles with
//! each death. A loader that hangs is the last one.

use std::time::Duration;

use tokio::time::Instant;

/// Deaths in a row from which on workers load functions late.
const DEATHS: u32 = 2;
/// The first wait, and how often it doubles at most.
const WHILE: Duration = Duration::from_secs(10);
const DOUBLINGS: u32 = 9;

/// Results of loading so far.
#[derive(Debug, Default)]
pub(super) struct LoadRetries {
    deaths: u32,
    late: Late,
}

#[derive(Debug, Default)]
enum Late {
    #[default]
    No,
    Until(Instant),
    Always,
}

impl LoadRetries {
    /// Returns whether workers load functions by themselves.
    pub(super) const fn is_late(&self) -> bool {
        !matches!(self.late, Late::No)
    }

    pub(super) fn done(&mut self) {
        *self = Self::default();
    }

    pub(super) fn ended(&mut self, now: Instant) {
        self.deaths = self.deaths.saturating_add(1);
        if self.deaths >= DEATHS {
            self.late = Late::Until(now + WHILE * (1 << (self.deaths - DEATHS).min(DOUBLINGS)));
        }
    }

    pub(super) fn hung(&mut self) {
        self.late = Late::Always;
    }

    /// Returns whether it is time for another loader.
    pub(super) fn tries_again(&self, now: Instant) -> bool {
        matches!(self.late, Late::Until(time) if now >= time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_death_in_a_row_makes_loading_late_for_longer_and_longer() {
        let (mut loading, mut now) = (LoadRetries::default(), Instant::now());
        loading.ended(now);
        assert!(!loading.is_late() && !loading.tries_again(now));
        for seconds in [10, 20, 40] {
            loading.ended(now);
            assert!(loading.is_late() && !loading.tries_again(now + Duration::from_secs(seconds - 1)));
            now += Duration::from_secs(seconds);
            assert!(loading.tries_again(now) && loading.is_late());
        }
        loading.done();
        assert!(!loading.is_late());
        loading.ended(now);
        assert!(!loading.is_late());
    }

    #[test]
    fn a_loader_that_hung_is_the_last() {
        let mut loading = LoadRetries::default();
        loading.hung();
        assert!(loading.is_late() && !loading.tries_again(Instant::now() + Duration::from_secs(1 << 20)));
    }
}
