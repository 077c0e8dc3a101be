//! One request on its way.
//!
//! - R-1  It ends within its function's timeout, answer included, wherever it hangs: connecting, waiting, or reading what comes drop by drop.
//! - R-2  An answer is read up to a bound: what goes on for ever is an error, not memory.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use guerdon_core::outcome::{Failure, FailureKind};
use reqwest::Response;

use crate::answer::{Answer, Scores};
use crate::endpoint::{Endpoint, Pool};
use crate::fault::Fault;

/// The longest answer that is read.
const LONGEST_ANSWER: usize = 16 << 20;
/// How much of an answer that is an error is read: more than a reason shows.
const LONGEST_ERROR: usize = 8 << 10;
/// No answer yet.
const NOTHING: usize = usize::MAX;

/// Sends `body` and reads the scores of `samples` samples.
pub async fn ask(
    endpoint: &Endpoint,
    pool: &Pool,
    answer: &Answer,
    body: Vec<u8>,
    samples: usize,
    timeout: Duration,
) -> Result<Scores, Failure> {
    let progress = AtomicUsize::new(NOTHING);
    match tokio::time::timeout(timeout, exchange(endpoint, pool, answer, body, samples, &progress)).await {
        Ok(scores) => scores.map_err(Fault::into_failure),
        Err(_) => Err(late(endpoint, timeout, progress.into_inner())),
    }
}

/// The failure of a request that took too long; how far it came says where to look.
fn late(endpoint: &Endpoint, timeout: Duration, received: usize) -> Failure {
    let host = endpoint.host();
    let how_far = match received {
        NOTHING => format!("{host} had not answered"),
        bytes => format!("{host} had sent {bytes} bytes of its answer"),
    };
    let reason = format!("TimeoutError: ran longer than its timeout of {} s: {how_far}", timeout.as_secs_f64());
    Failure { kind: FailureKind::Timeout, reason, traceback: None, retryable: true, retry_after: None, answer: None }
}

async fn exchange(
    endpoint: &Endpoint,
    pool: &Pool,
    answer: &Answer,
    body: Vec<u8>,
    samples: usize,
    progress: &AtomicUsize,
) -> Result<Scores, Fault> {
    let broken = |error| Fault::of_transport(endpoint, error);
    let Some(leased) = pool.lease() else { return Err(Fault::of_answer(endpoint, "no connection: the pool is empty")) };
    let request = leased.client.post(endpoint.url().clone()).headers(endpoint.headers().clone()).body(body);
    let response = request.send().await.map_err(broken)?;
    progress.store(0, Ordering::Relaxed);
    let (status, headers) = (response.status(), response.headers().clone());
    if !status.is_success() {
        // The status says enough, even if the words that go with it break.
        let (said, _) = read(response, LONGEST_ERROR, progress).await;
        return Err(Fault::of_status(endpoint, status, &headers, &said));
    }
    match read(response, LONGEST_ANSWER, progress).await {
        (_, Some(Stopped::Broken(error))) => Err(broken(error)),
        (_, Some(Stopped::TooLong)) => {
            Err(Fault::of_answer(endpoint, &format!("more than {LONGEST_ANSWER} bytes, which is no score")))
        }
        (body, None) => answer.read(&body, samples).map_err(|why| Fault::of_answer(endpoint, &why)),
    }
}

/// Why an answer was not read to its end.
enum Stopped {
    Broken(reqwest::Error),
    TooLong,
}

/// The bytes of an answer, up to a bound.
async fn read(mut response: Response, longest: usize, progress: &AtomicUsize) -> (Vec<u8>, Option<Stopped>) {
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Ok(None) => return (body, None),
            Err(error) => return (body, Some(Stopped::Broken(error))),
        }
        progress.store(body.len(), Ordering::Relaxed);
        if body.len() > longest {
            return (body, Some(Stopped::TooLong));
        }
    }
}
