//! The book against a server with a sliding window, on a clock of our own: row 19 of docs/internals/promises.md, and what B-1 to B-6 say.

use std::collections::VecDeque;
use std::time::Duration;

use proptest::prelude::*;

use super::super::book::{Book, Heard, Passed, Rules, Tokens, Verdict};

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

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
    fn ask(&mut self, now_ns: u64) -> Heard {
        while self.taken.front().is_some_and(|taken| taken + self.window_ns <= now_ns) {
            self.taken.pop_front();
        }
        if self.taken.len() < self.most {
            self.taken.push_back(now_ns);
            return Heard::Answer;
        }
        let free_ns = self.taken.front().map_or(0, |taken| taken + self.window_ns - now_ns);
        Heard::Busy(Some(Duration::from_nanos(free_ns)))
    }
}

/// What came of a run: answers, refusals, and those of both after the first two windows.
#[derive(Debug, Default)]
struct Count {
    answers: usize,
    busy: usize,
    late_answers: usize,
    late_busy: usize,
    sent: Vec<u64>,
}

/// Sends requests through a book for `for_ns`; each reaches the server and is answered with a delay of up to `jitter_ns` either way, and the one who
/// asks wakes late by up to `lag_ns`.
fn run(rules: &Rules, server: &mut Server, for_ns: u64, lag_ns: u64, jitter_ns: u64, seed: u64) -> Count {
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut book, mut count, mut now_ns) = (Book::default(), Count::default(), S);
    let mut on_the_way: Vec<(u64, Passed)> = Vec::new();
    let start_ns = now_ns;
    while now_ns < start_ns + for_ns {
        on_the_way.sort_by_key(|(at_ns, _)| *at_ns);
        while let Some((at_ns, passed)) = on_the_way.first().copied().filter(|(at_ns, _)| *at_ns <= now_ns) {
            on_the_way.remove(0);
            let heard = server.ask(at_ns);
            let late = at_ns > start_ns + 2 * server.window_ns;
            if heard == Heard::Answer {
                count.answers += 1;
                count.late_answers += usize::from(late);
            } else {
                count.busy += 1;
                count.late_busy += usize::from(late);
            }
            book.learn(rules, at_ns, passed, heard, None, random.f64());
        }
        match book.ask(rules, now_ns, Tokens::About(None), 0) {
            Verdict::Go(passed) => {
                count.sent.push(now_ns);
                on_the_way.push((now_ns + random.u64(0..=jitter_ns), passed));
            }
            Verdict::Wait { until_ns, .. } => now_ns = until_ns.max(now_ns + 1) + random.u64(0..=lag_ns),
            Verdict::Dead(_) => now_ns += S,
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
        let (late, allowed) = (count.late_answers + count.late_busy, 18 * 100);
        assert!(count.late_busy * 50 <= late, "{count:?}");
        assert!(count.late_answers * 100 >= allowed * 95, "{} of {allowed}", count.late_answers);
        // No opening burst.
        assert!(most_in(&count.sent, 3 * S) <= 100);
        assert!(count.sent.iter().filter(|at| **at < S + S / 10).count() <= 5);
    }
}

#[test]
fn b3_a_server_that_allows_less_than_was_said_is_found_out() {
    for seed in 0..5 {
        let mut server = Server { window_ns: 3 * S, most: 50, taken: VecDeque::new() };
        let count = run(&rpm(2000.0), &mut server, 120 * S, MS, MS, seed);
        let late = count.late_answers + count.late_busy;
        assert!(count.late_busy * 20 <= late, "{} of {late} were too many", count.late_busy);
        assert!(count.late_answers * 100 >= 38 * 50 * 80, "{} answers", count.late_answers);
    }
}

#[test]
fn b3_one_wave_of_refusals_is_one_cut_and_answers_heal_it() {
    let rules = rpm(60_000.0);
    let mut book = Book::default();
    for wave in [S, 3 * S] {
        let sent: Vec<Passed> = (0..20)
            .filter_map(|at| match book.ask(&rules, wave + at * MS, Tokens::About(None), 0) {
                Verdict::Go(passed) => Some(passed),
                _ => None,
            })
            .collect();
        assert_eq!(sent.len(), 20);
        for passed in &sent {
            book.learn(&rules, wave + S, *passed, Heard::Busy(None), None, 0.5);
        }
    }
    let steady = |book: &mut Book, from_ns: u64| {
        let mut count = 0;
        for at in 0..1000 {
            if let Verdict::Go(passed) = book.ask(&rules, from_ns + at * MS, Tokens::About(None), 0) {
                count += 1;
                book.learn(&rules, from_ns + at * MS, passed, Heard::Answer, None, 0.5);
            }
        }
        count
    };
    let cut = steady(&mut book, 5 * S);
    assert!((760..=880).contains(&cut), "{cut}");
    for second in 6..20 {
        steady(&mut book, second * S);
    }
    assert!(steady(&mut book, 20 * S) > 960);
}

