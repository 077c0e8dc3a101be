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
