//! What the lanes ask of Python: to start a thread or a loop, to warn. One Python thread, the
//! thread supervisor, takes the requests and does it.
//!
//! Each request is handed out once, in order. The supervisor ends when both lanes need it no more,
//! and not before: closing a lane can still need a thread.

use std::collections::VecDeque;

use guerdon_core::limits::LimitWarning;

use crate::sync::{Condvar, Mutex};

/// Something for the thread supervisor to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SupervisorRequest {
    /// Start thread number `thread` for this function.
    StartThread { function: usize, thread: u64 },
    /// Start a loop.
    StartLoop { index: usize, generation: u64 },
    /// Warn that a thread was abandoned in a call of this function; `count` are now.
    ThreadAbandoned { function: usize, count: u64 },
    /// Read the stack of this thread, which Python calls `ident`: its call is out of time.
    ReadStack { thread: u64, ident: u64 },
    /// Find out what blocks this loop, and warn.
    LoopBlocked { index: usize, generation: u64 },
    /// Warn that a call of this function blocked its loop, and is over now.
    LoopWasBlocked { index: usize, generation: u64, function: usize },
    /// Warn of this function's endpoint, with what its last call said.
    EndpointWarning { function: usize, warning: LimitWarning, reason: String },
    /// Warn that endpoints came for whose connections there are too few descriptors.
    TooFewDescriptors { reason: String },
    /// Warn of a cache folder.
    CacheTrouble { folder: String, reason: String },
    /// Let values go that nobody holds any more.
    ReleaseValues,
}

/// A lane that the supervisor works for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SupervisedLane {
    Thread,
    Asyncio,
}

#[derive(Default)]
struct Requests {
    waiting: VecDeque<SupervisorRequest>,
    thread_lane_closed: bool,
    asyncio_lane_closed: bool,
}

/// The requests that the supervisor has not taken yet.
#[derive(Default)]
pub struct SupervisorQueue {
    /// Written by the lanes and by the supervisor.
    requests: Mutex<Requests>,
    changed: Condvar,
}

impl SupervisorQueue {
    pub fn push(&self, request: SupervisorRequest) {
        self.requests.lock().waiting.push_back(request);
        self.changed.notify_one();
    }

    /// A lane that is closed has no request left to make.
    pub fn close(&self, lane: SupervisedLane) {
        let mut requests = self.requests.lock();
        match lane {
            SupervisedLane::Thread => requests.thread_lane_closed = true,
            SupervisedLane::Asyncio => requests.asyncio_lane_closed = true,
        }
        self.changed.notify_all();
    }

    /// The next request, if there is one.
    pub fn try_next(&self) -> Option<SupervisorRequest> {
        self.requests.lock().waiting.pop_front()
    }

    /// Waits for the next request; `None` when there will be no more.
    pub fn next(&self) -> Option<SupervisorRequest> {
        let mut requests = self.requests.lock();
        loop {
            if let Some(request) = requests.waiting.pop_front() {
                return Some(request);
            }
            if requests.thread_lane_closed && requests.asyncio_lane_closed {
                return None;
            }
            self.changed.wait(&mut requests);
        }
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn requests_come_in_order_and_the_supervisor_ends_after_the_last() {
        let queue = SupervisorQueue::default();
        let start = SupervisorRequest::StartThread { function: 1, thread: 7 };
        let blocked = SupervisorRequest::LoopBlocked { index: 0, generation: 1 };
        queue.push(start.clone());
        queue.close(SupervisedLane::Asyncio);
        queue.push(blocked.clone());
        queue.close(SupervisedLane::Thread);
        assert_eq!(queue.next(), Some(start));
        assert_eq!(queue.next(), Some(blocked));
        assert_eq!(queue.try_next(), None);
        assert_eq!(queue.next(), None);
    }
}
