//! Open batches, on fake lanes and a paused clock.

use std::time::Duration;

use guerdon_core::batch::Batch;
use guerdon_core::call::CallKind;
use guerdon_core::function::{Function, Shape};
use guerdon_core::open_batch::Placement;
use guerdon_core::outcome::{Cell, Status};
use guerdon_testkit::{Act, Ask, Rig, Room, done, function, returns, statuses};

/// Each cell is worth its sample, after the seconds that `seconds` says.
fn engine(functions: Vec<Function>, seconds: impl Fn(&Ask) -> f64 + Send + Sync + 'static) -> Rig {
    Rig::wide(functions, move |ask: &Ask| {
        let cells = (ask.first..ask.first + ask.samples).map(|sample| Cell::Value(sample as f64)).collect();
        Act::Return { after: Duration::from_secs_f64(seconds(ask)), cells }
    })
}

fn groups(batch: &Batch) -> Vec<usize> {
    std::iter::from_fn(|| batch.take_group()).collect()
}

fn values(batch: &Batch) -> Vec<f32> {
    let functions = batch.functions().len();
    (0..batch.samples()).flat_map(|sample| (0..functions).map(move |f| batch.shown(sample, f).0)).collect()
}

async fn sleep(seconds: f64) {
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn calls_start_as_samples_come_groups_as_they_fill_and_the_batch_at_the_end() {
    let shapes = [Shape::Sample, Shape::Group, Shape::Batch].map(|shape| function("f", shape));
    let engine = engine(shapes.to_vec(), |_| 1.0);
    let batch = engine.open(2);
    let began = |kind: CallKind| {
        let calls = engine.log().frames().into_iter().filter(|frame| frame.kind == kind);
        calls.flat_map(|frame| frame.calls.into_iter().map(|(first, _)| first)).collect::<Vec<_>>()
    };
    assert_eq!(engine.add(&batch, Placement::InOrder(1)), [0]);
    sleep(0.1).await;
    assert_eq!((began(CallKind::Sample), began(CallKind::Group)), (vec![0], vec![]));
    assert_eq!(engine.add(&batch, Placement::Exact(vec![3, 1])), [3, 1]);
    sleep(0.1).await;
    assert_eq!((began(CallKind::Sample), began(CallKind::Group)), (vec![0, 3, 1], vec![0]));
    engine.add(&batch, Placement::OfGroup(1, 1));
    sleep(5.0).await;
    assert_eq!((began(CallKind::Group), began(CallKind::Batch)), (vec![0, 2], vec![]));
    assert!(!batch.is_done() && batch.take_group().is_none());
    engine.finish(&batch).unwrap();
    assert!(done(&batch).await);
    assert_eq!(began(CallKind::Batch), [0]);
    assert_eq!(groups(&batch).len(), 2);
    assert!(batch.is_exhausted());
    assert_eq!(values(&batch), [0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 3.0, 3.0, 3.0]);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_batch_takes_no_more_samples_and_ends() {
    let shapes = [Shape::Sample, Shape::Group, Shape::Batch].map(|shape| function("f", shape));
    let engine = engine(shapes.to_vec(), |_| 1.0);
    let batch = engine.open(2);
    engine.add(&batch, Placement::InOrder(3));
    sleep(2.0).await;
    let late = batch.reserve(&Placement::InOrder(1)).unwrap();
    engine.cancel(&batch, "stop");
    assert!(batch.is_done());
    assert!(batch.reserve(&Placement::InOrder(1)).is_err());
    engine.engine.add(&batch, &late);
    assert_eq!(engine.finish(&batch), Ok(()));
    assert_eq!(groups(&batch).len(), 2);
    assert_eq!(statuses(&batch, 0).into_iter().filter(|one| *one == Status::Ok).count(), 3);
    assert_eq!(statuses(&batch, 1).into_iter().filter(|one| *one == Status::Ok).count(), 2);
    assert_eq!(statuses(&batch, 2), [Status::Cancelled; 4]);
    assert_eq!(engine.open_batches(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_function_that_broke_fails_what_is_added_later() {
    let script = |ask: &Ask| match ask.function {
        0 => Act::FailSetup,
        _ => returns(Duration::ZERO, ask.samples, 1.0),
    };
    for (shape, finish) in [(Shape::Sample, false), (Shape::Sample, true), (Shape::Group, false)] {
        let broken = Function { finish, ..function("broken", shape) };
        let functions = vec![broken, function("f", Shape::Sample), function("g", Shape::Batch)];
        let engine = Rig::new(Room::default(), functions, script);
        let batch = engine.open(2);
        engine.add(&batch, Placement::InOrder(2));
        sleep(1.0).await;
        engine.add(&batch, Placement::InOrder(2));
        sleep(1.0).await;
        engine.finish(&batch).unwrap();
        assert!(done(&batch).await);
        assert_eq!(statuses(&batch, 0), [Status::Error; 4]);
        assert!((0..4).all(|sample| (1..3).all(|f| batch.shown(sample, f).1 == Status::Ok)));
        assert_eq!(groups(&batch).len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_total_timeout_counts_from_when_the_call_became_possible() {
    let mut late = [Shape::Sample, Shape::Group, Shape::Batch].map(|shape| function("f", shape));
    for one in &mut late {
        one.policy.total_timeout = Some(Duration::from_secs(2));
    }
    let engine = engine(late.to_vec(), |ask| if ask.first == 1 || ask.function == 2 { 3.0 } else { 1.0 });
    let batch = engine.open(2);
    engine.add(&batch, Placement::InOrder(1));
    sleep(10.0).await;
    engine.add(&batch, Placement::InOrder(1));
    sleep(10.0).await;
    engine.finish(&batch).unwrap();
    sleep(1.9).await;
    assert!(!batch.is_done());
    assert!(done(&batch).await);
    assert!(batch.elapsed_ns() < 22_100_000_000);
    let status = |sample, function| batch.cell(sample, function).unwrap().outcome.status;
    assert_eq!([status(0, 0), status(1, 0)], [Status::Ok, Status::Timeout]);
    assert_eq!([status(0, 1), status(0, 2), status(1, 2)], [Status::Ok, Status::Timeout, Status::Timeout]);
    assert_eq!(batch.note_of(1, 0).unwrap().reason, "total timeout");
    assert_eq!(batch.ready_ns(1, 0) - batch.ready_ns(0, 0), 10_000_000_000);
}
