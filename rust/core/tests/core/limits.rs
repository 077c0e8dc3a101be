//! Limits through the scheduler, to the millisecond of a paused clock: a minute is a minute.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use guerdon_core::batch::BatchSpec;
use guerdon_core::function::{Function, Shape};
use guerdon_core::limits::{Limit, LimitWarning, Rules};
use guerdon_core::outcome::{Answer, Failure, FailureKind, Status};
use guerdon_testkit::{Act, Ask, Rig, Room, Script, done, failure, function, returns, spec, statuses};
use tokio::time::Instant;

use super::endpoint_health::rig::Key;

const MINUTE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);

fn start(functions: Vec<Function>, script: impl Script) -> Rig {
    Rig::new(Room { places: 256, at_once: true, ..Room::default() }, functions, script)
}

/// When calls were started, in order.
fn started(engine: &Rig) -> Vec<u64> {
    let mut started: Vec<u64> = engine.log().calls().iter().map(|call| call.started_ns).collect();
    started.sort_unstable();
    started
}

fn limited(name: &str, limit: Limit) -> Function {
    let mut function = function(name, Shape::Sample);
    function.policy.concurrency = limit.rules.concurrency;
    function.policy.limit = Some(limit);
    function
}

fn rpm(rpm: f64) -> Limit {
    Limit { rules: Rules { rpm: Some(rpm), ..Rules::default() }, ..Limit::default() }
}

fn answer(after: Duration) -> Act {
    returns(after, 1, 1.0)
}

fn refuse(answer: Answer, retry_after: Option<Duration>) -> Act {
    let failure = Failure { answer: Some(answer), retry_after, ..failure(FailureKind::Error) };
    Act::Fail { after: Duration::from_millis(5), failure }
}

fn most_in(sent: &[u64], window: Duration) -> usize {
    let window_ns = u64::try_from(window.as_nanos()).unwrap();
    (0..sent.len()).map(|first| sent.partition_point(|at| *at < sent[first] + window_ns) - first).max().unwrap_or(0)
}

/// A server that answers `most` requests in any minute, and says to others when to come again.
fn window(most: usize, refused: &Arc<Mutex<usize>>) -> impl Script {
    let (taken, refused) = (Mutex::new(VecDeque::new()), refused.clone());
    move |_: &Ask| {
        let (now, mut taken) = (Instant::now(), taken.lock().unwrap());
        while taken.front().is_some_and(|at: &Instant| *at + MINUTE <= now) {
            taken.pop_front();
        }
        if taken.len() < most {
            taken.push_back(now);
            return answer(SECOND);
        }
        *refused.lock().unwrap() += 1;
        refuse(Answer::Status(429), taken.front().map(|at| *at + MINUTE - now))
    }
}

#[tokio::test(start_paused = true)]
async fn row_19_all_of_an_allowance_is_used_at_a_steady_rate_and_nothing_is_lost() {
    let refused = Arc::default();
    let engine = start(vec![limited("f", rpm(100.0))], window(100, &refused));
    let begun = Instant::now();
    let batch = engine.run(spec(250, 8)).await;
    assert!(statuses(&batch, 0).iter().all(|status| *status == Status::Ok));
    assert!(*refused.lock().unwrap() * 50 <= 2000);
    assert!(begun.elapsed() <= MINUTE * 20 * 100 / 95, "{:?} for twenty minutes' worth", begun.elapsed());
    let started = started(&engine);
    assert!(most_in(&started, MINUTE) <= 100);
    assert!(most_in(&started, SECOND) <= 3, "no opening burst");
    // Waiting is queueing.
    let run = batch.cell(1999, 0).unwrap().outcome.times;
    assert!(run.run_ns < 1_100_000_000 && run.started_ns - batch.submitted_ns() > 19 * 60_000_000_000);
}

#[tokio::test(start_paused = true)]
async fn row_19_engines_and_functions_that_name_a_key_share_it() {
    let (key, refused) = (Key::new(), Arc::default());
    let limit = key.limit(Rules { rpm: Some(100.0), ..Rules::default() });
    let server = Arc::new(window(100, &refused));
    let functions = || vec![limited("f", limit.clone()), limited("g", limit.clone())];
    let engines: Vec<Rig> = (0..4)
        .map(|_| {
            let server = server.clone();
            start(functions(), move |ask: &Ask| server.act(ask))
        })
        .collect();
    let begun = Instant::now();
    let batches: Vec<_> = engines.iter().map(|engine| engine.submit(spec(125, 1))).collect();
    for batch in &batches {
        assert!(done(batch).await);
        assert!(statuses(batch, 0).iter().all(|status| *status == Status::Ok));
    }
    assert!(*refused.lock().unwrap() * 50 <= 1000, "{refused:?} refused");
    assert!(begun.elapsed() <= MINUTE * 10 * 100 / 95, "{:?} for ten minutes' worth", begun.elapsed());
    let mut started: Vec<u64> = engines.iter().flat_map(started).collect();
    started.sort_unstable();
    assert!(most_in(&started, MINUTE) <= 100);
}

