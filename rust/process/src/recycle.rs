//! Decides when a worker that could go on is replaced, so that leaks of user code stay bounded.
//!
//! It is replaced between two frames, and its successor is forked before it ends. It runs at most
//! `calls` calls. A worker that ran no call stays: its successor would be as old or as large.

use std::time::Duration;

use guerdon_core::settings::optional_seconds;
use serde::Deserialize;

/// Bounds on a worker's life; a worker that reaches one is replaced. Those of a pinned function and
/// of single calls are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recycle {
    /// Most calls that it runs.
    pub calls: Option<u64>,
    /// Its age.
    #[serde(deserialize_with = "optional_seconds")]
    pub age: Option<Duration>,
    /// Bytes of its resident memory.
    pub rss: Option<u64>,
}

impl Recycle {
    /// Returns whether a worker has reached a bound; `sent` is the number of calls that it ran or
    /// runs.
    pub(super) fn is_due(&self, sent: u64, age: Duration) -> bool {
        sent > 0 && (self.calls.is_some_and(|most| sent >= most) || self.age.is_some_and(|most| age >= most))
    }

    /// Returns whether a worker that was sent `sent` calls may be sent `more` in one frame.
    pub(super) fn has_room(&self, sent: u64, more: u64) -> bool {
        sent == 0 || self.calls.is_none_or(|most| sent + more <= most)
    }

    /// Number of calls in a frame, at most `most`, chosen so that whole frames make up the worker's
    /// calls.
    pub(super) fn frame_calls(&self, most: usize) -> usize {
        let Some(calls) = self.calls else { return most };
        let frames = calls.div_ceil(most as u64).max(1);
        usize::try_from(calls.div_ceil(frames)).map_or(most, |calls| calls.clamp(1, most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(calls: u64) -> Recycle {
        Recycle { calls: Some(calls), ..Recycle::default() }
    }

    #[test]
    fn frames_fill_up_a_workers_calls() {
        let sizes = [1, 10, 64, 65, 100, 128, 1000, u64::MAX].map(|calls| after(calls).frame_calls(64));
        assert_eq!(sizes, [1, 10, 64, 33, 50, 64, 63, 64]);
        assert_eq!(Recycle::default().frame_calls(64), 64);
    }

    #[test]
    fn no_worker_runs_more_than_its_calls() {
        assert!(after(100).has_room(50, 50) && !after(100).has_room(51, 50));
        assert!(after(3).has_room(0, 9), "a frame has to go somewhere");
        assert!(Recycle::default().has_room(u64::MAX - 1, 1));
    }

    #[test]
    fn a_worker_that_ran_nothing_stays() {
        let old = Recycle { age: Some(Duration::from_secs(1)), ..Recycle::default() };
        assert!(!old.is_due(0, Duration::from_secs(9)));
        assert!(old.is_due(1, Duration::from_secs(9)));
        assert!(!old.is_due(1, Duration::from_millis(9)));
        assert!(after(3).is_due(3, Duration::ZERO) && !after(3).is_due(2, Duration::ZERO));
    }
}
