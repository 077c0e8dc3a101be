//! Simulated replicas: each serves a number of requests at a time, in turn, and takes its time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use guerdon_core::clock::Clock;
use guerdon_core::outcome::{Answer, Failure, FailureKind};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::endpoint::Endpoint;
use crate::fleet::{Fleet, FleetOptions, FleetRequest, HedgePermit, Hedging, Member, Pools, RequestKey, SendError};

/// Requests that a replica serves at a time.
pub const SLOTS: usize = 32;
pub const SERVICE: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(30);

/// Behaviour of a replica for a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mood {
    /// Answers; this many times more slowly than it should.
    Serves(f64),
    /// Refuses connections.
    Dead,
    /// Takes requests and never answers.
    Hangs,
    /// Answers "too many requests".
    Throttles,
    /// Answers with this status at once.
    Refuses(u16),
    /// Answers text that can't be read.
    Garbage,
}

pub struct Replica {
    pub mood: Mutex<Mood>,
    slots: Semaphore,
    pub served: AtomicUsize,
    /// Requests that came, and those that were dropped by the client.
    pub came: AtomicUsize,
    pub dropped: AtomicUsize,
    in_flight: AtomicUsize,
    pub most_in_flight: AtomicUsize,
}

/// The replicas of a fleet, by their host names: `r0`, `r1`, ….
pub struct Replicas(Vec<Arc<Replica>>);

pub struct SeenRequest<'a> {
    pub replicas: &'a Replicas,
    /// Factor of the usual time for its answer.
    pub length: f64,
    pub may_hedge: bool,
}

impl FleetRequest<usize> for SeenRequest<'_> {
    async fn send(&self, at: &Member, until: Instant) -> Result<usize, SendError> {
        let place: usize = at.endpoint.name()[1..].parse().unwrap();
        let replica = &self.replicas.0[place];
        replica.came.fetch_add(1, Ordering::Relaxed);
        let counted = InFlightGuard::new(replica);
        let mood = *replica.mood.lock();
        let host = at.endpoint.host();
        let slowness = match mood {
            Mood::Dead => return Err(error(FailureKind::Error, Some(Answer::Unreachable), true, &host)),
            Mood::Throttles => return Err(error(FailureKind::Error, Some(Answer::Status(429)), false, &host)),
            Mood::Hangs => {
                tokio::time::sleep_until(until).await;
                counted.done();
                return Err(error(FailureKind::Timeout, None, false, &host));
            }
            Mood::Refuses(code) => return Err(refused(code, &host)),
            Mood::Garbage => 1.0,
            Mood::Serves(slowness) => slowness,
        };
        let served = async {
            let _slot = replica.slots.acquire().await.unwrap();
            tokio::time::sleep(SERVICE.mul_f64(slowness * self.length)).await;
            // It may die with the request in hand.
            if *replica.mood.lock() == Mood::Dead {
                return Err(error(FailureKind::Error, Some(Answer::Broken), false, &host));
            }
            if *replica.mood.lock() == Mood::Hangs {
                std::future::pending::<()>().await;
            }
            if mood == Mood::Garbage {
                return Err(error(FailureKind::Error, Some(Answer::Status(200)), false, &host));
            }
            Ok(place)
        };
        let answer = tokio::time::timeout_at(until, served).await;
        counted.done();
        let answer = answer.unwrap_or_else(|_| Err(error(FailureKind::Timeout, None, false, &host)));
        replica.served.fetch_add(usize::from(answer.is_ok()), Ordering::Relaxed);
        answer
    }

    fn second(&self) -> Option<HedgePermit> {
        self.may_hedge.then(|| HedgePermit { permit: None, clock: Clock::start() })
    }
}

/// Counts a request in flight, and one that was dropped.
struct InFlightGuard<'a>(Option<&'a Replica>);

impl<'a> InFlightGuard<'a> {
    fn new(replica: &'a Replica) -> Self {
        let now = replica.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
        replica.most_in_flight.fetch_max(now, Ordering::Relaxed);
        Self(Some(replica))
    }

    fn done(mut self) {
        if let Some(replica) = self.0.take() {
            replica.in_flight.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for InFlightGuard<'_> {
    fn drop(&mut self) {
        if let Some(replica) = self.0 {
            replica.in_flight.fetch_sub(1, Ordering::Relaxed);
            let serves = matches!(*replica.mood.lock(), Mood::Serves(_) | Mood::Hangs);
            replica.dropped.fetch_add(usize::from(serves), Ordering::Relaxed);
        }
    }
}

fn error(kind: FailureKind, answer: Option<Answer>, unsent: bool, host: &str) -> SendError {
    let reason = format!("{host} failed");
    let failure =
        Failure { kind, reason, traceback: None, retryable: true, retry_after: None, answer, progressed: false };
    SendError { failure, unsent }
}

/// A status that is not retried.
fn refused(code: u16, host: &str) -> SendError {
    let SendError { failure, unsent } = error(FailureKind::Error, Some(Answer::Status(code)), false, host);
    SendError { failure: Failure { retryable: false, ..failure }, unsent }
}

impl Replica {
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }
}

impl Replicas {
    pub fn new(count: usize) -> Arc<Self> {
        let replica = |_| {
            let (mood, slots, zero) = (Mutex::new(Mood::Serves(1.0)), Semaphore::new(SLOTS), AtomicUsize::default);
            let (served, came, dropped, in_flight, most_in_flight) = (zero(), zero(), zero(), zero(), zero());
            Arc::new(Replica { mood, slots, served, came, dropped, in_flight, most_in_flight })
        };
        Arc::new(Self((0..count).map(replica).collect()))
    }

