//! Tokens: charged by an estimate, corrected by the usage, paid off at the rate.

use super::super::feedback::Feedback;
use super::super::rate_limiter::{Decision, RateLimiter, Rules, Tokens};
use super::{S, ended};

#[test]
fn tokens_are_charged_when_their_use_is_known() {
    // 6000 a minute: 98 a second.
    let rules = Rules { tpm: Some(6000.0), ..Rules::default() };
    for (reported, used) in [(None, 49.0), (Some(10.0), 49.0), (Some(500.0), 49.0)] {
        let (mut limiter, mut now_ns, mut sent) = (RateLimiter::default(), S, 0);
        while now_ns < 101 * S {
            match limiter.ask(&rules, now_ns, Tokens::Estimated(reported), 0) {
                Decision::Go(grant) => {
                    sent += 1;
                    limiter.record(&rules, now_ns, grant, ended(Feedback::Ok, Some(used)), 0, 0.5);
                }
                Decision::Wait { until_ns, .. } => now_ns = until_ns,
                Decision::BreakerOpen(_) | Decision::Throttled(_) => panic!("the breaker is closed"),
            }
        }
        assert!((195..=201).contains(&sent), "{reported:?}: {sent}");
    }
}

#[test]
fn counted_tokens_are_charged_and_corrected_by_the_reported_use() {
    // 6000 a minute at 98 %: 98 a second.
    let rules = Rules { tpm: Some(6000.0), ..Rules::default() };
    let mut limiter = RateLimiter::default();
    let mut ask = |now_ns, tokens| limiter.ask(&rules, now_ns, Tokens::Counted(tokens), 1);
    let Decision::Go(large) = ask(S, 980.0) else { panic!("the first one goes") };
    assert_eq!(large.tokens, 980.0);
    // Its end may make room, so waiting calls are reported to.
    let Decision::Wait { until_ns, on_release: true } = ask(S, 1.0) else { panic!("ten seconds are paid for") };
    assert!((11 * S - S / 10..=11 * S).contains(&until_ns), "{until_ns}");
    limiter.record(&rules, 2 * S, large, ended(Feedback::Ok, Some(98.0)), 0, 0.5);
    assert!(matches!(limiter.ask(&rules, 2 * S, Tokens::Counted(1.0), 0), Decision::Go(_)));
}

#[test]
fn token_debt_stays_the_same_at_another_rate() {
    let tpm = |tpm| Rules { tpm: Some(tpm), ..Rules::default() };
    let mut limiter = RateLimiter::default();
    assert!(matches!(limiter.ask(&tpm(60.0), S, Tokens::Counted(98.0), 0), Decision::Go(_)), "a hundred seconds");
    let Decision::Wait { until_ns, .. } = limiter.ask(&tpm(600.0), S, Tokens::Counted(1.0), 0) else {
        panic!("ten seconds")
    };
    assert!((10 * S..=11 * S).contains(&until_ns), "{until_ns}");
    let Decision::Wait { until_ns, .. } = limiter.ask(&tpm(60.0), S, Tokens::Counted(1.0), 0) else {
        panic!("a hundred")
    };
    assert!((100 * S..=101 * S).contains(&until_ns), "{until_ns}");
}

#[test]
fn impossible_token_use_is_ignored() {
    let rules = Rules { tpm: Some(60_000.0), ..Rules::default() };
    for reported in [1e308, f64::INFINITY, f64::NAN, -1.0, 600_001.0] {
        let (mut limiter, mut now_ns) = (RateLimiter::default(), S);
        for _ in 0..3 {
            let grant = loop {
                match limiter.ask(&rules, now_ns, Tokens::Estimated(Some(100.0)), 0) {
                    Decision::Go(grant) => break grant,
                    Decision::Wait { until_ns, .. } => now_ns = until_ns,
                    Decision::BreakerOpen(_) | Decision::Throttled(_) => panic!("the breaker is closed"),
                }
            };
            assert_eq!(grant.tokens, 100.0, "{reported}");
            limiter.record(&rules, now_ns, grant, ended(Feedback::Ok, Some(reported)), 0, 0.5);
        }
        assert!(now_ns < 2 * S, "{reported}: {now_ns}");
    }
}
