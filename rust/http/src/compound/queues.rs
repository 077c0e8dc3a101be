//! The compound functions of a lane: each leader has a queue, and each function a column of one.

use std::sync::{Arc, OnceLock};

use guerdon_core::clock::Clock;
use guerdon_core::frame::Frame;
use guerdon_core::function::{FunctionId, Policy};
use guerdon_core::in_flight::InFlightCall;
use guerdon_core::limits::{Limit, LimitWarning, Limiter, Rules};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::compound::drive::drive;
use crate::compound::function::{CompoundFunction, CompoundSpec};
use crate::compound::permits::PermitQueue;
use crate::compound::queue::{CompoundQueue, LimitListener};
use crate::endpoint_error::EndpointError;
use crate::fleet::{Fleet, Pools};
use crate::function::HttpFunction;
use crate::in_flight::InFlightFrame;

/// See the module.
#[derive(Clone)]
pub struct CompoundQueues {
    /// The queue of each function, and its column there.
    of: Vec<Option<(Arc<CompoundQueue>, usize)>>,
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
pub fn requests(specs: &[Option<CompoundSpec>], concurrency: usize) -> impl Iterator<Item = (&HttpFunction, usize)> {
    let leaders = specs.iter().filter_map(|spec| match spec {
        Some(CompoundSpec::Leads(spec)) => Some(spec),
        Some(CompoundSpec::Follows { .. }) | None => None,
    });
    leaders.flat_map(move |spec| {
        // Members with the same rules share their fleet.
        let first = |rules: usize| spec.members.iter().find(move |one| one.rules == rules);
        let of = move |(rules, policy): (usize, &Policy)| {
            Some((&first(rules)?.request, policy.concurrency.unwrap_or(concurrency)))
        };
        spec.rules.iter().enumerate().filter_map(of)
    })
}

impl CompoundQueues {
    /// `specs` has one for each function of the lane, with the calls of each that run at a time.
    pub fn new(
        specs: Vec<Option<CompoundSpec>>,
        limits: &[usize],
        parts: &LaneParts<'_>,
    ) -> Result<Self, EndpointError> {
        let limit_listener = Arc::new(OnceLock::new());
        let mut leaders = Vec::with_capacity(specs.len());
        for (function, spec) in specs.iter().enumerate() {
            leaders.push(match spec {
                Some(CompoundSpec::Leads(spec)) => {
                    Some(lead(spec, function, limits[function], parts, &limit_listener)?)
                }
                Some(CompoundSpec::Follows { .. }) | None => None,
            });
        }
        let column = |(function, spec): (usize, &Option<CompoundSpec>)| {
            let (leader, column) = match spec.as_ref()? {
                CompoundSpec::Leads(_) => (function, 0),
                CompoundSpec::Follows { leader, column } => (*leader, *column),
            };
            Some((leaders.get(leader)?.clone()?, column))
        };
        let of = specs.iter().enumerate().map(column).collect();
        Ok(Self { of, limit_listener })
    }

    /// Sets the listener for warnings about an endpoint. Only the first one counts.
    pub fn on_limit_warning(&self, listener: impl Fn(FunctionId, LimitWarning, &str) + Send + Sync + 'static) {
        let _ = self.limit_listener.set(Box::new(listener));
    }

    /// Returns the number of a function's calls that run at a time; `None` where its calls are
    /// single requests.
    pub fn width(&self, function: FunctionId) -> Option<usize> {
        self.of.get(function)?.as_ref().map(|(queue, _)| queue.limit)
    }

    /// Takes a frame over; gives it back where its calls are single requests.
    pub fn push(&self, frame: Frame) -> Option<Frame> {
        let Some(Some((queue, column))) = self.of.get(frame.function_id()) else { return Some(frame) };
        queue.push(*column, &Arc::new(InFlightFrame::new(frame)));
        None
    }

    fn queues(&self) -> impl Iterator<Item = &Arc<CompoundQueue>> {
        self.of.iter().flatten().filter(|(_, column)| *column == 0).map(|(queue, _)| queue)
    }

    /// All fleets; none of a queue that is closed.
    pub fn fleets(&self) -> impl Iterator<Item = Arc<Fleet>> {
        self.queues().flat_map(|queue| queue.fleets())
    }

    /// The fleet of a function, which its members share; none once its queue is closed.
    pub fn fleet(&self, function: FunctionId) -> Option<Arc<Fleet>> {
        let (queue, _) = self.of.get(function)?.as_ref()?;
        queue.fleets().into_iter().next()
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

fn lead(
    spec: &CompoundFunction,
    function: FunctionId,
    limit: usize,
    parts: &LaneParts<'_>,
    limit_listener: &Arc<OnceLock<LimitListener>>,
) -> Result<Arc<CompoundQueue>, EndpointError> {
    let fleets = requests(&[Some(CompoundSpec::Leads(spec.clone()))], parts.concurrency)
        .map(|(request, most)| {
            Fleet::new(&request.endpoint, &request.fleet, most, parts.pools, parts.clock).map(Arc::new)
        })
        .collect::<Result<_, _>>()?;
    let queue = CompoundQueue {
        spec: spec.clone(),
        function,
        limit,
        clock: parts.clock,
        runtime: parts.runtime.clone(),
        permits: permits(spec, parts),
        limit_listener: limit_listener.clone(),
        drive,
        gone: parts.gone.clone(),
        state: CompoundQueue::state(fleets),
    };
    Ok(Arc::new(queue))
}

/// A queue for the permits of each of a function's rules. If there is no limit, requests have one
/// for their concurrency.
fn permits(spec: &CompoundFunction, parts: &LaneParts<'_>) -> Vec<Arc<PermitQueue>> {
    let limit = |rules: &Policy| {
        let concurrency = Some(rules.concurrency.unwrap_or(parts.concurrency));
        let plain = || Limit { rules: Rules { concurrency, ..Rules::default() }, ..Limit::default() };
        rules.limit.clone().unwrap_or_else(plain)
    };
    let limits: Vec<Limit> = spec.rules.iter().map(limit).collect();
    let limiters = Limiter::all(limits.iter().map(Some)).into_iter().flatten();
    limiters.map(|limiter| PermitQueue::new(limiter, parts.clock, parts.runtime.clone())).collect()
}
