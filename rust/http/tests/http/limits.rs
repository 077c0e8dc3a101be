//! Limits of judges against a server that counts: 429 and `Retry-After` in any stretch of time, as
//! providers have it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use guerdon_core::function::Policy;
use guerdon_core::limits::{Limit, Rules};
use guerdon_core::outcome::Status;
use guerdon_testkit::judge::{JudgeConfig, Window};

use crate::mock;
use crate::rig::{Rig, chat, done, endpoint, outcomes, policy};

const SECOND: Duration = Duration::from_secs(1);

/// 25 requests in any half second: 3000 a minute.
const WINDOW: Window = Window { requests: 25, length: Duration::from_millis(500) };

/// Scores of 100 texts, all there; how many requests came, and how many were refused.
async fn judged(rules: Rules) -> (u64, u64) {
    let judge = mock(JudgeConfig { window: Some(WINDOW), ..Default::default() }).await;
    let limit = Some(Limit { rules, ..Limit::default() });
    let rig = Rig::new(chat(endpoint(&judge, "/v1/chat/completions")), Policy { limit, ..policy(20 * SECOND, 50, 64) });
    let texts: Vec<String> = (0..100).map(|index| format!("[[score {index}]]")).collect();
    let batch = done(rig.submit(&texts, None)).await;
    for (index, (status, value, reason)) in outcomes(&batch).into_iter().enumerate() {
        assert_eq!((status, value), (Status::Ok, index as f64), "{reason}");
    }
    rig.scheduler.close().await;
    let seen = judge.seen();
    (seen.requests.load(Ordering::Relaxed), seen.refused.load(Ordering::Relaxed))
}

/// A rate is kept from the first request on, and what is refused all the same is sent again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rate_is_kept_and_nothing_is_lost() {
    let (requests, refused) = judged(Rules { rpm: Some(3000.0), ..Rules::default() }).await;
    assert_eq!(requests, 100 + refused);
    assert!(refused < 25, "{refused} of {requests} were refused: a window's worth only where nothing is kept");
}

/// The server's words are all that is known if no rate is given: it asks one to wait, and all
/// wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_says_later_is_left_alone_till_then() {
    let (requests, refused) = judged(Rules { concurrency: Some(64), ..Rules::default() }).await;
    assert_eq!(requests, 100 + refused);
    // 64 come at once, of which 39 are refused; all go on together when the first of them may.
    assert!(refused < 1000, "{refused} of {requests}");
}