#[tokio::test(start_paused = true)]
async fn calls_at_a_time_are_shared_by_engines_too() {
    let key = Key::new();
    let limit = key.limit(Rules { concurrency: Some(3), ..Rules::default() });
    let (inside, most) = (Arc::new(Mutex::new(0_i32)), Arc::new(Mutex::new(0)));
    let engines: Vec<Rig> = (0..3)
        .map(|_| start(vec![limited("f", limit.clone()), limited("g", limit.clone())], |_: &Ask| answer(SECOND)))
        .collect();
    let batches: Vec<_> = engines.iter().map(|engine| engine.submit(spec(20, 1))).collect();
    let begun = Instant::now();
    while !batches.iter().all(|batch| batch.is_done()) {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = engines.iter().map(|engine| i32::try_from(engine.lane.held()).unwrap()).sum();
        *inside.lock().unwrap() = now;
        let mut most = most.lock().unwrap();
        *most = now.max(*most);
    }
    assert_eq!(*most.lock().unwrap(), 3);
    assert!(begun.elapsed() < SECOND * 45, "{:?} for 120 calls of 1 s, 3 at a time", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn retry_after_holds_for_all_where_nothing_contradicts_it() {
    let limit = Limit { rules: Rules { concurrency: Some(4), ..Rules::default() }, ..Limit::default() };
    let engine = start(vec![limited("f", limit)], |ask: &Ask| match (ask.first, ask.attempt) {
        (0..4, 1) => refuse(Answer::Status(429), Some(SECOND * 30)),
        _ => answer(SECOND),
    });
    let batch = engine.run(spec(40, 1)).await;
    assert!(statuses(&batch, 0).iter().all(|status| *status == Status::Ok));
    let started = started(&engine);
    // Four were under way, and nothing came before the thirty seconds were over.
    let pause = started.windows(2).map(|two| two[1] - two[0]).max().unwrap();
    assert!((28_000_000_000..31_000_000_000).contains(&pause), "{pause}");
    assert!(started.iter().filter(|at| **at < started[0] + pause).count() <= 4);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_restarted_costs_no_sample() {
    let mut function = limited("f", rpm(600.0));
    // One call may have all the failures that open the breaker.
    function.policy.retries = 4;
    let begun = Instant::now();
    let engine = start(vec![function], move |_: &Ask| {
        let down = (SECOND * 5..SECOND * 35).contains(&begun.elapsed());
        if down { refuse(Answer::Unreachable, None) } else { answer(SECOND) }
    });
    let batch = engine.run(spec(300, 1)).await;
    assert!(statuses(&batch, 0).iter().all(|status| *status == Status::Ok));
    let tried = engine.log().calls().len();
    assert!(tried < 330, "{tried} attempts for 300 calls: the endpoint was down for 30 s of them");
}

#[tokio::test(start_paused = true)]
async fn an_open_breaker_ends_a_batch_instead_of_holding_it() {
    let mut function = limited("f", rpm(6000.0));
    function.policy.retries = 1000;
    let engine = start(vec![function], |_: &Ask| refuse(Answer::Status(502), None));
    let opened: Arc<Mutex<Vec<(usize, LimitWarning, String)>>> = Arc::default();
    let listener = opened.clone();
    engine.on_limit_warning(move |function, warning, why| {
        listener.lock().unwrap().push((function, warning, why.to_owned()));
    });
    let begun = Instant::now();
    let batch = engine.run(spec(50, 1)).await;
    assert!((MINUTE * 5..MINUTE * 7).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    assert!(statuses(&batch, 0).iter().all(|status| *status == Status::Error));
    let reason = batch.note_of(49, 0).unwrap().reason;
    let last = failure(FailureKind::Error).reason;
    assert!(reason.contains("circuit breaker open") && reason.ends_with(&format!("; last error: {last}")), "{reason}");
    assert_eq!(
        *opened.lock().unwrap(),
        [(0, LimitWarning::BreakerOpen, last)],
        "once, though it was tried for minutes"
    );
    // The next one gets an answer to whether it still is.
    tokio::time::sleep(MINUTE).await;
    let (next, tried) = (engine.submit(spec(1, 1)), engine.log().calls().len());
    tokio::time::sleep(SECOND).await;
    assert!(engine.log().calls().len() > tried);
    engine.cancel(&next, "over");
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_ends_while_calls_wait_for_their_limit_ends_them() {
    let engine = start(vec![limited("f", rpm(60.0))], |_: &Ask| answer(SECOND));
    let batch_timeout_ns = Some(10_000_000_000);
    let batch = engine.run(BatchSpec { batch_timeout_ns, ..spec(60, 1) }).await;
    let ok = statuses(&batch, 0).iter().filter(|status| **status == Status::Ok).count();
    assert!((7..=11).contains(&ok), "{ok}");
    assert_eq!(batch.cell(59, 0).unwrap().outcome.times.run_ns, 0);
    assert_eq!(batch.note_of(59, 0).unwrap().reason, "batch timeout");
}

#[tokio::test(start_paused = true)]
async fn tokens_are_learnt_from_reported_use() {
    // No call says what it used: 1000 tokens are taken for each.
    let limit = Limit { rules: Rules { tpm: Some(10_000.0), ..Rules::default() }, ..Limit::default() };
    let engine = start(vec![limited("f", limit.clone())], |_: &Ask| answer(SECOND));
    let begun = Instant::now();
    engine.run(spec(40, 1)).await;
    assert!((SECOND * 230..MINUTE * 5).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    // Known beforehand.
    let engine = start(vec![limited("f", Limit { tokens: Some(100.0), ..limit })], |_: &Ask| answer(SECOND));
    let begun = Instant::now();
    engine.run(spec(400, 1)).await;
    assert!((SECOND * 230..MINUTE * 5).contains(&begun.elapsed()), "{:?}", begun.elapsed());
}
