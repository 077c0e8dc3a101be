//! The compound functions of a lane, each with a queue.

use std::sync::{Arc, OnceLock};

use guerdon_core::clock::Clock;
use guerdon_core::frame::Frame;
use guerdon_core::function::FunctionId;
use guerdon_core::in_flight::InFlightCall;
use guerdon_core::limits::{Limit, LimitWarning, Limiter, Rules};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::compound::drive::drive;
use crate::compound::function::CompoundFunction;
use crate::compound::permits::PermitQueue;
use crate::compound::queue::{CompoundQueue, LimitListener};
use crate::endpoint_error::EndpointError;
use crate::fleet::{Fleet, Pools};
use crate::function::HttpFunction;
use crate::in_flight::InFlightFrame;

/// See the module.
#[derive(Clone)]
pub struct CompoundQueues {
    /// The queue of each function.
    of: Vec<Option<Arc<CompoundQueue>>>,
    limit_listener: Arc<OnceLock<LimitListener>>,
}

/// Parts that all queues of a lane share.
pub struct LaneParts<'a> {
    pub clock: Clock,
    pub runtime: &'a Handle,
    pub pools: &'a Arc<Pools>,
    pub gone: &'a Arc<Notify>,
    /// Requests in flight where nothing says how many.
    pub concurrency: usize,
}

/// The requests of compound functions, each with how many of them may be in flight.
pub fn requests(
    specs: &[Option<CompoundFunction>],
    concurrency: usize,
) -> impl Iterator<Item = (&HttpFunction, usize)> {
    specs.iter().flatten().filter_map(move |spec| request(spec, concurrency))
}

/// A request of a compound function, whose members share its fleet, and how many may be in flight.
fn request(spec: &CompoundFunction, concurrency: usize) -> Option<(&HttpFunction, usize)> {
    Some((spec.members.first()?, spec.rules.concurrency.unwrap_or(concurrency)))
}

impl CompoundQueues {
    /// `specs` has one for each function of the lane, with the calls of each that run at a time.
    pub fn new(
        specs: Vec<Option<CompoundFunction>>,
        limits: &[usize],
        parts: &LaneParts<'_>,
    ) -> Result<Self, EndpointError> {
        let limit_listener = Arc::new(OnceLock::new());
        let mut of = Vec::with_capacity(specs.len());
        for (function, spec) in specs.iter().enumerate() {
            of.push(match spec {
                Some(spec) => lead(spec, function, limits[function], parts, &limit_listener)?,
                None => None,
            });
        }
        Ok(Self { of, limit_listener })
    }

    /// Sets the listener for warnings about an endpoint. Only the first one counts.
    pub fn on_limit_warning(&self, listener: impl Fn(FunctionId, LimitWarning, &str) + Send + Sync + 'static) {
        let _ = self.limit_listener.set(Box::new(listener));
    }

    /// Returns the number of a function's calls that run at a time; `None` where its calls are
    /// single requests.
    pub fn width(&self, function: FunctionId) -> Option<usize> {
        self.of.get(function)?.as_ref().map(|queue| queue.limit)
    }

    /// Takes a frame over; gives it back where its calls are single requests.
    pub fn push(&self, frame: Frame) -> Option<Frame> {
        let Some(Some(queue)) = self.of.get(frame.function_id()) else { return Some(frame) };
        queue.push(&Arc::new(InFlightFrame::new(frame)));
        None
    }

    fn queues(&self) -> impl Iterator<Item = &Arc<CompoundQueue>> {
        self.of.iter().flatten()
    }

    /// All fleets; none of a queue that is closed.
    pub fn fleets(&self) -> impl Iterator<Item = Arc<Fleet>> {
        self.queues().filter_map(|queue| queue.fleet())
    }

    /// The fleet of a function, which its members share; none once its queue is closed.
    pub fn fleet(&self, function: FunctionId) -> Option<Arc<Fleet>> {
        self.of.get(function)?.as_ref()?.fleet()
    }

    pub fn in_flight(&self, now_ns: u64) -> impl Iterator<Item = (InFlightCall, String)> {
        self.queues().flat_map(move |queue| queue.in_flight(now_ns))
    }

    /// Drops requests whose calls were completed meanwhile; whether anything is here.
    pub fn drop_abandoned(&self) -> bool {
        self.queues().filter(|queue| queue.drop_abandoned()).count() > 0
    }

    pub fn are_busy(&self) -> bool {
        self.queues().any(|queue| queue.is_busy())
    }

    pub fn close(&self) {
        self.queues().for_each(|queue| queue.close());
    }

    pub fn are_gone(&self) -> bool {
        self.queues().all(|queue| queue.is_gone())
    }
}

/// The queue of a function that sends requests; `None` without members.
fn lead(
    spec: &CompoundFunction,
    function: FunctionId,
    limit: usize,
    parts: &LaneParts<'_>,
    limit_listener: &Arc<OnceLock<LimitListener>>,
) -> Result<Option<Arc<CompoundQueue>>, EndpointError> {
    let Some((request, most)) = request(spec, parts.concurrency) else { return Ok(None) };
    let fleet = Fleet::new(&request.endpoint, &request.fleet, most, parts.pools, parts.clock)?;
    // If there is no limit, requests have one for their concurrency.
    let plain = Limit { rules: Rules { concurrency: Some(most), ..Rules::default() }, ..Limit::default() };
    let limiters = Limiter::all(std::iter::once(spec.rules.limit.as_ref().or(Some(&plain))));
    let Some(limiter) = limiters.into_iter().flatten().next() else { return Ok(None) };
    let queue = CompoundQueue {
        spec: spec.clone(),
        function,
        limit,
        clock: parts.clock,
        runtime: parts.runtime.clone(),
        permits: PermitQueue::new(limiter, parts.clock, parts.runtime.clone()),
        limit_listener: limit_listener.clone(),
        drive,
        gone: parts.gone.clone(),
        state: CompoundQueue::state(Arc::new(fleet)),
    };
    Ok(Some(Arc::new(queue)))
}
