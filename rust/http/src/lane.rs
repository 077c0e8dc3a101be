//! The http lane: which function's frames go to which queue, and the watchdog that drops requests
//! whose calls were completed by the scheduler.

use std::sync::{Arc, Weak};
use std::time::Duration;

use guerdon_core::clock::Clock;
use guerdon_core::frame::Frame;
use guerdon_core::function::{Function, FunctionId};
use guerdon_core::in_flight::{InFlight, Location, Stack};
use guerdon_core::lane::{CallsRun, CloseFuture, Lane, LaneWaker};
use guerdon_core::snapshots::EndpointSnapshot;
use guerdon_core::task::spawn_restarted;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::endpoint_error::EndpointError;
use crate::fd_limit::TooFewDescriptors;
use crate::fleet::{Fleet, FleetCounts, Pools};
use crate::function::HttpFunction;
use crate::in_flight::InFlightFrame;
use crate::request_queue::RequestQueue;

/// Requests in flight of a function without a limit.
pub const CONCURRENCY: usize = 256;
/// Interval at which the watchdog checks requests in flight.
const TICK: Duration = Duration::from_millis(50);
/// The lane always has room: the scheduler gives it no more than it can send.
const ROOM: usize = 1 << 16;

/// See the module.
pub struct HttpLane {
    runtime: Handle,
    clock: Clock,
    /// One for each function of this lane.
    queues: Vec<Option<Arc<RequestQueue>>>,
    pools: Arc<Pools>,
    /// True while the watchdog runs. Written by frames that arrive and by the watchdog.
    watchdog_runs: Arc<Mutex<bool>>,
    gone: Arc<Notify>,
}

impl HttpLane {
    /// `specs` has the functions of this lane, by number.
    pub fn new(
        runtime: &Handle,
        clock: Clock,
        functions: &[Function],
        specs: Vec<Option<HttpFunction>>,
    ) -> Result<Self, EndpointError> {
        let limits: Vec<usize> = functions.iter().map(|one| one.policy.concurrency.unwrap_or(CONCURRENCY)).collect();
        // Functions that go to one server share its connections; each may use as many as it has
        // requests.
        let planned = specs.iter().zip(&limits).filter_map(|(spec, limit)| Some((spec.as_ref()?, *limit)));
        let planned = planned.flat_map(|(spec, limit)| {
            let endpoints = 1 + spec.fleet.others.len();
            std::iter::once(&spec.endpoint).chain(&spec.fleet.others).map(move |one| (one, limit, endpoints))
        });
        let (pools, gone) = (Arc::new(Pools::new(planned)), Arc::new(Notify::new()));
        let queue = |(function, spec): (usize, Option<HttpFunction>)| {
            let Some(spec) = spec else { return Ok(None) };
            let fleet = Arc::new(Fleet::new(&spec.endpoint, &spec.fleet, limits[function], &pools, clock)?);
            let bounds = (limits[function], functions[function].policy.timeout);
            Ok(Some(RequestQueue::new(spec, function, bounds, clock, runtime.clone(), gone.clone(), fleet)))
        };
        let queues = specs.into_iter().enumerate().map(queue).collect::<Result<_, EndpointError>>()?;
        let watchdog_runs = Arc::new(Mutex::new(false));
        Ok(Self { runtime: runtime.clone(), clock, queues, pools, watchdog_runs, gone })
    }

    /// Returns the number of connections that may be open at a time.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.pools.descriptors().connections()
    }

    /// Checks that this process may open as many, before it opens any.
    pub fn check_descriptors(&self) -> Result<(), TooFewDescriptors> {
        self.pools.descriptors().check()
    }

    /// Sets the listener for a shortage of descriptors by endpoints that came at run time: once.
    /// Only the first one counts.
    pub fn on_descriptor_shortage(&self, listener: impl Fn(&TooFewDescriptors) + Send + Sync + 'static) {
        self.pools.descriptors().on_shortage(listener);
    }

    fn fleet(&self, function: FunctionId) -> Option<Arc<Fleet>> {
        self.queues.get(function)?.as_ref()?.fleet()
    }

    /// The endpoints of a function, as they are now; none of one that sends no requests.
    #[must_use]
    pub fn endpoints(&self, function: FunctionId) -> Vec<EndpointSnapshot> {
        self.fleet(function).map_or_else(Vec::new, |fleet| fleet.endpoints())
    }

    /// Replaces the endpoints of a function, each with its weight.
    pub fn set_endpoints(&self, function: FunctionId, urls: Vec<(String, f64)>) -> Result<(), EndpointError> {
        let Some(fleet) = self.fleet(function) else { return Ok(()) };
        let endpoint = |(url, weight): (String, f64)| Ok((fleet.at(&url)?, weight));
        fleet.set(urls.into_iter().map(endpoint).collect::<Result<_, _>>()?)
    }

    /// Counts of all fleets.
    #[must_use]
    fn fleet_counts(&self) -> FleetCounts {
        let fleets = self.queues.iter().flatten().filter_map(|queue| queue.fleet());
        fleets.map(|fleet| fleet.counts()).fold(FleetCounts::default(), |all, one| FleetCounts {
            failovers: all.failovers + one.failovers,
            hedges: all.hedges + one.hedges,
            hedges_won: all.hedges_won + one.hedges_won,
        })
    }

    /// Returns the number of a function's calls that run at a time.
    fn width(&self, function: FunctionId) -> Option<usize> {
        self.queues[function].as_ref().map(|queue| queue.limit)
    }

    fn start_watchdog(&self) {
        if std::mem::replace(&mut *self.watchdog_runs.lock(), true) {
            return;
        }
        let queues: Vec<Arc<RequestQueue>> = self.queues.iter().flatten().cloned().collect();
        let watchdog_runs = self.watchdog_runs.clone();
        let watch = move || watchdog(queues.clone(), watchdog_runs.clone());
        spawn_restarted(&self.runtime, watch);
    }
}

