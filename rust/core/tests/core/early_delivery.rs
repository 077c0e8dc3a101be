//! Groups that are delivered before all of their calls have ended, on fake lanes and a paused
//! clock.

use std::time::Duration;

use guerdon_core::batch::{Batch, BatchSpec};
use guerdon_core::call::CallKind;
use guerdon_core::delivery::Delivery;
use guerdon_core::function::{Function, OnFailure, Shape};
use guerdon_core::open_batch::Placement;
use guerdon_core::outcome::{FailureKind, Status};
use guerdon_testkit::{Act, Ask, Rig, done, failure, function, returns, seconds, spec, statuses};

/// Worth 1, after so many seconds.
fn after(seconds: f64, samples: usize) -> Act {
    returns(Duration::from_secs_f64(seconds), samples, 1.0)
}

fn reasons(batch: &Batch, function: usize) -> Vec<String> {
    (0..batch.samples()).filter_map(|sample| Some(batch.note_of(sample, function)?.reason)).collect()
}

const QUORUM: Delivery = Delivery::quorum(2);
const TIMEOUT: Delivery = Delivery::timeout_ns(5_000_000_000);

#[tokio::test(start_paused = true)]
async fn a_quorum_cancels_the_others() {
    let engine = Rig::wide(vec![function("f", Shape::Sample), function("g", Shape::Sample)], |ask: &Ask| {
        after(if ask.first % 4 >= 2 { 50.0 } else { ask.first as f64 }, 1)
    });
    let batch = engine.run(BatchSpec { delivery: QUORUM, ..spec(2, 4) }).await;
    assert_eq!(
        (seconds(&batch), batch.take_group(), batch.take_group(), batch.take_group()),
        (5, Some(0), Some(1), None)
    );
    for function in 0..2 {
        use Status::{Cancelled, Ok};
        assert_eq!(statuses(&batch, function), [Ok, Ok, Cancelled, Cancelled, Ok, Ok, Cancelled, Cancelled]);
        assert_eq!(reasons(&batch, function), ["quorum"; 4]);
    }
    assert_eq!(engine.open_batches(), 0);
}

#[tokio::test(start_paused = true)]
async fn with_a_quorum_and_a_timeout_whichever_comes_first_delivers_a_group() {
    let engine = Rig::wide(vec![function("f", Shape::Sample)], |ask: &Ask| {
        after([1.0, 2.0, 50.0, 1.0, 50.0, 50.0][ask.first], 1)
    });
    let delivery = Delivery { group_timeout_ns: TIMEOUT.group_timeout_ns, ..QUORUM };
    let batch = engine.run(BatchSpec { delivery, ..spec(2, 3) }).await;
    assert_eq!((seconds(&batch), batch.take_group(), batch.take_group()), (5, Some(0), Some(1)));
    use Status::{Cancelled, Ok, Timeout};
    assert_eq!(statuses(&batch, 0), [Ok, Ok, Cancelled, Ok, Timeout, Timeout]);
    assert_eq!(reasons(&batch, 0), ["quorum", "group timeout", "group timeout"]);
}

#[tokio::test(start_paused = true)]
async fn a_sample_counts_once_all_functions_have_completed_it() {
    let script = |ask: &Ask| match (ask.kind, ask.first) {
        (CallKind::Group, _) => after(20.0, ask.samples),
        (_, 2) => after(25.0, 1),
        (_, first) => after(first as f64, 1),
    };
    let engine = Rig::wide(vec![function("f", Shape::Sample), function("g", Shape::Group)], script);
    let batch = engine.run(BatchSpec { delivery: QUORUM, ..spec(1, 3) }).await;
    assert_eq!(seconds(&batch), 20, "the group function's cells count for each sample");
    assert_eq!(statuses(&batch, 0), [Status::Ok, Status::Ok, Status::Cancelled]);
    assert_eq!(statuses(&batch, 1), [Status::Ok; 3]);
}

#[tokio::test(start_paused = true)]
async fn a_group_timeout_ends_calls_of_samples_and_groups() {
    let script = |ask: &Ask| after(if ask.kind == CallKind::Group || ask.first == 1 { 50.0 } else { 1.0 }, ask.samples);
    let engine = Rig::wide(vec![function("f", Shape::Sample), function("g", Shape::Group)], script);
    let batch = engine.run(BatchSpec { delivery: TIMEOUT, ..spec(1, 3) }).await;
    assert_eq!(seconds(&batch), 5);
    assert_eq!(statuses(&batch, 0), [Status::Ok, Status::Timeout, Status::Ok]);
    assert_eq!(statuses(&batch, 1), [Status::Timeout; 3]);
    assert_eq!(reasons(&batch, 1), ["group timeout"; 3]);
}

#[tokio::test(start_paused = true)]
async fn a_group_that_nobody_waits_for_is_cancelled_alone() {
    let script = |ask: &Ask| after(10.0, ask.samples);
    let engine = Rig::wide(vec![function("f", Shape::Sample), function("g", Shape::Group)], script);
    let delivery = Delivery { cancellable: true, ..Delivery::default() };
    let batch = engine.submit(BatchSpec { delivery, ..spec(3, 2) });
    tokio::time::sleep(Duration::from_secs(1)).await;
    engine.cancel_group(&batch, 1, "gone");
    engine.cancel_group(&batch, 1, "gone again");
    assert!(done(&batch).await);
    assert_eq!((batch.take_group(), seconds(&batch)), (Some(1), 10), "it is there first, the others in their time");
    use Status::{Cancelled, Ok};
    for function in 0..2 {
        assert_eq!(statuses(&batch, function), [Ok, Ok, Cancelled, Cancelled, Ok, Ok]);
        assert_eq!(reasons(&batch, function), ["gone"; 2]);
    }
    engine.cancel_group(&batch, 0, "too late");
    assert_eq!(statuses(&batch, 0)[..2], [Ok, Ok]);
}

