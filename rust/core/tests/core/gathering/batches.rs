//! Samples of several batches in one call.

use std::any::Any;
use std::time::Duration;

use guerdon_core::batch::{Batch, BatchSpec};
use guerdon_core::call::CallKind;
use guerdon_core::function::FunctionId;
use guerdon_core::outcome::{Answer, Cell, Failure, FailureKind, Status};
use guerdon_core::payload::Payload;
use guerdon_core::report::{Extra, Report, Usage};
use guerdon_testkit::{failure, spec};

use super::rig::{RAN, WAIT, add, engine, free, gathering, give_worth, occupied, occupy, open, places, sleep, worth};

/// Names, and whether all values are the samples' own.
struct NamedPayload(Vec<String>, bool);

impl NamedPayload {
    fn new(names: &[&str], mixes: bool) -> Box<Self> {
        Box::new(Self(names.iter().map(|name| (*name).to_owned()).collect(), mixes))
    }
}

impl Payload for NamedPayload {
    fn names(&self, _: FunctionId, _: bool) -> Option<&[String]> {
        Some(&self.0)
    }

    fn mixes(&self, _: FunctionId) -> bool {
        self.1
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn values(batch: &Batch) -> Vec<Option<f64>> {
    let value = |sample| batch.cell(sample, 0).map(|cell| cell.outcome).filter(|outcome| outcome.status == Status::Ok);
    (0..batch.samples()).map(|sample| value(sample).map(|outcome| outcome.value)).collect()
}

/// Whether all samples have their worth.
fn is_right(batch: &Batch) -> bool {
    batch.is_done() && values(batch) == (0..batch.samples()).map(|at| Some(worth((batch.id(), at)))).collect::<Vec<_>>()
}

fn status(batch: &Batch, sample: usize) -> Option<Status> {
    batch.cell(sample, 0).map(|cell| cell.outcome.status)
}

#[tokio::test(start_paused = true)]
async fn each_batch_gets_its_part_of_what_a_request_used() {
    let (engine, lane, first) = occupied(8);
    let (a, b) = (engine.submit(spec(1, 3)).unwrap(), engine.submit(spec(1, 4)).unwrap());
    free(&lane, first);
    let (mut frame, _) = lane.mixed();
    let usage = Usage { requests: 1, prompt_tokens: 100, cost: 7.0, ..Usage::default() };
    let mut report = Report { usage, ..Report::default() };
    (0..7).for_each(|sample| report.add(sample, "place", sample as f64));
    frame.report(0, report);
    give_worth(&mut frame);
    let (of_a, of_b) = (a.usage_of(0).unwrap(), b.usage_of(0).unwrap());
    assert_eq!((of_a.prompt_tokens, of_b.prompt_tokens), (42, 58), "no token is lost or counted twice");
    assert_eq!((of_a.requests, of_b.requests), (0, 1));
    assert!((of_a.cost - 3.0).abs() + (of_b.cost - 4.0).abs() < 1e-9);
    let extra =
        |batch: &Batch| -> Vec<_> { batch.extra_of(0).into_iter().map(|(at, (_, value))| (at, value)).collect() };
    assert_eq!(extra(&a), (0..3).map(|at| (at, Extra::Number(at as f64))).collect::<Vec<_>>());
    assert_eq!(extra(&b), (0..4).map(|at| (at, Extra::Number(at as f64 + 3.0))).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn whole_batches_and_other_names_stay_apart() {
    for (one, other) in [
        (NamedPayload::new(&["completions"], true), NamedPayload::new(&["completions", "answer"], true)),
        (NamedPayload::new(&["completions"], false), NamedPayload::new(&["completions"], true)),
        (NamedPayload::new(&["completions"], true), NamedPayload::new(&["completions"], false)),
    ] {
        let (engine, lane, first) = occupied(8);
        engine.submit(BatchSpec::whole(2, 1, one)).unwrap();
        engine.submit(BatchSpec::whole(2, 1, other)).unwrap();
        free(&lane, first);
        for batch in [2, 3] {
            let (mut frame, samples) = lane.mixed();
            assert_eq!(samples, [(batch, 0), (batch, 1)]);
            give_worth(&mut frame);
        }
    }
    let (engine, lane) = engine(8, |function| function.gather.as_mut().unwrap().across = false);
    let first = occupy(&engine, &lane);
    engine.submit(spec(1, 2)).unwrap();
    engine.submit(spec(1, 2)).unwrap();
    free(&lane, first);
    assert_eq!(lane.mixed().1, [(2, 0), (2, 1)]);
}

#[tokio::test(start_paused = true)]
async fn waiting_samples_of_open_batches_are_counted_together() {
    let (engine, lane) = gathering(4, |_| {});
    let (a, b) = (open(&engine, None), open(&engine, None));
    add(&engine, &a, 2);
    sleep(WAIT / 2).await;
    add(&engine, &b, 1);
    assert!(lane.take().is_none(), "three of four, and more can come");
    add(&engine, &b, 2);
    let (mut frame, samples) = lane.mixed();
    assert_eq!(samples, [(1, 0), (1, 1), (2, 0), (2, 1)], "it is full");
    give_worth(&mut frame);
    drop(frame);
    sleep(WAIT / 2).await;
    add(&engine, &a, 1);
    assert!(lane.take().is_none());
    sleep(WAIT / 2 + Duration::from_millis(2)).await;
    let (mut frame, samples) = lane.mixed();
    assert_eq!(samples, [(2, 2), (1, 2)], "the one that came first has waited, and takes the other along");
    give_worth(&mut frame);
    drop(frame);
    add(&engine, &a, 1);
    assert!(lane.take().is_none());
    let whole = engine.submit(spec(1, 1)).unwrap();
    let (mut frame, samples) = lane.mixed();
    assert_eq!(samples, [(3, 0), (1, 3)], "what was submitted whole waits for nobody");
    give_worth(&mut frame);
    assert!(is_right(&whole));
    engine.finish(&a).unwrap();
    assert!(is_right(&a));
    engine.cancel(&b, "enough");
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_is_ended_ends_none_but_its_own() {
    let (engine, lane, first) = occupied(4);
    let short = BatchSpec { batch_timeout_ns: Some(1_000_000_000), ..spec(1, 1) };
    let (a, b, c) = (engine.submit(spec(1, 2)).unwrap(), engine.submit(short).unwrap(), engine.submit(spec(1, 1)));
    let c = c.unwrap();
    free(&lane, first);
    let (mut frame, samples) = lane.mixed();
    assert_eq!(samples.len(), 4);
    engine.cancel(&a, "stop");
    assert!(a.is_done() && frame.is_open(0));
    sleep(Duration::from_secs(2)).await;
    assert!(b.is_done() && frame.is_open(0) && !c.is_done());
    assert_eq!((status(&a, 0), status(&b, 0)), (Some(Status::Cancelled), Some(Status::Timeout)));
    frame.leave_out_swept();
    assert_eq!(places(&frame), [(4, 0)]);
    give_worth(&mut frame);
    assert!(is_right(&c));
    drop(frame);
    assert_eq!(engine.open_batches(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_call_is_over_when_the_last_of_its_batches_is() {
    let (engine, lane, first) = occupied(4);
    let (a, b) = (engine.submit(spec(1, 1)).unwrap(), engine.submit(spec(1, 1)).unwrap());
    free(&lane, first);
    let (mut frame, _) = lane.mixed();
    engine.cancel(&a, "stop");
    engine.cancel(&b, "stop");
    assert!(!frame.is_open(0));
    give_worth(&mut frame);
    assert_eq!((engine.late_outcomes(), status(&a, 0), status(&b, 0)), (2, status(&b, 0), status(&a, 0)));
}

#[tokio::test(start_paused = true)]
async fn a_lane_or_a_setup_that_breaks_breaks_all_batches_of_the_call() {
    let (engine, lane, first) = occupied(4);
    let (a, b) = (engine.submit(spec(1, 1)).unwrap(), engine.submit(spec(1, 1)).unwrap());
    free(&lane, first);
    lane.mixed().0.fail_setup("no".to_owned(), None);
    assert_eq!((status(&a, 0), status(&b, 0)), (Some(Status::Error), Some(Status::Error)));
    let first = occupy(&engine, &lane);
    let (a, b) = (engine.submit(spec(1, 1)).unwrap(), engine.submit(spec(1, 1)).unwrap());
    lane.panic_next();
    free(&lane, first);
    assert_eq!((status(&a, 0), status(&b, 0)), (Some(Status::Error), Some(Status::Error)));
}

#[tokio::test(start_paused = true)]
async fn a_part_of_several_batches_stays_by_itself() {
    let (engine, lane, first) = occupied(6);
    let (a, b) = (engine.submit(spec(1, 3)).unwrap(), engine.submit(spec(1, 3)).unwrap());
    free(&lane, first);
    let (mut frame, samples) = lane.mixed();
    assert_eq!(samples, [(2, 0), (2, 1), (2, 2), (3, 0), (3, 1), (3, 2)]);
    frame.fail(0, failure(FailureKind::Crashed), RAN);
    let late = engine.submit(spec(1, 1)).unwrap();
    drop(frame);
    let (mut frame, samples) = lane.mixed();
    assert_eq!(samples, [(2, 0), (2, 1), (2, 2)]);
    frame.fail(0, failure(FailureKind::Error), RAN);
    drop(frame);
    let (mut frame, samples) = lane.mixed();
    assert_eq!(samples, [(2, 0), (2, 1)]);
    give_worth(&mut frame);
    drop(frame);
    let (mut frame, samples) = lane.mixed();
    assert_eq!(samples, [(2, 2)]);
    frame.fail(0, failure(FailureKind::Error), RAN);
    drop(frame);
    assert_eq!(status(&a, 2), Some(Status::Error));
    assert_eq!(lane.mixed().1, [(3, 0), (3, 1), (3, 2)]); // lost, and given out again
    give_worth(&mut lane.mixed().0);
    assert!(is_right(&b));
    give_worth(&mut lane.mixed().0);
    assert!(is_right(&late));
}

#[tokio::test(start_paused = true)]
async fn halves_hold_samples_of_both_batches() {
    let (engine, lane, first) = occupied(8);
    let (a, b) = (engine.submit(spec(1, 1)).unwrap(), engine.submit(spec(1, 5)).unwrap());
    free(&lane, first);
    let (mut frame, _) = lane.mixed();
    frame.fail(0, failure(FailureKind::Timeout), RAN);
    drop(frame);
    let (mut frame, samples) = lane.mixed();
    assert_eq!(samples, [(2, 0), (3, 0), (3, 1)]);
    engine.cancel(&a, "stop");
    frame.fail(0, failure(FailureKind::Timeout), RAN);
    drop(frame);
    for wanted in [vec![(3, 0)], vec![(3, 1)], vec![(3, 2), (3, 3), (3, 4)]] {
        let (mut frame, samples) = lane.mixed();
        assert_eq!(samples, wanted);
        give_worth(&mut frame);
    }
    assert!(is_right(&b));
}

#[tokio::test(start_paused = true)]
async fn rescheduled_calls_come_back_together() {
    let (engine, lane, first) = occupied(8);
    let (a, b) = (engine.submit(spec(1, 2)).unwrap(), engine.submit(spec(1, 2)).unwrap());
    let gone = engine.submit(spec(1, 1)).unwrap();
    free(&lane, first);
    let (mut frame, _) = lane.mixed();
    frame.fail(0, Failure { answer: Some(Answer::Status(429)), ..failure(FailureKind::Error) }, RAN);
    drop(frame);
    assert!(lane.take().is_none());
    engine.cancel(&gone, "stop");
    sleep(Duration::from_secs(1)).await;
    let (mut frame, samples) = lane.mixed();
    assert_eq!(samples, [(2, 0), (2, 1), (3, 0), (3, 1)]);
    give_worth(&mut frame);
    assert!(is_right(&a) && is_right(&b));
}

#[tokio::test(start_paused = true)]
async fn a_large_batch_leaves_half_of_each_call_to_others() {
    let (engine, lane, first) = occupied(8);
    let large = engine.submit(spec(20, 1)).unwrap();
    let small = engine.submit(spec(1, 3)).unwrap();
    let other = engine.submit(spec(1, 20)).unwrap();
    free(&lane, first);
    let slices =
        |samples: &[(u64, usize)]| [2, 3, 4].map(|id| samples.iter().filter(|(batch, _)| *batch == id).count());
    let mut seen = Vec::new();
    while let Some(mut frame) = lane.take() {
        seen.push(slices(&places(&frame)));
        give_worth(&mut frame);
    }
    assert_eq!(seen, [[4, 3, 1], [4, 0, 4], [4, 0, 4], [4, 0, 4], [4, 0, 4], [0, 0, 3]]);
    assert!(is_right(&large) && is_right(&small) && is_right(&other));
}

#[tokio::test(start_paused = true)]
async fn an_open_batch_starves_nobody() {
    let (engine, lane) = gathering(4, |_| {});
    let (a, b) = (open(&engine, None), open(&engine, None));
    let first = occupy(&engine, &lane);
    add(&engine, &a, 8);
    add(&engine, &b, 8);
    sleep(Duration::from_millis(1)).await;
    let late = engine.submit(spec(1, 2)).unwrap();
    free(&lane, first);
    for calls in 0.. {
        assert!(calls < 8, "it waits for those that grow");
        let (mut frame, _) = lane.mixed();
        sleep(Duration::from_millis(1)).await;
        add(&engine, &a, 4);
        add(&engine, &b, 4);
        give_worth(&mut frame);
        if late.is_done() {
            break;
        }
    }
    engine.cancel(&a, "enough");
    engine.cancel(&b, "enough");
}

#[tokio::test(start_paused = true)]
async fn scores_of_a_group_are_finished_in_their_own_batch() {
    let (engine, lane) = engine(8, |function| function.finish = true);
    let first = {
        let batch = engine.submit(spec(1, 2)).unwrap();
        let frame = lane.take().unwrap();
        lane.block();
        (batch, frame)
    };
    let (a, b) = (engine.submit(spec(1, 2)).unwrap(), engine.submit(spec(1, 2)).unwrap());
    free(&lane, first.1);
    let mut finished = Vec::new();
    while let Some(mut frame) = lane.take() {
        if frame.kind() == CallKind::Finish {
            assert_eq!(frame.slices().len(), 1);
            finished.push(frame.batch().id());
            let scores = frame.scores(0).into_iter().map(|score| Cell::Value(score.unwrap() + 0.5)).collect();
            frame.complete_many(0, scores, RAN);
        } else {
            give_worth(&mut frame);
        }
    }
    finished.sort_unstable();
    assert_eq!(finished, [1, 2, 3]);
    assert_eq!((values(&a), values(&b)), (vec![Some(2000.5), Some(2001.5)], vec![Some(3000.5), Some(3001.5)]));
}
