//! The rate limiter beside its circuit breaker: trials are let through, and the rest waits.

use super::super::feedback::Feedback;
use super::super::rate_limiter::{Decision, Grant, RateLimiter, Rules, Tokens};
use super::{S, ended};

#[test]
fn an_open_breaker_lets_trials_through_and_then_refuses() {
    let rules = Rules { concurrency: Some(100), ..Rules::default() };
    let mut limiter = RateLimiter::default();
    let go = |limiter: &mut RateLimiter, now_ns| match limiter.ask(&rules, now_ns, Tokens::Estimated(None), 0) {
        Decision::Go(grant) => Some(grant),
        _ => None,
    };
    let sent: Vec<Grant> = (0..20).filter_map(|_| go(&mut limiter, S)).collect();
    assert_eq!(sent.len(), 20);
    for grant in sent {
        limiter.record(&rules, S, grant, ended(Feedback::NoConnection, None), 0, 1.0);
    }
    assert_eq!(
        limiter.ask(&rules, S, Tokens::Estimated(None), 0),
        Decision::Wait { until_ns: S + S / 4, on_release: false }
    );
    let (mut now_ns, mut trials) = (S, 0);
    loop {
        match limiter.ask(&rules, now_ns, Tokens::Estimated(None), 0) {
            Decision::Go(grant) => {
                assert!(grant.trial && go(&mut limiter, now_ns).is_none(), "one trial at a time");
                trials += 1;
                // One that says nothing leaves its place to another.
                let feedback = if trials % 2 == 0 { Feedback::NoConnection } else { Feedback::Unknown };
                limiter.record(&rules, now_ns, grant, ended(feedback, None), 0, 1.0);
            }
            Decision::Wait { until_ns, .. } => now_ns = until_ns,
            Decision::BreakerOpen(for_ns) => {
                assert!(for_ns >= 300 * S);
                break;
            }
            Decision::Throttled(_) => panic!("nothing was throttled"),
        }
    }
    assert!((50..=60).contains(&trials), "{trials}");
    // It still gets trials.
    now_ns += 15 * S;
    for width in [1, 2, 8] {
        let sent: Vec<Grant> = (0..20).map_while(|_| go(&mut limiter, now_ns)).collect();
        assert_eq!(sent.len(), width, "it ramps up");
        for grant in sent {
            limiter.record(&rules, now_ns, grant, ended(Feedback::Ok, None), 0, 0.5);
        }
    }
    assert!((0..200).all(|_| go(&mut limiter, now_ns).is_some_and(|grant| !grant.trial)));
}

#[test]
fn an_answer_in_between_keeps_the_breaker_closed() {
    let rules = Rules { concurrency: Some(100), ..Rules::default() };
    let mut limiter = RateLimiter::default();
    for at in 1..100 {
        let Decision::Go(grant) = limiter.ask(&rules, at * S, Tokens::Estimated(None), 0) else { panic!("{at}") };
        limiter.record(
            &rules,
            at * S,
            grant,
            ended(if at % 5 == 0 { Feedback::Ok } else { Feedback::Failed }, None),
            0,
            0.5,
        );
    }
}

#[test]
fn a_trial_that_was_never_made_leaves_room_for_another() {
    let rules = Rules { concurrency: Some(100), ..Rules::default() };
    let mut limiter = RateLimiter::default();
    for _ in 0..5 {
        let Decision::Go(grant) = limiter.ask(&rules, S, Tokens::Estimated(None), 0) else {
            panic!("the breaker is closed")
        };
        limiter.record(&rules, S, grant, ended(Feedback::NoConnection, None), 0, 0.0);
    }
    let Decision::Go(trial) = limiter.ask(&rules, 3 * S, Tokens::Estimated(None), 0) else { panic!("a trial is due") };
    assert!(trial.trial);
    limiter.refund(&rules, trial);
    assert!(matches!(limiter.ask(&rules, 3 * S, Tokens::Estimated(None), 0), Decision::Go(_)));
}
