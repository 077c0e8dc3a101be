//! One request of a compound call: with a separate permit, tried again as a call would be.
//!
//! - A request is sent with a permit, and by the scheduler's own rules again: retries,
//!   backoff, throttling, what the breaker excuses, nothing past the total timeout.
//! - Dropping the future drops the request, its connection and its permit.

use std::sync::Arc;

use guerdon_core::limits::{Feedback, Tokens};
use guerdon_core::outcome::{Answer, Failure, Times};
use guerdon_core::report::Report;
use guerdon_core::scheduler::RequestAttempts;
use guerdon_core::tracer::Executor;
use parking_lot::Mutex;

use crate::compound::queue::{CompoundQueue, TakenUnit};
use crate::compound::unit::broken;
use crate::fleet::{Failed, RequestKey};
use crate::function::HttpFunction;
use crate::meter::Meter;
use crate::request::ScoreRequest;
use crate::response::Scores;

/// Makes a request's body, from the fault of the answer before; none where a text is not there.
pub type MadeBody<'a> = dyn Fn(Option<&[u8]>) -> Option<Vec<u8>> + Sync + 'a;

/// Asks for one unit.
pub struct Asker<'a> {
    pub queue: &'a CompoundQueue,
    pub unit: &'a TakenUnit,
    /// One for each member: what its requests used.
    meters: Vec<Meter<'a>>,
}

/// Usage of one attempt of a request. It counts for its member, also where it was dropped.
struct AttemptMeter<'a> {
    meter: Meter<'a>,
    whole: &'a Meter<'a>,
}

impl Drop for AttemptMeter<'_> {
    fn drop(&mut self) {
        self.whole.take_from(&self.meter);
    }
}

impl Drop for Asker<'_> {
    fn drop(&mut self) {
        // Usage of a unit that is given up.
        for (member, meter) in self.meters.iter().enumerate() {
            let report = Report { extra: Vec::new(), ..meter.report() };
            if !report.is_empty() {
                self.queue.report(self.unit, member, report);
            }
        }
    }
}

impl<'a> Asker<'a> {
    pub fn new(queue: &'a CompoundQueue, unit: &'a TakenUnit) -> Self {
        let meter = |member: &'a HttpFunction| Meter::new(&member.tariff, queue.clock);
        Self { queue, unit, meters: queue.spec.members.iter().map(meter).collect() }
    }

    /// Returns the usage of a member's requests so far, and its answers if they are kept; reported
    /// once.
    pub fn used(&self, member: usize) -> Report {
        self.meters.get(member).map(Meter::report).unwrap_or_default()
    }

    /// The text of a column, of the first sample.
    pub fn column(&self, column: usize) -> Option<String> {
        let (share, sample) = *self.unit.samples.first()?;
        Some(self.unit.call.0.payload(share)?.text(self.queue.function, column, sample)?.to_text())
    }

    /// Sends a request of a member, with the body that `made` makes of the fault of the answer
    /// before, and reads its answer.
    pub async fn send(&self, member: usize, made: &MadeBody<'_>) -> Result<Scores, Failure> {
        let queue = self.queue;
        let asked = queue.spec.members.get(member).ok_or_else(|| broken("there is no such member"))?;
        let (rules, permits) = (&queue.spec.rules, &queue.permits);
        let counted = self.counted();
        if let Some(reason) = counted.and_then(|tokens| permits.exceeds(tokens)) {
            return Err(broken(&reason));
        }
        let about_so_many = Tokens::Estimated(rules.limit.as_ref().and_then(|limit| limit.tokens));
        let tokens = counted.map_or(about_so_many, Tokens::Counted);
        let expires_ns = self.unit.batch.expires_ns(self.unit.key.1, queue.function);
        let (mut attempts, mut repair) = (RequestAttempts::first(), None);
        loop {
            let mut permit = permits.acquire(tokens).await.map_err(|reason| broken(&reason))?;
            let body = made(repair.as_deref()).ok_or_else(|| broken(NO_TEXTS))?;
            let used = AttemptMeter { meter: Meter::new(&asked.tariff, queue.clock), whole: &self.meters[member] };
            let ended = {
                let in_flight = queue.request(self.unit, member, attempts.attempt());
                permit.send();
                let started_ns = queue.clock.now_ns();
                let key = RequestKey { attempt: attempts.attempt(), ..self.unit.request_key };
                let (parser, timeout) = (&asked.parser, rules.timeout);
                let request = ScoreRequest {
                    second: &|| permit.second(),
                    server: &in_flight.server,
                    parser,
                    body: body.into(),
                    samples: 1,
                    meter: &used.meter,
                    timeout,
                };
                let ended = self.unit.fleet.send(key, &request, timeout).await;
                self.trace(&in_flight.server, attempts.attempt(), started_ns, &ended);
                ended
            };
            let tokens_used = used.meter.tokens();
            repair = used.meter.repair().or(repair);
            drop(used);
            let Failed { mut failure, others_up } = match ended {
                Ok(scores) => {
                    permit.end(Feedback::Ok, tokens_used, attempts.history());
                    return Ok(scores);
                }
                Err(failed) => failed,
            };
            // One of several endpoints says nothing about the limit of all.
            let feedback = if others_up { Feedback::Unknown } else { Feedback::of(&failure) };
            let excused = permit.end(feedback, tokens_used, attempts.history());
            if let Some(warning) = permits.note_error(feedback, &failure.reason)
                && let Some(listener) = queue.limit_listener.get()
            {
                listener(queue.function, warning, &failure.reason);
            }
            let sent = attempts.attempt();
            let Some(due_ns) = attempts.next_ns(rules, &failure, excused, queue.clock.now_ns(), expires_ns) else {
                if sent > 1 {
                    failure.reason = format!("{} (after {sent} attempts)", failure.reason);
                }
                return Err(Failure { retryable: false, ..failure });
            };
            let deferred = failure.answer.is_some_and(Answer::is_later);
            self.unit.batch.count_retry(queue.function, deferred);
            if excused {
                self.unit.batch.count_excused(queue.function);
            }
            queue.clock.sleep_until_ns(due_ns).await;
        }
    }

    /// Tells the engine's tracer of a request, which is a part of its call.
    fn trace(&self, server: &Mutex<Arc<str>>, attempt: u16, started_ns: u64, ended: &Result<Scores, Failed>) {
        let (frame_ref, call) = &self.unit.call;
        let failed = ended.as_ref().err().map(|failed| &failed.failure);
        let times = Times { started_ns, run_ns: self.queue.clock.now_ns().saturating_sub(started_ns) };
        frame_ref.trace_request(*call, || Executor::Endpoint(server.lock().clone()), attempt, failed, times);
    }

    /// Tokens of a request, as its function counts them.
    fn counted(&self) -> Option<f64> {
        let (share, sample) = *self.unit.samples.first()?;
        self.unit.call.0.payload(share)?.tokens(self.queue.function, sample)
    }
}

pub const NO_TEXTS: &str = "internal error: the texts of its request were not captured";
