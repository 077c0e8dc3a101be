//! Pauses after throttled calls, and how many calls go after them.

use std::time::Duration;

use proptest::prelude::*;

use super::super::breaker::History;
use super::super::feedback::{CallEnd, Feedback};
use super::super::rate_limiter::{Decision, Grant, RateLimiter};
use super::{MS, S, ask, at_most, ended, go};

#[test]
fn without_rates_throttling_lowers_the_concurrency() {
    let rules = at_most(10);
    let mut limiter = RateLimiter::default();
    let grant = go(&mut limiter, &rules, S, 9).expect("there is room for one");
    assert!(matches!(ask(&mut limiter, &rules, S, 10), Decision::Wait { on_release: true, .. }));
    limiter.record(&rules, S, grant, ended(Feedback::Throttled(None), None), 0, 0.5);
    // After a pause one may go, and then as many more as were answered, up to the rest of ten.
    assert!(matches!(ask(&mut limiter, &rules, S + 2, 0), Decision::Wait { on_release: false, .. }));
    for width in [1, 2, 4, 8] {
        let sent: Vec<Grant> = (0..10).map_while(|in_flight| go(&mut limiter, &rules, 2 * S, in_flight)).collect();
        assert_eq!(sent.len(), width);
        for grant in sent {
            limiter.record(&rules, 2 * S, grant, ended(Feedback::Ok, None), 0, 0.5);
        }
    }
    assert!(go(&mut limiter, &rules, 2 * S, 8).is_some() && go(&mut limiter, &rules, 2 * S, 9).is_none());
    // However often it is refused, one may go.
    for at in 3..100 {
        let grant = Grant { sent_ns: at * 9 * S, gap_ns: 0, others: 0, tokens: 0.0, trial: false };
        limiter.record(&rules, at * 9 * S, grant, ended(Feedback::Throttled(None), None), 0, 0.5);
    }
    assert!(go(&mut limiter, &rules, 2000 * S, 0).is_some());
    assert!(matches!(ask(&mut limiter, &rules, 2000 * S, 1), Decision::Wait { .. }));
}

#[test]
fn pauses_grow_are_bounded_and_end_with_an_answer() {
    let rules = at_most(10);
    let (mut limiter, mut now_ns, mut pauses) = (RateLimiter::default(), S, Vec::new());
    let throttled = |limiter: &mut RateLimiter, now_ns: &mut u64, pauses: &mut Vec<u64>, feedback| {
        let grant = go(limiter, &rules, *now_ns, 0).expect("a pause is over");
        limiter.record(&rules, *now_ns, grant, ended(feedback, None), 0, 1.0);
        let Decision::Wait { until_ns, .. } = ask(limiter, &rules, *now_ns, 0) else { return };
        pauses.push((until_ns - *now_ns) / MS);
        *now_ns = until_ns;
    };
    for _ in 0..7 {
        throttled(&mut limiter, &mut now_ns, &mut pauses, Feedback::Throttled(None));
    }
    assert_eq!(pauses, [500, 1000, 2000, 4000, 8000, 8000, 8000]);
    throttled(&mut limiter, &mut now_ns, &mut pauses, Feedback::Ok);
    throttled(&mut limiter, &mut now_ns, &mut pauses, Feedback::Throttled(None));
    assert_eq!(pauses[7..], [500], "an answer in between");
    // Nothing but refusals for five minutes: no rate is exceeded.
    let since_ns = now_ns;
    while now_ns < since_ns + 299 * S {
        throttled(&mut limiter, &mut now_ns, &mut pauses, Feedback::Throttled(None));
    }
    let grant = go(&mut limiter, &rules, now_ns, 0).expect("a pause is over");
    limiter.record(&rules, now_ns, grant, ended(Feedback::Throttled(None), None), 0, 1.0);
    let asked = ask(&mut limiter, &rules, now_ns, 0);
    assert!(matches!(asked, Decision::Throttled(for_ns) if for_ns >= 299 * S), "{asked:?}");
}

