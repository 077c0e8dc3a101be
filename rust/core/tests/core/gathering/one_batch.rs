//! Samples of one batch.

use std::time::Duration;

use guerdon_core::batch::{Batch, BatchSpec};
use guerdon_core::delivery::Delivery;
use guerdon_core::outcome::{Answer, Cell, Failure, FailureKind, Status, Times};
use guerdon_core::timings::Timings;
use guerdon_testkit::{failure, paused, spec};
use proptest::prelude::*;

use super::rig::{RAN, WAIT, add, gathering, give, open, sleep};

fn statuses(batch: &Batch) -> Vec<Option<Status>> {
    (0..batch.samples()).map(|sample| batch.cell(sample, 0).map(|cell| cell.outcome.status)).collect()
}

#[tokio::test(start_paused = true)]
async fn calls_have_what_stands_in_line_up_to_the_most() {
    let (engine, lane) = gathering(4, |_| {});
    let batch = engine.submit(spec(5, 2)).unwrap();
    for wanted in [vec![0, 1, 2, 3], vec![4, 5, 6, 7], vec![8, 9]] {
        let (mut frame, samples) = lane.call();
        assert_eq!(samples, wanted);
        give(&mut frame, &samples);
    }
    assert!(batch.is_done());
    assert!((0..10).all(|sample| batch.shown(sample, 0) == (sample as f32, Status::Ok)));
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_for_more_only_while_more_can_come() {
    let (engine, lane) = gathering(4, |_| {});
    let batch = open(&engine, None);
    add(&engine, &batch, 3);
    sleep(WAIT / 2).await;
    assert!(lane.take().is_none());
    add(&engine, &batch, 2);
    let (mut frame, samples) = lane.call();
    assert_eq!(samples, [0, 1, 2, 3], "it is full");
    give(&mut frame, &samples);
    drop(frame);
    sleep(WAIT / 2).await;
    assert!(lane.take().is_none());
    sleep(WAIT / 2 + Duration::from_millis(2)).await;
    let (mut frame, samples) = lane.call();
    assert_eq!(samples, [4], "it has waited");
    give(&mut frame, &samples);
    drop(frame);
    add(&engine, &batch, 1);
    assert!(lane.take().is_none());
    engine.finish(&batch).unwrap();
    assert_eq!(lane.call().1, [5], "no more can come");
    engine.cancel(&batch, "enough");
}

#[tokio::test(start_paused = true)]
async fn a_batch_without_room_brings_no_more() {
    let (engine, lane) = gathering(16, |_| {});
    let batch = open(&engine, Some(4));
    add(&engine, &batch, 2);
    assert!(lane.take().is_none());
    add(&engine, &batch, 2);
    assert_eq!(lane.call().1, [0, 1, 2, 3]);
    engine.cancel(&batch, "enough");
}

#[tokio::test(start_paused = true)]
async fn a_part_stays_by_itself_however_it_comes_back() {
    let (engine, lane) = gathering(4, |_| {});
    let batch = engine.submit(spec(8, 1)).unwrap();
    let (mut frame, _) = lane.call();
    frame.fail(0, failure(FailureKind::Error), RAN);
    drop(frame);
    let (mut frame, samples) = lane.call();
    assert_eq!(samples, [0, 1]);
    frame.give_back(0..1);
    drop(frame);
    let (frame, samples) = lane.call();
    assert_eq!(samples, [0, 1]);
    drop(frame); // lost
    let (mut frame, samples) = lane.call();
    give(&mut frame, &samples);
    drop(frame);
    for wanted in [vec![2, 3], vec![4, 5, 6, 7]] {
        let (mut frame, samples) = lane.call();
        assert_eq!(samples, wanted);
        give(&mut frame, &samples);
    }
    assert!(batch.is_done() && statuses(&batch).iter().all(|status| *status == Some(Status::Ok)));
    assert_eq!(batch.retries_of(0), 0);
}

#[tokio::test(start_paused = true)]
async fn retries_are_of_the_sample_that_is_alone() {
    let (engine, lane) = gathering(2, |policy| policy.retries = 1);
    let batch = engine.submit(spec(1, 2)).unwrap();
    let mut calls = Vec::new();
    for _ in 0..100 {
        let Some(mut frame) = lane.take() else {
            sleep(Duration::from_millis(20)).await;
            continue;
        };
        let samples: Vec<usize> = frame.samples(0).collect();
        calls.push(samples.clone());
        if samples.contains(&1) {
            frame.fail(0, failure(FailureKind::Error), RAN);
        } else {
            give(&mut frame, &samples);
        }
    }
    assert_eq!(calls, [vec![0, 1], vec![0], vec![1], vec![1]]);
    assert_eq!((statuses(&batch), batch.retries_of(0)), (vec![Some(Status::Ok), Some(Status::Error)], 1));
}

#[tokio::test(start_paused = true)]
async fn endpoint_failures_do_not_split_gathered_calls() {
    for (status, calls) in [(429, 2), (401, 1), (500, 7)] {
        let (engine, lane) = gathering(4, |_| {});
        let batch = engine.submit(spec(4, 1)).unwrap();
        let mut seen = 0;
        for _ in 0..100 {
            let Some(mut frame) = lane.take() else {
                sleep(Duration::from_millis(20)).await;
                continue;
            };
            let samples: Vec<usize> = frame.samples(0).collect();
            seen += 1;
            if status == 429 && seen == 2 {
                assert_eq!(samples, [0, 1, 2, 3]);
                give(&mut frame, &samples);
            } else {
                let answer = Some(Answer::Status(status));
                frame.fail(0, Failure { answer, ..failure(FailureKind::Error) }, RAN);
            }
        }
        let wanted = if status == 429 { Status::Ok } else { Status::Error };
        assert_eq!((statuses(&batch), seen), (vec![Some(wanted); 4], calls), "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn calls_ended_meanwhile_are_left_out_of_the_parts() {
    let (engine, lane) = gathering(8, |_| {});
    let delivery = Delivery::quorum(1);
    let batch = engine.submit(BatchSpec { delivery, ..spec(2, 2) }).unwrap();
    let other = engine.submit(spec(1, 1)).unwrap();
    let (mut frame, samples) = lane.call();
    assert_eq!(samples, [0, 1, 2, 3]);
    frame.fail(0, failure(FailureKind::Timeout), RAN);
    drop(frame);
    let (mut frame, samples) = lane.call();
    assert_eq!(samples, [0, 1]);
    give(&mut frame, &samples);
    drop(frame);
    let (mut frame, samples) = lane.call();
    assert_eq!(samples, [2, 3]);
    frame.fail(0, failure(FailureKind::Timeout), RAN);
    drop(frame);
    let (mut frame, _) = lane.call();
    frame.complete(0, Cell::Value(2.0), RAN); // cuts its group: there is no call of 3 alone
    drop(frame);
    assert!(batch.is_done());
    assert_eq!(batch.shown(3, 0).1, Status::Cancelled);
    assert_eq!(lane.call().0.batch().id(), other.id());
    engine.cancel(&other, "enough");
}

#[tokio::test(start_paused = true)]
async fn a_total_timeout_ends_the_splitting() {
    let (engine, lane) = gathering(4, |policy| policy.total_timeout = Some(Duration::from_secs(1)));
    let batch = engine.submit(spec(4, 1)).unwrap();
    let (mut frame, _) = lane.call();
    frame.fail(0, failure(FailureKind::Timeout), RAN);
    drop(frame);
    sleep(Duration::from_secs(2)).await;
    assert!(batch.is_done());
    assert_eq!(statuses(&batch), [Some(Status::Timeout); 4]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Bad samples end as they are, all others have their values, and none is in more calls than
    /// splitting takes, whatever is given back or lost.
    #[test]
    fn the_bad_samples_and_no_others_fail(
        max_size in 1usize..20,
        bad in prop::collection::vec(prop::option::weighted(0.2, 0usize..3), 1..60),
        unlucky in prop::collection::vec(0usize..12, 0..40),
    ) {
        paused(async {
            let kinds = [FailureKind::Error, FailureKind::Timeout, FailureKind::Crashed];
            let (engine, lane) = gathering(max_size, |_| {});
            let batch = engine.submit(spec(bad.len(), 1)).unwrap();
            let mut unlucky = unlucky.into_iter();
            let mut calls = vec![0; bad.len()];
            while let Some(mut frame) = lane.take() {
                let samples: Vec<usize> = frame.samples(0).collect();
                assert!((1..=max_size).contains(&samples.len()));
                match unlucky.next() {
                    Some(0) => frame.give_back(0..1),
                    Some(1) => {} // lost
                    _ => {
                        samples.iter().for_each(|sample| calls[*sample] += 1);
                        match samples.iter().find_map(|sample| bad[*sample]) {
                            Some(kind) => frame.fail(0, failure(kinds[kind]), RAN),
                            None => give(&mut frame, &samples),
                        }
                    }
                }
            }
            assert!(batch.is_done());
            for (sample, bad) in bad.iter().enumerate() {
                let cell = batch.cell(sample, 0).unwrap();
                assert_eq!(cell.outcome.status, bad.map_or(Status::Ok, |kind| kinds[kind].status()));
                // One that was alone from the start gets the other try after a crash.
                let most = max_size.next_power_of_two().ilog2() + 1 + u32::from(*bad == Some(2));
                assert!(calls[sample] <= most, "{} calls of {sample}", calls[sample]);
                assert_eq!(u32::from(cell.attempts), calls[sample]);
            }
        });
    }
}

#[tokio::test(start_paused = true)]
async fn timings_count_calls_not_their_samples() {
    let (engine, lane) = gathering(4, |_| {});
    let batch = engine.submit(spec(5, 2)).unwrap();
    for run_ns in [1_000, 1_000, 10] {
        let (mut frame, samples) = lane.call();
        let cells = samples.iter().map(|sample| Cell::Value(*sample as f64)).collect();
        frame.complete_many(0, cells, Times { started_ns: 7, run_ns });
    }
    assert!(batch.is_done());
    let timings = Timings::of(&batch, 0);
    assert_eq!((timings.run_total, timings.run_max, timings.run_p50), (2_010, 1_000, 1_000));
}

#[tokio::test(start_paused = true)]
async fn timings_count_a_call_that_failed_for_good() {
    let (engine, lane) = gathering(4, |_| {});
    let batch = engine.submit(spec(1, 2)).unwrap();
    // The call on both is split; each part fails.
    for _ in 0..3 {
        let (mut frame, _) = lane.call();
        frame.fail(0, failure(FailureKind::Error), Times { started_ns: 7, run_ns: 5 });
    }
    assert!(batch.is_done());
    assert_eq!(Timings::of(&batch, 0).run_total, 10, "attempts that gave no outcome do not count");
}
