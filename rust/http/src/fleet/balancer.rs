//! Chooses the endpoint of each request. Arithmetic only: no clock, no lock, no socket.
//!
//! - fleet-1  An endpoint whose breaker is open gets nothing while another is up.
//! - fleet-2  A group's requests go to one endpoint, unless that is down or has `BOUND` times its
//!   share of the requests in flight; then the group moves. All else goes where fewest are in
//!   flight.
//! - fleet-3  Within an attempt a request goes to no endpoint twice; the next attempt goes to
//!   another one, where one is up.

use hashlink::LruCache;
use tracing::debug;

use crate::fleet::health::{Availability, Health, RequestEnd, SentAt};
use crate::fleet::hedging::{HedgeAfter, HedgeBudget, Hedging};
use crate::fleet::latency::{Latency, nanoseconds, real};
use crate::fleet::request::RequestKey;

/// Factor of its share to which an endpoint may be loaded before groups leave it.
const BOUND: f64 = 1.25;
/// Largest share of the requests in flight that may be overdue, if one is to be hedged.
const OVERDUE: f64 = 0.25;
/// Time of a trial, in typical answers, after which its call goes elsewhere too.
const TRIAL: f64 = 2.0;
/// Groups, and failed calls, that are remembered: those that were used last.
const REMEMBERED: usize = 8192;

/// Numbers an endpoint of a fleet, for ever.
pub type EndpointId = u64;

/// An endpoint of a fleet: `member` is whatever sends.
#[derive(Clone, Debug)]
pub struct Entry<M> {
    pub id: EndpointId,
    pub member: M,
    pub weight: f64,
    pub health: Health,
}

/// A request that was given to an endpoint.
#[derive(Clone, Debug)]
pub struct ChosenEndpoint<M> {
    pub id: EndpointId,
    pub member: M,
    pub sent: SentAt,
}

/// Counts of a fleet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FleetCounts {
    /// Requests that went on to another endpoint within their attempt.
    pub failovers: u64,
    /// Requests that were sent a second time, and those of them that answered first.
    pub hedges: u64,
    pub hedges_won: u64,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Balancer<M> {
    entries: Vec<Entry<M>>,
    last_id: EndpointId,
    /// Requests in flight at most.
    limit: usize,
    /// The endpoint of each group, by batch and group.
    homes: LruCache<(u64, usize), EndpointId>,
    /// Endpoints at which the last attempts of a call failed, by batch and sample, and whether it
    /// was refused.
    failed: LruCache<(u64, usize), Vec<(EndpointId, bool)>>,
    hedging: Option<(HedgeAfter, HedgeBudget)>,
    pub counts: FleetCounts,
    /// Time of an answer from the typical endpoint; with it, the time after which a request is
    /// hedged; and requests that have ended since these were looked up.
    typical_ns: Option<f64>,
    hedge_ns: Option<u64>,
    ended: usize,
    /// Counts choices: endpoints that are alike take turns.
    turn: usize,
}

impl<M: Clone> Balancer<M> {
    pub fn new(limit: usize, hedging: Option<Hedging>) -> Self {
        let hedging = hedging.map(|hedging| (hedging.after, HedgeBudget::new(hedging.share)));
        let mut this = Self {
            entries: Vec::new(),
            last_id: 0,
            limit,
            homes: LruCache::new(REMEMBERED),
            failed: LruCache::new(REMEMBERED),
            hedging,
            counts: FleetCounts::default(),
            typical_ns: None,
            hedge_ns: None,
            ended: 0,
            turn: 0,
        };
        this.look_up();
        this
    }

    pub fn entries(&self) -> &[Entry<M>] {
        &self.entries
    }

