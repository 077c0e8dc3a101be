//! Requests of the lanes to Python: to start a thread or a loop, to warn. One Python thread, the
//! thread supervisor, takes the requests and handles them.
//!
//! Each request is handed out once, in order. The supervisor ends when both lanes are closed, not
//! before, because closing a lane may still need a thread.

use std::collections::VecDeque;
use std::time::Duration;

use tracing::{debug, warn};

use crate::sync::{Condvar, Mutex};

/// A request to the thread supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SupervisorRequest {
    /// Start thread number `thread` for this function.
    StartThread { function: usize, thread: u64 },
    /// Start a loop.
    StartLoop { index: usize, generation: u64 },
    /// Warn that a thread was abandoned in a call of this function; `count` threads are abandoned
    /// now.
    ThreadAbandoned { function: usize, count: u64 },
    /// Read the stack of this thread (`ident` in Python), whose call is out of time.
    ReadStack { thread: u64, ident: u64 },
    /// Read the stacks of these threads, by their idents, and of these calls on loops. A caller
    /// waits for the answer to request `number`.
    ReadStacks { number: u64, threads: Vec<u64>, loops: Vec<LoopCall> },
    /// Inspect this loop, which has not turned for milliseconds, and warn of a call that blocks it.
    InspectLoop { index: usize, generation: u64 },
    /// Warn that a call of this function blocked its loop, and is over now.
    LoopWasBlocked { index: usize, generation: u64, function: usize },
    /// Warn of a fault: the function, folder or file that has it, and the reason.
    Trouble { source: Source, place: String, why: String },
    /// Report that no call has ended for this time.
    Stalled { number: u64, stalled: Duration },
    /// Release values that have no holder any more.
    ReleaseValues,
}

/// Source of the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A function's circuit breaker opened; `why` is the error of its last request.
    BreakerOpen,
    /// A function's endpoint times out and answers no request.
    EndpointHangs,
    /// A function's endpoint sent a long `Retry-After`.
    LongRetryAfter,
    /// A function's endpoint throttles every request.
    AllThrottled,
    /// New endpoints need more connections than descriptors are left.
    Descriptors,
    /// A cache folder can't be used, or only in part.
    Cache,
    /// A journal can't be written, or only in part.
    Journal,
    /// A timeline can't be written any more.
    Timeline,
    /// A node failed, or none is left.
    Node,
}

impl Source {
    /// The name in Python.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::BreakerOpen => "breaker_open",
            Self::EndpointHangs => "hangs",
            Self::LongRetryAfter => "retry_after",
            Self::AllThrottled => "throttled",
            Self::Descriptors => "descriptors",
            Self::Cache => "cache",
            Self::Journal => "journal",
            Self::Timeline => "trace",
            Self::Node => "node",
        }
    }
}

/// A call on an event loop: its frame and its index there, or `None` for the `setup()` before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopCall {
    pub index: usize,
    pub generation: u64,
    pub function: usize,
    pub call: Option<(u64, usize)>,
}

