//! Decides on another attempt after a failed one, and on its time.
//!
//! - `retries` counts attempts after the first. A call whose worker died is tried once more, alone,
//!   beyond them. Deferrals, and failures that an open circuit breaker excuses, are not counted.
//! - The wait is uniform in [0, min(10 s, 0.2 s * 2^(n-1))] (full jitter), at least `Retry-After`
//!   up to `LONGEST_RETRY_AFTER`; a call deferred under a limit waits for `Retry-After` only.
//! - No attempt starts after `total_timeout` or `batch_timeout`.
//! - "Too many requests" defers a call up to `DEFERRALS` times, or more under a limit. 400, 401,
//!   403, 404 and 422 are final.

use std::time::Duration;

use crate::call::Call;
use crate::clock::nanos;
use crate::function::Policy;
use crate::limits::LONGEST_RETRY_AFTER;
use crate::outcome::{Answer, Failure, FailureKind};

const BASE_NS: u64 = 200_000_000;
const CAP_NS: u64 = 10_000_000_000;
/// Time before the end of a pause at which a call that waited for it is queued again.
const BEFORE_THE_END_NS: u64 = 1_000_000;
/// Most deferrals of a call that has fewer retries: without a limit, and with a limit, whose pause
/// is tested by one call after the other.
const DEFERRALS: u16 = 8;
const DEFERRALS_UNDER_LIMIT: u16 = 32;

/// Another attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Again {
    pub due_ns: u64,
    pub suspect: bool,
    /// True if the server had too many requests, which is not a failure of the call.
    pub deferred: bool,
}

/// Decides about a failed attempt; `random` is uniform in [0, 1).
pub(crate) fn decide(
    policy: &Policy,
    call: &Call,
    failure: &Failure,
    now_ns: u64,
    expires_ns: Option<u64>,
    random: f64,
) -> Option<Again> {
    let first_crash = failure.kind == FailureKind::Crashed && !call.suspect;
    let again = if first_crash {
        Again { due_ns: now_ns, suspect: true, deferred: false }
    } else {
        let deferred = failure.answer.is_some_and(Answer::is_later);
        let (times, most) = if deferred {
            let most = if policy.limit.is_some() { DEFERRALS_UNDER_LIMIT } else { DEFERRALS };
            (call.deferred.saturating_add(1), policy.retries.max(most))
        } else {
            (call.counted(), policy.retries)
        };
        let hopeless = !failure.retryable || failure.answer.is_some_and(Answer::is_final);
        if call.finish || hopeless || times > most || call.attempt == u16::MAX {
            return None;
        }
        let jitter = backoff_ns(times, random);
        let asked_ns = failure.retry_after.map_or(0, |asked: Duration| nanos(asked.min(LONGEST_RETRY_AFTER)));
        // A limit pauses for all its calls: each waits for its `Retry-After` only, and is queued
        // again before the pause ends.
        let wait = if deferred && policy.limit.is_some() {
            asked_ns.saturating_sub(BEFORE_THE_END_NS)
        } else {
            jitter.max(asked_ns)
        };
        Again { due_ns: now_ns.saturating_add(wait), suspect: call.suspect, deferred }
    };
    (expires_ns.is_none_or(|expires| again.due_ns < expires)).then_some(again)
}

