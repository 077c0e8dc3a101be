//! One request on its way.
//!
//! - R-1  It ends within its function's timeout, answer included, wherever it hangs: connecting, waiting, or reading what comes drop by drop.
//! - R-2  An answer is read up to a bound: what goes on for ever is an error, not memory. One that says beforehand that it is longer is not read.
//! - R-3  What is longer than `SHORT` is read when there is room for it (K-6 of `pool`); waiting for that is part of its timeout.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use guerdon_core::outcome::{Cell, Failure};
use guerdon_core::overtime::{no_answer, timed_out};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::header::{CONTENT_ENCODING, HeaderValue};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::answer::{Answer, Scores};
use crate::connector::Broken;
use crate::endpoint::Endpoint;
use crate::fault::Fault;
use crate::pool::{Answering, Pool};
use crate::shown::shown;

/// The longest answer that is read.
const LONGEST_ANSWER: usize = 16 << 20;
/// As long as answers are that hold a score or a list of them.
const SHORT: usize = 64 << 10;
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
    timed_out(format!("{}; {how_far}", no_answer(timeout)), None)
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
    let (mut body, mut room) = (Vec::new(), None);
    let stopped = read(&mut incoming, &mut body, longest, progress, &pool.room, &mut room).await;
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
            if let Some(coding) = head.headers.get(CONTENT_ENCODING).filter(|coding| !is_plain(coding)) {
                let coding = coding.to_str().unwrap_or("an unknown coding");
                let why = format!("an answer in {}, which it was not asked for", shown(coding));
                return Err(Fault::of_answer(endpoint, &why));
            }
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

fn is_plain(coding: &HeaderValue) -> bool {
    coding.is_empty() || coding.as_bytes().eq_ignore_ascii_case(b"identity")
}

/// Why an answer was not read to its end.
enum Stopped {
    Broken(hyper::Error),
    TooLong,
}

/// Reads the bytes of an answer into `body`, up to a bound; a long one keeps its `room` until that is dropped.
async fn read<'a>(
    incoming: &mut Incoming,
    body: &mut Vec<u8>,
    longest: usize,
    progress: &AtomicUsize,
    rooms: &'a Semaphore,
    room: &mut Option<SemaphorePermit<'a>>,
) -> Option<Stopped> {
    if longest == LONGEST_ANSWER && incoming.size_hint().lower() > longest as u64 {
        return Some(Stopped::TooLong);
    }
    loop {
        match incoming.frame().await {
            Some(Ok(frame)) => {
                if let Some(bytes) = frame.data_ref() {
                    body.extend_from_slice(bytes);
                }
            }
            None => return None,
            Some(Err(error)) => return Some(Stopped::Broken(error)),
        }
        progress.store(body.len(), Ordering::Relaxed);
        if body.len() > longest {
            return Some(Stopped::TooLong);
        }
        if body.len() > SHORT && room.is_none() {
            *room = rooms.acquire().await.ok(); // nobody closes it
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Arc;

    use guerdon_core::outcome::FailureKind;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// A server whose answers are the score 1 after so many spaces as the request has bytes.
    async fn server() -> Endpoint {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut came = vec![0; 1 << 20];
                    let length = loop {
                        let count = stream.read(&mut came).await?;
                        let text = String::from_utf8_lossy(&came[..count]).into_owned();
                        if let Some((_, body)) = text.split_once("\r\n\r\n") {
                            break body.trim().parse::<usize>().unwrap_or(0);
                        }
                    };
                    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", length + 1);
                    stream.write_all(head.as_bytes()).await?;
                    stream.write_all(&vec![b' '; length]).await?;
                    stream.write_all(b"1").await
                });
            }
        });
        Endpoint::new(&url, Vec::new(), None, false, None).unwrap()
    }

    #[tokio::test]
    async fn r3_long_answers_are_read_when_there_is_room() {
        let (endpoint, room) = (server().await, Arc::new(Semaphore::new(1)));
        let pool = Pool::new(&endpoint, 3, room.clone()).unwrap();
        let answer = Answer::Rewards { path: None };
        let score = |length: usize, timeout_ms| {
            let (endpoint, pool, answer) = (&endpoint, &pool, &answer);
            async move {
                let asked = length.to_string().into_bytes();
                ask(endpoint, pool, answer, asked, 1, Duration::from_millis(timeout_ms)).await
            }
        };
        let taken = room.acquire().await.unwrap();
        assert!(score(1000, 20_000).await.is_ok(), "a short one needs none");
        let late = score(1 << 20, 300).await.unwrap_err();
        assert!(late.kind == FailureKind::Timeout && late.reason.contains(" bytes of its answer"), "{}", late.reason);
        drop(taken);
        let (one, two) = tokio::join!(score(1 << 20, 20_000), score(1 << 20, 20_000));
        assert!(one.is_ok() && two.is_ok(), "one after the other");
        assert_eq!(room.available_permits(), 1);
    }

    /// M-5 of `streams`: one has room, the others wait for it on the same connection, and all are sent bit by bit.
    #[tokio::test]
    async fn r3_long_answers_of_one_connection_do_not_hold_each_other_up() {
        const PIECE: usize = 16 << 10;
        const PIECES: usize = 200;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let mut connection = h2::server::handshake(listener.accept().await.unwrap().0).await.unwrap();
            let mut all = Vec::new();
            while let Some(Ok((_, respond))) = connection.accept().await {
                all.push(respond);
                for mut respond in all.drain(..all.len() / 4 * 4) {
                    let mut body = respond.send_response(hyper::Response::new(()), false).unwrap();
                    tokio::spawn(async move {
                        for piece in 1..=PIECES {
                            body.reserve_capacity(PIECE);
                            while body.capacity() < PIECE {
                                poll_fn(|context| body.poll_capacity(context)).await.unwrap().unwrap();
                            }
                            let last = piece == PIECES;
                            body.send_data(vec![if last { b'1' } else { b' ' }; PIECE].into(), last).unwrap();
                        }
                    });
                }
            }
        });
        let endpoint = Endpoint::new(&url, Vec::new(), None, true, None).unwrap();
        let pool = Pool::new(&endpoint, 4, Arc::new(Semaphore::new(1))).unwrap();
        let answer = Answer::Rewards { path: None };
        let score = || ask(&endpoint, &pool, &answer, Vec::new(), 1, Duration::from_secs(60));
        let (one, two, three, four) = tokio::join!(score(), score(), score(), score());
        for scores in [one, two, three, four] {
            // So many digits are no reward: what counts is that all of it came.
            assert_ne!(scores.err().map(|failure| failure.kind), Some(FailureKind::Timeout));
        }
    }
}
