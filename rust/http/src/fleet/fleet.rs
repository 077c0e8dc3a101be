//! Sends the requests of one function to its endpoints.
//!
//! - A request that its endpoint surely did not process (no connection, "too many requests") goes
//!   to another at once, and so does one that it refused, once; any other failure ends the attempt.
//! - A refusal for its address or key, after others were answered, is the endpoint's failure.
//! - Endpoints come and go while requests are in flight: those that left answer their requests.
//! - The function's limiter gets a failure only if no other endpoint is up.
//! - A half-open endpoint's trial that takes too long goes to another one too: it costs no call its
//!   timeout. The first answer counts; the other request is dropped with its connection.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use guerdon_core::clock::{Clock, seconds};
use guerdon_core::outcome::Answer;
use guerdon_core::snapshots::EndpointSnapshot;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tracing::debug;

use crate::endpoint::Endpoint;
use crate::endpoint_error::EndpointError;
use crate::fleet::addresses::Addresses;
use crate::fleet::balancer::{Balancer, ChosenEndpoint, EndpointId, FleetCounts};
use crate::fleet::health::{Refusal, RequestEnd, SentAt};
use crate::fleet::hedging::Hedging;
use crate::fleet::member::Member;
use crate::fleet::pools::{Pools, connections_to};
use crate::fleet::request::{FleetRequest, HedgePermit, RequestFailure, RequestKey, SendError};

/// Pause before another look at the usual time of an answer, and for leave to send once more.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The endpoints of a function, as they were configured.
#[derive(Clone, Debug, Default)]
pub struct FleetOptions {
    /// Beside the function's own endpoint, which has the first weight.
    pub others: Vec<Endpoint>,
    /// One for each endpoint; all 1 if there are none.
    pub weights: Vec<f64>,
    /// Each address of a host name is an endpoint.
    pub resolve_all: bool,
    pub hedging: Option<Hedging>,
}

impl FleetOptions {
    /// Makes a list of these URLs, each with its weight; the first is the function's own endpoint.
    pub fn of(own: &Endpoint, urls: &[(String, f64)]) -> Result<Self, EndpointError> {
        let others = urls.iter().skip(1).map(|(url, _)| own.at_url(url)).collect::<Result<_, _>>()?;
        Ok(Self { others, weights: urls.iter().map(|(_, weight)| *weight).collect(), ..Self::default() })
    }
}

/// Long responses of a function that are read at once: together with the short ones they take some
/// hundred MB at most, whatever servers send.
const LONG_RESPONSES: usize = 8;

/// See the module.
pub struct Fleet {
    pools: Arc<Pools>,
    /// Requests in flight at most.
    requests: usize,
    clock: Clock,
    hedges: bool,
    /// Written by `set` and `refresh`.
    configured: Mutex<EndpointSettings>,
    /// Resolver of names.
    addresses: Option<Addresses>,
    long_responses: Arc<Semaphore>,
    /// Written by requests, `set` and `Addresses`.
    balancer: Mutex<Balancer<Arc<Member>>>,
}

struct EndpointSettings {
    /// Endpoints with their weights.
    endpoints: Vec<(Endpoint, f64)>,
    /// That may be open at a time, to the endpoints or their addresses.
    connections: usize,
}

impl Fleet {
    /// Makes a fleet for a function with `requests` requests in flight.
    pub fn new(
        endpoint: &Endpoint,
        options: &FleetOptions,
        requests: usize,
        pools: &Arc<Pools>,
        clock: Clock,
    ) -> Result<Self, EndpointError> {
        let weight = |place: usize| options.weights.get(place).copied().unwrap_or(1.0);
        let all = std::iter::once(endpoint).chain(&options.others).cloned();
        let configured: Vec<(Endpoint, f64)> = all.enumerate().map(|(place, one)| (one, weight(place))).collect();
        let planned = connections_to(configured.iter().map(|(one, _)| one), requests);
        let this = Self {
            pools: pools.clone(),
            requests,
            clock,
            hedges: options.hedging.is_some(),
            addresses: options.resolve_all.then(Addresses::default),
            long_responses: Arc::new(Semaphore::new(LONG_RESPONSES)),
            configured: Mutex::new(EndpointSettings { endpoints: Vec::new(), connections: planned }),
            balancer: Mutex::new(Balancer::new(requests, options.hedging)),
        };
        this.set(configured)?;
        Ok(this)
    }

    /// Replaces the endpoints. Requests in flight go on, also to those that leave.
    pub fn set(&self, configured: Vec<(Endpoint, f64)>) -> Result<(), EndpointError> {
        debug!(endpoints = configured.len(), "endpoints replaced");
        let mut list = self.configured.lock();
        let members = match &self.addresses {
            None => self.members(configured.iter().map(|(endpoint, weight)| (endpoint.clone(), *weight)))?,
            Some(addresses) => {
                for (endpoint, _) in &configured {
                    Pools::refuse_proxy(endpoint)?;
                }
                addresses.expect_new();
                self.members(addresses.expand(&configured))?
            }
        };
        list.endpoints = configured;
        self.replace(members, &mut list);
        Ok(())
    }

