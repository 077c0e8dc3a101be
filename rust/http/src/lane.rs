//! The lane: which function goes where, and the watch over requests that nobody waits for any more.

use std::sync::Arc;
use std::time::Duration;

use guerdon_core::clock::Clock;
use guerdon_core::doing::Doing;
use guerdon_core::frame::Frame;
use guerdon_core::function::{Function, FunctionId};
use guerdon_core::lane::{Closing, Lane, Poke};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};

use crate::endpoint::Endpoint;
use crate::error::EndpointError;
use crate::function::HttpFunction;
use crate::held::Held;
use crate::place::Place;
use crate::pool::{Pool, connections};

/// Requests at a time of a function that says nothing else.
pub const CONCURRENCY: usize = 256;
/// How often the watch looks at requests on their way.
const TICK: Duration = Duration::from_millis(50);
/// Long answers that are read at a time, over all functions (K-6 of `pool`): with what else is read of the others they take some hundred MB at
/// most, whatever servers send.
const LONG_ANSWERS: usize = 16;
/// Room that never runs out: calls wait in the lane, which costs nothing.
const ROOM: usize = 1 << 16;

/// See the module.
pub struct HttpLane {
    runtime: Handle,
    clock: Clock,
    /// Of each function of this lane.
    places: Vec<Option<Arc<Place>>>,
    connections: usize,
    /// Whether the watch runs. Written by frames that arrive and by the watch.
    watching: Arc<Mutex<bool>>,
    gone: Arc<Notify>,
}

impl HttpLane {
    /// `specs` has one for each function of this lane.
    pub fn new(
        runtime: &Handle,
        clock: Clock,
        functions: &[Function],
        specs: Vec<Option<HttpFunction>>,
    ) -> Result<Self, EndpointError> {
        let limits: Vec<usize> = functions.iter().map(|one| one.policy.concurrency.unwrap_or(CONCURRENCY)).collect();
        // Functions that go to one server share its connections; each may use as many as it has requests.
        let mut pools: Vec<(Endpoint, usize)> = Vec::new();
        let mut pool_of = Vec::with_capacity(specs.len());
        for (spec, limit) in specs.iter().zip(&limits) {
            let Some(spec) = spec else {
                pool_of.push(None);
                continue;
            };
            let known = pools.iter().position(|(endpoint, _)| endpoint.shares_pool(&spec.endpoint));
            pool_of.push(Some(known.unwrap_or(pools.len())));
            match known {
                Some(index) => pools[index].1 += limit,
                None => pools.push((spec.endpoint.clone(), *limit)),
            }
        }
        let connections = pools.iter().map(|(endpoint, requests)| connections(endpoint, *requests)).sum();
        let room = Arc::new(Semaphore::new(LONG_ANSWERS));
        let pools: Result<Vec<Arc<Pool>>, EndpointError> =
            pools.iter().map(|(endpoint, most)| Pool::new(endpoint, *most, room.clone()).map(Arc::new)).collect();
        let (pools, gone) = (pools?, Arc::new(Notify::new()));
        let place = |(function, (spec, pool)): (usize, (Option<HttpFunction>, Option<usize>))| {
            let (spec, pool) = (spec?, pools.get(pool?)?.clone());
            let bounds = (limits[function], functions[function].policy.timeout);
            Some(Place::new(spec, function, bounds, clock, runtime.clone(), gone.clone(), pool))
        };
        let places = specs.into_iter().zip(pool_of).enumerate().map(place).collect();
        let watching = Arc::new(Mutex::new(false));
        Ok(Self { runtime: runtime.clone(), clock, places, connections, watching, gone })
    }

    /// How many connections may be open at a time.
    #[must_use]
    pub const fn connections(&self) -> usize {
        self.connections
    }

    /// What is on its way, for people, and the server that is waited for.
    #[must_use]
    pub fn doing(&self) -> Vec<(Doing, String)> {
        let now_ns = self.clock.now_ns();
        let of = |place: &Arc<Place>| {
            let host = place.spec.endpoint.host();
            place.doing(now_ns).into_iter().map(move |doing| (doing, host.clone()))
        };
        self.places.iter().flatten().flat_map(of).collect()
    }

    fn watch(&self) {
        if std::mem::replace(&mut *self.watching.lock(), true) {
            return;
        }
        let places: Vec<Arc<Place>> = self.places.iter().flatten().cloned().collect();
        let watching = self.watching.clone();
        self.runtime.spawn(async move {
            loop {
                tokio::time::sleep(TICK).await;
                let busy = places.iter().filter(|place| place.look()).count();
                if busy == 0 {
                    let mut watching = watching.lock();
                    // Work that arrived since then saw the watch running.
                    if !places.iter().any(|place| place.is_busy()) {
                        *watching = false;
                        return;
                    }
                }
            }
        });
    }
}

impl Lane for HttpLane {
    fn attach(&self, _poke: Poke) {}

    fn room(&self, _function: FunctionId) -> usize {
        ROOM
    }

    fn parallelism(&self, function: FunctionId) -> usize {
        self.places[function].as_ref().map_or(1, |place| place.limit)
    }

    fn pool(&self, function: FunctionId) -> usize {
        function
    }

    fn frame_calls(&self, _function: FunctionId) -> usize {
        usize::MAX
    }

    fn run(&self, frame: Frame) {
        if frame.is_empty() {
            return;
        }
        let Some(place) = self.places.get(frame.function_id()).and_then(Option::as_ref) else { return };
        place.push(Arc::new(Held::new(frame)));
        self.watch();
    }

    fn close(&self) -> Closing {
        let places: Vec<Arc<Place>> = self.places.iter().flatten().cloned().collect();
        for place in &places {
            place.close();
        }
        let gone = self.gone.clone();
        Box::pin(async move {
            loop {
                let next = gone.notified();
                if places.iter().all(|place| place.is_gone()) {
                    return;
                }
                next.await;
            }
        })
    }
}