    /// Replaces the list; endpoints that stay keep their state.
    pub fn set(&mut self, wanted: impl IntoIterator<Item = (M, f64)>, same: impl Fn(&M, &M) -> bool) {
        let mut old = std::mem::take(&mut self.entries);
        for (member, weight) in wanted {
            let known = old.iter().position(|entry| same(&entry.member, &member));
            let entry = known.map(|place| old.swap_remove(place)).map_or_else(
                || {
                    self.last_id += 1;
                    Entry { id: self.last_id, member, weight, health: Health::default() }
                },
                |entry| Entry { weight, ..entry },
            );
            self.entries.push(entry);
        }
        self.look_up();
    }

    /// The endpoint of a request that was sent to `tried` in this attempt; `None` where no other is
    /// left to try.
    pub fn choose(&mut self, now_ns: u64, key: &RequestKey, tried: &[EndpointId]) -> Option<ChosenEndpoint<M>> {
        if tried.is_empty()
            && let Some((_, budget)) = &mut self.hedging
        {
            budget.count_call();
        }
        if let [only] = &mut self.entries[..] {
            let free = !tried.contains(&only.id);
            return free.then(|| ChosenEndpoint {
                id: only.id,
                member: only.member.clone(),
                sent: only.health.send(now_ns, false),
            });
        }
        let place = self.place(now_ns, key, tried)?;
        if !tried.is_empty() {
            self.counts.failovers += 1;
            debug!(tried = tried.len(), "request fails over");
        }
        Some(self.send(place, now_ns))
    }

    fn place(&mut self, now_ns: u64, key: &RequestKey, tried: &[EndpointId]) -> Option<usize> {
        let call = (key.own_batch, key.sample);
        let failed = if key.attempt > 1 { self.failed.get(&call).cloned().unwrap_or_default() } else { Vec::new() };
        let states: Vec<Availability> = self.entries.iter().map(|entry| entry.health.availability(now_ns)).collect();
        let untried = |place: usize| !tried.contains(&self.entries[place].id);
        let fresh = |place: usize| untried(place) && !failed.iter().any(|(id, _)| *id == self.entries[place].id);
        let among = |wanted: &dyn Fn(usize) -> bool| -> Vec<usize> {
            (0..states.len()).filter(|place| wanted(*place)).collect()
        };
        let is_new = key.attempt <= 1 && tried.is_empty();
        if is_new && let Some(place) = self.trial(&states) {
            return Some(place);
        }
        let is_open = |place: usize| matches!(states[place], Availability::Down(_));
        for wanted in [
            among(&|place| fresh(place) && (states[place] == Availability::Up || (is_new && !is_open(place)))),
            among(&|place| fresh(place) && !is_open(place)),
            among(&|place| untried(place) && !is_open(place)),
        ] {
            if !wanted.is_empty() {
                return self.least_loaded_or_home(&wanted, now_ns, key);
            }
        }
        // All are down: the function's limiter gets it by a request that fails.
        let soonest = |place: &usize| match states[*place] {
            Availability::Down(until_ns) => until_ns,
            _ => 0,
        };
        (0..states.len()).filter(|_| tried.is_empty()).min_by_key(soonest)
    }

    /// An endpoint that is to be tried again, by calls that have not failed: until it has half of
    /// what the others have.
    fn trial(&self, states: &[Availability]) -> Option<usize> {
        let in_flight = |place: &usize| self.entries[*place].health.in_flight;
        let up = || (0..states.len()).filter(|place| states[*place] == Availability::Up);
        let mean = up().map(|place| in_flight(&place)).sum::<usize>() / up().count().max(1);
        (0..states.len()).find(|place| states[*place] == Availability::Trial && in_flight(place) <= mean / 2)
    }

