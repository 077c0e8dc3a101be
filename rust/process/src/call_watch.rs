//! Decides when the running call is slow, out of time or out of grace; pure functions of what the
//! page shows.
//!
//! - Every action needs two checks with the same claim and start (shared-page-1). A stated start
//!   counts only if it is between the sending of the frame and the first sight of the claim.
//! - A claim is signalled once; its stack is requested shortly before its kill, a grace later.
//! - A worker that shows no claim for `SILENT` is killed; `LATE` is enough if its frame has ended
//!   or it is stopped. A worker whose claims go backwards repeatedly is killed too.

use std::time::Duration;

use guerdon_core::clock::nanos;

use crate::shared_page::{DECODING, IMPORTING, LOADING, SETUP};

/// Interval of checks on a busy worker.
pub(super) const TICK: Duration = Duration::from_millis(10);
/// Age of a call from which on the calls behind it are moved to other workers.
pub(super) const SLOW: Duration = Duration::from_millis(20);
/// Time that a busy worker may show no claim.
pub(super) const SILENT: Duration = Duration::from_secs(30);
/// The same for a worker that can't be about to show one.
pub(super) const LATE: Duration = Duration::from_secs(1);
/// Time before a kill at which the stack of the worker is requested: a quarter of the grace,
/// between these two bounds, because a busy machine needs more time than an idle one. If the grace
/// is shorter still, the request comes with the kill.
const LAST_WORDS: Duration = Duration::from_millis(20);
pub(super) const MOST_WORDS: Duration = Duration::from_secs(1);
/// Times that a claim may go backwards in one frame. Correct workers do so once, if the claim was
/// guessed from half a snapshot.
const BACKS: u32 = 16;
/// Time until a check that may confirm the last one.
const CONFIRM: Duration = Duration::from_millis(2);

/// The call or phase that a worker claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RunningClaim {
    pub claim: u64,
    /// Start by the worker's clock.
    pub started_ns: u64,
    /// The time when its frame was sent.
    pub sent_ns: u64,
    /// Time limit of the running call, from its start.
    pub limit_ns: u64,
    pub grace_ns: u64,
    /// False if its outcome is not needed any more.
    pub open: bool,
}

/// Action on the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Send the timeout signal for the claim.
    Fire,
    /// Request the stack, because the kill is near.
    AskStack,
    /// Kill the process group.
    Kill,
    /// Kill the process group for the claim itself.
    Disown,
}

/// Result of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Check {
    pub action: Option<Action>,
    /// The running call is older than `SLOW`.
    pub slow: bool,
    /// Age of the call; 0 if none is confirmed.
    pub age_ns: u64,
    /// Time of the next check.
    pub wake_ns: u64,
}

/// Results of earlier checks.
#[derive(Default)]
pub(super) struct CallWatch {
    /// Claim and stated start at the last check, and the first sight of that claim.
    seen: Option<(u64, u64, u64)>,
    /// The last claim that was signalled.
    fired: Option<u64>,
    /// The last claim whose stack was requested.
    asked: Option<u64>,
    /// The claim that was found closed, and the time.
    closed: Option<(u64, u64)>,
    /// The claim furthest ahead in its frame, and how often an earlier one was seen since the frame
    /// began.
    furthest: u64,
    backs: u32,
    /// Since when no claim has been seen.
    silent_ns: Option<u64>,
}

