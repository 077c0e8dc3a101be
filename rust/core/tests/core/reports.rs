//! What calls report beside their cells.

use std::sync::Arc;

use guerdon_core::batch::Batch;
use guerdon_core::clock::Clock;
use guerdon_core::frame::Frame;
use guerdon_core::function::{Function, FunctionId, Policy, Shape};
use guerdon_core::lane::{CloseFuture, Lane, LaneWaker};
use guerdon_core::outcome::{Cell, FailureKind, Times};
use guerdon_core::report::{Extra, Report, Usage};
use guerdon_core::scheduler::Scheduler;
use guerdon_testkit::{done, failure, function, paused, spec};
use parking_lot::Mutex;

const RAN: Times = Times { started_ns: 1, run_ns: 1 };

/// A lane that holds frames for the test to take.
#[derive(Default)]
struct Holding(Mutex<Vec<Frame>>);

impl Lane for Holding {
    fn attach(&self, _: LaneWaker) {}

    fn room(&self, _: FunctionId) -> usize {
        1 - self.0.lock().len().min(1)
    }

    fn parallelism(&self, _: FunctionId) -> usize {
        1
    }

    fn pool(&self, _: FunctionId) -> usize {
        0
    }

    fn frame_calls(&self, _: FunctionId) -> usize {
        usize::MAX
    }

    fn run(&self, frame: Frame) {
        self.0.lock().push(frame);
    }

    fn close(&self) -> CloseFuture {
        drop(std::mem::take(&mut *self.0.lock()));
        Box::pin(std::future::ready(()))
    }
}

impl Holding {
    /// The frame that is handed out next, and its number of calls.
    async fn take(&self) -> (Frame, usize) {
        loop {
            if let Some(frame) = self.0.lock().pop() {
                let calls = frame.len();
                return (frame, calls);
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }
}

fn engine(functions: Vec<Function>) -> (Scheduler, Arc<Holding>) {
    let lane = Arc::new(Holding::default());
    (Scheduler::start(&tokio::runtime::Handle::current(), Clock::start(), functions, vec![lane.clone()]), lane)
}

fn used(requests: u64, prompt_tokens: u64) -> Usage {
    Usage { requests, prompt_tokens, cost: prompt_tokens as f64 / 8.0, ..Usage::default() }
}

fn with_text(usage: Usage, text: &str) -> Report {
    let mut report = Report { usage, ..Report::default() };
    report.add(0, "said", text);
    report
}

fn extra(batch: &Batch) -> Vec<(usize, String, Extra)> {
    batch.extra_of(0).into_iter().map(|(sample, (name, value))| (sample, name.into_owned(), value)).collect()
}

#[test]
fn every_attempt_counts_and_the_last_one_to_say_something_is_kept() {
    paused(async {
        let retried = function("f", Shape::Sample);
        let retried = Function { policy: Policy { retries: 2, ..retried.policy.clone() }, ..retried };
        let (engine, lane) = engine(vec![retried, function("silent", Shape::Sample)]);
        let batch = engine.submit(spec(1, 1)).unwrap();
        let mut left = 4; // three attempts of f, one call of the other
        while left > 0 {
            let (mut frame, calls) = lane.take().await;
            left -= calls;
            if frame.function_id() == 1 {
                frame.complete(0, Cell::Value(1.0), RAN);
                continue;
            }
            match frame.attempt(0) {
                1 => {
                    frame.report(0, with_text(used(2, 8), "nothing"));
                    frame.fail(0, failure(FailureKind::Error), RAN);
                }
                2 => {
                    frame.report(0, Report { usage: used(1, 1), ..Report::default() });
                    frame.fail(0, failure(FailureKind::Error), RAN);
                }
                _ => {
                    frame.report(0, Report { usage: used(1, 2), ..Report::default() });
                    frame.report(0, with_text(used(1, 4), "7"));
                    frame.complete(0, Cell::Value(7.0), RAN);
                }
            }
        }
        assert!(done(&batch).await);
        assert_eq!(batch.usage_of(0), Some(used(5, 15)));
        assert_eq!(batch.usage_of(1), None);
        let text = |text: &str| (0, "said".to_owned(), Extra::Text(text.to_owned()));
        assert_eq!(extra(&batch), [text("nothing"), text("7")]);
        assert_eq!(engine.usage(), [used(5, 15), Usage::default()]);
    });
}

#[test]
fn a_call_that_counts_no_more_costs_as_much_all_the_same() {
    paused(async {
        let (engine, lane) = engine(vec![function("f", Shape::Sample)]);
        let batch = engine.submit(spec(1, 1)).unwrap();
        let (mut frame, _) = lane.take().await;
        engine.cancel(&batch, "enough");
        frame.report(0, with_text(used(1, 8), "too late"));
        frame.complete(0, Cell::Value(1.0), RAN);
        assert_eq!((batch.usage_of(0), extra(&batch)), (Some(used(1, 8)), Vec::new()));
    });
}

#[test]
fn a_call_on_a_group_reports_by_sample() {
    paused(async {
        let (engine, lane) = engine(vec![function("f", Shape::Group)]);
        let batch = engine.submit(spec(2, 2)).unwrap();
        for _ in 0..2 {
            let (mut frame, calls) = lane.take().await;
            for call in 0..calls {
                let mut report = Report::default();
                report.add(1, "rank", frame.first(call) as f64);
                report.add(0, "notes", vec!["a", "b"]);
                frame.report(call, report);
                frame.complete_many(call, vec![Cell::Abstained; 2], RAN);
            }
            if batch.is_done() {
                break;
            }
        }
        let notes = |sample| (sample, "notes".to_owned(), Extra::from(vec!["a", "b"]));
        let rank = |sample, value: f64| (sample, "rank".to_owned(), Extra::Number(value));
        assert_eq!(extra(&batch), [notes(0), rank(1, 0.0), notes(2), rank(3, 2.0)]);
        assert_eq!(batch.usage_of(0), None);
    });
}
