use std::sync::Arc;

use super::batch::function;
use super::scheduler::{RAN, SchedulerModel, failure};
use super::{beside, explore};
use crate::batch::{Batch, BatchSpec};
use crate::function::{Function, FunctionId};
use crate::open_batch::Placement;
use crate::outcome::{Cell, FailureKind, Status};
use crate::payload::Payload;
use crate::sync::Mutex;

/// Samples that are all alike.
struct Alike;

impl Payload for Alike {
    fn identity(&self, _: FunctionId, _: u32, _: &mut Vec<u8>) -> bool {
        true
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

fn alike(samples: usize) -> BatchSpec {
    BatchSpec::whole(samples, 1, Box::new(Alike))
}

/// A world whose function is pure.
struct SharingModel {
    world: Arc<SchedulerModel>,
    /// Submitted by a thread of the model.
    later: Mutex<Option<Arc<Batch>>>,
}

impl SharingModel {
    fn new() -> Arc<Self> {
        let pure = Function { pure: true, ..function(0, false) };
        Arc::new(Self { world: SchedulerModel::new(4, pure), later: Mutex::new(None) })
    }

    fn submit(&self, samples: usize) -> Arc<Batch> {
        self.world.scheduler.submit(alike(samples)).unwrap()
    }

    fn complete(&self) -> bool {
        let frame = self.world.lane.take();
        frame.is_some_and(|mut frame| {
            frame.complete(0, Cell::Value(1.0), RAN);
            true
        })
    }

    fn fail(&self, kind: FailureKind) {
        if let Some(mut frame) = self.world.lane.take() {
            frame.fail(0, failure(kind), RAN);
        }
    }

    fn cancel(&self, batch: &Arc<Batch>) {
        self.world.scheduler.cancel(batch, "stop");
    }

    /// Everything has been done: each sample has one outcome, of these, and nobody is left behind
    /// who would keep a later call waiting.
    fn ends(&self, batches: &[(&Arc<Batch>, &[Status])]) {
        while self.complete() {}
        for (batch, expected) in batches {
            assert!(batch.is_done(), "a call was lost");
            let groups = std::iter::from_fn(|| batch.take_group()).count();
            assert_eq!(groups, batch.samples(), "each group is handed out once");
            for sample in 0..batch.samples() {
                let status = batch.cell(sample, 0).expect("the cell is complete").outcome.status;
                assert!(expected.contains(&status), "{status:?}");
                let note = batch.note_of(sample, 0);
                assert_eq!(note.is_some(), status.is_failure(), "{note:?} of {status:?}");
            }
        }
        let started = self.world.lane.started();
        let last = self.submit(1);
        assert!(self.complete(), "a later call waits for one that has ended");
        assert_eq!(self.world.lane.started(), started + 1);
        assert_eq!(last.cell(0, 0).expect("it is complete").outcome.status, Status::Ok);
        assert_eq!(self.world.scheduler.open_batches(), 0);
        self.world.close();
    }
}

fn job(shared: &Arc<SharingModel>, work: impl FnOnce(&SharingModel) + Send + 'static) -> Box<dyn FnOnce() + Send> {
    let shared = shared.clone();
    Box::new(move || work(&shared))
}

fn joins(shared: &Arc<SharingModel>) -> Box<dyn FnOnce() + Send> {
    job(shared, |shared| {
        let batch = shared.submit(1);
        *shared.later.lock() = Some(batch);
    })
}

fn joined(shared: &SharingModel) -> Arc<Batch> {
    shared.later.lock().take().expect("it was submitted")
}

/// A call that joins before the leader's end gets its value, and a later call leads.
#[test]
fn a_leader_that_completes_beside_one_that_joins() {
    explore(|| {
        let shared = SharingModel::new();
        let first = shared.submit(1);
        let leader = job(&shared, |shared| assert!(shared.complete()));
        beside(vec![leader, joins(&shared)]);
        let later = joined(&shared);
        shared.ends(&[(&first, &[Status::Ok]), (&later, &[Status::Ok])]);
    });
}

/// The same with a failure, which is that of all who joined.
#[test]
fn a_leader_that_fails_beside_one_that_joins() {
    explore(|| {
        let shared = SharingModel::new();
        let first = shared.submit(1);
        let fail = job(&shared, |shared| shared.fail(FailureKind::Error));
        beside(vec![fail, joins(&shared)]);
        let later = joined(&shared);
        shared.ends(&[(&first, &[Status::Error]), (&later, &[Status::Ok, Status::Error])]);
    });
}

/// A leader that is cancelled takes nobody with it: another leads.
#[test]
fn a_leader_that_is_cancelled_beside_one_that_joins() {
    explore(|| {
        let shared = SharingModel::new();
        let first = shared.submit(1);
        let cancelled = first.clone();
        let cancel = job(&shared, move |shared| shared.cancel(&cancelled));
        beside(vec![cancel, joins(&shared)]);
        let later = joined(&shared);
        shared.ends(&[(&first, &[Status::Cancelled]), (&later, &[Status::Ok])]);
    });
}

#[test]
fn a_leader_that_ends_while_it_is_cancelled_beside_one_that_joins() {
    explore(|| {
        let shared = SharingModel::new();
        let first = shared.submit(1);
        let cancelled = first.clone();
        let complete = job(&shared, |shared| {
            shared.complete();
        });
        let cancel = job(&shared, move |shared| shared.cancel(&cancelled));
        beside(vec![complete, cancel, joins(&shared)]);
        let later = joined(&shared);
        shared.ends(&[(&first, &[Status::Ok, Status::Cancelled]), (&later, &[Status::Ok])]);
    });
}

/// A sample is added beside the cancellation of its batch: it leads nobody once it was swept.
#[test]
fn an_addition_beside_a_cancel() {
    explore(|| {
        let shared = SharingModel::new();
        let batch = shared.world.scheduler.submit(BatchSpec { streamed: true, ..alike(0) }).unwrap();
        let (open, cancelled) = (batch.clone(), batch.clone());
        let add = job(&shared, move |shared| {
            if let Ok(added) = open.reserve(&Placement::InOrder(1)) {
                shared.world.scheduler.add(&open, &added);
            }
        });
        let cancel = job(&shared, move |shared| shared.cancel(&cancelled));
        beside(vec![add, cancel, joins(&shared)]);
        let later = joined(&shared);
        shared.ends(&[(&batch, &[Status::Cancelled]), (&later, &[Status::Ok])]);
    });
}

/// Its attempt fails that is granted another at once, while it is cancelled and another waits.
#[test]
fn a_leader_that_is_tried_again_beside_a_cancel() {
    explore(|| {
        let shared = SharingModel::new();
        let (first, second) = (shared.submit(1), shared.submit(1));
        let cancelled = first.clone();
        let crash = job(&shared, |shared| shared.fail(FailureKind::Crashed));
        beside(vec![crash, job(&shared, move |shared| shared.cancel(&cancelled))]);
        shared.ends(&[(&first, &[Status::Cancelled]), (&second, &[Status::Ok])]);
    });
}

/// The leader's batch and that of the waiting call end, while a third waits.
#[test]
fn a_leader_and_a_waiter_cancelled_beside_each_other() {
    explore(|| {
        let shared = SharingModel::new();
        let [first, second, third] = [(), (), ()].map(|()| shared.submit(1));
        let cancel = |batch: &Arc<Batch>| {
            let batch = batch.clone();
            job(&shared, move |shared| shared.cancel(&batch))
        };
        beside(vec![cancel(&first), cancel(&second)]);
        let swept: &[Status] = &[Status::Cancelled];
        shared.ends(&[(&first, swept), (&second, swept), (&third, &[Status::Ok])]);
    });
}

/// A waiting call is cancelled while the leader's outcome arrives.
#[test]
fn a_waiter_that_is_cancelled_beside_the_outcome() {
    explore(|| {
        let shared = SharingModel::new();
        let (first, second) = (shared.submit(1), shared.submit(2));
        let cancelled = second.clone();
        let complete = job(&shared, |shared| assert!(shared.complete()));
        beside(vec![complete, job(&shared, move |shared| shared.cancel(&cancelled))]);
        shared.ends(&[(&first, &[Status::Ok]), (&second, &[Status::Ok, Status::Cancelled])]);
    });
}

/// Leader and waiting calls are in one batch, which is cancelled while the outcome arrives.
#[test]
fn a_batch_of_identical_calls_that_is_cancelled_beside_the_outcome() {
    explore(|| {
        let shared = SharingModel::new();
        let batch = shared.submit(3);
        let cancelled = batch.clone();
        let complete = job(&shared, |shared| assert!(shared.complete()));
        beside(vec![complete, job(&shared, move |shared| shared.cancel(&cancelled))]);
        shared.ends(&[(&batch, &[Status::Ok, Status::Cancelled])]);
    });
}

/// The timeout of the leader's batch comes beside one that joins.
#[test]
fn a_leader_whose_batch_times_out_beside_one_that_joins() {
    explore(|| {
        let shared = SharingModel::new();
        let spec = BatchSpec { batch_timeout_ns: Some(1), ..alike(1) };
        let first = shared.world.scheduler.submit(spec).unwrap();
        let expire = job(&shared, |shared| {
            shared.world.scheduler.keep_time_once();
        });
        beside(vec![expire, joins(&shared)]);
        let later = joined(&shared);
        shared.ends(&[(&first, &[Status::Timeout]), (&later, &[Status::Ok])]);
    });
}

/// The engine ends while calls are shared: all end, once.
#[test]
fn a_leader_that_ends_beside_the_end() {
    explore(|| {
        let shared = SharingModel::new();
        let (first, second) = (shared.submit(1), shared.submit(1));
        let complete = job(&shared, |shared| {
            shared.complete();
        });
        beside(vec![complete, job(&shared, |shared| shared.world.close())]);
        for batch in [first, second] {
            assert!(batch.is_done(), "a call was lost");
            let status = batch.cell(0, 0).expect("the cell is complete").outcome.status;
            assert!([Status::Ok, Status::Cancelled].contains(&status), "{status:?}");
        }
        assert_eq!(shared.world.scheduler.open_batches(), 0);
    });
}
