//! Composite functions against the mock judge: each column is completed once, whatever happens to
//! its requests, and requests are counted one by one.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use guerdon_core::batch::BatchSpec;
use guerdon_core::clock::Clock;
use guerdon_core::compose::{ComposeLane, Composite, Criterion, Members, Opinions, Reduce, Reduction};
use guerdon_core::function::{Function, FunctionId, Policy, Shape};
use guerdon_core::lane::Lane;
use guerdon_core::outcome::Status;
use guerdon_core::report::Extra;
use guerdon_core::scheduler::Scheduler;
use guerdon_http::{Criteria, HttpFunction, HttpLane, Piece};
use guerdon_testkit::Texts;
use guerdon_testkit::judge::{JudgeConfig, Latency};
use tokio::runtime::Handle;

use super::rig::{chat, done, endpoint, policy};
use super::{PATH, SECOND, mock, texts};

/// An engine with a composite function and its member.
struct CompositeRig {
    scheduler: Scheduler,
    lane: Arc<HttpLane>,
}

impl CompositeRig {
    /// An engine of these functions, the last of which sends the requests.
    fn new(mut functions: Vec<Function>, composites: Vec<Option<Composite>>, request: HttpFunction) -> Self {
        let (runtime, clock) = (Handle::current(), Clock::start());
        let mut specs = vec![None; functions.len() - 1];
        specs.push(Some(request));
        functions.iter_mut().filter(|function| function.member_of.is_none()).for_each(|function| function.lane = 1);
        #[expect(clippy::expect_used, reason = "a rig that can't be set up fails its test")]
        let lane = HttpLane::new(&runtime, clock, &functions, specs).expect("endpoints");
        let lane = Arc::new(lane);
        let compose = ComposeLane::new(clock, composites);
        let lanes: Vec<Arc<dyn Lane>> = vec![lane.clone(), Arc::new(compose)];
        Self { scheduler: Scheduler::start(&runtime, clock, functions, lanes), lane }
    }

    fn submit(&self, texts: &[String], timeout: Option<Duration>) -> Arc<guerdon_core::batch::Batch> {
        let batch_timeout_ns = timeout.map(guerdon_core::clock::nanos);
        let spec = BatchSpec { batch_timeout_ns, ..BatchSpec::whole(texts.len(), 1, Box::new(Texts::of(texts))) };
        #[expect(clippy::expect_used, reason = "a rig that can't be set up fails its test")]
        self.scheduler.submit(spec).expect("a batch")
    }
}

/// An engine with one function, which asks a judge several times.
fn votes(votes: usize, reduce: Reduce, request: HttpFunction, rules: Policy) -> CompositeRig {
    let rules_of_votes = Reduction { reduce, weights: Vec::new(), needed: votes / 2 + 1, min_agreement: None };
    let composite =
        Composite::Opinions(Opinions { members: Members::Votes { function: 1, votes }, rules: rules_of_votes });
    let plain = guerdon_testkit::function("judge", Shape::Sample);
    let member = Function { member_of: Some(0), policy: rules, ..plain.clone() };
    CompositeRig::new(vec![Function { member_calls: votes, ..plain }, member], vec![Some(composite), None], request)
}