#[tokio::test(start_paused = true)]
async fn finish_group_comes_after_an_early_delivery_with_the_scores_that_there_are() {
    for delivery in [QUORUM, TIMEOUT] {
        let script = |ask: &Ask| match ask.kind {
            CallKind::Finish => {
                assert_eq!(ask.scores, [Some(1.0), None, Some(1.0)]);
                after(2.0, 3)
            }
            _ => after(if ask.first == 1 { 50.0 } else { 1.0 }, 1),
        };
        let engine = Rig::wide(vec![Function { finish: true, ..function("f", Shape::Sample) }], script);
        let batch = engine.run(BatchSpec { delivery, ..spec(1, 3) }).await;
        assert_eq!(seconds(&batch), if delivery == QUORUM { 3 } else { 7 });
        assert_eq!(statuses(&batch, 0).into_iter().filter(|one| *one == Status::Ok).count(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_another_attempt_is_delivered_early() {
    let mut retried = function("f", Shape::Sample);
    retried.policy.retries = 100;
    let script = |ask: &Ask| match ask.first {
        2 => Act::Fail { after: Duration::from_millis(300), failure: failure(FailureKind::Error) },
        _ => after(4.0, 1),
    };
    let engine = Rig::wide(vec![retried], script);
    let batch = engine.run(BatchSpec { delivery: QUORUM, ..spec(1, 3) }).await;
    assert_eq!((seconds(&batch), statuses(&batch, 0)), (4, vec![Status::Ok, Status::Ok, Status::Cancelled]));
}

#[tokio::test(start_paused = true)]
async fn a_quorum_need_not_wait_for_samples_that_were_never_added() {
    let engine = Rig::wide(vec![function("f", Shape::Sample)], |_: &Ask| after(1.0, 1));
    let batch = engine.submit(BatchSpec { delivery: QUORUM, streamed: true, group_size: 4, ..spec(0, 1) });
    let add = |places| engine.add(&batch, places);
    add(Placement::InOrder(2));
    add(Placement::OfGroup(1, 1));
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!((batch.take_group(), batch.take_group()), (Some(0), None));
    add(Placement::OfGroup(0, 1)); // it comes too late, which its producer can't know
    assert_eq!(engine.finish(&batch).unwrap_err().to_string(), "1 group lacks samples: group 1 has 1 of 2");
    add(Placement::OfGroup(1, 1));
    engine.finish(&batch).unwrap();
    assert!(done(&batch).await);
    assert_eq!(batch.take_group(), Some(1));
    assert!(batch.is_exhausted());
    assert_eq!(statuses(&batch, 0)[2..4], [Status::Cancelled; 2]);
}

/// A function of whole groups gets all samples of one, with any quorum.
#[tokio::test(start_paused = true)]
async fn finish_group_gets_a_group_that_is_whole() {
    let script = |ask: &Ask| match ask.kind {
        CallKind::Finish => {
            assert_eq!(ask.scores, [Some(1.0), Some(1.0), None]);
            after(0.0, 3)
        }
        _ => after(1.0, 1),
    };
    for (delivery, wanted) in [(QUORUM, [Status::Ok, Status::Ok, Status::Cancelled]), (TIMEOUT, [Status::Timeout; 3])] {
        let engine = Rig::wide(vec![Function { finish: true, ..function("f", Shape::Sample) }], script);
        let batch = engine.submit(BatchSpec { delivery, streamed: true, group_size: 3, ..spec(0, 1) });
        let add = |count| engine.add(&batch, Placement::InOrder(count));
        add(2);
        tokio::time::sleep(Duration::from_secs(4)).await;
        assert_eq!(batch.take_group(), None);
        if delivery == QUORUM {
            assert_eq!(engine.finish(&batch).unwrap_err().first, [(0, 2)]);
            add(1);
        }
        tokio::time::sleep(Duration::from_secs(4)).await;
        assert_eq!(batch.take_group(), Some(0));
        engine.finish(&batch).unwrap();
        assert_eq!(statuses(&batch, 0), wanted);
    }
}

#[tokio::test(start_paused = true)]
async fn the_timeout_of_a_group_counts_from_its_first_sample() {
    let engine = Rig::wide(vec![function("f", Shape::Sample)], |_: &Ask| after(4.0, 1));
    let batch = engine.submit(BatchSpec { delivery: TIMEOUT, streamed: true, group_size: 2, ..spec(0, 1) });
    for _ in 0..2 {
        engine.add(&batch, Placement::InOrder(1));
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(batch.take_group(), Some(0));
    engine.finish(&batch).unwrap();
    assert_eq!(statuses(&batch, 0), [Status::Ok, Status::Timeout]);
}

#[tokio::test(start_paused = true)]
async fn on_failure_makes_nothing_of_what_a_quorum_left_behind() {
    for on_failure in [OnFailure::Value(0.0), OnFailure::Abstain] {
        let mut plain = function("f", Shape::Sample);
        plain.policy.on_failure = on_failure;
        let engine = Rig::wide(vec![plain], |ask: &Ask| after(if ask.first == 2 { 50.0 } else { 1.0 }, 1));
        let batch = engine.run(BatchSpec { delivery: QUORUM, ..spec(1, 3) }).await;
        let (value, status) = batch.shown(2, 0);
        assert!(value.is_nan() && status == Status::Cancelled);
    }
}
