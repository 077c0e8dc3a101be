//! Servers that answer "too many requests", and don't say when to come again.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use guerdon_core::limits::LimitWarning;
use guerdon_core::outcome::{Answer, Failure};
use guerdon_testkit::{paused, seeds};
use tokio::time::Instant;

use super::rig::{Engine, MINUTE, MS, Response, SECOND, at_once, ended, judge, refused, scored};

const LATER: Answer = Answer::Status(429);

/// Answers so many requests in any window.
fn window(most: usize, length: Duration, latency: Duration) -> Endpoint {
    let taken = Mutex::new(VecDeque::new());
    Box::new(move |_, _| {
        let (now, mut taken) = (Instant::now(), taken.lock().unwrap());
        while taken.front().is_some_and(|at: &Instant| *at + length <= now) {
            taken.pop_front();
        }
        if taken.len() >= most {
            return refused(5 * MS, LATER);
        }
        taken.push_back(now);
        scored(latency)
    })
}

/// Answers one request a second, and up to ten that it has not had.
fn bucket(latency: Duration) -> Endpoint {
    let begun = Instant::now();
    let taken = Mutex::new(0.0_f64);
    Box::new(move |_, _| {
        let (now, mut taken) = (begun.elapsed().as_secs_f64(), taken.lock().unwrap());
        *taken = taken.max(now - 10.0);
        if *taken + 1.0 > now {
            return refused(5 * MS, LATER);
        }
        *taken += 1.0;
        scored(latency)
    })
}

type Endpoint = Box<dyn Fn(usize, u16) -> Response + Send + Sync>;

/// How long 256 samples take, all of which are scored, with the draws of this seed.
fn took(seed: u64, endpoint: impl FnOnce() -> Endpoint) -> Duration {
    fastrand::seed(seed);
    paused(async {
        let engine = Engine::start(judge(at_once(256), 3), endpoint());
        let (lost, took) = ended(&engine.submit(256)).await;
        assert!(lost.is_empty(), "seed {seed}: {lost:?}");
        let refusals = engine.sent().len() - 256;
        assert!(refusals <= 256 * 5, "seed {seed}: {refusals} refusals");
        took
    })
}

/// Sixty at once, and sixty more each time a minute is over: the last ones are sent after four
/// minutes. Each time a pause, whose length is drawn, may end up to 8 s late.
#[test]
fn sixty_a_minute_without_retry_after_scores_all_in_the_time_that_it_allows() {
    let allowed = MINUTE.mul_f64(256.0 / 60.0);
    for seed in seeds(3, 8) {
        for latency in [100 * MS, SECOND, SECOND * 5] {
            let window = took(seed, || window(60, MINUTE, latency));
            let bucket = took(seed, || bucket(latency));
            for (took, endpoint) in [(window, "window"), (bucket, "bucket")] {
                let case = format!("{endpoint}, {latency:?}, seed {seed}");
                assert!(took <= allowed.mul_f64(1.1), "{took:?}, not {allowed:?}: {case}");
            }
        }
        // Where no two may come within a second, each finds out when that is over: `rpm` is for
        // that.
        let took = took(seed, || window(1, SECOND, 100 * MS));
        assert!(took <= allowed.mul_f64(1.6), "{took:?}, not {allowed:?}: one a second, seed {seed}");
    }
}

/// What is deferred keeps its retries, and what failed its deferrals.
#[tokio::test(start_paused = true)]
async fn deferrals_and_retries_are_counted_apart() {
    // Seven times too many requests, then three failures, then an answer.
    let engine = Engine::start(judge(at_once(4), 3), |_, attempt| match attempt {
        1..=7 => refused(MS, LATER),
        8..=10 => refused(MS, Answer::Status(500)),
        _ => scored(MS),
    });
    let batch = engine.submit(1);
    let (lost, _) = ended(&batch).await;
    assert!(lost.is_empty(), "{:?}", batch.note_of(0, 0));
    assert_eq!(batch.cell(0, 0).unwrap().attempts, 11);
    assert_eq!([batch.retries_of(0), batch.deferrals_of(0), batch.excused_of(0)], [3, 7, 0]);
}

/// A refusal that says when to come again.
fn later(retry_after: Duration) -> Response {
    let (after, failed) = refused(50 * MS, LATER);
    (after, failed.map_err(|failed| Failure { retry_after: Some(retry_after), ..failed }))
}

/// How long `samples` take, `width` at a time, of which those are refused once that `is_refused`,
/// and how many requests it takes.
fn refused_once(
    width: usize,
    samples: usize,
    is_refused: impl Fn(usize) -> bool + Send + Sync + 'static,
) -> (Duration, usize) {
    paused(async move {
        let engine = Engine::start(judge(at_once(width), 4), move |sample, attempt| match attempt {
            1 if is_refused(sample) => later(200 * MS),
            _ => scored(50 * MS),
        });
        let (lost, took) = ended(&engine.submit(samples)).await;
        assert!(lost.is_empty(), "{lost:?}");
        (took, engine.sent().len())
    })
}