#[test]
fn b3_without_rates_the_calls_at_a_time_are_cut() {
    let rules = Rules { concurrency: Some(10), ..Rules::default() };
    let mut book = Book::default();
    let Verdict::Go(passed) = book.ask(&rules, S, Tokens::About(None), 9) else { panic!("there is room for one") };
    assert!(matches!(book.ask(&rules, S, Tokens::About(None), 10), Verdict::Wait { on_release: true, .. }));
    book.learn(&rules, S, passed, Heard::Busy(None), None, 0.5);
    assert!(matches!(book.ask(&rules, S + 2, Tokens::About(None), 9), Verdict::Wait { on_release: true, .. }));
    assert!(matches!(book.ask(&rules, S + 2, Tokens::About(None), 8), Verdict::Go(_)));
    // However often it is refused, one may go.
    for at in 1..100 {
        let passed = Passed { sent_ns: S + at * S, tokens: 0.0, probe: false };
        book.learn(&rules, S + at * S, passed, Heard::Busy(None), None, 0.5);
    }
    assert!(matches!(book.ask(&rules, 200 * S, Tokens::About(None), 0), Verdict::Go(_)));
    assert!(matches!(book.ask(&rules, 200 * S, Tokens::About(None), 1), Verdict::Wait { .. }));
}

#[test]
fn b4_all_wait_for_what_one_was_told() {
    let rules = Rules { concurrency: Some(4), ..Rules::default() };
    let mut book = Book::default();
    let Verdict::Go(passed) = book.ask(&rules, S, Tokens::About(None), 0) else { panic!("nothing is in the way") };
    book.learn(&rules, S, passed, Heard::Busy(Some(Duration::from_secs(7))), None, 0.5);
    assert_eq!(book.ask(&rules, S, Tokens::About(None), 0), Verdict::Wait { until_ns: 8 * S, on_release: false });
    assert!(matches!(book.ask(&rules, 8 * S, Tokens::About(None), 0), Verdict::Go(_)));
}

#[test]
fn b5_a_dead_endpoint_gets_probes_and_then_refuses() {
    let rules = Rules { concurrency: Some(100), ..Rules::default() };
    let mut book = Book::default();
    let go = |book: &mut Book, now_ns| match book.ask(&rules, now_ns, Tokens::About(None), 0) {
        Verdict::Go(passed) => Some(passed),
        _ => None,
    };
    let sent: Vec<Passed> = (0..20).filter_map(|_| go(&mut book, S)).collect();
    assert_eq!(sent.len(), 20);
    for passed in sent {
        book.learn(&rules, S, passed, Heard::Sick, None, 1.0);
    }
    assert_eq!(book.ask(&rules, S, Tokens::About(None), 0), Verdict::Wait { until_ns: 2 * S, on_release: false });
    let (mut now_ns, mut probes) = (S, 0);
    loop {
        match book.ask(&rules, now_ns, Tokens::About(None), 0) {
            Verdict::Go(passed) => {
                assert!(passed.probe && go(&mut book, now_ns).is_none(), "one probe at a time");
                probes += 1;
                // A call that fails without a word from the endpoint is no sign of life.
                book.learn(
                    &rules,
                    now_ns,
                    passed,
                    if probes % 2 == 0 { Heard::Sick } else { Heard::Nothing },
                    None,
                    1.0,
                );
            }
            Verdict::Wait { until_ns, .. } => now_ns = until_ns,
            Verdict::Dead(for_ns) => {
                assert!(for_ns >= 300 * S);
                break;
            }
        }
    }
    assert!((20..=30).contains(&probes), "{probes}");
    // It still gets probes, and one answer is enough.
    let passed = go(&mut book, now_ns + 15 * S).unwrap();
    book.learn(&rules, now_ns + 15 * S, passed, Heard::Answer, None, 0.5);
    assert!((0..20).all(|_| go(&mut book, now_ns + 15 * S).is_some()));
}