    /// An endpoint of the same kind elsewhere: with the same key, headers and certificates.
    pub fn at(&self, url: &str) -> Result<Endpoint, EndpointError> {
        let list = self.configured.lock();
        list.endpoints
            .first()
            .map_or_else(|| Err(EndpointError::Address(url.to_owned())), |(endpoint, _)| endpoint.at_url(url))
    }

    fn members(
        &self,
        endpoints: impl IntoIterator<Item = (Endpoint, f64)>,
    ) -> Result<Vec<(Arc<Member>, f64)>, EndpointError> {
        let member = |(endpoint, weight): (Endpoint, f64)| {
            let pool = self.pools.get(&endpoint, self.requests)?;
            Ok((Arc::new(Member::new(endpoint, pool, self.long_responses.clone())), weight))
        };
        endpoints.into_iter().map(member).collect()
    }

    fn replace(&self, members: Vec<(Arc<Member>, f64)>, list: &mut EndpointSettings) {
        if !members.is_empty() {
            let now = connections_to(members.iter().map(|(member, _)| &member.endpoint), self.requests);
            self.pools.descriptors().change(std::mem::replace(&mut list.connections, now), now);
        }
        let same = |one: &Arc<Member>, other: &Arc<Member>| one.endpoint.is_same(&other.endpoint);
        self.balancer.lock().set(members, same);
    }

    /// Looks up the addresses of the endpoints' names, if it is time; `set` may come in between.
    pub async fn refresh(&self) {
        let Some(addresses) = &self.addresses else { return };
        let endpoints: Vec<Endpoint> = self.configured.lock().endpoints.iter().map(|(one, _)| one.clone()).collect();
        if addresses.look_up(&endpoints).await {
            let mut list = self.configured.lock();
            if let Ok(members) = self.members(addresses.expand(&list.endpoints)) {
                self.replace(members, &mut list);
            }
        }
    }

    /// Returns whether `refresh` has something to do.
    pub fn is_stale(&self) -> bool {
        self.addresses.as_ref().is_some_and(Addresses::is_stale)
    }

    /// The endpoints, as they are now.
    pub fn endpoints(&self) -> Vec<EndpointSnapshot> {
        let now_ns = self.clock.now_ns();
        let balancer = self.balancer.lock();
        let snapshot = |entry: &super::balancer::Entry<Arc<Member>>| EndpointSnapshot {
            url: entry.member.endpoint.url().to_owned(),
            address: entry.member.endpoint.address,
            weight: entry.weight,
            breaker: entry.health.breaker(now_ns),
            in_flight: entry.health.in_flight,
            answered: entry.health.answered,
            failed: entry.health.failed,
            deferred: entry.health.deferred,
            p50_s: entry.health.latency.quantile_ns(0.5).map(seconds),
        };
        balancer.entries().iter().map(snapshot).collect()
    }

    pub fn counts(&self) -> FleetCounts {
        self.balancer.lock().counts
    }

    /// Sends a request, in at most the given time.
    pub async fn send<T>(
        &self,
        key: RequestKey,
        request: &impl FleetRequest<T>,
        within: Duration,
    ) -> Result<T, RequestFailure> {
        let until = Instant::now() + within;
        if self.addresses.as_ref().is_some_and(Addresses::is_new) {
            // If there are no addresses there is no endpoint, and that fails then.
            let _ = tokio::time::timeout_at(until, self.refresh()).await;
        }
        let (mut tried, mut failure) = (Vec::new(), None);
        loop {
            let chosen = self.balancer.lock().choose(self.clock.now_ns(), &key, &tried);
            let Some(chosen) = chosen else { break };
            tried.push(chosen.id);
            let (error, ended) = match self.send_once_or_twice(&key, chosen, request, until, &mut tried).await {
                Ok(answer) => return Ok(answer),
                Err(failed) => failed,
            };
            let mut failed = error.failure;
            if ended == RequestEnd::Refused(Refusal::Endpoint) && self.balancer.lock().has_answered() {
                (failed.retryable, failed.answer) = (true, Some(Answer::Status(503)));
            }
            failure = Some(failed);
            if !ended.goes_on(tried.len()) || Instant::now() >= until {
                break;
            }
        }
        let Some(mut failure) = failure else { return Err(RequestFailure::no_endpoint(self.unresolved())) };
        let others_up = self.balancer.lock().others_up(&tried, self.clock.now_ns());
        if others_up {
            failure.retry_after = None; // the next attempt goes elsewhere
        }
        Err(RequestFailure { failure, others_up })
    }

