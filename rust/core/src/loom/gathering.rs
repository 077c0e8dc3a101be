use std::sync::Arc;
use std::time::Duration;

use super::batch::{function, spec};
use super::scheduler::{RAN, SchedulerModel};
use super::{beside, explore};
use crate::batch::Batch;
use crate::frame::Frame;
use crate::function::{Function, Gather};
use crate::open_batch::Placement;
use crate::outcome::{Cell, Failure, FailureKind, Status};

/// A world with one place, whose function takes `max_size` samples at a time.
fn world(max_size: usize) -> Arc<SchedulerModel> {
    let gather = Some(Gather { max_size, max_wait: Duration::from_secs(1), across: true });
    SchedulerModel::new(1, Function { gather, ..function(0, false) })
}

/// Two batches of `samples` samples, all in one call.
fn mixed(world: &Arc<SchedulerModel>, samples: usize) -> (Arc<Batch>, Arc<Batch>) {
    world.scheduler.submit(spec(1, 1)).unwrap();
    let (a, b) = (world.scheduler.submit(spec(samples, 1)).unwrap(), world.scheduler.submit(spec(samples, 1)).unwrap());
    complete(world);
    (a, b)
}

/// Takes the frame that is there and gives each sample the number of its batch; the frame's
/// batches, one a sample.
fn complete(world: &SchedulerModel) -> Vec<u64> {
    let Some(mut frame) = world.lane.take() else { return Vec::new() };
    let batches = batches(&frame);
    frame.complete_many(0, batches.iter().map(|id| Cell::Value(*id as f64)).collect(), RAN);
    batches
}

fn batches(frame: &Frame) -> Vec<u64> {
    frame.samples_by_slice(0).map(|(slice, _)| frame.slices()[slice].batch().id()).collect()
}

fn fail(world: &SchedulerModel, kind: FailureKind) {
    let reason = "failed".to_owned();
    let failure = Failure::new(kind, reason);
    if let Some(mut frame) = world.lane.take() {
        frame.fail(0, failure, RAN);
    }
}

type Job = Box<dyn FnOnce() + Send>;

fn job(world: &Arc<SchedulerModel>, work: impl FnOnce(&SchedulerModel) + Send + 'static) -> Job {
    let world = world.clone();
    Box::new(move || work(&world))
}

fn cancel(world: &Arc<SchedulerModel>, batch: &Arc<Batch>) -> Job {
    let batch = batch.clone();
    job(world, move |world| world.scheduler.cancel(&batch, "stop"))
}

fn status(batch: &Batch, sample: usize) -> Status {
    let outcome = batch.cell(sample, 0).expect("the cell is complete").outcome;
    assert!(outcome.status != Status::Ok || outcome.value == batch.id() as f64, "the outcome of another batch");
    outcome.status
}

/// Everything that is left runs, and each batch hands its groups out once.
fn ends(world: &SchedulerModel, all: &[&Arc<Batch>]) {
    while !complete(world).is_empty() {}
    for batch in all {
        assert!(batch.is_done(), "a sample was lost");
        (0..batch.groups()).for_each(|_| assert!(batch.take_group().is_some()));
        assert_eq!(batch.take_group(), None);
    }
    assert_eq!(world.scheduler.open_batches(), 0);
    world.close();
}

/// A call on samples of two batches fails, or is lost, while one of them is cancelled: whoever
/// comes first, that one is, and the other loses none.
#[test]
fn a_failing_call_beside_a_cancel() {
    for kind in [None, Some(FailureKind::Error), Some(FailureKind::Crashed)] {
        explore(move || {
            let world = world(4);
            let (a, b) = mixed(&world, 1);
            let end = job(&world, move |world| match kind {
                Some(kind) => fail(world, kind),
                None => drop(world.lane.take()),
            });
            beside(vec![end, cancel(&world, &a)]);
            assert_eq!(status(&a, 0), Status::Cancelled);
            ends(&world, &[&a, &b]);
            assert_eq!(status(&b, 0), Status::Ok);
        });
    }
}

/// Its outcomes come while both are cancelled: what came too late is dropped, sample by sample.
#[test]
fn outcomes_beside_two_cancels() {
    explore(|| {
        let world = world(4);
        let (a, b) = mixed(&world, 1);
        let end = job(&world, |world| {
            complete(world);
        });
        beside(vec![end, cancel(&world, &a), cancel(&world, &b)]);
        let cancelled = [&a, &b].iter().filter(|batch| status(batch, 0) == Status::Cancelled).count();
        assert_eq!(world.scheduler.late_outcomes(), cancelled as u64);
        ends(&world, &[&a, &b]);
    });
}

/// The parts of a call on two batches stay by themselves, even if other batches are submitted
/// meanwhile, and have all of its samples.
#[test]
fn parts_beside_a_submission() {
    explore(|| {
        let world = world(4);
        let (a, b) = mixed(&world, 2);
        let (fails, submits) = (
            job(&world, |world| fail(world, FailureKind::Error)),
            job(&world, |world| drop(world.scheduler.submit(spec(1, 1)).unwrap())),
        );
        beside(vec![fails, submits]);
        let mut seen = Vec::new();
        loop {
            let call = complete(&world);
            if call.is_empty() {
                break;
            }
            seen.push(call);
        }
        seen.sort_unstable();
        assert_eq!(seen, [vec![2, 2], vec![3, 3], vec![4]]);
        ends(&world, &[&a, &b]);
    });
}

/// Samples are added to two streamed batches, beside the outcome of a call: none waits while the
/// lane has room and the queue has more than enough.
#[test]
fn additions_to_two_batches_beside_an_outcome() {
    explore(|| {
        let world = world(2);
        world.scheduler.submit(spec(1, 1)).unwrap();
        let open = || world.scheduler.submit(crate::batch::BatchSpec { streamed: true, ..spec(0, 1) }).unwrap();
        let (a, b) = (open(), open());
        let add = |batch: &Arc<Batch>| {
            let batch = batch.clone();
            job(&world, move |world| {
                let added = batch.reserve(&Placement::InOrder(1)).unwrap();
                world.scheduler.add(&batch, &added);
            })
        };
        let end = job(&world, |world| {
            complete(world);
        });
        beside(vec![add(&a), add(&b), end]);
        while !complete(&world).is_empty() {}
        assert_eq!([status(&a, 0), status(&b, 0)], [Status::Ok; 2], "they wait, though two are enough");
        world.scheduler.finish(&a).unwrap();
        world.scheduler.finish(&b).unwrap();
        ends(&world, &[&a, &b]);
    });
}
