//! Checks the lane's state of batches that have ended.

use guerdon_core::batch::BatchSpec;
use guerdon_core::function::{Policy, Shape};
use guerdon_core::scheduler::Scheduler;
use guerdon_testkit::Texts;
use guerdon_testkit::judge::{JudgeConfig, MockJudge};

use super::*;
use crate::body::{BodyTemplate, Piece};
use crate::dialect::Api;
use crate::endpoint::Endpoint;
use crate::fleet::FleetOptions;
use crate::meter::Tariff;
use crate::parse::Method;
use crate::response::ResponseParser;

/// Calls that failed for good, and calls that a batch timeout or a cancel ended between two
/// attempts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_batches_leave_no_answers_behind() {
    let raw = |text: &str| Piece::Raw(text.as_bytes().to_vec());
    let pieces = vec![raw(r#"{"messages": [{"role": "user", "content": ""#), Piece::Text(0)];
    let pieces = [pieces, vec![raw(r#""}"#), Piece::Repair, raw("]}")]].concat();
    let judge = MockJudge::start(JudgeConfig::default()).await.unwrap();
    let spec = HttpFunction {
        endpoint: Endpoint::new(&judge.url("/v1/chat/completions"), Vec::new(), None, false, None).unwrap(),
        fleet: FleetOptions::default(),
        body: BodyTemplate { pieces },
        parser: ResponseParser::Judge { api: Api::Chat, parser: Method::Number.into() },
        tariff: Tariff::default(),
        programs: None,
        criteria: None,
    };
    let function = guerdon_testkit::function("judge", Shape::Sample);
    let policy = Policy { retries: 1, concurrency: Some(16), ..function.policy.clone() };
    let function = Function { policy, ..function };
    let (runtime, clock) = (Handle::current(), Clock::start());
    let lane = Arc::new(HttpLane::new(&runtime, clock, std::slice::from_ref(&function), vec![Some(spec)]).unwrap());
    let lanes: Vec<Arc<dyn Lane>> = vec![lane.clone()];
    let scheduler = Scheduler::start(&runtime, clock, vec![function], lanes);
    let queue = lane.queues[0].clone().unwrap();
    let mut kept = false;
    for round in 0..20_u64 {
        let payload = Box::new(Texts::of(&vec!["Rate this: [[says I can't say.]]".to_owned(); 16]));
        let batch_timeout_ns = (round % 2 == 1).then_some(20_000_000);
        let spec = BatchSpec { batch_timeout_ns, ..BatchSpec::whole(16, 1, payload) };
        let batch = scheduler.submit(spec).unwrap();
        while !batch.is_done() {
            kept |= queue.keeps_repairs();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    assert!(kept, "answers were kept for second attempts");
    for _ in 0..400 {
        if !queue.keeps_repairs() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(!queue.keeps_repairs());
    scheduler.close().await;
}
