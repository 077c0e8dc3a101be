//! The rate limiter against a server with a sliding window, on a clock of our own: row 19 of the
//! promises.

use std::collections::VecDeque;
use std::time::Duration;

use proptest::prelude::*;

use super::super::feedback::Feedback;
use super::super::rate_limiter::{Decision, Grant, RateLimiter, Rules, Tokens};
use super::{MS, S, ended, go};
use crate::words::Words;

fn rpm(rpm: f64) -> Rules {
    Rules { rpm: Some(rpm), ..Rules::default() }
}

/// Lets sliding windows of `window_ns` have at most `most` requests.
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

/// Counts of a run: answers, refusals, and those of both after the first two windows.
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
        let sent: Vec<Grant> = (0..20).filter_map(|at| go(&mut limiter, &rules, wave + at * MS, 0)).collect();
        assert_eq!(sent.len(), 20);
        for grant in &sent {
            limiter.record(&rules, wave + S, *grant, ended(Feedback::Throttled(None), None), 0, 0.5);
        }
    }
    let steady = |limiter: &mut RateLimiter, from_ns: u64| {
        let mut count = 0;
        for at in 0..1000 {
            if let Some(grant) = go(limiter, &rules, from_ns + at * MS, 0) {
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
            while let Some(grant) = go(&mut limiter, &rules, now_ns, 0) {
                sent.push(grant.sent_ns);
            }
        }
        let interval_ns = 60e9 / (limit * 0.98);
        let bound = 1.0 + (window_ms * MS + 25 * MS) as f64 / interval_ns;
        prop_assert!(most_in(&sent, window_ms * MS) as f64 <= bound + 1e-6, "{} > {bound}", most_in(&sent, window_ms * MS));
    }

    #[test]
    fn no_stored_state_makes_anyone_wait_for_ever_or_panics(words in prop::array::uniform::<_, { RateLimiter::COUNT }>(any::<u64>()), now_ns in S..1_000_000 * S, feedback in 0..6_usize) {
        let rules = Rules { rpm: Some(60.0), tpm: Some(1000.0), concurrency: Some(2) };
        let mut limiter = RateLimiter::take(&mut words.into_iter());
        limiter.clamp(now_ns);
        let feedback = [Feedback::Ok, Feedback::Throttled(Some(Duration::MAX)), Feedback::NoConnection, Feedback::Failed, Feedback::TimedOut, Feedback::Unknown][feedback];
        limiter.record(&rules, now_ns, Grant { sent_ns: now_ns, gap_ns: 0, others: 0, tokens: 5.0, trial: true }, ended(feedback, Some(f64::MAX)), 0, 0.5);
        if let Decision::Wait { until_ns, .. } = limiter.ask(&rules, now_ns, Tokens::Estimated(None), 0) {
            prop_assert!(until_ns <= now_ns + 600 * S);
        }
    }

    #[test]
    fn the_words_in_a_file_give_the_same_state(words in prop::array::uniform::<_, { RateLimiter::COUNT }>(0..u64::MAX / 2)) {
        let mut again = Vec::new();
        RateLimiter::take(&mut words.into_iter()).put(&mut again);
        prop_assert_eq!(again, words);
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