#[test]
fn b5_an_answer_in_between_keeps_an_endpoint_alive() {
    let rules = Rules { concurrency: Some(100), ..Rules::default() };
    let mut book = Book::default();
    for at in 1..100 {
        let Verdict::Go(passed) = book.ask(&rules, at * S, Tokens::About(None), 0) else { panic!("{at}") };
        book.learn(&rules, at * S, passed, if at % 5 == 0 { Heard::Answer } else { Heard::Sick }, None, 0.5);
    }
}

#[test]
fn b5_a_probe_that_was_never_made_leaves_room_for_another() {
    let rules = Rules { concurrency: Some(100), ..Rules::default() };
    let mut book = Book::default();
    for _ in 0..5 {
        let Verdict::Go(passed) = book.ask(&rules, S, Tokens::About(None), 0) else { panic!("alive") };
        book.learn(&rules, S, passed, Heard::Sick, None, 0.0);
    }
    let Verdict::Go(probe) = book.ask(&rules, 3 * S, Tokens::About(None), 0) else { panic!("a probe is due") };
    assert!(probe.probe);
    book.forget(&rules, probe);
    assert!(matches!(book.ask(&rules, 3 * S, Tokens::About(None), 0), Verdict::Go(_)));
}

#[test]
fn b2_tokens_are_paid_for_when_their_use_is_known() {
    // 6000 a minute: 98 a second.
    let rules = Rules { tpm: Some(6000.0), ..Rules::default() };
    for (told, used) in [(None, 49.0), (Some(10.0), 49.0), (Some(500.0), 49.0)] {
        let (mut book, mut now_ns, mut sent) = (Book::default(), S, 0);
        while now_ns < 101 * S {
            match book.ask(&rules, now_ns, Tokens::About(told), 0) {
                Verdict::Go(passed) => {
                    sent += 1;
                    book.learn(&rules, now_ns, passed, Heard::Answer, Some(used), 0.5);
                }
                Verdict::Wait { until_ns, .. } => now_ns = until_ns,
                Verdict::Dead(_) => panic!("alive"),
            }
        }
        assert!((195..=201).contains(&sent), "{told:?}: {sent}");
    }
}

proptest! {
    #[test]
    fn b1_no_window_has_more_than_its_rate(
        limit in 1.0..100_000.0_f64,
        window_ms in 10..60_000_u64,
        gaps in prop::collection::vec(prop_oneof![0..2_u64, 0..100_u64, 0..5000_u64], 1..400),
    ) {
        let (rules, mut book) = (rpm(limit), Book::default());
        let (mut now_ns, mut sent) = (S, Vec::new());
        for gap in gaps {
            now_ns += gap * MS;
            while let Verdict::Go(passed) = book.ask(&rules, now_ns, Tokens::About(None), 0) {
                sent.push(passed.sent_ns);
            }
        }
        let interval_ns = 60e9 / (limit * 0.98);
        let bound = 1.0 + (window_ms * MS + 25 * MS) as f64 / interval_ns;
        prop_assert!(most_in(&sent, window_ms * MS) as f64 <= bound + 1e-6, "{} > {bound}", most_in(&sent, window_ms * MS));
    }

    #[test]
    fn b6_no_book_makes_anyone_wait_for_ever_or_panics(words in prop::array::uniform13(any::<u64>()), now_ns in S..1_000_000 * S, heard in 0..4_usize) {
        let rules = Rules { rpm: Some(60.0), tpm: Some(1000.0), concurrency: Some(2) };
        let mut book = Book::from_words(words);
        book.mend(now_ns);
        let heard = [Heard::Answer, Heard::Busy(Some(Duration::MAX)), Heard::Sick, Heard::Nothing][heard];
        book.learn(&rules, now_ns, Passed { sent_ns: now_ns, tokens: 5.0, probe: true }, heard, Some(f64::MAX), 0.5);
        if let Verdict::Wait { until_ns, .. } = book.ask(&rules, now_ns, Tokens::About(None), 0) {
            prop_assert!(until_ns <= now_ns + 600 * S);
        }
    }

    #[test]
    fn a_book_comes_back_from_a_file_as_it_was(words in prop::array::uniform13(0..u64::MAX / 2)) {
        prop_assert_eq!(Book::from_words(words).to_words(), words);
    }
}

