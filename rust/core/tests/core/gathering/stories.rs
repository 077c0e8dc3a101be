//! Several batches at once, whatever happens to each.

use guerdon_core::batch::BatchSpec;
use guerdon_core::delivery::Delivery;
use guerdon_core::outcome::{FailureKind, Status};
use guerdon_testkit::{failure, paused, spec};
use proptest::prelude::*;

use super::rig::{RAN, WAIT, add, free, give_worth, occupied, places, sleep, worth};

/// What happens to a batch of the property test.
#[derive(Clone, Debug)]
struct Story {
    /// How each of its samples fails, if it does.
    bad: Vec<Option<usize>>,
    /// Submitted whole, or added in pieces of so many.
    pieces: Option<usize>,
    /// After which call it is cancelled.
    cancelled: Option<usize>,
    quorum: bool,
}

fn story() -> impl Strategy<Value = Story> {
    let bad = prop::collection::vec(prop::option::weighted(0.2, 0usize..3), 1..16);
    let pieces = prop::option::of(1usize..6);
    let cancelled = prop::option::weighted(0.2, 0usize..12);
    (bad, pieces, cancelled, prop::bool::weighted(0.2)).prop_map(|(bad, pieces, cancelled, quorum)| Story {
        bad,
        pieces,
        cancelled,
        quorum,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever else is in its calls, a sample ends as it would alone, once; what is cancelled does
    /// so for itself.
    #[test]
    fn each_batch_ends_as_it_would_alone(
        max_size in 1usize..12,
        stories in prop::collection::vec(story(), 1..7),
        unlucky in prop::collection::vec(0usize..12, 0..40),
    ) {
        paused(async {
            let kinds = [FailureKind::Error, FailureKind::Timeout, FailureKind::Crashed];
            let (engine, lane, first) = occupied(max_size);
            let mut batches = Vec::new();
            for story in &stories {
                let delivery = if story.quorum { Delivery::quorum(1) } else { Delivery::default() };
                batches.push(match story.pieces {
                    None => engine.submit(BatchSpec { delivery, ..spec(1, story.bad.len()) }).unwrap(),
                    Some(_) => {
                        let streamed = BatchSpec { streamed: true, group_size: story.bad.len(), delivery, ..spec(0, 1) };
                        engine.submit(streamed).unwrap()
                    }
                });
            }
            let mut unlucky = unlucky.into_iter();
            let mut calls: Vec<Vec<u32>> = stories.iter().map(|story| vec![0; story.bad.len()]).collect();
            let mut added = vec![0; stories.len()];
            free(&lane, first);
            let (mut turn, mut idle) = (0, 0);
            while batches.iter().any(|batch| !batch.is_done()) {
                assert!(idle < 1000, "calls were lost");
                for (at, story) in stories.iter().enumerate() {
                    if story.cancelled == Some(turn) {
                        engine.cancel(&batches[at], "stop");
                    }
                    let Some(piece) = story.pieces.filter(|_| batches[at].is_open()) else { continue };
                    let count = piece.min(story.bad.len() - added[at]);
                    if count > 0 {
                        add(&engine, &batches[at], count);
                        added[at] += count;
                    } else {
                        engine.finish(&batches[at]).unwrap();
                    }
                }
                turn += 1;
                let Some(mut frame) = lane.take() else {
                    idle += 1;
                    sleep(WAIT).await;
                    continue;
                };
                let samples = places(&frame);
                assert!((1..=max_size).contains(&samples.len()));
                match unlucky.next() {
                    Some(0) => frame.give_back(0..1),
                    Some(1) => {} // lost
                    _ => {
                        for (batch, sample) in &samples {
                            calls[*batch as usize - 2][*sample] += 1;
                        }
                        let bad = |(batch, sample): &(u64, usize)| stories[*batch as usize - 2].bad[*sample];
                        match samples.iter().find_map(bad) {
                            Some(kind) => frame.fail(0, failure(kinds[kind]), RAN),
                            None => give_worth(&mut frame),
                        }
                    }
                }
            }
            assert_eq!(engine.open_batches(), 0);
            for (at, story) in stories.iter().enumerate() {
                let batch = &batches[at];
                for (sample, bad) in story.bad.iter().enumerate().take(batch.samples()) {
                    let Some(cell) = batch.cell(sample, 0) else { panic!("an outcome is missing") };
                    let alone = bad.map_or(Status::Ok, |kind| kinds[kind].status());
                    let ended = story.cancelled.is_some() || story.quorum;
                    assert!(cell.outcome.status == alone || (ended && cell.outcome.status == Status::Cancelled));
                    if cell.outcome.status == Status::Ok {
                        assert_eq!(cell.outcome.value.to_bits(), worth((batch.id(), sample)).to_bits());
                    }
                    let most = max_size.next_power_of_two().ilog2() + 1 + u32::from(*bad == Some(2));
                    assert!(calls[at][sample] <= most, "{} calls of {sample}", calls[at][sample]);
                    if !ended {
                        assert_eq!(u32::from(cell.attempts), calls[at][sample], "each call counts once");
                    }
                }
                assert_eq!(batch.take_group(), (batch.samples() > 0).then_some(0));
                assert_eq!(batch.take_group(), None);
            }
        });
    }
}
