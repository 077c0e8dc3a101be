//! One function's requests: what waits, and what is on its way.
//!
//! - P-1  At most `limit` requests are on their way; each is a task that goes on with the next one, so that tasks are as many as requests.
//! - P-2  A request is one call: of one sample, or of those that the scheduler gathered; what it has ended meanwhile is left out.
//! - P-3  A request whose call doesn't count any more is dropped, and its connection with it.
//! - P-4  Time in here is not run time: a call starts when its request does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use guerdon_core::clock::Clock;
use guerdon_core::doing::Doing;
use guerdon_core::outcome::{Failure, FailureKind, Times};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::answer::Scores;
use crate::body::{JSON, Text};
use crate::function::HttpFunction;
use crate::held::Held;
use crate::pool::Pool;
use crate::request;

/// A call: its frame, and its index in that.
type Call = (Arc<Held>, usize);

/// See the module.
pub struct Place {
    pub spec: HttpFunction,
    pub function: usize,
    pub limit: usize,
    pub timeout: Duration,
    pub clock: Clock,
    pub runtime: Handle,
    /// Told when nothing is left after the end.
    pub gone: Arc<Notify>,
    state: Mutex<State>,
}

struct State {
    /// Calls that no request has taken, by frame. Written by frames that arrive and by requests that take them.
    waiting: BTreeMap<(u64, bool, u64), Waiting>,
    /// Written by the requests themselves.
    flights: BTreeMap<u64, Flight>,
    /// Calls in `waiting`, and flights without one: counted, since each arrival asks.
    left: usize,
    idle: usize,
    last: u64,
    /// Taken by the end.
    pool: Option<Arc<Pool>>,
}

struct Waiting {
    held: Arc<Held>,
    next: usize,
}

/// A request on its way, or about to be.
#[derive(Default)]
struct Flight {
    call: Option<Call>,
    started_ns: u64,
    /// Told when nobody waits for the call any more; one for each request.
    stop: Arc<Notify>,
    /// For the end.
    abort: Option<AbortHandle>,
}

/// What a request is made of: its call and the samples of that, what tells it to stop, and the connections to send it by.
struct Taken {
    call: Call,
    samples: Vec<(usize, u32)>,
    stop: Arc<Notify>,
    pool: Arc<Pool>,
}

/// Frees the place of a request, however it ended (P-1).
struct Landing {
    place: Arc<Place>,
    flight: u64,
}

impl Drop for Landing {
    fn drop(&mut self) {
        let call = {
            let mut state = self.place.state.lock();
            let flight = state.flights.remove(&self.flight);
            state.idle -= usize::from(flight.as_ref().is_some_and(|flight| flight.call.is_none()));
            if state.pool.is_none() && state.flights.is_empty() {
                self.place.gone.notify_waiters();
            }
            flight.and_then(|flight| flight.call)
        };
        // Where it was dropped in mid-flight, at the end or by a panic, its call goes back to the scheduler.
        if let Some((held, _)) = call {
            held.end(|_| {});
        }
        self.place.start();
    }
}

impl Place {
    pub fn new(
        spec: HttpFunction,
        function: usize,
        (limit, timeout): (usize, Duration),
        clock: Clock,
        runtime: Handle,
        gone: Arc<Notify>,
        pool: Arc<Pool>,
    ) -> Arc<Self> {
        let (waiting, flights) = (BTreeMap::new(), BTreeMap::new());
        let state = Mutex::new(State { waiting, flights, left: 0, idle: 0, last: 0, pool: Some(pool) });
        Arc::new(Self { spec, function, limit, timeout, clock, runtime, gone, state })
    }

    /// Takes calls on; gives them back if this has ended.
    pub fn push(self: &Arc<Self>, held: Arc<Held>) {
        {
            let mut state = self.state.lock();
            if state.pool.is_none() {
                drop(state);
                return; // and drops the frame, without the lock
            }
            state.left += held.calls;
            state.waiting.insert(held.order, Waiting { held, next: 0 });
        }
        self.start();
    }

    /// Starts as many requests as may be on their way (P-1).
    fn start(self: &Arc<Self>) {
        let begun: Vec<u64> = {
            let mut state = self.state.lock();
            if state.pool.is_none() {
                return;
            }
            // One that has no call yet is about to take one.
            let wanted = state.left.saturating_sub(state.idle);
            let free = self.limit.saturating_sub(state.flights.len());
            let first = state.last + 1;
            state.last += wanted.min(free) as u64;
            let begun = first..=state.last;
            state.idle += wanted.min(free);
            state.flights.extend(begun.clone().map(|flight| (flight, Flight::default())));
            begun.collect()
        };
        for flight in begun {
            let task = self.runtime.spawn(fly(Landing { place: self.clone(), flight }));
            if let Some(flight) = self.state.lock().flights.get_mut(&flight) {
                flight.abort = Some(task.abort_handle());
            }
        }
    }

