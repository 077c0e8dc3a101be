//! The rate limiter against a server with a sliding window, on a clock of our own: row 19 of the
//! promises.

use std::collections::VecDeque;
use std::time::Duration;

use proptest::prelude::*;

use super::super::breaker::History;
use super::super::rate_limiter::{CallEnd, Decision, Feedback, Grant, RateLimiter, Rules, Tokens};

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

fn ended(feedback: Feedback, tokens: Option<f64>) -> CallEnd {
    CallEnd { feedback, tokens, history: History::default() }
}

fn rpm(rpm: f64) -> Rules {
    Rules { rpm: Some(rpm), ..Rules::default() }
}

/// Lets so many sliding windows of `window_ns` have at most `most` requests.
struct Server {
    window_ns: u64,
    most: usize,
    taken: VecDeque<u64>,
}

impl Server {
    fn ask(&mut self, now_ns: u64) -> Feedback {
        while self.taken.front().is_some_and(|taken| taken + self.window_ns <= now_ns) {
            self.taken.pop_front();
        }
        if self.taken.len() < self.most {
            self.taken.push_back(now_ns);
            return Feedback::Ok;
        }
        let free_ns = self.taken.front().map_or(0, |taken| taken + self.window_ns - now_ns);
        Feedback::Throttled(Some(Duration::from_nanos(free_ns)))
    }
}

/// What came of a run: answers, refusals, and those of both after the first two windows.
#[derive(Debug, Default)]
struct Count {
    answers: usize,
    throttled: usize,
    late_answers: usize,
    late_throttled: usize,
    sent: Vec<u64>,
}

/// Sends requests through a limiter for `for_ns`; each reaches the server and is answered with a
/// delay of up to `jitter_ns` either way, and the one who asks wakes late by up to `lag_ns`.
fn run(rules: &Rules, server: &mut Server, for_ns: u64, lag_ns: u64, jitter_ns: u64, seed: u64) -> Count {
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut limiter, mut count, mut now_ns) = (RateLimiter::default(), Count::default(), S);
    let mut on_the_way: Vec<(u64, Grant)> = Vec::new();
    let start_ns = now_ns;
    while now_ns < start_ns + for_ns {
        on_the_way.sort_by_key(|(at_ns, _)| *at_ns);
        while let Some((at_ns, grant)) = on_the_way.first().copied().filter(|(at_ns, _)| *at_ns <= now_ns) {
            on_the_way.remove(0);
            let feedback = server.ask(at_ns);
            let late = at_ns > start_ns + 2 * server.window_ns;
            if feedback == Feedback::Ok {
                count.answers += 1;
                count.late_answers += usize::from(late);
            } else {
                count.throttled += 1;
                count.late_throttled += usize::from(late);
            }
            limiter.record(rules, at_ns, grant, ended(feedback, None), 0, random.f64());
        }
        match limiter.ask(rules, now_ns, Tokens::Estimated(None), 0) {
            Decision::Go(grant) => {
                count.sent.push(now_ns);
                on_the_way.push((now_ns + random.u64(0..=jitter_ns), grant));
            }
            Decision::Wait { until_ns, .. } => now_ns = until_ns.max(now_ns + 1) + random.u64(0..=lag_ns),
            Decision::BreakerOpen(_) | Decision::Throttled(_) => now_ns += S,
        }
    }
    count
}

fn most_in(sent: &[u64], window_ns: u64) -> usize {
    let of = |first: usize| sent.partition_point(|at| *at < sent[first] + window_ns) - first;
    (0..sent.len()).map(of).max().unwrap_or(0)
}

#[test]
fn row_19_a_sliding_window_is_used_and_not_exceeded() {
    for seed in 0..20 {
        // 100 in 3 s, with timers up to 15 ms late and 20 ms of jitter on the way.
        let mut server = Server { window_ns: 3 * S, most: 100, taken: VecDeque::new() };
        let count = run(&rpm(2000.0), &mut server, 60 * S, 15 * MS, 20 * MS, seed);
        let (late, allowed) = (count.late_answers + count.late_throttled, 18 * 100);
        assert!(count.late_throttled * 50 <= late, "{count:?}");
        assert!(count.late_answers * 100 >= allowed * 95, "{} of {allowed}", count.late_answers);
        // No opening burst.
        assert!(most_in(&count.sent, 3 * S) <= 100);
        assert!(count.sent.iter().filter(|at| **at < S + S / 10).count() <= 5);
    }
}

#[test]
fn rates_adapt_to_a_server_that_allows_less() {
    for seed in 0..5 {
        let mut server = Server { window_ns: 3 * S, most: 50, taken: VecDeque::new() };
        let count = run(&rpm(2000.0), &mut server, 120 * S, MS, MS, seed);
        let late = count.late_answers + count.late_throttled;
        assert!(count.late_throttled * 20 <= late, "{} of {late} were too many", count.late_throttled);
        assert!(count.late_answers * 100 >= 38 * 50 * 80, "{} answers", count.late_answers);
    }
}