/// `Retry-After: 0`, or a date that is past: believed twice, or the attempts of all calls would be
/// gone within milliseconds.
#[test]
fn a_server_that_always_says_at_once_is_paused_for() {
    let rules = at_most(10);
    for (asked_ms, pauses) in [(0, [0, 0, 2000, 4000, 8000]), (20, [20, 20, 2000, 4000, 8000]), (600, [600; 5])] {
        let (mut limiter, mut now_ns) = (RateLimiter::default(), S);
        for pause_ms in pauses {
            let grant = go(&mut limiter, &rules, now_ns, 0).unwrap();
            let feedback = Feedback::Throttled(Some(Duration::from_millis(asked_ms)));
            now_ns += MS;
            let again = History { throttled_before: true, ..History::default() };
            limiter.record(&rules, now_ns, grant, CallEnd { history: again, ..ended(feedback, None) }, 0, 1.0);
            let until_ns = match ask(&mut limiter, &rules, now_ns, 0) {
                Decision::Wait { until_ns, .. } => until_ns,
                Decision::Go(grant) => {
                    limiter.refund(&rules, grant);
                    now_ns
                }
                decision => panic!("{decision:?}"),
            };
            assert_eq!((until_ns - now_ns) / MS, pause_ms, "{asked_ms}");
            now_ns = until_ns + MS;
        }
    }
}

/// Late refusals with `Retry-After: 0` must not take the call after the pause for one before it.
#[test]
fn a_late_refusal_that_asks_for_no_wait_moves_no_pause() {
    let rules = at_most(10);
    let mut limiter = RateLimiter::default();
    let go = |limiter: &mut RateLimiter, now_ns| go(limiter, &rules, now_ns, 2);
    let at_once = || ended(Feedback::Throttled(Some(Duration::ZERO)), None);
    let (first, late) = (go(&mut limiter, S).unwrap(), go(&mut limiter, S).unwrap());
    limiter.record(&rules, S + MS, first, at_once(), 2, 0.5);
    let next = go(&mut limiter, S + 2 * MS).unwrap();
    limiter.record(&rules, S + 3 * MS, late, at_once(), 2, 0.5);
    limiter.record(&rules, S + 4 * MS, next, ended(Feedback::Ok, None), 2, 0.5);
    assert!(go(&mut limiter, S + 4 * MS).is_some() && go(&mut limiter, S + 4 * MS).is_some(), "two after an answer");
}

#[test]
fn a_pause_counts_no_call_that_was_sent_before_it() {
    let rules = at_most(10);
    let mut limiter = RateLimiter::default();
    let go = |limiter: &mut RateLimiter, now_ns| go(limiter, &rules, now_ns, 5);
    let (long, refused) = (go(&mut limiter, S).unwrap(), go(&mut limiter, S).unwrap());
    limiter.record(&rules, S, refused, ended(Feedback::Throttled(None), None), 5, 0.5);
    let next = go(&mut limiter, 3 * S).expect("though the first one is still in flight");
    limiter.record(&rules, 3 * S, long, ended(Feedback::Ok, None), 5, 0.5);
    assert!(go(&mut limiter, 3 * S).is_none(), "its end says nothing of what may go now");
    limiter.refund(&rules, next);
    assert!(go(&mut limiter, 3 * S).is_some());
    // A call without any further sign is given up.
    assert!(go(&mut limiter, 3 * S).is_none() && go(&mut limiter, 64 * S).is_some());
}

/// Refusals are quick where answers are not: who waits for answers takes 30 s to use 60 free places
/// of a judge that takes five.
#[test]
fn calls_that_were_not_refused_in_time_have_more_go() {
    let rules = at_most(100);
    for (refused_after_ns, let_through_ns) in [(5 * MS, 250 * MS), (S, 4 * S)] {
        let mut limiter = RateLimiter::default();
        let go = |limiter: &mut RateLimiter, now_ns| match ask(limiter, &rules, now_ns, 0) {
            Decision::Go(grant) => Ok(grant),
            Decision::Wait { until_ns, .. } => Err(until_ns),
            decision => panic!("{decision:?}"),
        };
        let refused = go(&mut limiter, S).unwrap();
        let mut now_ns = S + refused_after_ns;
        limiter.record(&rules, now_ns, refused, ended(Feedback::Throttled(None), None), 0, 0.5);
        now_ns = go(&mut limiter, now_ns).unwrap_err();
        for width in [1, 1, 2, 4, 8, 16] {
            assert!((0..width).all(|_| go(&mut limiter, now_ns).is_ok()), "{width}");
            assert_eq!(go(&mut limiter, now_ns), Err(now_ns + let_through_ns));
            now_ns += let_through_ns;
        }
    }
}