#[test]
fn what_was_not_used_is_there_for_the_next() {
    let rules = Rules { rpm: Some(60.0), tpm: Some(600.0), ..Rules::default() };
    let mut book = Book::default();
    for at in 0..100 {
        let Verdict::Go(passed) = book.ask(&rules, S + at * MS, Tokens::About(Some(50.0)), 0) else { panic!("{at}") };
        book.forget(&rules, passed);
    }
    assert!(matches!(book.ask(&rules, S + 100 * MS, Tokens::About(None), 0), Verdict::Go(_)));
    assert!(matches!(book.ask(&rules, S + 101 * MS, Tokens::About(None), 0), Verdict::Wait { .. }));
}

#[test]
fn b2_tokens_that_are_counted_are_paid_for_as_they_are_and_corrected_when_a_call_tells() {
    // 6000 a minute at 98 %: 98 a second.
    let rules = Rules { tpm: Some(6000.0), ..Rules::default() };
    let mut book = Book::default();
    let mut ask = |now_ns, tokens| book.ask(&rules, now_ns, Tokens::Counted(tokens), 1);
    let Verdict::Go(large) = ask(S, 980.0) else { panic!("the first one goes") };
    assert_eq!(large.tokens, 980.0);
    // Its end may make room, so whoever waits is told of that.
    let Verdict::Wait { until_ns, on_release: true } = ask(S, 1.0) else { panic!("ten seconds are paid for") };
    assert!((11 * S - S / 10..=11 * S).contains(&until_ns), "{until_ns}");
    book.learn(&rules, 2 * S, large, Heard::Answer, Some(98.0), 0.5);
    assert!(matches!(book.ask(&rules, 2 * S, Tokens::Counted(1.0), 0), Verdict::Go(_)));
}

#[test]
fn b6_a_rate_that_was_set_before_holds_nobody_up() {
    let mut book = Book::default();
    assert!(matches!(book.ask(&rpm(0.2), S, Tokens::About(None), 0), Verdict::Go(_)), "the next one in five minutes");
    let Verdict::Wait { until_ns, .. } = book.ask(&rpm(600.0), S, Tokens::About(None), 0) else {
        panic!("not at once")
    };
    assert!(until_ns <= 3 * S, "{until_ns}");
}

#[test]
fn b6_tokens_that_are_owed_stay_as_many_at_another_rate() {
    let tpm = |tpm| Rules { tpm: Some(tpm), ..Rules::default() };
    let mut book = Book::default();
    assert!(matches!(book.ask(&tpm(60.0), S, Tokens::Counted(98.0), 0), Verdict::Go(_)), "a hundred seconds");
    let Verdict::Wait { until_ns, .. } = book.ask(&tpm(600.0), S, Tokens::Counted(1.0), 0) else {
        panic!("ten seconds")
    };
    assert!((10 * S..=11 * S).contains(&until_ns), "{until_ns}");
    let Verdict::Wait { until_ns, .. } = book.ask(&tpm(60.0), S, Tokens::Counted(1.0), 0) else { panic!("a hundred") };
    assert!((100 * S..=101 * S).contains(&until_ns), "{until_ns}");
}

#[test]
fn b2_what_no_call_can_have_used_is_not_believed() {
    let rules = Rules { tpm: Some(60_000.0), ..Rules::default() };
    for told in [1e308, f64::INFINITY, f64::NAN, -1.0, 600_001.0] {
        let (mut book, mut now_ns) = (Book::default(), S);
        for _ in 0..3 {
            let passed = loop {
                match book.ask(&rules, now_ns, Tokens::About(Some(100.0)), 0) {
                    Verdict::Go(passed) => break passed,
                    Verdict::Wait { until_ns, .. } => now_ns = until_ns,
                    Verdict::Dead(_) => panic!("alive"),
                }
            };
            assert_eq!(passed.tokens, 100.0, "{told}");
            book.learn(&rules, now_ns, passed, Heard::Answer, Some(told), 0.5);
        }
        assert!(now_ns < 2 * S, "{told}: {now_ns}");
    }
}

/// The clock of a process is read before its turn comes: what another wrote meanwhile is not to be pulled back by that.
#[test]
fn b1_a_clock_that_was_read_early_moves_nothing() {
    let (rules, mut book) = (rpm(600.0), Book::default());
    assert!(matches!(book.ask(&rules, S + 500 * MS, Tokens::About(None), 0), Verdict::Go(_)));
    let before = book.clone();
    assert!(matches!(book.ask(&rules, S, Tokens::About(None), 0), Verdict::Wait { .. }));
    assert_eq!(book, before);
}
