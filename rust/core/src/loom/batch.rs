use std::sync::Arc;
use std::time::Duration;

use loom::sync::atomic::{AtomicU64, Ordering};
use rustix::event::{PollFd, PollFlags, poll};

use super::{beside, explore};
use crate::batch::{Batch, BatchSpec};
use crate::clock::Clock;
use crate::function::{Function, FunctionId, Policy, Shape};
use crate::payload::Payload;

/// A payload without values.
pub(super) struct Nothing;

impl Payload for Nothing {
    fn mixes(&self, _: FunctionId) -> bool {
        true
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

pub(super) fn function(retries: u16, finish: bool) -> Function {
    let policy = Policy { retries, ..Policy::new(Duration::from_secs(1)) };
    Function { finish, ..Function::new("f", Shape::Sample, policy) }
}

pub(super) fn spec(samples: usize, group_size: usize) -> BatchSpec {
    BatchSpec::whole(samples, group_size, Box::new(Nothing))
}

fn readable(fd: std::os::fd::BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    poll(&mut fds, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
}

/// A batch of groups of one, and how often each was handed out.
struct BatchModel {
    batch: Batch,
    handed_out: Vec<AtomicU64>,
    /// Number of announcements that were the last.
    last: AtomicU64,
}

impl BatchModel {
    fn new(groups: usize) -> Arc<Self> {
        let batch =
            Batch::new(1, Clock::start(), [function(0, false)].into(), &Arc::default(), spec(groups, 1)).unwrap();
        let handed_out = (0..groups).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Self { batch, handed_out, last: AtomicU64::new(0) })
    }

    fn announce(&self, groups: &[usize]) {
        if self.batch.announce(groups) {
            self.last.fetch_add(1, Ordering::Relaxed);
            assert!(self.batch.is_done());
        }
    }

    fn take(&self) -> bool {
        let group = self.batch.take_group();
        if let Some(group) = group {
            self.handed_out[group].fetch_add(1, Ordering::Relaxed);
        }
        group.is_some()
    }

    /// Checks the readable state while no thread works.
    fn news_is_true(&self, announced: u64) {
        let taken: u64 = self.handed_out.iter().map(|times| times.load(Ordering::Relaxed)).sum();
        let all = taken == self.handed_out.len() as u64;
        assert_eq!(
            readable(self.batch.news().unwrap().fd()),
            taken < announced || all,
            "{taken} of {announced} were taken"
        );
        assert_eq!(readable(self.batch.end().unwrap().fd()), announced == self.handed_out.len() as u64);
        assert_eq!(self.batch.is_exhausted(), all);
    }
}

/// One announces `together`, another `alone`, while two take.
fn several_announce_and_several_take(together: &'static [usize], alone: usize) {
    explore(move || {
        let groups = together.len() + 1;
        let world = BatchModel::new(groups);
        let announce = |groups: Vec<usize>| {
            let world = world.clone();
            Box::new(move || world.announce(&groups)) as Box<dyn FnOnce() + Send>
        };
        let take = || {
            let world = world.clone();
            Box::new(move || {
                world.take();
            }) as Box<dyn FnOnce() + Send>
        };
        beside(vec![announce(together.to_vec()), announce(vec![alone]), take(), take()]);
        world.news_is_true(groups as u64);
        while world.take() {}
        world.news_is_true(groups as u64);
        assert_eq!(world.last.load(Ordering::Relaxed), 1);
        assert!(world.handed_out.iter().all(|times| times.load(Ordering::Relaxed) == 1));
    });
}

#[test]
fn groups_announced_and_taken_beside_each_other() {
    several_announce_and_several_take(&[0], 1);
}

#[test]
fn groups_announced_together_are_handed_out_one_by_one() {
    several_announce_and_several_take(&[0, 2], 1);
}

#[test]
fn news_of_a_group_outlives_the_taking_of_another() {
    explore(|| {
        let world = BatchModel::new(3);
        world.announce(&[0]);
        let other = world.clone();
        let consumer = world.clone();
        beside(vec![
            Box::new(move || other.announce(&[1])),
            Box::new(move || {
                consumer.take();
            }),
        ]);
        world.news_is_true(2);
        while world.take() {}
        world.news_is_true(2);
        world.announce(&[2]);
        world.news_is_true(3);
    });
}