/// A function that asks for patience for some samples, once each.
#[test]
fn refusals_of_single_samples_hold_up_no_others_for_long() {
    for seed in seeds(2, 8) {
        fastrand::seed(seed);
        for width in [8, 32, 128, 512] {
            let all = 20 * width;
            type Refuses = fn(usize, usize) -> bool;
            let cases: [(&str, usize, Refuses); 5] = [
                ("a tenth at first", all, |sample, width| sample < 2 * width),
                ("fewer at first", 27 * width, |sample, width| sample < 2 * width),
                ("a tenth amid the others", all, |sample, _| sample % 10 == 7),
                ("a tenth at last", all, |sample, width| sample >= 18 * width),
                ("one of each ten, in tens", all, |sample, _| sample % 100 < 10),
            ];
            for (case, samples, is_refused) in cases {
                let is_refused = move |sample| is_refused(sample, width);
                let refusals = (0..samples).filter(|sample| is_refused(*sample)).count();
                let rounds = u32::try_from((samples + refusals).div_ceil(width)).unwrap();
                let ideal = 50 * MS * rounds + 200 * MS;
                let (took, sent) = refused_once(width, samples, is_refused);
                assert!(took <= ideal * 2, "{took:?}, ideal {ideal:?}: {case}, {width} at a time, seed {seed}");
                assert!(sent <= samples + refusals, "{sent} requests: {case}, {width} at a time, seed {seed}");
            }
        }
    }
}

/// A server that refuses everything for a while gets some requests a second, and then all.
#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_everything_is_left_in_peace_until_it_answers() {
    for seed in seeds(2, 8) {
        fastrand::seed(seed);
        let begun = Instant::now();
        let engine = Engine::start(judge(at_once(32), 4), move |_, _| {
            if begun.elapsed() < SECOND * 20 { later(200 * MS) } else { scored(50 * MS) }
        });
        let (lost, took) = ended(&engine.submit(512)).await;
        assert!(lost.is_empty(), "seed {seed}: {lost:?}");
        let early = engine.sent().iter().filter(|sent| **sent - begun < SECOND * 20).count();
        assert!(early <= 32 + 40, "{early} requests in 20 s, seed {seed}");
        assert!(took <= SECOND * 40, "{took:?}, seed {seed}");
    }
}

/// Some of all requests are refused at random, whichever samples they are of. Where that is every
/// second one, none is lost, but each pause is believed.
#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_some_requests_at_random_scores_all() {
    for (share, most) in [(0.05, 3), (0.2, 8), (0.5, 600)] {
        for seed in seeds(2, 8) {
            fastrand::seed(seed);
            let engine = Engine::start(judge(at_once(32), 4), move |_, _| {
                if fastrand::f64() < share { later(200 * MS) } else { scored(50 * MS) }
            });
            let (lost, took) = ended(&engine.submit(640)).await;
            assert!(lost.is_empty(), "seed {seed}: {lost:?}");
            assert!(took <= SECOND * most, "{took:?}, {share} refused, seed {seed}");
        }
    }
}

fn warned(engine: &Engine<impl Fn(usize, u16) -> Response + Send + Sync + 'static>) -> Vec<LimitWarning> {
    engine.warnings.lock().unwrap().iter().map(|(warning, _)| *warning).collect()
}

#[tokio::test(start_paused = true)]
async fn a_long_retry_after_is_capped_and_reported() {
    let engine = Engine::start(judge(at_once(4), 3), |sample, attempt| match (sample, attempt) {
        (0, 1) => {
            let (after, failed) = refused(MS, LATER);
            let retry_after = Some(MINUTE * 60);
            (after, failed.map_err(|failed| Failure { retry_after, ..failed }))
        }
        _ => scored(MS),
    });
    let batch = engine.submit(8);
    let (lost, took) = ended(&batch).await;
    assert!(lost.is_empty());
    // Others are answered: it is one sample that waits.
    assert!(took < MINUTE * 5, "{took:?}");
    let started = |sample: usize| batch.cell(sample, 0).unwrap().outcome.times.started_ns - batch.submitted_ns();
    assert!((1..8).all(|sample| started(sample) < 1_000_000_000));
    let warnings = warned(&engine);
    assert_eq!(warnings, [LimitWarning::LongRetryAfter(MINUTE * 60)], "once");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_throttles_everything_is_reported_after_ten_seconds() {
    let engine =
        Engine::start(judge(at_once(4), 3), |_, attempt| if attempt < 12 { refused(MS, LATER) } else { scored(MS) });
    let batch = engine.submit(4);
    let (lost, took) = ended(&batch).await;
    assert!(lost.is_empty() && took > SECOND * 12, "{lost:?}, {took:?}");
    let warnings = warned(&engine);
    assert!(
        matches!(warnings[..], [LimitWarning::AllThrottled(time)] if (SECOND * 10..SECOND * 20).contains(&time)),
        "once: {warnings:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_that_answers_another_request_throttles_not_everything() {
    let begun = Instant::now();
    let engine = Engine::start(judge(at_once(4), 3), move |sample, _| match sample {
        0 => scored(SECOND * 15),
        _ if begun.elapsed() < SECOND * 15 => later(SECOND),
        _ => scored(MS),
    });
    ended(&engine.submit(2)).await;
    assert_eq!(warned(&engine), []);
}

#[tokio::test(start_paused = true)]
async fn other_errors_between_are_no_throttling_of_everything() {
    let engine = Engine::start(judge(at_once(4), 20), |_, attempt| match attempt {
        1 | 9 => refused(MS, LATER),
        2..=8 => refused(SECOND * 2, Answer::Status(500)),
        _ => scored(MS),
    });
    ended(&engine.submit(1)).await;
    assert_eq!(warned(&engine), []);
}

#[tokio::test(start_paused = true)]
async fn refusals_before_and_after_an_idle_time_are_not_joined() {
    let begun = Instant::now();
    let engine = Engine::start(judge(at_once(4), 20), move |_, _| {
        let at = begun.elapsed();
        if at < SECOND * 2 || (SECOND * 25..SECOND * 26).contains(&at) { refused(MS, LATER) } else { scored(MS) }
    });
    let batch = engine.submit(1);
    tokio::time::sleep(SECOND).await;
    engine.scheduler.cancel(&batch, "by the test");
    tokio::time::sleep(SECOND * 24).await;
    ended(&engine.submit(1)).await;
    assert_eq!(warned(&engine), []);
}
