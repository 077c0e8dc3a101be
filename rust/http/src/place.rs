//! One function's requests: what waits, and what is on its way.
//!
//! - P-1  At most `limit` requests are on their way; each is a task that goes on with the next one, so that tasks are as many as requests.
//! - P-2  A request takes up to `most` calls, of whatever frames are there; calls that the scheduler has ended meanwhile are left out.
//! - P-3  A request none of whose calls counts any more is dropped, and its connection with it.
//! - P-4  Time in here is not run time: a call starts when its request does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use guerdon_core::clock::Clock;
use guerdon_core::doing::Doing;
use guerdon_core::outcome::{Failure, FailureKind, Times};
use guerdon_core::payload::Payload;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::answer::Scores;
use crate::body::{JSON, Text};
use crate::held::Held;
use crate::lane::HttpFunction;
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
    /// Calls in `waiting`, and flights without calls: counted, since each arrival asks.
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
    calls: Arc<[Call]>,
    started_ns: u64,
    /// Told when nobody waits for the calls any more; one for each request.
    stop: Arc<Notify>,
    /// For the end.
    abort: Option<AbortHandle>,
}

/// What a request is made of: its calls, what tells it to stop, and the connections to send it by.
struct Taken {
    calls: Arc<[Call]>,
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
        let calls = {
            let mut state = self.place.state.lock();
            let flight = state.flights.remove(&self.flight);
            state.idle -= usize::from(flight.as_ref().is_some_and(|flight| flight.calls.is_empty()));
            if state.pool.is_none() && state.flights.is_empty() {
                self.place.gone.notify_waiters();
            }
            flight.map(|flight| flight.calls)
        };
        // Where it was dropped in mid-flight, at the end or by a panic, its calls go back to the scheduler.
        for (held, _) in calls.iter().flat_map(|calls| calls.iter()) {
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
            state.left += held.samples.len();
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
            // One that has no calls yet is about to take some.
            let wanted = state.left.div_ceil(self.spec.most.max(1)).saturating_sub(state.idle);
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
            let (found, pool) = {
                let mut found: Vec<Call> = Vec::new();
                let mut state = self.state.lock();
                let pool = state.pool.clone()?;
                while found.len() < self.spec.most
                    && let Some(mut entry) = state.waiting.first_entry()
                {
                    let waiting = entry.get_mut();
                    if waiting.left() == 0 {
                        entry.remove();
                        continue;
                    }
                    found.push((waiting.held.clone(), waiting.next));
                    waiting.next += 1;
                }
                state.left -= found.len();
                (found, pool)
            };
            if found.is_empty() {
                return None;
            }
            // Not with the lock held: F-2 of `held`.
            let (open, ended): (Vec<Call>, Vec<Call>) = found.into_iter().partition(|(held, call)| held.is_open(*call));
            for (held, _) in ended {
                held.end(|_| {});
            }
            if !open.is_empty() {
                let (calls, stop): (Arc<[Call]>, _) = (open.into(), Arc::new(Notify::new()));
                let mut state = self.state.lock();
                if let Some(flight) = state.flights.get_mut(&flight) {
                    (flight.calls, flight.stop) = (calls.clone(), stop.clone());
                    flight.started_ns = self.clock.now_ns();
                    state.idle -= 1;
                }
                return Some(Taken { calls, stop, pool });
            }
        }
    }

    /// Ends the calls of a request; `None` where the scheduler has ended them all.
    fn land(&self, flight: u64, calls: &[Call], started_ns: u64, ended: Option<Result<Scores, Failure>>) {
        {
            let mut state = self.state.lock();
            if let Some(flight) = state.flights.get_mut(&flight) {
                flight.calls = Arc::default();
                state.idle += 1;
            }
        }
        let times = Times { started_ns, run_ns: self.clock.now_ns().saturating_sub(started_ns) };
        match ended {
            Some(Ok(scores)) => {
                #[expect(clippy::cast_precision_loss, reason = "a few calls")]
                let tokens = scores.tokens.map(|tokens| tokens / calls.len() as f64);
                for ((held, call), cell) in calls.iter().zip(scores.cells) {
                    held.end(|frame| {
                        if let Some(tokens) = tokens {
                            frame.used(tokens);
                        }
                        frame.settle(*call, cell, times);
                    });
                }
            }
            Some(Err(failure)) => {
                for (held, call) in calls {
                    held.end(|frame| frame.fail(*call, failure.clone(), times));
                }
            }
            None => calls.iter().for_each(|(held, _)| held.end(|_| {})),
        }
    }

    fn body(&self, calls: &[Call]) -> Option<Vec<u8>> {
        let payloads: Option<Vec<&dyn Payload>> = calls.iter().map(|(held, _)| held.payload.as_deref()).collect();
        let (payloads, places) = (payloads?, (0..calls.len() as u32).collect::<Vec<u32>>());
        self.spec.body.fill(&places, |column, place| {
            let ((held, call), payload) = (&calls[place as usize], payloads[place as usize]);
            let names = payload.names(self.function, false)?;
            let raw = payload.text(self.function, column, held.samples[*call])?;
            Some(Text { raw, json: names.get(column).is_some_and(|name| name == JSON) })
        })
    }

    /// Drops requests that nobody waits for any more (P-3); whether anything is here.
    pub fn look(&self) -> bool {
        let (flights, busy) = {
            let state = self.state.lock();
            let flights: Vec<(Arc<[Call]>, Arc<Notify>)> =
                state.flights.values().map(|flight| (flight.calls.clone(), flight.stop.clone())).collect();
            (flights, state.is_busy())
        };
        for (calls, stop) in flights {
            if !calls.is_empty() && !calls.iter().any(|(held, call)| held.is_open(*call)) {
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
        let flights: Vec<(Arc<[Call]>, u64)> =
            self.state.lock().flights.values().map(|flight| (flight.calls.clone(), flight.started_ns)).collect();
        let age = |since_ns: u64| now_ns.saturating_sub(since_ns);
        let told = |(calls, since_ns): &(Arc<[Call]>, u64)| -> Vec<Doing> {
            calls.iter().filter_map(|(held, call)| held.doing(*call, age(*since_ns))).collect()
        };
        flights.iter().flat_map(told).collect()
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

impl Waiting {
    fn left(&self) -> usize {
        self.held.samples.len() - self.next
    }
}

impl State {
    fn is_busy(&self) -> bool {
        !self.flights.is_empty() || !self.waiting.is_empty()
    }
}

/// Sends one request after the other, until none waits.
async fn fly(landing: Landing) {
    let place = landing.place.clone();
    if place.spec.most > 1 {
        // The scheduler may be handing out more, one frame at a time.
        tokio::task::yield_now().await;
    }
    while let Some(Taken { calls, stop, pool }) = place.take(landing.flight) {
        let started_ns = place.clock.now_ns();
        let ended = match place.body(&calls) {
            Some(body) => {
                let HttpFunction { endpoint, answer, .. } = &place.spec;
                tokio::select! {
                    ended = request::ask(endpoint, &pool, answer, body, calls.len(), place.timeout) => Some(ended),
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
        place.land(landing.flight, &calls, started_ns, ended);
    }
}