#[test]
fn one_wave_of_throttling_lowers_the_rate_once_and_answers_raise_it() {
    let rules = rpm(60_000.0);
    let mut limiter = RateLimiter::default();
    for wave in [S, 3 * S] {
        let sent: Vec<Grant> = (0..20)
            .filter_map(|at| match limiter.ask(&rules, wave + at * MS, Tokens::Estimated(None), 0) {
                Decision::Go(grant) => Some(grant),
                _ => None,
            })
            .collect();
        assert_eq!(sent.len(), 20);
        for grant in &sent {
            limiter.record(&rules, wave + S, *grant, ended(Feedback::Throttled(None), None), 0, 0.5);
        }
    }
    let steady = |limiter: &mut RateLimiter, from_ns: u64| {
        let mut count = 0;
        for at in 0..1000 {
            if let Decision::Go(grant) = limiter.ask(&rules, from_ns + at * MS, Tokens::Estimated(None), 0) {
                count += 1;
                limiter.record(&rules, from_ns + at * MS, grant, ended(Feedback::Ok, None), 0, 0.5);
            }
        }
        count
    };
    let cut = steady(&mut limiter, 5 * S);
    assert!((760..=880).contains(&cut), "{cut}");
    for second in 6..20 {
        steady(&mut limiter, second * S);
    }
    assert!(steady(&mut limiter, 20 * S) > 960);
}

#[test]
fn without_rates_throttling_lowers_the_concurrency() {
    let rules = Rules { concurrency: Some(10), ..Rules::default() };
    let mut limiter = RateLimiter::default();
    let Decision::Go(grant) = limiter.ask(&rules, S, Tokens::Estimated(None), 9) else {
        panic!("there is room for one")
    };
    assert!(matches!(limiter.ask(&rules, S, Tokens::Estimated(None), 10), Decision::Wait { on_release: true, .. }));
    limiter.record(&rules, S, grant, ended(Feedback::Throttled(None), None), 0, 0.5);
    // After a pause one may go, and as many more as were answered, up to what is left of ten.
    assert!(matches!(limiter.ask(&rules, S + 2, Tokens::Estimated(None), 0), Decision::Wait { on_release: false, .. }));
    let ask =
        |limiter: &mut RateLimiter, in_flight| match limiter.ask(&rules, 2 * S, Tokens::Estimated(None), in_flight) {
            Decision::Go(grant) => Some(grant),
            _ => None,
        };
    for width in [1, 2, 4, 8] {
        let sent: Vec<Grant> = (0..10).map_while(|in_flight| ask(&mut limiter, in_flight)).collect();
        assert_eq!(sent.len(), width);
        for grant in sent {
            limiter.record(&rules, 2 * S, grant, ended(Feedback::Ok, None), 0, 0.5);
        }
    }
    assert!(ask(&mut limiter, 8).is_some() && ask(&mut limiter, 9).is_none());
    // However often it is refused, one may go.
    for at in 3..100 {
        let grant = Grant { sent_ns: at * 9 * S, tokens: 0.0, trial: false };
        limiter.record(&rules, at * 9 * S, grant, ended(Feedback::Throttled(None), None), 0, 0.5);
    }
    let mut after = |in_flight| limiter.ask(&rules, 2000 * S, Tokens::Estimated(None), in_flight);
    assert!(matches!(after(0), Decision::Go(_)));
    assert!(matches!(after(1), Decision::Wait { .. }));
}

