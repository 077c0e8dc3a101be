//! Engines that share a key, of which one comes late.

use std::sync::Arc;
use std::time::Duration;

use guerdon_core::limits::Rules;
use guerdon_testkit::paused;
use tokio::time::Instant;

use super::rig::{Engine, Key, MS, Response, SECOND, at_once, ended, limited, scored};

/// How many calls each of two engines made in 20 s, from 2 s after the second one came; and how
/// long that waited for its first.
fn shares(rules: &Rules, latency: Duration) -> ([usize; 2], Duration) {
    paused(async {
        let key = Key::new();
        let endpoint = Arc::new(move |sample: usize, _: u16| -> Response {
            scored(latency.mul_f64(0.5 + (sample * 7 % 11) as f64 / 10.0))
        });
        let engine = || Engine::of(limited(key.limit(rules.clone()), 3), endpoint.clone());
        let (one, two) = (engine(), engine());
        let first = one.submit(20_000);
        tokio::time::sleep(SECOND * 5).await;
        let came = Instant::now();
        let second = two.submit(20_000);
        tokio::time::sleep(SECOND * 22).await;
        let counted = |engine: &Engine<_>| {
            engine.sent().iter().filter(|at| (came + SECOND * 2..came + SECOND * 22).contains(at)).count()
        };
        let waited = two.sent().first().map_or(Duration::MAX, |at| *at - came);
        let shares = [counted(&one), counted(&two)];
        one.scheduler.cancel(&first, "seen");
        two.scheduler.cancel(&second, "seen");
        (shares, waited)
    })
}

#[test]
fn a_late_engine_starts_within_a_second_and_gets_its_share() {
    let rate = |rpm| Rules { rpm: Some(rpm), ..Rules::default() };
    let both = Rules { rpm: Some(3000.0), ..at_once(32) };
    for (rules, latency) in [
        (at_once(64), SECOND),
        (at_once(8), SECOND),
        (at_once(64), 50 * MS),
        (rate(600.0), 50 * MS),
        (rate(6000.0), 50 * MS),
        (both, SECOND),
    ] {
        let ([one, two], waited) = shares(&rules, latency);
        assert!(waited <= SECOND, "{waited:?} until its first call, {rules:?}");
        let fair = (one + two) / 2;
        assert!(one.abs_diff(fair) * 10 <= fair && two.abs_diff(fair) * 10 <= fair, "{one} and {two}, {rules:?}");
    }
}

/// More engines than calls that may be in flight: nobody keeps the places for itself.
#[test]
fn engines_that_are_more_than_the_places_take_turns() {
    for (places, latency) in [(1, 10 * MS), (1, 50 * MS), (1, SECOND), (2, 50 * MS), (3, 200 * MS)] {
        let calls = paused(async {
            let key = Key::new();
            let endpoint = Arc::new(move |_: usize, _: u16| scored(latency));
            let engine = || Engine::of(limited(key.limit(at_once(places)), 3), endpoint.clone());
            let engines: Vec<_> = (0..=places).map(|_| engine()).collect();
            let batches: Vec<_> = engines.iter().map(|engine| engine.submit(20_000)).collect();
            tokio::time::sleep(SECOND * 40).await;
            for (engine, batch) in engines.iter().zip(&batches) {
                engine.scheduler.cancel(batch, "seen");
            }
            engines.iter().map(|engine| engine.sent().len()).collect::<Vec<_>>()
        });
        let all: usize = calls.iter().sum();
        let fair = all / calls.len();
        assert!(calls.iter().all(|calls| calls.abs_diff(fair) * 10 <= fair + 10), "{calls:?} of {places}, {latency:?}");
        // Whose turn it is sees that within 10 ms: once in a turn, which is one call at least.
        let used = latency.mul_f64(all as f64 / places as f64);
        assert!(used >= SECOND * 40 * 5 / 6, "{used:?} of 40 s used, {places}, {latency:?}");
    }
}

/// Who waits and goes away, cancelled or killed, holds nobody up.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_gone_blocks_nobody() {
    let key = Key::new();
    let endpoint = Arc::new(|_: usize, _: u16| scored(SECOND));
    let engine = || Engine::of(limited(key.limit(at_once(8)), 3), endpoint.clone());
    let (one, two) = (engine(), engine());
    let batch = one.submit(80);
    tokio::time::sleep(50 * MS).await;
    let gone = two.submit(100);
    tokio::time::sleep(100 * MS).await; // it waits
    two.scheduler.cancel(&gone, "it goes");
    let (lost, took) = ended(&batch).await;
    assert!(lost.is_empty() && took < SECOND * 12, "{took:?} for ten seconds' worth");
}

/// Alone, it has all of a limit.
#[tokio::test(start_paused = true)]
async fn one_engine_alone_yields_to_nobody() {
    let key = Key::new();
    let engine = Engine::start(limited(key.limit(at_once(8)), 3), |_, _| scored(SECOND));
    let (lost, took) = ended(&engine.submit(80)).await;
    assert!(lost.is_empty() && took <= SECOND * 10 + 200 * MS, "{took:?}");
}
