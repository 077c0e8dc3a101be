//! What calls report beside their cells.

use std::time::Duration;

use guerdon_core::batch::Batch;
use guerdon_core::frame::Frame;
use guerdon_core::function::{Function, Policy, Shape};
use guerdon_core::outcome::{Cell, FailureKind, Times};
use guerdon_core::report::{Extra, Report, Usage};
use guerdon_testkit::{HoldingLane, Rig, done, failure, function, spec};

const RAN: Times = Times { started_ns: 1, run_ns: 1 };

fn engine(functions: Vec<Function>) -> Rig<HoldingLane> {
    Rig::on(HoldingLane::new(1, usize::MAX), functions)
}

/// The frame that is handed out next, and its number of calls.
async fn take(lane: &HoldingLane) -> (Frame, usize) {
    loop {
        if let Some(frame) = lane.take() {
            let calls = frame.len();
            return (frame, calls);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
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

#[tokio::test(start_paused = true)]
async fn every_attempt_counts_and_the_last_one_to_say_something_is_kept() {
    let retried = function("f", Shape::Sample);
    let retried = Function { policy: Policy { retries: 2, ..retried.policy.clone() }, ..retried };
    let engine = engine(vec![retried, function("silent", Shape::Sample)]);
    let batch = engine.submit(spec(1, 1));
    let mut left = 4; // three attempts of f, one call of the other
    while left > 0 {
        let (mut frame, calls) = take(&engine.lane).await;
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
}

#[tokio::test(start_paused = true)]
async fn a_call_that_counts_no_more_costs_as_much_all_the_same() {
    let engine = engine(vec![function("f", Shape::Sample)]);
    let batch = engine.submit(spec(1, 1));
    let (mut frame, _) = take(&engine.lane).await;
    engine.cancel(&batch, "enough");
    frame.report(0, with_text(used(1, 8), "too late"));
    frame.complete(0, Cell::Value(1.0), RAN);
    assert_eq!((batch.usage_of(0), extra(&batch)), (Some(used(1, 8)), Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn a_call_on_a_group_reports_by_sample() {
    let engine = engine(vec![function("f", Shape::Group)]);
    let batch = engine.submit(spec(2, 2));
    for _ in 0..2 {
        let (mut frame, calls) = take(&engine.lane).await;
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
}
