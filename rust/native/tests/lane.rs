//! The native lane under the scheduler, with a kernel that does what its text says.
#![expect(clippy::unwrap_used, reason = "a test can't go on without its engine")]

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use guerdon_core::batch::{Batch, BatchSpec};
use guerdon_core::clock::Clock;
use guerdon_core::function::{Function, FunctionId, Policy, Shape};
use guerdon_core::lane::Lane;
use guerdon_core::outcome::Status;
use guerdon_core::payload::Payload;
use guerdon_core::scheduler::Scheduler;
use guerdon_native::NativeLane;
use guerdon_native::kernels::{Fault, Input, InputForm, Kernel, Score, Stop};
use guerdon_wire::sent_constants::SentConstants;
use guerdon_wire::text::{RawText, TextKind};
use tokio::runtime::Handle;

const SECOND: Duration = Duration::from_secs(1);

/// One column of ASCII texts.
struct Texts(Vec<String>, [String; 1]);

impl Payload for Texts {
    fn names(&self, _function: FunctionId, _finish: bool) -> Option<&[String]> {
        Some(&self.1)
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

    fn text(&self, _function: FunctionId, _column: usize, sample: u32) -> Option<RawText<'_>> {
        Some(RawText { kind: TextKind::Ascii, bytes: self.0.get(sample as usize)?.as_bytes() })
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A number is its value; the rest is what a kernel may do.
#[derive(Default)]
struct ScriptedKernel {
    /// Ends calls that don't listen.
    heard: Arc<AtomicBool>,
    /// Once, where the lane catches no panic of a kernel's own.
    panics: AtomicBool,
}

impl Kernel for ScriptedKernel {
    fn inputs(&self) -> Vec<InputForm> {
        if self.panics.swap(false, Ordering::AcqRel) {
            std::panic::resume_unwind(Box::new("once"));
        }
        vec![InputForm::Text]
    }

    fn score(&self, inputs: &[Input<'_>], stop: &dyn Stop) -> Result<Score, Fault> {
        let [Input::Text(text)] = inputs else { return Err(Fault::Invalid("no text".to_owned())) };
        match &**text {
            "none" => Ok(None),
            "wrong" => Err(Fault::Invalid("nothing to score".to_owned())),
            // The panic hook is left out: its backtrace may take longer than the timeout.
            "panic" => std::panic::resume_unwind(Box::new("as its text said")),
            "hang" => loop {
                stop.check()?;
                std::thread::sleep(Duration::from_millis(1));
            },
            // Never asks.
            "deaf" => {
                while !self.heard.load(Ordering::Acquire) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Ok(Some(0.0))
            }
            number => Ok(number.parse().ok()),
        }
    }
}

fn engine(timeout: Duration, threads: usize) -> (Scheduler, Arc<NativeLane>) {
    engine_on(&Handle::current(), ScriptedKernel::default(), timeout, threads)
}

/// The lane's threads are those of `runtime`.
fn engine_on(
    runtime: &Handle,
    kernel: ScriptedKernel,
    timeout: Duration,
    threads: usize,
) -> (Scheduler, Arc<NativeLane>) {
    let function = Function { policy: Policy::new(timeout), ..guerdon_testkit::function("scripted", Shape::Sample) };
    let lane = Arc::new(NativeLane::new(runtime, vec![Some(Arc::new(kernel))], threads));
    let lanes: Vec<Arc<dyn Lane>> = vec![lane.clone()];
    (Scheduler::start(&Handle::current(), Clock::start(), vec![function], lanes), lane)
}

fn submit(scheduler: &Scheduler, texts: &[&str], timeout: Option<Duration>) -> Arc<Batch> {
    let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
    let samples = texts.len();
    let payload = Box::new(Texts(texts, ["text".to_owned()]));
    let batch_timeout_ns = timeout.map(guerdon_core::clock::nanos);
    scheduler.submit(BatchSpec { batch_timeout_ns, ..BatchSpec::whole(samples, 1, payload) }).unwrap()
}

async fn outcomes(batch: Arc<Batch>) -> Vec<(Status, f64, String)> {
    while !batch.is_done() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let of = |sample| {
        let cell = batch.cell(sample, 0).unwrap();
        let reason = batch.note_of(sample, 0).map_or_else(String::new, |note| note.reason);
        (cell.outcome.status, cell.outcome.value, reason)
    };
    (0..batch.samples()).map(of).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_sample_gets_its_own_score() {
    let (scheduler, lane) = engine(20 * SECOND, 3);
    let numbers: Vec<String> = (0..5000).map(|number| number.to_string()).collect();
    let texts: Vec<&str> = numbers.iter().map(String::as_str).collect();
    for _ in 0..3 {
        for (index, (status, value, _)) in outcomes(submit(&scheduler, &texts, None)).await.into_iter().enumerate() {
            assert_eq!((status, value), (Status::Ok, index as f64));
        }
    }
    assert!(lane.in_flight(0).is_empty());
    scheduler.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_numbers_give_the_reason() {
    let (scheduler, _lane) = engine(SECOND, 2);
    let found = outcomes(submit(&scheduler, &["1", "none", "wrong", "panic", "hang", "2"], None)).await;
    let statuses: Vec<Status> = found.iter().map(|one| one.0).collect();
    let (ok, error) = (Status::Ok, Status::Error);
    assert_eq!(statuses, [ok, Status::Abstained, error, error, Status::Timeout, ok]);
    assert_eq!(found[2].2, "nothing to score");
    assert!(found[3].2.contains("panicked"), "{}", found[3].2);
    assert!(found[4].2.contains("no answer within the timeout of 1 s"), "{}", found[4].2);
    scheduler.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_behind_a_slow_one_go_to_other_threads() {
    let (scheduler, lane) = engine(20 * SECOND, 2);
    let mut texts = vec!["hang"];
    texts.extend(["1"; 300]);
    let batch = submit(&scheduler, &texts, Some(5 * SECOND));
    let open = || (1..=300).filter(|sample| batch.cell(*sample, 0).is_none()).count();
    while open() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let now_ns = scheduler.clock().now_ns();
    let in_hand: Vec<usize> = lane.in_flight(now_ns).into_iter().flat_map(|one| one.call.samples).flatten().collect();
    assert_eq!(in_hand, [0]);
    assert!(!batch.is_done());
    scheduler.close().await;
    assert_eq!(outcomes(batch).await[0].0, Status::Cancelled);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_timeout_ends_the_work() {
    let (scheduler, lane) = engine(600 * SECOND, 1);
    let found = outcomes(submit(&scheduler, &["hang", "hang"], Some(SECOND / 5))).await;
    assert!(found.iter().all(|(status, _, reason)| *status == Status::Timeout && reason == "batch timeout"));
    // The one thread is free again.
    assert_eq!(outcomes(submit(&scheduler, &["3"], None)).await[0].1, 3.0);
    assert!(lane.in_flight(0).is_empty());
    scheduler.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_around_one_that_never_asks_are_done() {
    let heard = Arc::new(AtomicBool::new(false));
    let kernel = ScriptedKernel { heard: heard.clone(), ..ScriptedKernel::default() };
    let (scheduler, lane) = engine_on(&Handle::current(), kernel, 600 * SECOND, 2);
    let texts = [["1"; 30].as_slice(), &["deaf"], &["2"; 300]].concat();
    let batch = submit(&scheduler, &texts, None);
    let open = || (0..texts.len()).filter(|sample| batch.cell(*sample, 0).is_none()).collect::<Vec<_>>();
    let others_done = async {
        while open() != [30] {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(60 * SECOND, others_done).await.unwrap();
    assert_eq!(lane.in_flight(0).len(), 1);
    heard.store(true, Ordering::Release);
    assert!(outcomes(batch).await.iter().all(|(status, _, _)| *status == Status::Ok));
    scheduler.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_beside_a_kernel_costs_no_thread() {
    let kernel = ScriptedKernel { panics: AtomicBool::new(true), ..ScriptedKernel::default() };
    let (scheduler, lane) = engine_on(&Handle::current(), kernel, SECOND, 1);
    assert_eq!(outcomes(submit(&scheduler, &["1", "2"], None)).await[1].1, 2.0);
    assert!(lane.in_flight(0).is_empty());
    tokio::time::timeout(60 * SECOND, scheduler.close()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lane_that_gets_no_thread_closes() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let handle = runtime.handle().clone();
    runtime.shutdown_background();
    let (scheduler, _lane) = engine_on(&handle, ScriptedKernel::default(), SECOND, 1);
    let batch = submit(&scheduler, &["1"], Some(SECOND / 10));
    assert_eq!(outcomes(batch).await[0].0, Status::Timeout);
    tokio::time::timeout(60 * SECOND, scheduler.close()).await.unwrap();
}
