//! Samples that always fail, failures at random, restarts, and a batch of everything.

use std::sync::Mutex;
use std::time::Duration;

use guerdon_core::outcome::{Answer, FailureKind};
use guerdon_testkit::{failure, paused};
use tokio::time::Instant;

use super::rig::{Engine, MS, Response, SECOND, at_once, ended, judge, refused, scored};

const BROKEN: Answer = Answer::Status(500);

/// When the last good one of 256 samples was scored, of which some always fail.
fn with_poison(poison: &[usize], concurrency: usize, latency: Duration, fails_after: Duration) -> Duration {
    paused(async {
        let bad = poison.to_vec();
        let engine = Engine::start(judge(at_once(concurrency), 3), move |sample, _| {
            if bad.contains(&sample) { refused(fails_after, BROKEN) } else { scored(latency) }
        });
        let batch = engine.submit(256);
        let (lost, took) = ended(&batch).await;
        assert_eq!(lost, poison, "and nothing else");
        for sample in poison {
            assert!(batch.cell(*sample, 0).unwrap().attempts <= 4 + 2, "excuses are bounded");
        }
        // Eight may be the last that a server was asked.
        assert!(poison.len() > 4 || engine.warnings.lock().unwrap().is_empty(), "the endpoint is up");
        took
    })
}

/// Two, and eight, of 256: at the start, at the end and in between, fast and slow to fail.
#[test]
fn poison_samples_cost_the_good_ones_nothing() {
    for concurrency in [16, 64, 256] {
        for latency in [100 * MS, SECOND] {
            let without = with_poison(&[], concurrency, latency, latency);
            for poison in [
                vec![0, 1],
                vec![100, 200],
                (0..8).collect(),
                (248..256).collect(),
                (0..8).map(|at| at * 32).collect::<Vec<usize>>(),
            ] {
                for fails_after in [MS, latency] {
                    let took = with_poison(&poison, concurrency, latency, fails_after);
                    assert!(
                        took <= without.mul_f64(1.05),
                        "{took:?}, not {without:?}: {poison:?} of 256, {concurrency} at once, fail after {fails_after:?}"
                    );
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn failures_at_random_cost_what_they_take() {
    for (seed, latency) in [(1, Some(SECOND)), (2, Some(SECOND)), (3, None)] {
        let random = Mutex::new(fastrand::Rng::with_seed(seed));
        // A sample's last attempt is answered: chance alone would lose one in 150 runs.
        let engine = Engine::start(judge(at_once(1024), 3), move |_, attempt| {
            let mut random = random.lock().unwrap();
            // Some fail fast, some as late as the others are answered; where no latency is
            // given, it varies from a half to one and a half seconds.
            let after = latency.unwrap_or_else(|| SECOND.mul_f64(0.5 + random.f64()));
            match random.u32(0..1000) {
                _ if attempt == 4 => scored(after),
                0..10 => refused(5 * MS, BROKEN),
                10..20 => refused(after, BROKEN),
                _ => scored(after),
            }
        });
        let samples = 40 * 1024;
        let (lost, took) = ended(&engine.submit(samples)).await;
        assert!(lost.is_empty(), "{lost:?}");
        // The attempts that are needed take 40.8 s, 1024 at a time; at the end each has its turn.
        let ideal = SECOND.mul_f64(40.0 * 1.02);
        assert!(took <= ideal.mul_f64(1.1), "{took:?}, not {ideal:?}");
    }
}

/// A gateway answers 502 while the server behind it starts, or nothing listens: in the middle of a
/// batch, and when all that is left of it is in flight.
#[tokio::test(start_paused = true)]
async fn a_restart_costs_no_sample() {
    for answer in [Answer::Unreachable, Answer::Status(502)] {
        for (samples, from) in [(1024, 5), (256, 0), (264, 1)] {
            let begun = Instant::now();
            let down = SECOND * from + 500 * MS..SECOND * (from + 60);
            let engine = Engine::start(judge(at_once(128), 3), move |_, _| {
                if down.contains(&begun.elapsed()) { refused(5 * MS, answer) } else { scored(SECOND) }
            });
            let (lost, took) = ended(&engine.submit(samples)).await;
            assert!(lost.is_empty(), "{lost:?} of {samples}, {answer:?}");
            assert!(took < SECOND * 100, "{took:?}: it was away for a minute");
            assert!(engine.sent().len() < samples + 2 * 128 + 60, "{} attempts", engine.sent().len());
        }
    }
}

/// One kind of fault for each of twenty samples, at the start of a batch.
fn fault(kind: usize) -> Response {
    let later = |answer, seconds| {
        let (after, failed) = refused(MS, answer);
        (after, failed.map_err(|failed| guerdon_core::outcome::Failure { retry_after: Some(seconds), ..failed }))
    };
    match kind {
        0..=12 => {
            let status = [400, 401, 403, 404, 408, 409, 422, 425, 500, 501, 502, 504, 529];
            refused(100 * MS, Answer::Status(status[kind]))
        }
        13 => refused(SECOND * 20, BROKEN),
        14 => refused(MS, Answer::Broken),
        15 => refused(MS, Answer::Unreachable),
        16 => (SECOND * 3600, Ok(())),
        17 => later(Answer::Status(503), SECOND),
        18 => (50 * MS, Err(failure(FailureKind::Error))),
        _ => refused(50 * MS, Answer::Status(200)), // answered, without a score
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_of_twenty_kinds_of_faults_ends_with_all_good_samples() {
    let engine =
        Engine::start(judge(at_once(32), 3), |sample, _| if sample < 20 { fault(sample) } else { scored(SECOND) });
    let batch = engine.submit(256);
    let (lost, took) = ended(&batch).await;
    assert_eq!(lost, (0..20).collect::<Vec<usize>>());
    // 236 at 32 at a time are eight seconds; 503 with `Retry-After` holds all of them up, and
    // one hangs for 30 s.
    assert!(took < SECOND * 20, "{took:?}");
}
