use std::sync::Arc;

use super::{beside, explore};
use crate::supervisor::{SupervisedLane, SupervisorQueue, SupervisorRequest};

/// Requests come while the supervisor waits and the lanes close: none is lost, and it ends.
#[test]
fn no_request_is_lost_and_the_supervisor_ends() {
    explore(|| {
        let queue = Arc::new(SupervisorQueue::default());
        let (threads, loops, supervisor) = (queue.clone(), queue.clone(), queue.clone());
        beside(vec![
            Box::new(move || {
                threads.push(SupervisorRequest::StartThread { function: 0, thread: 1 });
                threads.close(SupervisedLane::Thread);
            }),
            Box::new(move || loops.close(SupervisedLane::Asyncio)),
            Box::new(move || {
                assert!(supervisor.next().is_some());
                assert!(supervisor.next().is_none());
            }),
        ]);
    });
}

/// A request is pushed silently while the supervisor waits, which takes it once it is woken.
#[test]
fn a_silent_request_is_handled_after_a_wake() {
    explore(|| {
        let queue = Arc::new(SupervisorQueue::default());
        let (lane, supervisor) = (queue.clone(), queue);
        beside(vec![
            Box::new(move || {
                lane.push_silently(SupervisorRequest::ReleaseValues);
                lane.wake();
            }),
            Box::new(move || assert_eq!(supervisor.next(), Some(SupervisorRequest::ReleaseValues))),
        ]);
    });
}
