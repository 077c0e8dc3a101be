//! A limit of requests in a sliding window, like providers' limits per minute.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// Largest number of requests in any period of this length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub requests: usize,
    pub length: Duration,
}

/// Times of the requests that were let through.
#[derive(Debug, Default)]
pub struct RecentRequests(VecDeque<Instant>);

impl RecentRequests {
    /// Admits a request, or returns how long it must wait.
    pub fn admit(&mut self, window: Window, now: Instant) -> Result<(), Duration> {
        while self.0.front().is_some_and(|first| now.duration_since(*first) >= window.length) {
            self.0.pop_front();
        }
        match self.0.front() {
            Some(first) if self.0.len() >= window.requests => {
                Err(window.length.saturating_sub(now.duration_since(*first)))
            }
            _ => {
                self.0.push_back(now);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_stretch_of_time_holds_more() {
        let window = Window { requests: 2, length: Duration::from_secs(3) };
        let (mut log, start) = (RecentRequests::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(log.admit(window, at(0)).is_ok() && log.admit(window, at(1)).is_ok());
        assert_eq!(log.admit(window, at(2)), Err(Duration::from_secs(1)));
        assert!(log.admit(window, at(3)).is_ok());
        assert_eq!(log.admit(window, at(3)), Err(Duration::from_secs(1)));
    }
}
