//! Warnings to users about a limit's endpoint; each comes once until its condition is
//! over. Those about throttling come once in all.

use std::time::Duration;

use super::pauses::{LONGEST_PAUSE, LONGEST_RETRY_AFTER};
use crate::clock::nanos;

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
/// The next call comes this soon after a pause if any call waits.
const SOON: Duration = Duration::from_secs(5);

/// The warnings about throttling that were given.
#[derive(Debug, Default)]
pub(super) struct ThrottleWarnings {
    of_long_wait: bool,
    of_refusals: bool,
    /// The first refusal since another answer or failure, and the time until when the next one is
    /// due.
    refusals_ns: Option<(u64, u64)>,
}

impl ThrottleWarnings {
    pub(super) const fn note_other(&mut self) {
        self.refusals_ns = None;
    }

    /// Returns the warning that a throttled request calls for, if it was not given yet.
    /// `alone` means that no other request is under way, which may be answered.
    pub(super) fn note_refusal(
        &mut self,
        now_ns: u64,
        retry_after: Option<Duration>,
        alone: bool,
    ) -> Option<LimitWarning> {
        let since = |then_ns: u64| Duration::from_nanos(now_ns.saturating_sub(then_ns));
        let (first_ns, due_ns) = self.refusals_ns.filter(|(_, due_ns)| now_ns <= *due_ns).unwrap_or((now_ns, now_ns));
        let pause = retry_after.map_or(LONGEST_PAUSE, |after| after.clamp(LONGEST_PAUSE, LONGEST_RETRY_AFTER)) + SOON;
        self.refusals_ns = Some((first_ns, due_ns.max(now_ns.saturating_add(nanos(pause)))));
        if let Some(long) = retry_after.filter(|after| *after > LONG_RETRY_AFTER) {
            let news = !std::mem::replace(&mut self.of_long_wait, true);
            return news.then_some(LimitWarning::LongRetryAfter(long));
        }
        let news = alone && since(first_ns) >= WARN_THROTTLED && !std::mem::replace(&mut self.of_refusals, true);
        news.then(|| LimitWarning::AllThrottled(since(first_ns)))
    }
}
