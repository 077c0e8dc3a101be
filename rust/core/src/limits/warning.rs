//! Warnings to users about a limit's endpoint; each comes once until its condition is
//! over, those about throttling once.

use std::time::Duration;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitWarning {
    /// The circuit breaker has opened.
    BreakerOpen,
    /// Requests time out, and none is answered.
    Hangs,
    /// The server sent this `Retry-After`, which is more than the limiter waits.
    LongRetryAfter(Duration),
    /// The server has throttled every request for this long.
    AllThrottled(Duration),
}

/// A longer `Retry-After` is worth a warning.
const LONG_RETRY_AFTER: Duration = Duration::from_secs(60);
/// A server that throttles every request for this long is worth a warning.
const WARN_THROTTLED: Duration = Duration::from_secs(10);
/// Refusals further apart leave the time between them unknown.
const APART: Duration = Duration::from_secs(120);

/// The warnings about throttling that were given.
#[derive(Debug, Default)]
pub(super) struct ThrottleWarnings {
    of_long_wait: bool,
    of_refusals: bool,
    /// The first and the last refusal since the last success.
    refusals_ns: Option<(u64, u64)>,
}

impl ThrottleWarnings {
    pub(super) const fn note_success(&mut self) {
        self.refusals_ns = None;
    }

    /// Returns the warning that a throttled request calls for, if it was not given yet.
    pub(super) fn note_refusal(&mut self, now_ns: u64, retry_after: Option<Duration>) -> Option<LimitWarning> {
        let since = |then_ns: u64| Duration::from_nanos(now_ns.saturating_sub(then_ns));
        let first_ns =
            self.refusals_ns.filter(|(_, last_ns)| since(*last_ns) < APART).map_or(now_ns, |(first_ns, _)| first_ns);
        self.refusals_ns = Some((first_ns, now_ns));
        if let Some(long) = retry_after.filter(|after| *after > LONG_RETRY_AFTER) {
            let news = !std::mem::replace(&mut self.of_long_wait, true);
            return news.then_some(LimitWarning::LongRetryAfter(long));
        }
        let news = since(first_ns) >= WARN_THROTTLED && !std::mem::replace(&mut self.of_refusals, true);
        news.then(|| LimitWarning::AllThrottled(since(first_ns)))
    }
}