#[test]
fn retry_after_holds_for_all_calls() {
    let rules = at_most(4);
    let mut limiter = RateLimiter::default();
    let grant = go(&mut limiter, &rules, S, 0).expect("nothing is in the way");
    limiter.record(&rules, S, grant, ended(Feedback::Throttled(Some(Duration::from_secs(7))), None), 0, 0.5);
    assert_eq!(ask(&mut limiter, &rules, S, 0), Decision::Wait { until_ns: 8 * S, on_release: false });
    assert!(go(&mut limiter, &rules, 8 * S, 0).is_some());
}

proptest! {
    /// The number of calls that may be in flight after a refusal with `Retry-After: 1`, computed
    /// from the whole history since: one more with each that was answered, and twice as many once
    /// none was refused in time.
    #[test]
    fn after_a_refusal_calls_go_as_others_are_let_through(
        steps in prop::collection::vec((0..290_u64, 0..5_u8, any::<prop::sample::Index>()), 1..200),
    ) {
        let rules = at_most(1000);
        let (mut limiter, mut now_ns, mut in_flight) = (RateLimiter::default(), S, Vec::<Grant>::new());
        // Since the last pause: when it ends, calls in flight that were sent since, when the last
        // one was, and how many may be.
        let (mut paused, mut resumed_ns, mut since, mut sent_ns, mut most) = (false, 0, 0_u64, 0, 1_u64);
        let (mut refusals, mut refusal_ns) = (0_u32, 0_u64);
        // Counts of the last calls: answered, refused; the beginning of the last pause, and its
        // change.
        let (mut last, mut began_ns, mut before) = ((0_u64, 0_u64), 0, (false, 1));
        for (gap_ms, what, at) in steps {
            now_ns += gap_ms * 1_000_000;
            if what < 3 || in_flight.is_empty() {
                match ask(&mut limiter, &rules, now_ns, in_flight.len()) {
                    Decision::Go(grant) => {
                        if since >= most && now_ns >= sent_ns + (refusal_ns * 4).clamp(S / 4, 60 * S) {
                            most += since;
                        }
                        prop_assert!(!paused || (now_ns >= resumed_ns && since < most), "{since} of {most}");
                        (since, sent_ns) = (since + 1, now_ns);
                        in_flight.push(grant);
                    }
                    Decision::Wait { until_ns, .. } => prop_assert!(until_ns > now_ns),
                    Decision::Throttled(_) => prop_assert!(refusals > 1),
                    Decision::BreakerOpen(_) => prop_assert!(false),
                }
                continue;
            }
            let grant = in_flight.swap_remove(at.index(in_flight.len()));
            let feedback = if what == 3 { Feedback::Ok } else { Feedback::Throttled(Some(Duration::from_secs(1))) };
            if what == 4 {
                refusal_ns = (now_ns - grant.sent_ns).max(refusal_ns - refusal_ns / 8);
            }
            // Answers to calls sent before the last refusal do not count for the time since.
            let news = !paused || grant.sent_ns >= resumed_ns;
            limiter.record(&rules, now_ns, grant, ended(feedback, None), 0, 1.0);
            last = if what == 3 { (last.0 + 1, last.1) } else { (last.0, last.1 + 1) };
            last = if last.0 + last.1 >= 32 { (last.0 / 2, last.1.div_ceil(2)) } else { last };
            let contradicted = last.0 >= 3 && last.0 >= 2 * last.1;
            if what == 3 && contradicted && resumed_ns > now_ns && grant.sent_ns <= began_ns {
                ((paused, most), resumed_ns, refusals) = (before, 0, 0);
                continue;
            }
            if news {
                (since, most) = (since.saturating_sub(1), most + u64::from(what == 3));
            }
            if what == 3 {
                refusals = if grant.sent_ns > began_ns { 0 } else { refusals };
            } else if !contradicted && grant.sent_ns > began_ns {
                (before, began_ns) = ((paused, most), now_ns);
                (paused, resumed_ns, since, most, refusals) = (true, now_ns + S, 0, 1, refusals + 1);
            } else if !contradicted {
                resumed_ns = resumed_ns.max(now_ns + S);
            }
        }
    }
}
