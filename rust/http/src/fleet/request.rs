//! Requests of a fleet, and their results: the call that a request belongs to, the request itself,
//! and how it failed.

use std::future::Future;

use guerdon_core::clock::Clock;
use guerdon_core::limits::{Feedback, History, Permit};
use guerdon_core::outcome::{Answer, Failure};
use tokio::time::Instant;

use crate::fleet::member::Member;

/// Call of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestKey {
    /// The number of the batch; of gathered samples that of the first, as below.
    pub batch: u64,
    /// The number of the call's own batch, which differs for calls of a hidden function.
    pub own_batch: u64,
    /// The group of its samples, in the batch: they have a prefix in common.
    pub group: usize,
    /// The first sample.
    pub sample: usize,
    /// Samples of a group, 1 without groups.
    pub group_size: usize,
    /// Number of this attempt, from 1.
    pub attempt: u16,
    /// Calls of the function that wait to be sent.
    pub waiting: usize,
}

/// A request that can go to any endpoint, and more than once.
pub trait FleetRequest<T>: Sync {
    /// Sends it to one endpoint and reads the response, which may take until then.
    fn send(&self, at: &Member, until: Instant) -> impl Future<Output = Result<T, SendError>> + Send;

    /// Leave to send it a second time while the first is under way; `None`: it must not be. The
    /// permit is held until the second one has ended.
    fn second(&self) -> Option<HedgePermit> {
        None
    }
}

/// Leave for a second request: a permit of the function's limiter, where it has one.
pub struct HedgePermit {
    pub permit: Option<Permit>,
    pub clock: Clock,
}

impl Drop for HedgePermit {
    fn drop(&mut self) {
        if let Some(permit) = self.permit.take() {
            // It was made, and counts; what its endpoint is worth the call's own permit tells.
            permit.end(self.clock.now_ns(), Feedback::Unknown, None, History::default());
        }
    }
}

/// Reason why there is no answer from one endpoint.
#[derive(Debug)]
pub struct SendError {
    pub failure: Failure,
    /// True if there was no connection: the server knows nothing of the request.
    pub unsent: bool,
}

/// Reason why no endpoint has answered.
#[derive(Debug)]
pub struct RequestFailure {
    pub failure: Failure,
    /// Other endpoints are up: what failed says nothing about the function's limit.
    pub others_up: bool,
}

impl RequestFailure {
    /// Returns the failure for a missing endpoint, with the reason if it is known.
    pub fn no_endpoint(why: Option<String>) -> Self {
        let why = why.map_or_else(String::new, |why| format!(": {why}"));
        let failure = Failure::error(format!("ConnectionError: there is no endpoint to send it to{why}"));
        let failure = Failure { retryable: true, answer: Some(Answer::Unreachable), ..failure };
        Self { failure, others_up: false }
    }
}