    fn least_loaded_or_home(&mut self, among: &[usize], now_ns: u64, key: &RequestKey) -> Option<usize> {
        let counted: Vec<f64> = among.iter().map(|place| self.counts_for(*place, now_ns)).collect();
        let all: f64 = counted.iter().sum();
        let in_flight: usize = among.iter().map(|place| self.entries[*place].health.in_flight).sum();
        // Waiting calls will be in flight soon: a group need not move while a batch begins.
        let expected = in_flight + 1 + key.waiting.min(self.limit.saturating_sub(in_flight + 1));
        let group = (key.batch, key.group);
        if key.group_size > 1
            && let Some(home) = self.homes.get(&group).copied()
            && let Some(place) = among.iter().position(|place| self.entries[*place].id == home)
        {
            let bound = (BOUND * real(expected) * counted[place] / all).ceil();
            if real(self.entries[among[place]].health.in_flight + 1) <= bound {
                return Some(among[place]);
            }
        }
        self.turn = self.turn.wrapping_add(1);
        let turn = self.turn;
        let load = |place: usize| real(self.entries[among[place]].health.in_flight + 1) / counted[place];
        let rotated = (0..among.len()).map(|place| (place + turn) % among.len());
        let place = rotated.min_by(|one, two| load(*one).total_cmp(&load(*two)))?;
        if key.group_size > 1 {
            self.homes.insert(group, self.entries[among[place]].id);
        }
        Some(among[place])
    }

    fn counts_for(&self, place: usize, now_ns: u64) -> f64 {
        let entry = &self.entries[place];
        entry.weight * entry.health.factor(self.typical_ns, now_ns)
    }

    fn send(&mut self, place: usize, now_ns: u64) -> ChosenEndpoint<M> {
        let entry = &mut self.entries[place];
        let trial = entry.health.availability(now_ns) == Availability::Trial;
        ChosenEndpoint { id: entry.id, member: entry.member.clone(), sent: entry.health.send(now_ns, trial) }
    }