impl CallWatch {
    /// Makes a check on a busy worker.
    pub(super) fn check(&mut self, now_ns: u64, running_claim: Option<RunningClaim>) -> Check {
        let tick = now_ns.saturating_add(nanos(TICK));
        let Some(hand) = running_claim else {
            self.seen = None;
            let since = *self.silent_ns.get_or_insert(now_ns);
            let action = (now_ns.saturating_sub(since) >= nanos(SILENT)).then_some(Action::Kill);
            return Check { action, slow: false, age_ns: 0, wake_ns: tick };
        };
        self.silent_ns = None;
        let (confirmed, first_ns) = match self.seen {
            Some((claim, stated, first)) if claim == hand.claim => {
                (stated == hand.started_ns || now_ns.saturating_sub(first) >= nanos(LATE), first)
            }
            _ => (false, now_ns),
        };
        self.seen = Some((hand.claim, hand.started_ns, first_ns));
        if self.goes_backwards(hand.claim) {
            return Check { action: Some(Action::Disown), slow: false, age_ns: 0, wake_ns: tick };
        }
        let started_ns = hand.started_ns.clamp(hand.sent_ns.min(first_ns), first_ns);
        let age_ns = now_ns.saturating_sub(started_ns);
        let mut due_ns = started_ns.saturating_add(hand.limit_ns);
        if !hand.open {
            let closed = self.closed.filter(|(claim, _)| *claim == hand.claim).unwrap_or((hand.claim, now_ns));
            self.closed = Some(closed);
            due_ns = due_ns.min(closed.1);
        }
        let kill_ns = due_ns.saturating_add(hand.grace_ns);
        let words_ns = (hand.grace_ns / 4).clamp(nanos(LAST_WORDS), nanos(MOST_WORDS));
        let ask_ns = if hand.grace_ns > words_ns { kill_ns - words_ns } else { kill_ns };
        if !confirmed {
            let soon = now_ns.saturating_add(nanos(CONFIRM));
            let wake_ns = tick.min(due_ns.max(soon));
            return Check { action: None, slow: false, age_ns: 0, wake_ns };
        }
        let action = if now_ns >= kill_ns {
            Some(Action::Kill)
        } else if now_ns >= due_ns && self.fired != Some(hand.claim) {
            self.fired = Some(hand.claim);
            Some(Action::Fire)
        } else if now_ns >= ask_ns && self.asked != Some(hand.claim) {
            self.asked = Some(hand.claim);
            Some(Action::AskStack)
        } else {
            None
        };
        let next_ns = if now_ns < due_ns {
            due_ns
        } else if now_ns < ask_ns {
            ask_ns
        } else {
            kill_ns
        };
        Check { action, slow: age_ns >= nanos(SLOW), age_ns, wake_ns: tick.min(next_ns.max(now_ns + 1)) }
    }

    /// Records a claim; true if the worker's claims go backwards too often.
    fn goes_backwards(&mut self, claim: u64) -> bool {
        if claim >> 8 != self.furthest >> 8 {
            self.backs = 0;
        } else if place(claim) < place(self.furthest) {
            self.backs += 1;
            return self.backs > BACKS;
        }
        self.furthest = claim;
        false
    }

    /// Returns whether no claim has been seen for `LATE`.
    pub(super) fn is_late(&self, now_ns: u64) -> bool {
        self.silent_ns.is_some_and(|since| now_ns.saturating_sub(since) >= nanos(LATE))
    }

    /// Restarts the time without a claim, because the worker answered.
    pub(super) fn restart_silence(&mut self) {
        self.silent_ns = None;
    }
}

