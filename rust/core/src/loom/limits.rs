use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::batch::{function, spec};
use super::scheduler::{Holding, RAN, World};
use super::{beside, explore};
use crate::function::Function;
use crate::limits::{Limit, Rules};
use crate::outcome::{Cell, Failure, FailureKind};

/// A function of which one call may be under way, with two places in its lane.
fn limited() -> Function {
    let mut one = function(0, false);
    let rules = Rules { concurrency: Some(1), ..Rules::default() };
    one.policy.limit = Some(Limit { rules, ..Limit::default() });
    one
}

/// Counts the calls that are under way; in a model they only start in `Lane::run`, and end here.
#[derive(Default)]
struct Watch {
    exceeded: AtomicBool,
    ended: AtomicUsize,
}

impl Watch {
    fn look(&self, lane: &Holding) {
        if lane.started() - self.ended.load(Ordering::Relaxed) > 1 {
            self.exceeded.store(true, Ordering::Relaxed);
        }
    }
}

/// How the call in hand ends.
#[derive(Clone, Copy)]
enum End {
    Settled,
    Failed,
    Dropped,
}

fn end(world: &World, watch: &Watch, how: End) -> bool {
    let Some(mut frame) = world.lane.take() else { return false };
    watch.look(&world.lane);
    watch.ended.fetch_add(1, Ordering::Relaxed);
    match how {
        End::Settled => frame.complete(0, Cell::Value(1.0), RAN),
        End::Failed => {
            let reason = "failed".to_owned();
            let (kind, traceback, retry_after, answer) = (FailureKind::Error, None, None, None);
            frame.fail(0, Failure { kind, reason, traceback, retryable: true, retry_after, answer }, RAN);
        }
        End::Dropped => {}
    }
    true
}

/// A call ends while another batch comes: all calls are made, one at a time.
fn a_call_that_ends_beside_a_batch_that_comes(how: End) {
    explore(move || {
        let (world, watch) = (World::new(2, limited()), Arc::new(Watch::default()));
        let first = world.scheduler.submit(spec(2, 1)).unwrap();
        let (ending, watching, submitter) = (world.clone(), watch.clone(), world.clone());
        let second = Arc::new(crate::sync::Mutex::new(None));
        let submitted = second.clone();
        beside(vec![
            Box::new(move || assert!(end(&ending, &watching, how))),
            Box::new(move || *submitted.lock() = Some(submitter.scheduler.submit(spec(1, 1)).unwrap())),
        ]);
        let second = second.lock().take().unwrap();
        while !(first.is_done() && second.is_done()) {
            assert!(end(&world, &watch, End::Settled), "calls wait, and nothing is under way");
        }
        assert!(!watch.exceeded.load(Ordering::Relaxed), "two calls at a time");
        world.close();
    });
}

#[test]
fn l3_a_call_that_is_settled_beside_a_batch_that_comes() {
    a_call_that_ends_beside_a_batch_that_comes(End::Settled);
}

#[test]
fn l3_a_call_that_fails_beside_a_batch_that_comes() {
    a_call_that_ends_beside_a_batch_that_comes(End::Failed);
}

#[test]
fn l3_a_call_that_is_given_back_beside_a_batch_that_comes() {
    a_call_that_ends_beside_a_batch_that_comes(End::Dropped);
}

/// The batch of the call in hand is cancelled while that ends: its place is the other batch's.
#[test]
fn l3_a_cancelled_call_gives_its_place_on() {
    explore(|| {
        let (world, watch) = (World::new(2, limited()), Arc::new(Watch::default()));
        let first = world.scheduler.submit(spec(2, 1)).unwrap();
        let second = world.scheduler.submit(spec(1, 1)).unwrap();
        let (ending, watching) = (world.clone(), watch.clone());
        let (canceller, cancelled) = (world.clone(), first.clone());
        beside(vec![
            Box::new(move || assert!(end(&ending, &watching, End::Dropped))),
            Box::new(move || canceller.scheduler.cancel(&cancelled, "stop")),
        ]);
        assert!(first.is_done());
        while !second.is_done() {
            assert!(end(&world, &watch, End::Settled), "the second batch waits for a place that nobody has");
        }
        assert!(!watch.exceeded.load(Ordering::Relaxed), "two calls at a time");
        world.close();
    });
}