#[test]
fn pauses_grow_are_bounded_and_end_with_an_answer() {
    let rules = Rules { concurrency: Some(10), ..Rules::default() };
    let (mut limiter, mut now_ns, mut pauses) = (RateLimiter::default(), S, Vec::new());
    let throttled = |limiter: &mut RateLimiter, now_ns: &mut u64, pauses: &mut Vec<u64>, feedback| {
        let Decision::Go(grant) = limiter.ask(&rules, *now_ns, Tokens::Estimated(None), 0) else { panic!("{now_ns}") };
        limiter.record(&rules, *now_ns, grant, ended(feedback, None), 0, 1.0);
        let Decision::Wait { until_ns, .. } = limiter.ask(&rules, *now_ns, Tokens::Estimated(None), 0) else { return };
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
    // Nothing but refusals for five minutes: it is no rate that is exceeded.
    let since_ns = now_ns;
    while now_ns < since_ns + 299 * S {
        throttled(&mut limiter, &mut now_ns, &mut pauses, Feedback::Throttled(None));
    }
    let Decision::Go(grant) = limiter.ask(&rules, now_ns, Tokens::Estimated(None), 0) else { panic!("{now_ns}") };
    limiter.record(&rules, now_ns, grant, ended(Feedback::Throttled(None), None), 0, 1.0);
    let asked = limiter.ask(&rules, now_ns, Tokens::Estimated(None), 0);
    assert!(matches!(asked, Decision::Throttled(for_ns) if for_ns >= 299 * S), "{asked:?}");
}

/// `Retry-After: 0`, or a date that is past: believed twice, or the attempts of all calls would be
/// gone within milliseconds.
#[test]
fn a_server_that_always_says_at_once_is_paused_for() {
    let rules = Rules { concurrency: Some(10), ..Rules::default() };
    for (asked_ms, pauses) in [(0, [0, 0, 2000, 4000, 8000]), (20, [20, 20, 2000, 4000, 8000]), (600, [600; 5])] {
        let (mut limiter, mut now_ns) = (RateLimiter::default(), S);
        for pause_ms in pauses {
            let Decision::Go(grant) = limiter.ask(&rules, now_ns, Tokens::Estimated(None), 0) else { panic!() };
            let feedback = Feedback::Throttled(Some(Duration::from_millis(asked_ms)));
            now_ns += MS;
            limiter.record(&rules, now_ns, grant, ended(feedback, None), 0, 1.0);
            let until_ns = match limiter.ask(&rules, now_ns, Tokens::Estimated(None), 0) {
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
    let rules = Rules { concurrency: Some(10), ..Rules::default() };
    let mut limiter = RateLimiter::default();
    let go = |limiter: &mut RateLimiter, now_ns| match limiter.ask(&rules, now_ns, Tokens::Estimated(None), 2) {
        Decision::Go(grant) => Some(grant),
        _ => None,
    };
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
    let rules = Rules { concurrency: Some(10), ..Rules::default() };
    let mut limiter = RateLimiter::default();
    let go = |limiter: &mut RateLimiter, now_ns| match limiter.ask(&rules, now_ns, Tokens::Estimated(None), 5) {
        Decision::Go(grant) => Some(grant),
        _ => None,
    };
    let (long, refused) = (go(&mut limiter, S).unwrap(), go(&mut limiter, S).unwrap());
    limiter.record(&rules, S, refused, ended(Feedback::Throttled(None), None), 5, 0.5);
    let next = go(&mut limiter, 3 * S).expect("though the first one is still in flight");
    limiter.record(&rules, 3 * S, long, ended(Feedback::Ok, None), 5, 0.5);
    assert!(go(&mut limiter, 3 * S).is_none(), "its end says nothing of what may go now");
    limiter.refund(&rules, next);
    assert!(go(&mut limiter, 3 * S).is_some());
    // One that is never heard of again is given up.
    assert!(go(&mut limiter, 3 * S).is_none() && go(&mut limiter, 64 * S).is_some());
}

/// Refusals are quick where answers are not: who waits for answers takes 30 s to use 60 free places
/// of a judge that takes five.
#[test]
fn calls_that_were_not_refused_in_time_have_more_go() {
    let rules = Rules { concurrency: Some(100), ..Rules::default() };
    for (refused_after_ns, let_through_ns) in [(5 * MS, 250 * MS), (S, 4 * S)] {
        let mut limiter = RateLimiter::default();
        let go = |limiter: &mut RateLimiter, now_ns| match limiter.ask(&rules, now_ns, Tokens::Estimated(None), 0) {
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
    let rules = Rules { concurrency: Some(4), ..Rules::default() };
    let mut limiter = RateLimiter::default();
    let Decision::Go(grant) = limiter.ask(&rules, S, Tokens::Estimated(None), 0) else {
        panic!("nothing is in the way")
    };
    limiter.record(&rules, S, grant, ended(Feedback::Throttled(Some(Duration::from_secs(7))), None), 0, 0.5);
    assert_eq!(
        limiter.ask(&rules, S, Tokens::Estimated(None), 0),
        Decision::Wait { until_ns: 8 * S, on_release: false }
    );
    assert!(matches!(limiter.ask(&rules, 8 * S, Tokens::Estimated(None), 0), Decision::Go(_)));
}

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

proptest! {
    #[test]
    fn no_window_has_more_than_its_rate(
        limit in 1.0..100_000.0_f64,
        window_ms in 10..60_000_u64,
        gaps in prop::collection::vec(prop_oneof![0..2_u64, 0..100_u64, 0..5000_u64], 1..400),
    ) {
        let (rules, mut limiter) = (rpm(limit), RateLimiter::default());
        let (mut now_ns, mut sent) = (S, Vec::new());
        for gap in gaps {
            now_ns += gap * MS;
            while let Decision::Go(grant) = limiter.ask(&rules, now_ns, Tokens::Estimated(None), 0) {
                sent.push(grant.sent_ns);
            }
        }
        let interval_ns = 60e9 / (limit * 0.98);
        let bound = 1.0 + (window_ms * MS + 25 * MS) as f64 / interval_ns;
        prop_assert!(most_in(&sent, window_ms * MS) as f64 <= bound + 1e-6, "{} > {bound}", most_in(&sent, window_ms * MS));
    }

    #[test]
    fn no_stored_state_makes_anyone_wait_for_ever_or_panics(words in prop::array::uniform24(any::<u64>()), now_ns in S..1_000_000 * S, feedback in 0..6_usize) {
        let rules = Rules { rpm: Some(60.0), tpm: Some(1000.0), concurrency: Some(2) };
        let mut limiter = RateLimiter::from_words(words);
        limiter.clamp(now_ns);
        let feedback = [Feedback::Ok, Feedback::Throttled(Some(Duration::MAX)), Feedback::NoConnection, Feedback::Failed, Feedback::TimedOut, Feedback::Unknown][feedback];
        limiter.record(&rules, now_ns, Grant { sent_ns: now_ns, tokens: 5.0, trial: true }, ended(feedback, Some(f64::MAX)), 0, 0.5);
        if let Decision::Wait { until_ns, .. } = limiter.ask(&rules, now_ns, Tokens::Estimated(None), 0) {
            prop_assert!(until_ns <= now_ns + 600 * S);
        }
    }

    #[test]
    fn the_words_in_a_file_give_the_same_state(words in prop::array::uniform24(0..u64::MAX / 2)) {
        prop_assert_eq!(RateLimiter::from_words(words).to_words(), words);
    }
}

#[test]
fn an_unused_permit_is_refunded() {
    let rules = Rules { rpm: Some(60.0), tpm: Some(600.0), ..Rules::default() };
    let mut limiter = RateLimiter::default();
    for at in 0..100 {
        let Decision::Go(grant) = limiter.ask(&rules, S + at * MS, Tokens::Estimated(Some(50.0)), 0) else {
            panic!("{at}")
        };
        limiter.refund(&rules, grant);
    }
    assert!(matches!(limiter.ask(&rules, S + 100 * MS, Tokens::Estimated(None), 0), Decision::Go(_)));
    assert!(matches!(limiter.ask(&rules, S + 101 * MS, Tokens::Estimated(None), 0), Decision::Wait { .. }));
}

#[test]
fn counted_tokens_are_charged_and_corrected_by_the_reported_use() {
    // 6000 a minute at 98 %: 98 a second.
    let rules = Rules { tpm: Some(6000.0), ..Rules::default() };
    let mut limiter = RateLimiter::default();
    let mut ask = |now_ns, tokens| limiter.ask(&rules, now_ns, Tokens::Counted(tokens), 1);
    let Decision::Go(large) = ask(S, 980.0) else { panic!("the first one goes") };
    assert_eq!(large.tokens, 980.0);
    // Its end may make room, so whoever waits is reported of that.
    let Decision::Wait { until_ns, on_release: true } = ask(S, 1.0) else { panic!("ten seconds are paid for") };
    assert!((11 * S - S / 10..=11 * S).contains(&until_ns), "{until_ns}");
    limiter.record(&rules, 2 * S, large, ended(Feedback::Ok, Some(98.0)), 0, 0.5);
    assert!(matches!(limiter.ask(&rules, 2 * S, Tokens::Counted(1.0), 0), Decision::Go(_)));
}

#[test]
fn an_earlier_lower_rate_holds_nobody_up() {
    let mut limiter = RateLimiter::default();
    assert!(
        matches!(limiter.ask(&rpm(0.2), S, Tokens::Estimated(None), 0), Decision::Go(_)),
        "the next one in five minutes"
    );
    let Decision::Wait { until_ns, .. } = limiter.ask(&rpm(600.0), S, Tokens::Estimated(None), 0) else {
        panic!("not at once")
    };
    assert!(until_ns <= 3 * S, "{until_ns}");
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

/// The clock of a process is read before its turn comes: what another wrote meanwhile is not to be
/// pulled back by that.
#[test]
fn a_clock_that_was_read_early_moves_nothing() {
    let (rules, mut limiter) = (rpm(600.0), RateLimiter::default());
    assert!(matches!(limiter.ask(&rules, S + 500 * MS, Tokens::Estimated(None), 0), Decision::Go(_)));
    let before = limiter.clone();
    assert!(matches!(limiter.ask(&rules, S, Tokens::Estimated(None), 0), Decision::Wait { .. }));
    assert_eq!(limiter, before);
}