fn backoff_ns(attempt: u16, random: f64) -> u64 {
    let ceiling = BASE_NS.saturating_mul(1 << u32::from(attempt.saturating_sub(1)).min(10)).min(CAP_NS);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "0 <= random < 1"
    )]
    let wait = (ceiling as f64 * random) as u64;
    wait
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(retries: u16) -> Policy {
        Policy { retries, ..Policy::new(Duration::from_secs(1)) }
    }

    fn failure(kind: FailureKind) -> Failure {
        Failure::new(kind, String::new())
    }

    fn call(attempt: u16, suspect: bool) -> Call {
        Call { attempt, suspect, ..Call::fresh(0) }
    }

    #[test]
    fn retries_are_attempts_after_the_first() {
        let error = failure(FailureKind::Error);
        assert!(decide(&policy(0), &call(1, false), &error, 0, None, 0.5).is_none());
        assert!(decide(&policy(2), &call(2, false), &error, 0, None, 0.5).is_some());
        assert!(decide(&policy(2), &call(3, false), &error, 0, None, 0.5).is_none());
        let hopeless = Failure { retryable: false, ..error };
        assert!(decide(&policy(2), &call(1, false), &hopeless, 0, None, 0.5).is_none());
    }

    #[test]
    fn the_first_crash_is_free_and_makes_the_call_suspect() {
        let crash = failure(FailureKind::Crashed);
        assert_eq!(
            decide(&policy(0), &call(1, false), &crash, 9, None, 0.5),
            Some(Again { due_ns: 9, suspect: true, deferred: false })
        );
        assert!(decide(&policy(0), &call(2, true), &crash, 9, None, 0.5).is_none());
        assert!(decide(&policy(1), &call(2, true), &crash, 9, None, 0.5).is_some());
        assert!(decide(&policy(1), &call(3, true), &crash, 9, None, 0.5).is_none());
    }

    #[test]
    fn waits_grow_to_the_cap_and_are_never_shorter_than_asked() {
        let top = 1.0 - f64::EPSILON;
        assert!(backoff_ns(1, top) <= BASE_NS && backoff_ns(1, top) > BASE_NS / 2);
        assert!(backoff_ns(40, top) <= CAP_NS && backoff_ns(40, top) > CAP_NS / 2);
        assert_eq!(backoff_ns(5, 0.0), 0);
        let asked = Failure { retry_after: Some(Duration::from_secs(7)), ..failure(FailureKind::Error) };
        assert_eq!(decide(&policy(1), &call(1, false), &asked, 0, None, 0.0).unwrap().due_ns, 7_000_000_000);
    }

    #[test]
    fn deferrals_and_retries_are_counted_apart() {
        let later = Failure { answer: Some(Answer::Status(429)), ..failure(FailureKind::Error) };
        let after = |deferred| Call { deferred, ..call(deferred + 1, false) };
        assert!(decide(&policy(0), &after(DEFERRALS - 1), &later, 0, None, 0.5).unwrap().deferred);
        assert!(decide(&policy(0), &after(DEFERRALS), &later, 0, None, 0.5).is_none());
        assert!(decide(&policy(20), &after(19), &later, 0, None, 0.5).is_some());
        let broken = Failure { answer: Some(Answer::Status(500)), ..failure(FailureKind::Error) };
        assert!(decide(&policy(0), &call(1, false), &broken, 0, None, 0.5).is_none());
        assert!(decide(&policy(2), &call(3, false), &broken, 0, None, 0.5).is_none());
        // Eight deferrals and two failures: both retries are still there for the failures.
        let both = Call { deferred: 8, ..call(10, false) };
        assert!(!decide(&policy(2), &both, &broken, 0, None, 0.5).unwrap().deferred);
        assert!(decide(&policy(2), &Call { attempt: 11, ..both }, &broken, 0, None, 0.5).is_none());
        // And failures take nothing of the deferrals.
        assert!(decide(&policy(2), &Call { deferred: 7, ..call(10, false) }, &later, 0, None, 0.5).is_some());
    }

    #[test]
    fn hopeless_requests_are_not_retried() {
        for (status, again) in
            [(400, false), (401, false), (403, false), (404, false), (422, false), (408, true), (503, true)]
        {
            let refused = Failure { answer: Some(Answer::Status(status)), ..failure(FailureKind::Error) };
            assert_eq!(decide(&policy(3), &call(1, false), &refused, 0, None, 0.5).is_some(), again, "{status}");
        }
        let unreachable = Failure { answer: Some(Answer::Unreachable), ..failure(FailureKind::Error) };
        assert!(decide(&policy(3), &call(1, false), &unreachable, 0, None, 0.5).is_some());
    }

    #[test]
    fn failures_while_the_breaker_is_open_are_not_counted() {
        let error = failure(FailureKind::Error);
        let trial = |excused| Call { excused, ..call(4, false) };
        assert!(decide(&policy(0), &trial(4), &error, 0, None, 0.5).is_some());
        assert!(decide(&policy(0), &trial(3), &error, 0, None, 0.5).is_none());
        assert!(decide(&policy(1), &trial(3), &error, 0, None, 0.5).is_some());
    }

    #[test]
    fn no_attempt_past_the_total_timeout() {
        let error = failure(FailureKind::Error);
        assert!(decide(&policy(1), &call(1, false), &error, 100, Some(100), 0.0).is_none());
        assert!(decide(&policy(1), &call(1, false), &error, 100, Some(101), 0.0).is_some());
    }
}
