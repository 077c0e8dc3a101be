//! Endpoints that take requests and never answer.

use guerdon_core::limits::LimitWarning;
use guerdon_core::outcome::Status;
use guerdon_testkit::{done, paused};
use tokio::time::Instant;

use super::rig::{Engine, MS, SECOND, at_once, ended, judge, scored, silent};

#[test]
fn a_hung_endpoint_is_reported_within_three_timeouts() {
    // The endpoint hangs from the start or in the middle of a batch, with one call or many at once.
    for (concurrency, hangs_at) in [(1, 0), (1, 10), (16, 0), (256, 0), (256, 10)] {
        paused(async move {
            let begun = Instant::now();
            let engine = Engine::start(judge(at_once(concurrency), 3), move |_, _| {
                if begun.elapsed() < SECOND * hangs_at { scored(SECOND) } else { silent() }
            });
            let batch = engine.submit(10_000);
            tokio::time::sleep(SECOND * (hangs_at + 91)).await;
            let warnings = engine.warnings.lock().unwrap().clone();
            let (first, at) = warnings.first().copied().expect("three timeouts of 30 s");
            assert_eq!(first, LimitWarning::Hangs);
            assert!(at - begun <= SECOND * (hangs_at + 90) + 100 * MS, "{:?} at {concurrency}", at - begun);
            engine.scheduler.cancel(&batch, "seen");
        });
    }
}

/// Ten thousand samples, four attempts, 30 s each, 256 at a time: 80 minutes of silence.
#[tokio::test(start_paused = true)]
async fn a_batch_at_a_hung_endpoint_ends_in_minutes() {
    let engine = Engine::start(judge(at_once(256), 3), |_, _| silent());
    let begun = Instant::now();
    let batch = engine.submit(10_000);
    assert!(done(&batch).await);
    assert!(begun.elapsed() < SECOND * 60 * 8, "{:?}", begun.elapsed());
    let reason = batch.note_of(9_999, 0).unwrap().reason;
    assert!(reason.contains("circuit breaker open") && reason.contains("; last error: "), "{reason}");
}

/// Eight samples that the judge thinks about for ever, at the end of a batch: the endpoint is up.
#[tokio::test(start_paused = true)]
async fn slow_samples_are_not_taken_for_a_hung_endpoint() {
    let engine =
        Engine::start(judge(at_once(64), 3), |sample, _| if sample >= 248 { silent() } else { scored(SECOND) });
    let begun = Instant::now();
    let batch = engine.submit(256);
    let (lost, took) = ended(&batch).await;
    assert_eq!(lost, (248..256).collect::<Vec<usize>>());
    assert!(took < SECOND * 5 && begun.elapsed() < SECOND * 150, "{took:?}, {:?}", begun.elapsed());
    assert_eq!(batch.cell(250, 0).unwrap().outcome.status, Status::Timeout, "four attempts of 30 s");
}
