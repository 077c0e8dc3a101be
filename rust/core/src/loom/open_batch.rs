use std::sync::Arc;

use loom::sync::atomic::{AtomicU64, Ordering};

use super::batch::{function, spec};
use super::scheduler::SchedulerModel;
use super::{beside, explore};
use crate::batch::{Batch, BatchSpec};
use crate::delivery::Delivery;
use crate::open_batch::Placement;
use crate::outcome::{Cell, Failure, FailureKind, Status, Times};

const RAN: Times = Times { started_ns: 1, run_ns: 1 };

/// A world with a batch, and how often each of its groups was handed out.
struct Stream {
    world: Arc<SchedulerModel>,
    batch: Arc<Batch>,
    handed_out: [AtomicU64; 3],
}

impl Stream {
    fn new(group_size: usize, retries: u16, delivery: Delivery) -> Arc<Self> {
        let world = SchedulerModel::new(8, function(retries, false));
        let spec = BatchSpec { streamed: true, delivery, ..spec(0, group_size) };
        let batch = world.scheduler.submit(spec).unwrap();
        Arc::new(Self { world, batch, handed_out: std::array::from_fn(|_| AtomicU64::new(0)) })
    }

    fn add(&self, count: usize) -> bool {
        let Ok(added) = self.batch.reserve(&Placement::InOrder(count)) else { return false };
        self.world.scheduler.add(&self.batch, &added);
        true
    }

    fn complete(&self) -> bool {
        let frame = self.world.lane.take();
        frame.is_some_and(|mut frame| {
            frame.complete(0, Cell::Value(1.0), RAN);
            true
        })
    }

    fn take(&self) {
        if let Some(group) = self.batch.take_group() {
            self.handed_out[group].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Everything has been done: each group is handed out once, and the batch is over.
    fn ends(&self) {
        while self.complete() {}
        assert!(self.batch.is_done(), "the batch never ends");
        while !self.batch.is_exhausted() {
            let left: u64 = self.handed_out.iter().map(|times| times.load(Ordering::Relaxed)).sum();
            self.take();
            let now: u64 = self.handed_out.iter().map(|times| times.load(Ordering::Relaxed)).sum();
            assert_eq!(now, left + 1, "a group was lost");
        }
        for group in 0..self.batch.groups() {
            assert_eq!(self.handed_out[group].load(Ordering::Relaxed), 1, "group {group}");
        }
        assert_eq!(self.world.scheduler.open_batches(), 0);
        self.world.close();
    }
}

fn job(stream: &Arc<Stream>, work: impl FnOnce(&Stream) + Send + 'static) -> Box<dyn FnOnce() + Send> {
    let stream = stream.clone();
    Box::new(move || work(&stream))
}

/// A sample that is added beside the end of additions counts completely or not at all.
#[test]
fn an_addition_beside_the_finish() {
    explore(|| {
        let stream = Stream::new(1, 0, Delivery::default());
        let add = job(&stream, |stream| {
            let known = stream.add(1);
            assert!(known || !stream.batch.is_open());
        });
        let finish = job(&stream, |stream| stream.world.scheduler.finish(&stream.batch).unwrap());
        beside(vec![add, finish]);
        stream.ends();
    });
}

/// Additions end beside the last outcome, and the consumer is at work: who is last ends the batch,
/// once.
#[test]
fn a_finish_beside_a_completion_and_a_consumer() {
    explore(|| {
        let stream = Stream::new(1, 0, Delivery::default());
        assert!(stream.add(1));
        let complete = job(&stream, |stream| {
            stream.complete();
        });
        let finish = job(&stream, |stream| stream.world.scheduler.finish(&stream.batch).unwrap());
        beside(vec![complete, finish, job(&stream, Stream::take)]);
        stream.ends();
    });
}

/// A group completes while another is added and a consumer takes the completed ones.
#[test]
fn an_addition_beside_a_completion_and_a_consumer() {
    explore(|| {
        let stream = Stream::new(1, 0, Delivery::default());
        assert!(stream.add(1));
        let complete = job(&stream, |stream| {
            stream.complete();
        });
        let add = job(&stream, |stream| assert!(stream.add(1)));
        beside(vec![complete, add, job(&stream, Stream::take)]);
        stream.world.scheduler.finish(&stream.batch).unwrap();
        stream.ends();
    });
}

#[test]
fn an_addition_beside_a_cancel() {
    explore(|| {
        let stream = Stream::new(1, 0, Delivery::default());
        let add = job(&stream, |stream| {
            stream.add(1);
        });
        let cancel = job(&stream, |stream| stream.world.scheduler.cancel(&stream.batch, "stop"));
        beside(vec![add, cancel]);
        for sample in 0..stream.batch.samples() {
            assert_eq!(stream.batch.cell(sample, 0).expect("it is complete").outcome.status, Status::Cancelled);
        }
        stream.ends();
    });
}

/// The quorum is reached by one outcome while that of the straggler arrives.
#[test]
fn a_quorum_beside_a_late_completion() {
    explore(|| {
        let stream = Stream::new(2, 0, Delivery::quorum(1));
        assert!(stream.add(2));
        let complete = || {
            job(&stream, |stream| {
                stream.complete();
            })
        };
        beside(vec![complete(), complete(), job(&stream, Stream::take)]);
        stream.world.scheduler.finish(&stream.batch).unwrap();
        let status = |sample| stream.batch.cell(sample, 0).expect("it is complete").outcome.status;
        let late = usize::from(stream.world.scheduler.late_outcomes() > 0);
        let cancelled = [0, 1].map(status).iter().filter(|status| **status == Status::Cancelled).count();
        assert_eq!(cancelled, late, "an outcome is dropped if and only if its group was delivered early");
        stream.ends();
    });
}

/// The quorum is reached while an attempt of the straggler fails that would be granted another.
#[test]
fn a_quorum_beside_an_attempt_that_fails() {
    explore(|| {
        let stream = Stream::new(2, 5, Delivery::quorum(1));
        assert!(stream.add(2));
        let complete = job(&stream, |stream| {
            stream.complete();
        });
        let fail = job(&stream, |stream| {
            if let Some(mut frame) = stream.world.lane.take() {
                let (kind, reason) = (FailureKind::Crashed, "died".to_owned());
                let failure = Failure::new(kind, reason);
                frame.fail(0, failure, RAN);
            }
        });
        beside(vec![complete, fail]);
        assert_eq!(stream.batch.take_group(), Some(0), "the straggler was not delivered early");
        stream.handed_out[0].fetch_add(1, Ordering::Relaxed);
        stream.world.scheduler.finish(&stream.batch).unwrap();
        stream.ends();
    });
}

/// The quorum is reached while another sample of the group is added.
#[test]
fn a_quorum_beside_an_addition() {
    explore(|| {
        let stream = Stream::new(2, 0, Delivery::quorum(1));
        assert!(stream.add(1));
        let complete = job(&stream, |stream| {
            stream.complete();
        });
        let add = job(&stream, |stream| assert!(stream.add(1)));
        beside(vec![complete, add]);
        stream.world.scheduler.finish(&stream.batch).unwrap();
        stream.ends();
    });
}
