//! A tracer learns of each attempt once, with its times, and of batches.

use std::sync::Arc;
use std::time::Duration;

use guerdon_core::batch::BatchSpec;
use guerdon_core::frame::Frame;
use guerdon_core::function::{Function, Policy, Shape};
use guerdon_core::lane::Lane;
use guerdon_core::observer::Telemetry;
use guerdon_core::outcome::{Failure, FailureKind, Status, Times};
use guerdon_core::tracer::{CallSpan, Executor, FrameSpan, TraceEvent};
use guerdon_testkit::{Act, Ask, FakeLane, InlineLane, Rig, Room, Script, done, failure, function, returns, spec};
use parking_lot::Mutex;

/// All that was reported.
struct EventLog(Mutex<Vec<TraceEvent>>, u64);

impl Telemetry for EventLog {
    fn shortest_ns(&self) -> Option<u64> {
        Some(self.1)
    }

    fn record(&self, event: TraceEvent) {
        self.0.lock().push(event);
    }
}

impl EventLog {
    /// The spans of calls, by sample and attempt.
    fn calls(&self) -> Vec<CallSpan> {
        let events = self.0.lock();
        let mut calls: Vec<CallSpan> = events
            .iter()
            .flat_map(|event| match event {
                TraceEvent::Call { span, .. } => vec![(**span).clone()],
                TraceEvent::Frame { span, .. } => span.calls.clone(),
                _ => Vec::new(),
            })
            .collect();
        calls.sort_by_key(|call| (call.first, call.attempt));
        calls
    }
}

fn engine(functions: Vec<Function>, shortest: Duration, script: impl Script) -> (Rig, Arc<EventLog>) {
    traced(functions, shortest, FakeLane::new(Room { places: 8, at_once: true, ..Room::default() }, script))
}

fn traced<L: Lane>(functions: Vec<Function>, shortest: Duration, lane: L) -> (Rig<L>, Arc<EventLog>) {
    let rig = Rig::on(Arc::new(lane), functions);
    let reported = Arc::new(EventLog(Mutex::default(), shortest.as_nanos() as u64));
    rig.observe(vec![reported.clone()]);
    (rig, reported)
}

/// Takes as many seconds as its number; the third one fails the first time.
fn fails_once(ask: &Ask) -> Act {
    if ask.first == 2 && ask.attempt == 1 {
        let failure = Failure::new(FailureKind::Error, "gone\nand more".to_owned());
        return Act::Fail { after: Duration::from_secs(1), failure };
    }
    returns(Duration::from_secs(ask.first as u64), ask.samples, 1.0)
}

fn tried_twice() -> Function {
    let plain = function("each", Shape::Sample);
    Function { policy: Policy { retries: 1, ..plain.policy.clone() }, ..plain }
}

#[tokio::test(start_paused = true)]
async fn each_attempt_is_reported_with_its_times_and_its_batch_with_its_step() {
    let (engine, reported) = engine(vec![tried_twice()], Duration::ZERO, fails_once);
    engine.run(BatchSpec { step: Some(7), ..spec(2, 2) }).await;
    let calls = reported.calls();
    let seen: Vec<(usize, u16, Status)> = calls.iter().map(|call| (call.first, call.attempt, call.status)).collect();
    let (ok, failed) = (Status::Ok, Status::Error);
    assert_eq!(seen, [(0, 1, ok), (1, 1, ok), (2, 1, failed), (2, 2, ok), (3, 1, ok)]);
    let second = Duration::from_secs(1).as_nanos() as u64;
    assert_eq!(calls[4].run_ns, 3 * second);
    assert_eq!(calls[2].reason.as_deref(), Some("gone"));
    assert!(calls[3].started_ns >= calls[2].ended_ns() && calls[3].ready_ns == calls[2].ready_ns);
    let events = reported.0.lock();
    assert!(matches!(events.first(), Some(TraceEvent::BatchSubmitted { step: Some(7), samples: 4, groups: 2, .. })));
    let ends = events.iter().filter(|event| matches!(event, TraceEvent::BatchDone { samples: 4, groups: 2, .. }));
    assert_eq!(ends.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn short_calls_are_reported_together_unless_they_failed_or_were_tried_again() {
    let (engine, reported) = engine(vec![tried_twice()], Duration::from_secs(100), fails_once);
    engine.run(spec(2, 2)).await;
    tokio::time::sleep(Duration::from_secs(1)).await; // the frames go
    let seen: Vec<(usize, u16)> = reported.calls().iter().map(|call| (call.first, call.attempt)).collect();
    assert_eq!(seen, [(2, 1), (2, 2)]);
    let together = |event: &TraceEvent| if let TraceEvent::Frame { span, .. } = event { span.ran } else { 0 };
    assert_eq!(reported.0.lock().iter().map(together).sum::<usize>(), 3);
}

#[tokio::test(start_paused = true)]
async fn thread_reports_follow_each_other() {
    // A thread, whose calls take a microsecond each; every seventh fails.
    let lane = InlineLane::new(usize::MAX, |mut frame: Frame| {
        frame.set_executor(|| Executor::Thread(1));
        for call in 0..frame.len() {
            let times = Times { started_ns: 1 + 1000 * call as u64, run_ns: 1000 };
            if call % 7 == 6 {
                frame.fail(call, failure(FailureKind::Error), times);
            } else {
                frame.complete_soon(call, 1.0, times);
            }
        }
    });
    let (engine, reported) = traced(vec![function("each", Shape::Sample)], Duration::ZERO, lane);
    engine.run(spec(400, 1)).await;
    let events = reported.0.lock();
    let spans: Vec<&FrameSpan> = events
        .iter()
        .filter_map(|event| if let TraceEvent::Frame { span, .. } = event { Some(&**span) } else { None })
        .collect();
    assert!(spans.len() > 2, "it has more calls than are told together");
    assert_eq!(spans.iter().map(|span| span.calls.len()).sum::<usize>(), 400);
    assert!(spans.iter().all(|span| span.calls.is_sorted_by_key(|call| call.started_ns)));
    assert!(spans.iter().zip(&spans[1..]).all(|(one, next)| one.ended_ns <= next.started_ns));
}

#[tokio::test(start_paused = true)]
async fn loads_say_what_waits_and_what_runs() {
    let (engine, _) = engine(vec![tried_twice()], Duration::ZERO, fails_once);
    let loads = engine.loads();
    let batch = engine.submit(spec(50, 4));
    tokio::time::sleep(Duration::from_millis(1)).await;
    let now = loads().unwrap();
    assert!(now.batches == 1 && now.functions[0].in_flight > 0);
    assert!(now.functions[0].queued + now.functions[0].in_flight <= 200);
    engine.cancel(&batch, "enough");
    assert!(done(&batch).await);
    tokio::time::sleep(Duration::from_secs(300)).await;
    let now = loads().unwrap();
    assert_eq!((now.batches, now.functions[0].queued, now.functions[0].in_flight), (0, 0, 0));
    drop(engine);
}