    async fn send_once_or_twice<T>(
        &self,
        key: &RequestKey,
        first: ChosenEndpoint<Arc<Member>>,
        request: &impl FleetRequest<T>,
        until: Instant,
        tried: &mut Vec<EndpointId>,
    ) -> Result<T, (SendError, RequestEnd)> {
        let (id, sent, trial) = (first.id, first.sent, first.sent.trial);
        let overtaken = AtomicBool::new(false);
        let mut first = pin!(self.send_to(key, first, request, until, &overtaken));
        if !self.hedges && !trial {
            return first.await;
        }
        tokio::select! {
            biased;
            ended = &mut first => return ended,
            () = self.overdue(sent) => {}
        }
        let _overdue = Overdue::new(self, id);
        let (second, _permit) = loop {
            let chosen = self.choose_second(request, tried, (id, sent));
            if let Some(chosen) = chosen {
                break chosen;
            }
            tokio::select! {
                biased;
                ended = &mut first => return ended,
                () = tokio::time::sleep(LOOK_AGAIN) => {} // there may be room, or a permit, later
            }
        };
        tried.push(second.id);
        let overtaken_too = AtomicBool::new(false);
        let mut second = Box::pin(self.send_to(key, second, request, until, &overtaken_too));
        tokio::select! {
            biased;
            ended = &mut first => if ended.is_ok() {
                overtaken_too.store(true, Ordering::Relaxed);
                ended
            } else {
                self.won(trial, second.await)
            },
            ended = &mut second => if ended.is_ok() {
                overtaken.store(true, Ordering::Relaxed);
                self.won(trial, ended)
            } else {
                first.await
            },
        }
    }

    /// Chooses the second endpoint of an overdue request, with a permit of the function's limiter
    /// for it.
    fn choose_second<T>(
        &self,
        request: &impl FleetRequest<T>,
        tried: &[EndpointId],
        first: (EndpointId, SentAt),
    ) -> Option<(ChosenEndpoint<Arc<Member>>, HedgePermit)> {
        let now_ns = self.clock.now_ns();
        if !self.balancer.lock().may_second(now_ns, tried, first) {
            return None;
        }
        let mut permit = request.second()?;
        let chosen = self.balancer.lock().second(now_ns, tried, first);
        if chosen.is_none() {
            permit.permit = None; // refunded: there is no request
        }
        Some((chosen?, permit))
    }

    /// Waits until a request has waited for long enough to be sent a second time.
    async fn overdue(&self, sent: SentAt) {
        loop {
            let after_ns = self.balancer.lock().second_after_ns(sent.trial);
            let Some(after_ns) = after_ns else {
                tokio::time::sleep(LOOK_AGAIN).await; // too few answers yet to say
                continue;
            };
            return self.clock.sleep_until_ns(sent.sent_ns.saturating_add(after_ns)).await;
        }
    }

    /// Counts a second request that was answered first.
    fn won<T, E>(&self, trial: bool, ended: Result<T, E>) -> Result<T, E> {
        self.balancer.lock().counts.hedges_won += u64::from(ended.is_ok() && !trial);
        ended
    }

    async fn send_to<T>(
        &self,
        key: &RequestKey,
        chosen: ChosenEndpoint<Arc<Member>>,
        request: &impl FleetRequest<T>,
        until: Instant,
        overtaken: &AtomicBool,
    ) -> Result<T, (SendError, RequestEnd)> {
        let ChosenEndpoint { id, member, sent } = chosen;
        let mut in_flight = InFlight { fleet: self, key, id, sent, overtaken, ended: RequestEnd::Dropped };
        let answer = request.send(&member, until).await;
        in_flight.ended = answer.as_ref().map_or_else(RequestEnd::of, |_| RequestEnd::Answered);
        let ended = in_flight.ended;
        answer.map_err(|error| (error, ended))
    }

    fn unresolved(&self) -> Option<String> {
        self.addresses.as_ref().and_then(Addresses::error)
    }
}

/// A request in flight: tells the balancer how it ended, also where it is dropped.
struct InFlight<'a> {
    fleet: &'a Fleet,
    key: &'a RequestKey,
    id: EndpointId,
    sent: SentAt,
    /// Set where another endpoint answered first.
    overtaken: &'a AtomicBool,
    ended: RequestEnd,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if self.ended == RequestEnd::Dropped && self.overtaken.load(Ordering::Relaxed) {
            self.ended = RequestEnd::Overtaken;
        }
        let Self { fleet, key, id, sent, ended, .. } = self;
        fleet.balancer.lock().end(*id, *sent, key, *ended, fleet.clock.now_ns(), fastrand::f64());
    }
}

/// A request that has waited for long enough to be hedged, until it ends.
struct Overdue<'a>(&'a Fleet, EndpointId);

impl<'a> Overdue<'a> {
    fn new(fleet: &'a Fleet, id: EndpointId) -> Self {
        fleet.balancer.lock().set_overdue(id, true);
        Self(fleet, id)
    }
}

impl Drop for Overdue<'_> {
    fn drop(&mut self) {
        self.0.balancer.lock().set_overdue(self.1, false);
    }
}