impl SupervisorRequest {
    /// Logs the request without its reason, which may quote a server's answer.
    fn log(&self) {
        match self {
            Self::StartThread { function, thread } => debug!(function, thread, "thread starts"),
            Self::StartLoop { index, generation } => debug!(index, generation, "event loop starts"),
            Self::ThreadAbandoned { function, count } => warn!(function, count, "thread abandoned"),
            Self::LoopWasBlocked { index, function, .. } => warn!(index, function, "event loop was blocked"),
            Self::Trouble { source, place, .. } => warn!(?source, place, "trouble"),
            Self::InspectLoop { .. }
            | Self::ReadStack { .. }
            | Self::ReadStacks { .. }
            | Self::Stalled { .. }
            | Self::ReleaseValues => {}
        }
    }
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
    /// Number of stalls so far, and of the last one that the supervisor began to report.
    stalls: u64,
    seen_stall: u64,
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
        request.log();
        self.requests.lock().waiting.push_back(request);
        self.changed.notify_one();
    }

    /// Pushes a request for which the supervisor need not come before `wake` is called.
    pub fn push_silently(&self, request: SupervisorRequest) {
        request.log();
        self.requests.lock().waiting.push_back(request);
    }

    /// Makes the supervisor come for requests that were pushed silently.
    pub fn wake(&self) {
        self.changed.notify_one();
    }

    /// Pushes a request, unless an equal one waits.
    pub fn push_once(&self, request: SupervisorRequest) {
        if !self.requests.lock().waiting.contains(&request) {
            self.push(request);
        }
    }

    /// Requests a report of a stall, in place of one that still waits. Returns its number.
    pub fn push_stall(&self, stalled: Duration) -> u64 {
        let number = {
            let mut requests = self.requests.lock();
            requests.waiting.retain(|request| !matches!(request, SupervisorRequest::Stalled { .. }));
            requests.stalls += 1;
            let number = requests.stalls;
            requests.waiting.push_back(SupervisorRequest::Stalled { number, stalled });
            number
        };
        self.changed.notify_one();
        number
    }

    /// Removes a request for stacks that nobody waits for any more.
    pub fn withdraw_stacks(&self, withdrawn: u64) {
        let mut requests = self.requests.lock();
        requests
            .waiting
            .retain(|request| !matches!(request, SupervisorRequest::ReadStacks { number, .. } if *number == withdrawn));
    }

    /// Records that the supervisor handles a stall, so that Python runs.
    pub fn stall_seen(&self, number: u64) {
        self.requests.lock().seen_stall = number;
    }

    pub fn has_seen_stall(&self, number: u64) -> bool {
        self.requests.lock().seen_stall >= number
    }

    /// Records that a lane is closed and makes no more requests.
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

    /// Waits for the next request; `None` once both lanes are closed and none is left.
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
        let inspect = SupervisorRequest::InspectLoop { index: 0, generation: 1 };
        queue.push(start.clone());
        queue.close(SupervisedLane::Asyncio);
        queue.push_once(inspect.clone());
        queue.push_once(inspect.clone());
        queue.close(SupervisedLane::Thread);
        assert_eq!(queue.next(), Some(start));
        assert_eq!(queue.next(), Some(inspect));
        assert_eq!(queue.try_next(), None);
        assert_eq!(queue.next(), None);
    }

    #[test]
    fn a_silent_request_is_handed_out_with_the_next_one_or_at_the_end() {
        let queue = SupervisorQueue::default();
        queue.push_silently(SupervisorRequest::ReleaseValues);
        queue.close(SupervisedLane::Thread);
        queue.close(SupervisedLane::Asyncio);
        assert_eq!(queue.next(), Some(SupervisorRequest::ReleaseValues));
        assert_eq!(queue.next(), None);
    }

    #[test]
    fn stacks_that_nobody_waits_for_are_not_read() {
        let queue = SupervisorQueue::default();
        let read = |number| SupervisorRequest::ReadStacks { number, threads: vec![1], loops: Vec::new() };
        (0..3).for_each(|number| queue.push(read(number)));
        queue.withdraw_stacks(1);
        queue.withdraw_stacks(7);
        assert_eq!([queue.try_next(), queue.try_next(), queue.try_next()], [Some(read(0)), Some(read(2)), None]);
    }

    #[test]
    fn a_newer_stall_takes_the_place_of_one_that_waits() {
        let queue = SupervisorQueue::default();
        let (first, second) = (queue.push_stall(Duration::from_secs(1)), queue.push_stall(Duration::from_secs(2)));
        assert!(!queue.has_seen_stall(first));
        let stalled = Duration::from_secs(2);
        assert_eq!(queue.try_next(), Some(SupervisorRequest::Stalled { number: second, stalled }));
        assert_eq!(queue.try_next(), None);
        queue.stall_seen(second);
        assert!(queue.has_seen_stall(first) && queue.has_seen_stall(second));
        assert!(!queue.has_seen_stall(queue.push_stall(stalled)));
    }
}