/// Looks up the names of a fleet; not once its queue is closed.
async fn refresh(fleet: Weak<Fleet>) {
    if let Some(fleet) = fleet.upgrade() {
        fleet.refresh().await;
    }
}

/// Looks after the queues until none has work.
async fn watchdog(queues: Vec<Arc<RequestQueue>>, watchdog_runs: Arc<Mutex<bool>>) {
    loop {
        tokio::time::sleep(TICK).await;
        let busy = queues.iter().filter(|queue| queue.drop_abandoned()).count();
        let fleets = queues.iter().filter_map(|queue| queue.fleet());
        for fleet in fleets.filter(|fleet| fleet.is_stale()) {
            tokio::spawn(refresh(Arc::downgrade(&fleet)));
        }
        if busy == 0 {
            let mut watchdog_runs = watchdog_runs.lock();
            // Frames that arrived since then saw the watchdog running.
            if !queues.iter().any(|queue| queue.is_busy()) {
                *watchdog_runs = false;
                return;
            }
        }
    }
}

impl Lane for HttpLane {
    fn attach(&self, _poke: LaneWaker) {}

    fn room(&self, _function: FunctionId) -> usize {
        ROOM
    }

    fn parallelism(&self, function: FunctionId) -> usize {
        self.width(function).unwrap_or(1)
    }

    fn pool(&self, function: FunctionId) -> usize {
        function
    }

    fn frame_calls(&self, _function: FunctionId) -> usize {
        usize::MAX
    }

    fn calls_run(&self, function: FunctionId) -> CallsRun {
        self.width(function).map_or(CallsRun::InTurn, CallsRun::AtMost)
    }

    fn refuses(&self, function: FunctionId) -> Option<String> {
        self.queues[function].as_ref()?.spec.tariff.exhausted(self.clock)
    }

    fn waits_on_purpose(&self, function: FunctionId) -> bool {
        // A request that is not on its way to a server waits for a limit or for an endpoint that is
        // up.
        !self.in_flight(0).iter().any(|one| one.call.function == function)
    }

    fn run(&self, frame: Frame) {
        if frame.is_empty() {
            return;
        }
        let Some(queue) = self.queues.get(frame.function_id()).and_then(Option::as_ref) else { return };
        queue.push(Arc::new(InFlightFrame::new(frame)));
        self.start_watchdog();
    }

    fn in_flight(&self, now_ns: u64) -> Vec<InFlight> {
        let requests = self.queues.iter().flatten().flat_map(|queue| queue.in_flight(now_ns));
        let stack = || Stack::Absent("it waits for an answer".to_owned());
        requests.map(|(call, server)| InFlight { call, location: Location::Server(server), stack: stack() }).collect()
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let FleetCounts { failovers, hedges, hedges_won } = self.fleet_counts();
        vec![("failovers", failovers), ("hedges", hedges), ("hedges_won", hedges_won)]
    }

    fn close(&self) -> CloseFuture {
        let queues: Vec<Arc<RequestQueue>> = self.queues.iter().flatten().cloned().collect();
        for queue in &queues {
            queue.close();
        }
        let gone = self.gone.clone();
        Box::pin(async move {
            loop {
                let next = gone.notified();
                if queues.iter().all(|queue| queue.is_gone()) {
                    return;
                }
                next.await;
            }
        })
    }
}

#[cfg(test)]
mod tests;