    /// A request ended at an endpoint; nothing happens where that has left the list.
    pub fn end(&mut self, id: EndpointId, sent: SentAt, key: &RequestKey, ended: RequestEnd, now_ns: u64, random: f64) {
        let call = (key.own_batch, key.sample);
        let several = self.entries.len() > 1;
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.id == id) {
            entry.health.end(sent, ended, key.attempt > 1, now_ns, random);
        }
        match ended {
            RequestEnd::Answered if several => {
                let refused = self.failed.remove(&call).unwrap_or_default().into_iter().filter(|(_, refused)| *refused);
                for (other, _) in refused.filter(|(other, _)| *other != id) {
                    if let Some(entry) = self.entries.iter_mut().find(|entry| entry.id == other) {
                        entry.health.blame(now_ns, random);
                    }
                }
            }
            RequestEnd::Failed(..) | RequestEnd::Refused(_) if several => {
                let mut failed = self.failed.remove(&call).unwrap_or_default();
                failed.push((id, matches!(ended, RequestEnd::Refused(_)) && !sent.trial));
                self.failed.insert(call, failed);
            }
            _ => {}
        }
        self.ended += 1;
        if several && self.ended >= (4 * self.entries.len()).max(8) {
            self.look_up();
        }
    }

    /// Returns whether any endpoint has ever had a score.
    pub fn has_answered(&self) -> bool {
        self.entries.iter().any(|entry| entry.health.answered > 0)
    }

    /// Returns whether an endpoint beside these is up.
    pub fn others_up(&self, tried: &[EndpointId], now_ns: u64) -> bool {
        let up = |entry: &Entry<M>| !matches!(entry.health.availability(now_ns), Availability::Down(_));
        self.entries.iter().any(|entry| !tried.contains(&entry.id) && up(entry))
    }

    /// After how many nanoseconds a request is sent a second time; `None`: never, or nobody knows.
    pub fn second_after_ns(&self, trial: bool) -> Option<u64> {
        let after_ns = if trial { self.typical_ns.map(|typical| nanoseconds(TRIAL * typical)) } else { self.hedge_ns };
        after_ns.filter(|_| self.entries.len() > 1)
    }

    /// A request has waited for longer than that; it is so until it ends.
    pub fn set_overdue(&mut self, id: EndpointId, overdue: bool) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.id == id) {
            let count = &mut entry.health.overdue;
            *count = if overdue { *count + 1 } else { count.saturating_sub(1) };
        }
    }

    /// Returns whether an overdue request may be sent a second time. A trial's call always may; any
    /// other not where the fleet is overloaded, or the share of hedged calls is used up.
    pub fn may_second(&self, now_ns: u64, tried: &[EndpointId], first: (EndpointId, SentAt)) -> bool {
        self.second_place(now_ns, tried, first).is_some()
    }

    /// Returns the second endpoint of an overdue request.
    pub fn second(
        &mut self,
        now_ns: u64,
        tried: &[EndpointId],
        first: (EndpointId, SentAt),
    ) -> Option<ChosenEndpoint<M>> {
        let place = self.second_place(now_ns, tried, first)?;
        if first.1.trial {
            self.counts.failovers += 1;
            debug!("trial overdue: sent to another endpoint as well");
        } else {
            self.counts.hedges += 1;
            debug!("request hedged");
            if let Some((_, budget)) = &mut self.hedging {
                budget.take();
            }
        }
        Some(self.send(place, now_ns))
    }

    fn second_place(&self, now_ns: u64, tried: &[EndpointId], (first, sent): (EndpointId, SentAt)) -> Option<usize> {
        let up = |entry: &&Entry<M>| entry.health.availability(now_ns) == Availability::Up;
        let all_up = self.entries.iter().filter(up).count();
        let others: Vec<usize> = (0..self.entries.len())
            .filter(|place| up(&&self.entries[*place]) && !tried.contains(&self.entries[*place].id))
            .collect();
        if !sent.trial {
            let slow = |entry: &Entry<M>| entry.health.is_slower(sent, self.typical_ns, now_ns);
            let urgent = self.entries.iter().find(|entry| entry.id == first).is_some_and(slow);
            let throttled = self.entries.iter().any(|entry| entry.health.is_throttled(now_ns));
            let sum = |of: fn(&Health) -> usize| others.iter().map(|place| of(&self.entries[*place].health)).sum();
            let (in_flight, overdue): (usize, usize) = (sum(|health| health.in_flight), sum(|health| health.overdue));
            let overloaded = throttled || 2 * all_up < self.entries.len() || real(overdue) > OVERDUE * real(in_flight);
            if overloaded || !self.hedging.is_some_and(|(_, budget)| budget.allows(urgent)) {
                return None;
            }
        }
        let load = |place: &usize| {
            let entry = &self.entries[*place];
            real(entry.health.in_flight + 1) / self.counts_for(*place, now_ns)
        };
        others.iter().copied().min_by(|one, two| load(one).total_cmp(&load(two)))
    }

    /// Looks up what endpoints take to answer: of the typical one, so that neither a slow one nor a
    /// dead one that refuses fast counts.
    fn look_up(&mut self) {
        self.ended = 0;
        // Fewer answers say nothing of a quantile either.
        let has_average = |latency: &&Latency| latency.average_ns().is_some();
        let known = || self.entries.iter().map(|entry| &entry.health.latency).filter(has_average);
        let mut averages: Vec<f64> = known().filter_map(Latency::average_ns).collect();
        averages.sort_by(f64::total_cmp);
        self.typical_ns = averages.get(averages.len().saturating_sub(1) / 2).copied();
        self.hedge_ns = match self.hedging.map(|(after, _)| after) {
            None => None,
            Some(HedgeAfter::Time(time)) => Some(guerdon_core::clock::nanos(time)),
            Some(HedgeAfter::Quantile(quantile)) => {
                let mut each: Vec<u64> = known().filter_map(|latency| latency.quantile_ns(quantile)).collect();
                each.sort_unstable();
                each.get(each.len().saturating_sub(1) / 2).copied()
            }
        };
    }
}
