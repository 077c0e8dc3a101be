//! The watchdog over a whole engine, to the second of a paused clock.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use guerdon_core::function::{Function, Shape};
use guerdon_core::limits::{Limit, Rules};
use guerdon_core::outcome::FailureKind;
use guerdon_testkit::{Act, Ask, Rig, Room, Script, failure, function, returns, spec};

const SECOND: Duration = Duration::from_secs(1);
const AFTER: Duration = Duration::from_secs(120);

struct StallRig {
    rig: Rig,
    reports: Arc<Mutex<Vec<u64>>>,
}

impl StallRig {
    fn start(room: Room, functions: Vec<Function>, script: impl Script) -> Self {
        let rig = Rig::new(room, functions, script);
        let reports = Arc::new(Mutex::new(Vec::new()));
        let seen = reports.clone();
        rig.watch_stalls(AFTER, move |stalled| seen.lock().unwrap().push(stalled.as_secs()));
        Self { rig, reports }
    }

    fn reports(&self) -> Vec<u64> {
        self.reports.lock().unwrap().clone()
    }
}

fn patient(name: &str) -> Function {
    let mut function = function(name, Shape::Sample);
    function.policy.timeout = 10_000 * SECOND;
    function
}

#[tokio::test(start_paused = true)]
async fn a_call_that_hangs_is_reported_though_its_own_timeout_is_far_off() {
    let watched = StallRig::start(Room::default(), vec![patient("f")], |_: &Ask| Act::Hang);
    let _batch = watched.rig.submit(spec(4, 1));
    tokio::time::sleep(115 * SECOND).await;
    assert_eq!(watched.reports(), [0_u64; 0]);
    tokio::time::sleep(15 * SECOND).await;
    assert_eq!(watched.reports(), [120]);
    tokio::time::sleep(370 * SECOND).await;
    assert_eq!(watched.reports(), [120, 240, 480]);
}

#[tokio::test(start_paused = true)]
async fn an_engine_without_work_never_is_however_long() {
    let watched = StallRig::start(Room::default(), vec![patient("f")], |_: &Ask| returns(SECOND, 1, 1.0));
    tokio::time::sleep(3600 * SECOND).await;
    watched.rig.run(spec(4, 1)).await;
    tokio::time::sleep(3600 * SECOND).await;
    assert_eq!(watched.reports(), [0_u64; 0]);
}

#[tokio::test(start_paused = true)]
async fn calls_that_end_one_by_one_in_a_long_frame_are_no_stall() {
    let room = Room { places: 1, frame_calls: 64, ..Room::default() };
    let watched = StallRig::start(room, vec![patient("f")], |_: &Ask| returns(100 * SECOND, 1, 1.0));
    watched.rig.run(spec(20, 1)).await;
    assert_eq!(watched.reports(), [0_u64; 0]);
}

#[tokio::test(start_paused = true)]
async fn attempts_that_fail_and_are_tried_again_are_no_stall() {
    let mut retried = patient("f");
    retried.policy.retries = 10;
    let watched = StallRig::start(Room::default(), vec![retried], |_: &Ask| Act::Fail {
        after: 80 * SECOND,
        failure: failure(FailureKind::Error),
    });
    watched.rig.run(spec(1, 1)).await;
    assert_eq!(watched.reports(), [0_u64; 0]);
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_limit_is_not_a_stall() {
    let mut limited = patient("f");
    let rules = Rules { rpm: Some(0.2), tpm: None, concurrency: None };
    limited.policy.limit = Some(Limit { rules, key: None, tokens: None });
    let watched = StallRig::start(Room::default(), vec![limited], |_: &Ask| returns(SECOND, 1, 1.0));
    let batch = watched.rig.run(spec(3, 1)).await;
    assert!(Duration::from_nanos(batch.elapsed_ns()) > 2 * AFTER, "{}", batch.elapsed_ns());
    assert_eq!(watched.reports(), [0_u64; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_comes_meanwhile_is_no_call_that_ended() {
    let watched = StallRig::start(Room::default(), vec![patient("f")], |_: &Ask| Act::Hang);
    for _ in 0..5 {
        watched.rig.submit(spec(2, 1));
        tokio::time::sleep(26 * SECOND).await;
    }
    assert_eq!(watched.reports(), [120]);
}
