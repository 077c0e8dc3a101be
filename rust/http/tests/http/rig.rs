//! An engine with one function on the http lane, a mock judge, and texts in place of Python's.
#![expect(clippy::unwrap_used, reason = "a rig that can't be set up fails its test")]

use std::sync::Arc;
use std::time::Duration;

use guerdon_core::batch::{Batch, BatchSpec};
use guerdon_core::clock::Clock;
use guerdon_core::function::{Function, Gather, Policy, Shape};
use guerdon_core::lane::Lane;
use guerdon_core::outcome::Status;
use guerdon_core::scheduler::Scheduler;
use guerdon_http::{
    Api, BodyTemplate, Endpoint, FleetOptions, HttpFunction, HttpLane, KeySource, Method, Piece, Range, ResponseParser,
    ScoreParser, Tariff,
};
use guerdon_testkit::Texts;
use guerdon_testkit::judge::MockJudge;
use tokio::runtime::Handle;

/// An endpoint of the mock.
pub fn endpoint(judge: &MockJudge, path: &str) -> Endpoint {
    let authority = judge.authority().map(|pem| pem.as_bytes().to_vec());
    let key = Some(KeySource::Text("sk-very-secret".to_owned()));
    Endpoint::new(&judge.url(path), Vec::new(), key, false, authority).unwrap()
}

/// A judge that answers with a number.
pub fn chat(endpoint: Endpoint) -> HttpFunction {
    let head = br#"{"model": "mock", "messages": [{"role": "user", "content": "Rate this: "#.to_vec();
    let pieces = vec![Piece::Raw(head), Piece::Text(0), Piece::Raw(br#""}]}"#.to_vec())];
    let parser = ScoreParser { range: Some(Range { low: 0.0, high: 10_000.0 }), ..Method::Number.into() };
    HttpFunction {
        endpoint,
        fleet: FleetOptions::default(),
        body: BodyTemplate { pieces },
        parser: ResponseParser::Judge { api: Api::Chat, parser },
        tariff: Tariff::default(),
        programs: None,
        criteria: None,
    }
}

/// A reward service that takes lists of completions.
pub fn rewards(endpoint: Endpoint) -> HttpFunction {
    let each = Piece::Each(vec![Piece::Value(0)]);
    let pieces = vec![Piece::Raw(br#"{"completions": ["#.to_vec()), each, Piece::Raw(b"]}".to_vec())];
    HttpFunction {
        endpoint,
        fleet: FleetOptions::default(),
        body: BodyTemplate { pieces },
        parser: ResponseParser::Rewards { path: None },
        tariff: Tariff::default(),
        programs: None,
        criteria: None,
    }
}

pub fn policy(timeout: Duration, retries: u16, concurrency: usize) -> Policy {
    Policy { retries, concurrency: Some(concurrency), ..Policy::new(timeout) }
}

/// The engine.
pub struct Rig {
    pub scheduler: Scheduler,
    pub lane: Arc<HttpLane>,
}

impl Rig {
    pub fn new(spec: HttpFunction, policy: Policy) -> Self {
        Self::gathering(spec, policy, None)
    }

    /// A request has at most `most` samples.
    pub fn gathering(spec: HttpFunction, policy: Policy, most: Option<usize>) -> Self {
        let gather = most.map(|max_size| Gather { max_size, max_wait: Duration::ZERO, across: true });
        let function = Function { gather, policy, ..guerdon_testkit::function("judge", Shape::Sample) };
        let (runtime, clock) = (Handle::current(), Clock::start());
        let lane = Arc::new(HttpLane::new(&runtime, clock, std::slice::from_ref(&function), vec![Some(spec)]).unwrap());
        let lanes: Vec<Arc<dyn Lane>> = vec![lane.clone()];
        Self { scheduler: Scheduler::start(&runtime, clock, vec![function], lanes), lane }
    }

    pub fn submit(&self, texts: &[String], budget: Option<Duration>) -> Arc<Batch> {
        let payload = Box::new(Texts::of(texts));
        let batch_timeout_ns = budget.map(guerdon_core::clock::nanos);
        self.scheduler.submit(BatchSpec { batch_timeout_ns, ..BatchSpec::whole(texts.len(), 1, payload) }).unwrap()
    }

    /// What became of each text: its status, its value, and the reason where it failed.
    pub async fn score(&self, texts: &[&str]) -> Vec<(Status, f64, String)> {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        outcomes(&done(self.submit(&texts, None)).await)
    }
}

/// Waits for a batch.
pub async fn done(batch: Arc<Batch>) -> Arc<Batch> {
    while !batch.is_done() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    batch
}

pub fn outcomes(batch: &Arc<Batch>) -> Vec<(Status, f64, String)> {
    let of = |sample| {
        let cell = batch.cell(sample, 0).unwrap();
        let reason = batch.note_of(sample, 0).map_or_else(String::new, |note| note.reason);
        (cell.outcome.status, cell.outcome.value, reason)
    };
    (0..batch.samples()).map(of).collect()
}
