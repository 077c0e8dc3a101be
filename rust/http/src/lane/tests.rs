//! Checks the lane's state of batches that have ended.

use std::any::Any;

use guerdon_core::batch::BatchSpec;
use guerdon_core::function::{Policy, Shape};
use guerdon_core::payload::Payload;
use guerdon_core::scheduler::Scheduler;
use guerdon_core::sent_constants::SentConstants;
use guerdon_core::text::{RawText, TextKind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::body::{BodyTemplate, Piece};
use crate::dialect::Api;
use crate::endpoint::Endpoint;
use crate::fleet::FleetOptions;
use crate::meter::Tariff;
use crate::parse::Method;
use crate::response::ResponseParser;

/// The same text for each sample.
struct SameText(Vec<String>);

impl Payload for SameText {
    fn names(&self, _function: FunctionId, _finish: bool) -> Option<&[String]> {
        Some(&self.0)
    }

    fn encode(
        &self,
        _function: FunctionId,
        _finish: bool,
        _samples: &[u32],
        _: &mut SentConstants,
        _out: &mut Vec<u8>,
    ) {
    }

    fn bytes(&self, _function: FunctionId, _sample: u32) -> usize {
        0
    }

    fn text(&self, _function: FunctionId, _column: usize, _sample: u32) -> Option<RawText<'_>> {
        Some(RawText { kind: TextKind::Ascii, bytes: b"Rate this" })
    }

    fn mixes(&self, _function: FunctionId) -> bool {
        true
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A judge whose answers hold no number.
async fn judge_without_scores() -> Endpoint {
    const BODY: &str = r#"{"choices": [{"message": {"content": "I can't say."}}]}"#;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut came = vec![0; 64 << 10];
                while stream.read(&mut came).await? > 0 {
                    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{BODY}", BODY.len());
                    stream.write_all(answer.as_bytes()).await?;
                }
                std::io::Result::Ok(())
            });
        }
    });
    Endpoint::new(&url, Vec::new(), None, false, None).unwrap()
}

/// Calls that failed for good, and calls that a batch timeout or a cancel ended between two
/// attempts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_batches_leave_no_answers_behind() {
    let raw = |text: &str| Piece::Raw(text.as_bytes().to_vec());
    let pieces = vec![raw(r#"{"messages": [{"role": "user", "content": ""#), Piece::Text(0)];
    let pieces = [pieces, vec![raw(r#""}"#), Piece::Repair, raw("]}")]].concat();
    let spec = HttpFunction {
        endpoint: judge_without_scores().await,
        fleet: FleetOptions::default(),
        body: BodyTemplate { pieces },
        parser: ResponseParser::Judge { api: Api::Chat, parser: Method::Number.into() },
        tariff: Tariff::default(),
    };
    let function = guerdon_testkit::function("judge", Shape::Sample);
    let policy = Policy { retries: 1, concurrency: Some(16), ..function.policy.clone() };
    let function = Function { policy, ..function };
    let (runtime, clock) = (Handle::current(), Clock::start());
    let lane = Arc::new(
        HttpLane::new(&runtime, clock, std::slice::from_ref(&function), vec![Some(spec)], Vec::new()).unwrap(),
    );
    let lanes: Vec<Arc<dyn Lane>> = vec![lane.clone()];
    let scheduler = Scheduler::start(&runtime, clock, vec![function], lanes);
    let queue = lane.queues[0].clone().unwrap();
    let mut kept = false;
    for round in 0..20_u64 {
        let payload = Box::new(SameText(vec!["text".to_owned()]));
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
