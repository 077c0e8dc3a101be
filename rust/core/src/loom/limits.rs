use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::batch::{function, spec};
use super::scheduler::{Holding, RAN, SchedulerModel};
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
struct InFlightWatchdog {
    exceeded: AtomicBool,
    ended: AtomicUsize,
}

impl InFlightWatchdog {
    fn look(&self, lane: &Holding) {
        if lane.started() - self.ended.load(Ordering::Relaxed) > 1 {
            self.exceeded.store(true, Ordering::Relaxed);
        }
    }
}

/// End of the call in flight.
#[derive(Clone, Copy)]
enum HowItEnds {
    Completed,
    Failed,
    Dropped,
}

fn end(world: &SchedulerModel, watchdog: &InFlightWatchdog, how: HowItEnds) -> bool {
    let Some(mut frame) = world.lane.take() else { return false };
    watchdog.look(&world.lane);
    watchdog.ended.fetch_add(1, Ordering::Relaxed);
    match how {
        HowItEnds::Completed => frame.complete(0, Cell::Value(1.0), RAN),
        HowItEnds::Failed => {
            let reason = "failed".to_owned();
            let (kind, traceback, retry_after, answer) = (FailureKind::Error, None, None, None);
            frame.fail(
                0,
                Failure { kind, reason, traceback, retryable: true, retry_after, answer, progressed: false },
                RAN,
            );
        }
        HowItEnds::Dropped => {}
    }
    true
}

/// A call ends while another batch comes: all calls are made, one at a time.
fn a_call_that_ends_beside_a_batch_that_comes(how: HowItEnds) {
    explore(move || {
        let (world, watchdog) = (SchedulerModel::new(2, limited()), Arc::new(InFlightWatchdog::default()));
        let first = world.scheduler.submit(spec(2, 1)).unwrap();
        let (ending, watching, submitter) = (world.clone(), watchdog.clone(), world.clone());
        let second = Arc::new(crate::sync::Mutex::new(None));
        let submitted = second.clone();
        beside(vec![
            Box::new(move || assert!(end(&ending, &watching, how))),
            Box::new(move || *submitted.lock() = Some(submitter.scheduler.submit(spec(1, 1)).unwrap())),
        ]);
        let second = second.lock().take().unwrap();
        while !(first.is_done() && second.is_done()) {
            assert!(end(&world, &watchdog, HowItEnds::Completed), "calls wait, and nothing is under way");
        }
        assert!(!watchdog.exceeded.load(Ordering::Relaxed), "two calls at a time");
        world.close();
    });
}

#[test]
fn a_call_that_is_completed_beside_a_batch_that_comes() {
    a_call_that_ends_beside_a_batch_that_comes(HowItEnds::Completed);
}

#[test]
fn a_call_that_fails_beside_a_batch_that_comes() {
    a_call_that_ends_beside_a_batch_that_comes(HowItEnds::Failed);
}

#[test]
fn a_call_that_is_given_back_beside_a_batch_that_comes() {
    a_call_that_ends_beside_a_batch_that_comes(HowItEnds::Dropped);
}

/// The batch of the call in hand is cancelled while that ends: its place is the other batch's.
#[test]
fn a_cancelled_call_gives_its_place_on() {
    explore(|| {
        let (world, watchdog) = (SchedulerModel::new(2, limited()), Arc::new(InFlightWatchdog::default()));
        let first = world.scheduler.submit(spec(2, 1)).unwrap();
        let second = world.scheduler.submit(spec(1, 1)).unwrap();
        let (ending, watching) = (world.clone(), watchdog.clone());
        let (canceller, cancelled) = (world.clone(), first.clone());
        beside(vec![
            Box::new(move || assert!(end(&ending, &watching, HowItEnds::Dropped))),
            Box::new(move || canceller.scheduler.cancel(&cancelled, "stop")),
        ]);
        assert!(first.is_done());
        while !second.is_done() {
            assert!(end(&world, &watchdog, HowItEnds::Completed), "the second batch waits for a place that nobody has");
        }
        assert!(!watchdog.exceeded.load(Ordering::Relaxed), "two calls at a time");
        world.close();
    });
}
