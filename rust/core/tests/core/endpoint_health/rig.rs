//! An engine whose one function goes to a simulated endpoint, and what came of it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use guerdon_core::batch::{Batch, BatchSpec};
use guerdon_core::clock::Clock;
use guerdon_core::frame::Frame;
use guerdon_core::function::{Function, FunctionId, Shape};
use guerdon_core::lane::{CallsRun, CloseFuture, Lane, LaneWaker};
use guerdon_core::limits::{Limit, LimitWarning, Rules};
use guerdon_core::outcome::{Answer, Cell, Failure, FailureKind, Status, Times};
use guerdon_core::scheduler::Scheduler;
use guerdon_testkit::{done, failure, function, spec};
use tokio::time::Instant;

pub const MS: Duration = Duration::from_millis(1);
pub const SECOND: Duration = Duration::from_secs(1);
pub const MINUTE: Duration = Duration::from_secs(60);

/// What an endpoint does with a request: an answer, or what it says instead, after a time.
pub type Response = (Duration, Result<(), Failure>);

pub fn scored(after: Duration) -> Response {
    (after, Ok(()))
}

pub fn refused(after: Duration, answer: Answer) -> Response {
    (after, Err(Failure { answer: Some(answer), ..failure(FailureKind::Error) }))
}

pub fn silent() -> Response {
    (Duration::MAX, Ok(()))
}

/// Sends each call to an endpoint, which is a function of sample and attempt.
pub struct SimulatedLane<E> {
    endpoint: Arc<E>,
    sent: Mutex<Vec<Instant>>,
}

impl<E: Fn(usize, u16) -> Response + Send + Sync + 'static> Lane for SimulatedLane<E> {
    fn attach(&self, _: LaneWaker) {}

    fn room(&self, _: FunctionId) -> usize {
        usize::MAX
    }

    fn parallelism(&self, _: FunctionId) -> usize {
        1 << 16
    }

    fn pool(&self, function: FunctionId) -> usize {
        function
    }

    fn frame_calls(&self, _: FunctionId) -> usize {
        usize::MAX
    }

    fn calls_run(&self, _: FunctionId) -> CallsRun {
        CallsRun::AtMost(1 << 16)
    }

    fn run(&self, mut frame: Frame) {
        if frame.is_empty() {
            return;
        }
        let (sample, attempt, timeout) = (frame.first(0), frame.attempt(0), frame.function().policy.timeout);
        self.sent.lock().unwrap().push(Instant::now());
        let (after, ended) = (self.endpoint)(sample, attempt);
        tokio::spawn(async move {
            let started_ns = frame.clock().now_ns();
            tokio::time::sleep(after.min(timeout)).await;
            let times = Times { started_ns, run_ns: frame.clock().now_ns() - started_ns };
            match ended {
                _ if after > timeout => frame.fail(0, failure(FailureKind::Timeout), times),
                Ok(()) => frame.complete(0, Cell::Value(1.0), times),
                Err(failure) => frame.fail(0, failure, times),
            }
        });
    }

    fn close(&self) -> CloseFuture {
        Box::pin(std::future::ready(()))
    }
}

pub type Warnings = Arc<Mutex<Vec<(LimitWarning, Instant)>>>;

pub struct Engine<E> {
    pub scheduler: Scheduler,
    lane: Arc<SimulatedLane<E>>,
    pub warnings: Warnings,
}

impl<E: Fn(usize, u16) -> Response + Send + Sync + 'static> Engine<E> {
    pub fn start(judge: Function, endpoint: E) -> Self {
        Self::of(judge, Arc::new(endpoint))
    }

    /// One of several that use the same endpoint.
    pub fn of(judge: Function, endpoint: Arc<E>) -> Self {
        let lane = Arc::new(SimulatedLane { endpoint, sent: Mutex::default() });
        let runtime = tokio::runtime::Handle::current();
        let scheduler = Scheduler::start(&runtime, Clock::start(), vec![judge], vec![lane.clone()]);
        let warnings = Warnings::default();
        let heard = warnings.clone();
        scheduler.on_limit_warning(move |_, warning, _| heard.lock().unwrap().push((warning, Instant::now())));
        Self { scheduler, lane, warnings }
    }

    pub fn submit(&self, samples: usize) -> Arc<Batch> {
        self.submit_spec(spec(samples, 1))
    }

    pub fn submit_spec(&self, spec: BatchSpec) -> Arc<Batch> {
        self.scheduler.submit(spec).unwrap()
    }

    /// When requests were sent.
    pub fn sent(&self) -> Vec<Instant> {
        self.lane.sent.lock().unwrap().clone()
    }
}

/// A judge with its defaults but for these.
pub fn judge(rules: Rules, retries: u16) -> Function {
    limited(Limit { rules, ..Limit::default() }, retries)
}

pub fn limited(limit: Limit, retries: u16) -> Function {
    let mut judge = function("judge", Shape::Sample);
    judge.policy.retries = retries;
    judge.policy.concurrency = limit.rules.concurrency;
    judge.policy.limit = Some(limit);
    judge
}

pub fn at_once(concurrency: usize) -> Rules {
    Rules { concurrency: Some(concurrency), ..Rules::default() }
}

/// Returns the samples of a finished batch that have no score, and when the last of the others
/// ended by the batch's own clock.
pub async fn ended(batch: &Arc<Batch>) -> (Vec<usize>, Duration) {
    assert!(done(batch).await, "an hour");
    let mut lost = Vec::new();
    let mut last_ns = 0;
    for sample in 0..batch.samples() {
        let outcome = batch.cell(sample, 0).unwrap().outcome;
        if outcome.status == Status::Ok {
            last_ns = last_ns.max(outcome.times.started_ns + outcome.times.run_ns);
        } else {
            lost.push(sample);
        }
    }
    (lost, Duration::from_nanos(last_ns.saturating_sub(batch.submitted_ns())))
}

/// A file for a key that goes with its owner.
pub struct Key(PathBuf);

impl Key {
    pub fn new() -> Self {
        Self(std::env::temp_dir().join(format!("guerdon-limits-{:016x}", fastrand::u64(..))))
    }

    pub fn limit(&self, rules: Rules) -> Limit {
        Limit { rules, key: Some(("judge".into(), self.0.join("key"))), tokens: None }
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
