//! One request on its way.
//!
//! - R-1  It ends within its function's timeout, answer included, wherever it hangs: connecting, waiting, or reading what comes drop by drop.
//! - R-2  An answer is read up to a bound: what goes on for ever is an error, not memory.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use guerdon_core::outcome::{Cell, Failure, FailureKind};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use crate::answer::{Answer, Scores};
use crate::endpoint::Endpoint;
use crate::fault::Fault;
use crate::pool::{Answering, Broken, Pool};

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
    let broken = |error: &Broken| Fault::of_transport(endpoint, error);
    let Answering { response, connection } = pool.send(endpoint, body.into()).await.map_err(|error| broken(&error))?;
    progress.store(0, Ordering::Relaxed);
    let (head, mut incoming) = response.into_parts();
    let longest = if head.status.is_success() { LONGEST_ANSWER } else { LONGEST_ERROR };
    let (body, stopped) = read(&mut incoming, longest, progress).await;
    if stopped.is_none() {
        connection.give_back().await;
    }
    if !head.status.is_success() {
        // The status says enough, even if the words that go with it break.
        return Err(Fault::of_status(endpoint, head.status, &head.headers, &body));
    }
    match stopped {
        Some(Stopped::Broken(error)) => Err(broken(&Broken::OnTheWay(error))),
        Some(Stopped::TooLong) => {
            Err(Fault::of_answer(endpoint, &format!("more than {LONGEST_ANSWER} bytes, which is no score")))
        }
        None => {
            let mut scores = answer.read(&body, samples).map_err(|why| Fault::of_answer(endpoint, &why))?;
            for cell in &mut scores.cells {
                if let Cell::Invalid(why) = cell {
                    *why = Fault::of_answer(endpoint, why).reason;
                }
            }
            Ok(scores)
        }
    }
}

/// Why an answer was not read to its end.
enum Stopped {
    Broken(hyper::Error),
    TooLong,
}

/// The bytes of an answer, up to a bound.
async fn read(incoming: &mut Incoming, longest: usize, progress: &AtomicUsize) -> (Vec<u8>, Option<Stopped>) {
    let mut body = Vec::new();
    loop {
        match incoming.frame().await {
            Some(Ok(frame)) => {
                if let Some(bytes) = frame.data_ref() {
                    body.extend_from_slice(bytes);
                }
            }
            None => return (body, None),
            Some(Err(error)) => return (body, Some(Stopped::Broken(error))),
        }
        progress.store(body.len(), Ordering::Relaxed);
        if body.len() > longest {
            return (body, Some(Stopped::TooLong));
        }
    }
}