/// Returns the position of a claim in its frame: loading, setup, importing, decoding, then the
/// calls.
const fn place(claim: u64) -> u64 {
    match (claim & 0xFF) as u8 {
        LOADING => 0,
        SETUP => 1,
        IMPORTING => 2,
        DECODING => 3,
        call => call as u64 + 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared_page::CALLS;

    const MS: u64 = 1_000_000;

    fn hand(claim: u64, started_ms: u64) -> RunningClaim {
        RunningClaim {
            claim,
            started_ns: started_ms * MS,
            sent_ns: 0,
            limit_ns: 100 * MS,
            grace_ns: 50 * MS,
            open: true,
        }
    }

    #[test]
    fn signal_once_ask_once_then_kill() {
        let mut watch = CallWatch::default();
        let mut orders = vec![];
        let mut now = 1_000 * MS;
        while now < 1_200 * MS {
            let check = watch.check(now, Some(hand(257, 1_000)));
            if let Some(action) = check.action {
                orders.push((now / MS, action));
                if action == Action::Kill {
                    break;
                }
            }
            assert!(check.wake_ns > now);
            now = check.wake_ns;
        }
        assert_eq!(orders, [(1_100, Action::Fire), (1_130, Action::AskStack), (1_150, Action::Kill)]);
    }

    #[test]
    fn a_grace_too_short_for_a_question_is_only_a_grace() {
        let mut watch = CallWatch::default();
        let hand = RunningClaim { grace_ns: 10 * MS, ..hand(257, 1_000) };
        watch.check(1_050 * MS, Some(hand));
        let orders: Vec<_> = [1_060, 1_100, 1_105, 1_110].map(|ms| watch.check(ms * MS, Some(hand)).action).into();
        assert_eq!(orders, [None, Some(Action::Fire), None, Some(Action::Kill)]);
    }

    #[test]
    fn a_new_start_is_looked_at_twice() {
        let mut watch = CallWatch::default();
        for call in 1..50 {
            assert_eq!(watch.check(1_000 * call * MS, Some(hand(256 + call, 0))).action, None);
        }
    }

    #[test]
    fn a_stated_start_in_the_past_or_the_future_changes_little() {
        for stated_ms in [0, 5_000_000] {
            let mut watch = CallWatch::default();
            let hand = RunningClaim { sent_ns: 990 * MS, ..hand(257, stated_ms) };
            watch.check(1_000 * MS, Some(hand));
            assert_eq!(watch.check(1_050 * MS, Some(hand)).action, None);
            assert_eq!(watch.check(1_100 * MS, Some(hand)).action, Some(Action::Fire));
        }
    }

    #[test]
    fn a_closed_call_is_stopped_at_once() {
        let mut watch = CallWatch::default();
        let closed = RunningClaim { open: false, limit_ns: u64::MAX, ..hand(257, 1_000) };
        watch.check(1_001 * MS, Some(closed));
        assert_eq!(watch.check(1_003 * MS, Some(closed)).action, Some(Action::Fire));
        assert_eq!(watch.check(1_051 * MS, Some(closed)).action, Some(Action::Kill));
    }

    #[test]
    fn silence_ends_the_worker() {
        let mut watch = CallWatch::default();
        assert_eq!(watch.check(0, None).action, None);
        assert_eq!(watch.check(29_000 * MS, None).action, None);
        watch.restart_silence();
        assert_eq!(watch.check(31_000 * MS, None).action, None);
        assert_eq!([31_999, 32_000].map(|ms| watch.is_late(ms * MS)), [false, true]);
        assert_eq!(watch.check(61_000 * MS, None).action, Some(Action::Kill));
    }

    #[test]
    fn a_worker_that_goes_to_and_fro_is_ended() {
        let mut watch = CallWatch::default();
        let orders: Vec<_> =
            (0..1000).map(|look| watch.check(look * 10 * MS, Some(hand(257 + look % 2, 0))).action).collect();
        let end = orders.iter().position(Option::is_some).unwrap();
        assert!(orders[end] == Some(Action::Disown) && end < 50, "{end}");
    }

    #[test]
    fn forward_is_as_far_as_there_are_calls() {
        let mut watch = CallWatch::default();
        let claims = (1..9)
            .flat_map(|frame| [0xFE, 0xFF, 0xFD].into_iter().chain(1..=CALLS as u64).map(move |low| frame << 8 | low));
        for (look, claim) in claims.enumerate() {
            assert_eq!(watch.check(look as u64 * 10 * MS, Some(hand(claim, 0))).action, None);
        }
    }

    #[test]
    fn another_start_each_time_delays_a_little() {
        let mut watch = CallWatch::default();
        let orders: Vec<_> = (0..200).map(|look| watch.check(look * 10 * MS, Some(hand(257, look))).action).collect();
        assert!(orders.contains(&Some(Action::Kill)));
    }

    #[test]
    fn slow_is_reported_after_two_checks() {
        let mut watch = CallWatch::default();
        assert!(!watch.check(1_030 * MS, Some(hand(257, 1_000))).slow);
        assert!(watch.check(1_040 * MS, Some(hand(257, 1_000))).slow);
    }
}