    pub fn set(&self, place: usize, mood: Mood) {
        *self.0[place].mood.lock() = mood;
    }

    pub fn at(&self, place: usize) -> &Replica {
        &self.0[place]
    }

    pub fn asked(&self, length: f64) -> SeenRequest<'_> {
        SeenRequest { replicas: self, length, may_hedge: true }
    }
}

pub fn url(place: usize) -> String {
    format!("http://r{place}:8000/v1")
}

pub fn endpoint(place: usize) -> Endpoint {
    Endpoint::new(&url(place), Vec::new(), None, false, None).unwrap()
}

pub fn fleet(count: usize, limit: usize, hedging: Option<Hedging>) -> Arc<Fleet> {
    let options = FleetOptions { others: (1..count).map(endpoint).collect(), hedging, ..FleetOptions::default() };
    let pools = Arc::new(Pools::new([]));
    Arc::new(Fleet::new(&endpoint(0), &options, limit, &pools, Clock::start()).unwrap())
}

/// Result of a batch.
pub struct BatchResult {
    /// The replica that served each call; `None`: it was lost.
    pub places: Vec<Option<usize>>,
    /// Duration of each call, from its first attempt on, sorted.
    pub times: Vec<Duration>,
    /// When each call ended, sorted.
    pub ends: Vec<Duration>,
    pub took: Duration,
}

impl BatchResult {
    pub fn lost(&self) -> usize {
        self.places.iter().filter(|place| place.is_none()).count()
    }

    pub fn quantile(&self, quantile: f64) -> Duration {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "an index"
        )]
        let place = (self.times.len() as f64 * quantile) as usize;
        self.times[place.min(self.times.len() - 1)]
    }

    /// Calls a second.
    pub fn rate(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a count")]
        let calls = self.places.len() as f64;
        calls / self.took.as_secs_f64()
    }

    /// Calls a second between two of them, by the order in which they ended.
    pub fn rate_between(&self, first: usize, last: usize) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a count")]
        let calls = (last - first) as f64;
        calls / (self.ends[last] - self.ends[first]).as_secs_f64()
    }

    /// The share of calls that were served where most of their group was.
    pub fn affinity(&self, group_size: usize) -> f64 {
        let together = self.places.chunks(group_size).map(|group| {
            let count = |place: &Option<usize>| group.iter().filter(|one| *one == place).count();
            group.iter().map(count).max().unwrap_or(0)
        });
        #[expect(clippy::cast_precision_loss, reason = "a count")]
        let share = together.sum::<usize>() as f64 / self.places.len() as f64;
        share
    }
}

/// Scores a batch as the lane and the scheduler do: a number of calls in flight, in order, three
/// retries after a pause with jitter, "too many requests" deferred.
pub async fn score(
    fleet: &Arc<Fleet>,
    replicas: &Arc<Replicas>,
    (calls, in_flight, group_size): (usize, usize, usize),
    during: impl Fn(usize) + Send + Sync + 'static,
) -> BatchResult {
    let next = Arc::new(AtomicUsize::new(0));
    let ended = Arc::new(Mutex::new(vec![(None, Duration::ZERO, Duration::ZERO); calls]));
    let during = Arc::new(during);
    let (start, mut tasks) = (Instant::now(), JoinSet::new());
    for _ in 0..in_flight {
        let (next, ended, during) = (next.clone(), ended.clone(), during.clone());
        let (fleet, replicas) = (fleet.clone(), replicas.clone());
        tasks.spawn(async move {
            loop {
                let call = next.fetch_add(1, Ordering::Relaxed);
                if call >= calls {
                    return;
                }
                during(call);
                let begun = Instant::now();
                // Answers differ in length: by half of the mean, either way.
                let request = replicas.asked(0.5 + fastrand::f64());
                let (mut retries, mut attempt) = (0, 1);
                let place = loop {
                    let key = RequestKey {
                        batch: 1,
                        own_batch: 1,
                        group: call / group_size,
                        sample: call,
                        group_size,
                        attempt,
                        waiting: calls.saturating_sub(call + 1),
                    };
                    let failed = match fleet.send(key, &request, TIMEOUT).await {
                        Ok(place) => break Some(place),
                        Err(failed) => failed,
                    };
                    let later = failed.failure.answer == Some(Answer::Status(429));
                    retries += u32::from(!later);
                    attempt += 1;
                    if retries > 3 || !failed.failure.retryable {
                        break None;
                    }
                    let ceiling = Duration::from_millis(200 << retries.min(5));
                    tokio::time::sleep(ceiling.mul_f64(fastrand::f64())).await;
                };
                ended.lock()[call] = (place, begun.elapsed(), start.elapsed());
            }
        });
    }
    while tasks.join_next().await.is_some() {}
    let took = start.elapsed();
    let ended = ended.lock();
    let mut times: Vec<Duration> = ended.iter().map(|(_, time, _)| *time).collect();
    let mut ends: Vec<Duration> = ended.iter().map(|(.., end)| *end).collect();
    times.sort_unstable();
    ends.sort_unstable();
    BatchResult { places: ended.iter().map(|(place, ..)| *place).collect(), times, ends, took }
}
