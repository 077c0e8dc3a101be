//! The rate limiter beside its circuit breaker: trials are let through, and the rest waits.

use super::super::feedback::Feedback;
use super::super::rate_limiter::{Decision, Grant, RateLimiter};
use super::{S, ask, at_most, ended, go};

#[test]
fn an_open_breaker_lets_trials_through_and_then_refuses() {
    let rules = at_most(100);
    let mut limiter = RateLimiter::default();
    let go = |limiter: &mut RateLimiter, now_ns| go(limiter, &rules, now_ns, 0);
    let sent: Vec<Grant> = (0..20).filter_map(|_| go(&mut limiter, S)).collect();
    assert_eq!(sent.len(), 20);
    for grant in sent {
        limiter.record(&rules, S, grant, ended(Feedback::NoConnection, None), 0, 1.0);
    }
    assert_eq!(ask(&mut limiter, &rules, S, 0), Decision::Wait { until_ns: S + S / 4, on_release: false });
    let (mut now_ns, mut trials) = (S, 0);
    loop {
        match ask(&mut limiter, &rules, now_ns, 0) {
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
    let rules = at_most(100);
    let mut limiter = RateLimiter::default();
    for at in 1..100 {
        let grant = go(&mut limiter, &rules, at * S, 0).expect("the breaker is closed");
        let feedback = if at % 5 == 0 { Feedback::Ok } else { Feedback::Failed };
        limiter.record(&rules, at * S, grant, ended(feedback, None), 0, 0.5);
    }
}

#[test]
fn a_trial_that_was_never_made_leaves_room_for_another() {
    let rules = at_most(100);
    let mut limiter = RateLimiter::default();
    for _ in 0..5 {
        let grant = go(&mut limiter, &rules, S, 0).expect("the breaker is closed");
        limiter.record(&rules, S, grant, ended(Feedback::NoConnection, None), 0, 0.0);
    }
    let trial = go(&mut limiter, &rules, 3 * S, 0).expect("a trial is due");
    assert!(trial.trial);
    limiter.refund(&rules, trial);
    assert!(go(&mut limiter, &rules, 3 * S, 0).is_some());
}