/// An engine with a rubric, whose criteria are these words in a request each.
fn rubric(criteria: &[&str], request: HttpFunction, rules: &Policy) -> CompositeRig {
    let columns: Arc<[FunctionId]> = (0..criteria.len()).collect();
    let criterion = |place| Criterion { function: criteria.len(), columns: columns.clone(), place, in_turn: true };
    let composites = (0..criteria.len()).map(|place| Some(Composite::Criterion(criterion(place)))).collect();
    let plain = |name: &str| Function { policy: rules.clone(), ..guerdon_testkit::function(name, Shape::Sample) };
    let column = |place| Function { member_calls: criterion(place).calls(), ..plain(&format!("f{place}")) };
    let mut functions: Vec<Function> = (0..criteria.len()).map(column).collect();
    functions.push(Function { member_of: Some(0), columns: columns.clone(), ..plain("judge") });
    let of = |word: &&str| {
        let mut body = request.body.clone();
        body.pieces.insert(1, Piece::Raw(word.as_bytes().to_vec()));
        (body, request.parser.clone())
    };
    let mut bodies: Vec<_> = criteria.iter().map(of).collect();
    let (body, parser) = bodies.remove(0);
    let criteria = Some(Criteria { in_an_answer: 1, others: bodies });
    CompositeRig::new(functions, composites, HttpFunction { body, parser, criteria, ..request })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn votes_are_requests_with_retries_of_their_own() {
    let latency = Latency::Uniform(Duration::ZERO, SECOND / 100);
    // Few, since five failures in a row open the breaker, and what fails then is no retry.
    let judge = mock(JudgeConfig { failing: 0.1, latency, seed: 3, ..Default::default() }).await;
    let request = chat(endpoint(&judge, PATH));
    let rig = votes(5, Reduce::Median, request, policy(20 * SECOND, 20, 16));
    let batch = done(rig.submit(&texts(100), None)).await;
    for sample in 0..100 {
        let cell = batch.cell(sample, 0).unwrap();
        assert_eq!((cell.outcome.status, cell.outcome.value), (Status::Ok, sample as f64));
    }
    let seen = judge.seen();
    assert!(seen.most_in_flight.load(Ordering::Relaxed) <= 16, "requests count, not calls");
    let usage = batch.usage_of(0).unwrap();
    let retries = u64::from(batch.retries_of(0));
    assert_eq!(usage.requests, 300 + retries, "three votes decide; each counts, and each retry");
    assert_eq!((usage.requests, usage.prompt_tokens), (seen.requests.load(Ordering::Relaxed), 3000));
    let extra = batch.extra_of(0);
    let votes = extra
        .iter()
        .filter(|(_, (name, value))| name == "votes" && matches!(value, Extra::List(votes) if votes.len() == 3));
    assert_eq!(votes.count(), 100);
    assert_eq!(rig.lane.in_flight(0).len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_criterion_fills_its_own_column() {
    let judge =
        mock(JudgeConfig { latency: Latency::Uniform(Duration::ZERO, SECOND / 50), ..Default::default() }).await;
    let request = chat(endpoint(&judge, PATH));
    let rig = rubric(&["", "[[status 400]]", ""], request, &policy(20 * SECOND, 0, 8));
    let batch = done(rig.submit(&texts(60), None)).await;
    for sample in 0..60 {
        for column in [0, 2] {
            let cell = batch.cell(sample, column).unwrap();
            assert_eq!((cell.outcome.status, cell.outcome.value), (Status::Ok, sample as f64), "column {column}");
        }
    }
    assert_eq!(judge.seen().requests.load(Ordering::Relaxed), 180);
    assert!(judge.seen().most_in_flight.load(Ordering::Relaxed) <= 8);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_runs_out_of_time_drops_its_requests() {
    let judge = mock(JudgeConfig::default()).await;
    let request = chat(endpoint(&judge, PATH));
    let rig = rubric(&["", ""], request, &policy(20 * SECOND, 0, 8));
    let silent: Vec<String> = (0..20).map(|index| format!("{index} [[silence]]")).collect();
    let batch = done(rig.submit(&silent, Some(3 * SECOND))).await;
    for sample in 0..20 {
        for column in 0..2 {
            assert_eq!(batch.cell(sample, column).unwrap().outcome.status, Status::Timeout);
        }
    }
    for _ in 0..3000 {
        if judge.seen().abandoned.load(Ordering::Relaxed) == 8 {
            break;
        }
        tokio::time::sleep(SECOND / 100).await;
    }
    assert_eq!(judge.seen().abandoned.load(Ordering::Relaxed), 8, "their connections end with them");
    assert_eq!(rig.lane.in_flight(0).len(), 0);
    let again = done(rig.submit(&texts(5), None)).await;
    assert_eq!(again.cell(4, 1).unwrap().outcome.value, 4.0, "their places are free");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_ends_calls_in_the_middle() {
    let judge = mock(JudgeConfig::default()).await;
    let request = chat(endpoint(&judge, PATH));
    let rig = votes(3, Reduce::Mean, request, policy(20 * SECOND, 0, 8));
    let silent: Vec<String> = (0..20).map(|index| format!("{index} [[silence]]")).collect();
    let batch = rig.submit(&silent, None);
    while judge.seen().requests.load(Ordering::Relaxed) < 8 {
        tokio::time::sleep(SECOND / 100).await;
    }
    assert_eq!(rig.lane.in_flight(0).len(), 8);
    tokio::time::timeout(60 * SECOND, rig.scheduler.close()).await.unwrap();
    assert!(batch.is_done() && rig.lane.in_flight(0).is_empty());
    assert!((0..20).all(|sample| batch.cell(sample, 0).unwrap().outcome.status == Status::Cancelled));
}