    /// The next request.
    fn take(&self, flight: u64) -> Option<Taken> {
        loop {
            let (call, pool) = {
                let mut state = self.state.lock();
                let pool = state.pool.clone()?;
                (state.next()?, pool)
            };
            // Not with the lock held: F-2 of `held`.
            let (held, index) = &call;
            if !held.is_open(*index) {
                held.end(|_| {});
                continue;
            }
            let (samples, stop) = (held.samples(*index), Arc::new(Notify::new()));
            let mut state = self.state.lock();
            if let Some(flight) = state.flights.get_mut(&flight) {
                (flight.call, flight.stop) = (Some(call.clone()), stop.clone());
                flight.started_ns = self.clock.now_ns();
                state.idle -= 1;
            }
            return Some(Taken { call, samples, stop, pool });
        }
    }

    /// Ends the call of a request; `None` where the scheduler has ended it.
    fn land(&self, flight: u64, (held, call): &Call, started_ns: u64, ended: Option<Result<Scores, Failure>>) {
        {
            let mut state = self.state.lock();
            if let Some(flight) = state.flights.get_mut(&flight) {
                flight.call = None;
                state.idle += 1;
            }
        }
        let times = Times { started_ns, run_ns: self.clock.now_ns().saturating_sub(started_ns) };
        held.end(|frame| match ended {
            Some(Ok(Scores { cells, tokens })) => {
                if let Some(tokens) = tokens {
                    frame.used(tokens);
                }
                frame.settle_many(*call, cells, times);
            }
            Some(Err(failure)) => frame.fail(*call, failure, times),
            None => {}
        });
    }

    fn body(&self, held: &Held, samples: &[(usize, u32)]) -> Option<Vec<u8>> {
        // The names are the same in all shares of a frame.
        let names = held.payload(0)?.names(self.function, false)?;
        self.spec.body.fill(samples, |column, (share, sample)| {
            let raw = held.payload(share)?.text(self.function, column, sample)?;
            Some(Text { raw, json: names.get(column).is_some_and(|name| name == JSON) })
        })
    }

    /// Drops requests that nobody waits for any more (P-3); whether anything is here.
    pub fn look(&self) -> bool {
        let (flights, busy) = {
            let state = self.state.lock();
            let on_its_way = |flight: &Flight| Some((flight.call.clone()?, flight.stop.clone()));
            let flights: Vec<(Call, Arc<Notify>)> = state.flights.values().filter_map(on_its_way).collect();
            (flights, state.is_busy())
        };
        for ((held, call), stop) in flights {
            if !held.is_open(call) {
                stop.notify_one();
            }
        }
        busy
    }

    pub fn is_busy(&self) -> bool {
        self.state.lock().is_busy()
    }

    /// The calls on their way, for people.
    pub fn doing(&self, now_ns: u64) -> Vec<Doing> {
        let flights: Vec<(Call, u64)> = {
            let state = self.state.lock();
            state.flights.values().filter_map(|flight| Some((flight.call.clone()?, flight.started_ns))).collect()
        };
        let told = |((held, call), since_ns): &(Call, u64)| held.doing(*call, now_ns.saturating_sub(*since_ns));
        flights.iter().filter_map(told).collect()
    }

    /// Ends all requests and closes the connections.
    pub fn close(&self) {
        let (waiting, flights, pool) = {
            let mut state = self.state.lock();
            let flights: Vec<AbortHandle> = state.flights.values().filter_map(|flight| flight.abort.clone()).collect();
            (std::mem::take(&mut state.waiting), flights, state.pool.take())
        };
        for flight in flights {
            flight.abort();
        }
        drop((waiting, pool));
    }

    pub fn is_gone(&self) -> bool {
        let state = self.state.lock();
        state.pool.is_none() && state.flights.is_empty()
    }
}

impl State {
    /// The next call that no request has taken.
    fn next(&mut self) -> Option<Call> {
        loop {
            let mut entry = self.waiting.first_entry()?;
            let Waiting { held, next } = entry.get_mut();
            if *next < held.calls {
                let call = (held.clone(), *next);
                *next += 1;
                self.left -= 1;
                return Some(call);
            }
            entry.remove();
        }
    }

    fn is_busy(&self) -> bool {
        !self.flights.is_empty() || !self.waiting.is_empty()
    }
}

/// Sends one request after the other, until none waits.
async fn fly(landing: Landing) {
    let place = landing.place.clone();
    while let Some(Taken { call, samples, stop, pool }) = place.take(landing.flight) {
        let started_ns = place.clock.now_ns();
        let ended = match place.body(&call.0, &samples) {
            Some(body) => {
                let HttpFunction { endpoint, answer, .. } = &place.spec;
                tokio::select! {
                    ended = request::ask(endpoint, &pool, answer, body, samples.len(), place.timeout) => Some(ended),
                    () = stop.notified() => None,
                }
            }
            None => Some(Err(Failure {
                kind: FailureKind::Error,
                reason: "the texts of its request are gone: they were not captured for this lane".to_owned(),
                traceback: None,
                retryable: false,
                retry_after: None,
                answer: None,
            })),
        };
        place.land(landing.flight, &call, started_ns, ended);
    }
}
