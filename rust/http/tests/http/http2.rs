//! Servers that end streams or connections of HTTP/2: what they did not look at comes once more,
//! what they began is an attempt.
#![expect(clippy::unwrap_used, reason = "a server that can't be set up fails its test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use guerdon_core::outcome::Status;
use guerdon_http::Endpoint;
use h2::Reason;
use h2::server::SendResponse;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::rig::{Rig, chat, policy};

const SECOND: Duration = Duration::from_secs(1);
const ANSWER: &[u8] = br#"{"choices": [{"message": {"content": "Score: 7"}}]}"#;

/// How a server treats its first request; all others are answered.
#[derive(Clone, Copy, Debug)]
enum First {
    /// Its stream is reset before or amid an answer.
    Reset(Reason),
    TransportError,
    /// The connection is to end, and the request came too late for it.
    GoneAway,
    /// The connection ends with no more than that.
    CutOff,
}

/// What becomes of one sample, and how many requests and connections the server had.
async fn judged(first: First, retries: u16) -> (Status, String, usize, usize) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1/chat/completions", listener.local_addr().unwrap());
    let (requests, connections) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counted = (requests.clone(), connections.clone());
    let server = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (requests, connections) = counted.clone();
            let number = connections.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                if number == 0 && matches!(first, First::GoneAway | First::CutOff) {
                    go(stream, matches!(first, First::GoneAway)).await.unwrap();
                    requests.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                let mut connection = h2::server::handshake(stream).await.unwrap();
                while let Some(Ok((_, respond))) = connection.accept().await {
                    let begins = requests.fetch_add(1, Ordering::Relaxed) == 0;
                    answer(respond, begins.then_some(first));
                }
            });
        }
    });
    let rig =
        Rig::new(chat(Endpoint::new(&url, Vec::new(), None, true, None).unwrap()), policy(20 * SECOND, retries, 4));
    let (status, value, reason) = rig.score(&["x"]).await.remove(0);
    assert!(value.is_nan() || value == 7.0);
    rig.scheduler.close().await;
    server.abort();
    (status, reason, requests.load(Ordering::Relaxed), connections.load(Ordering::Relaxed))
}

fn answer(mut respond: SendResponse<Bytes>, fault: Option<First>) {
    match fault {
        Some(First::Reset(reason)) => respond.send_reset(reason),
        Some(First::TransportError) => {
            let mut body = respond.send_response(hyper::Response::new(()), false).unwrap();
            body.send_data(Bytes::from_static(&ANSWER[..10]), false).unwrap();
            body.send_reset(Reason::INTERNAL_ERROR);
        }
        _ => {
            let mut body = respond.send_response(hyper::Response::new(()), false).unwrap();
            body.send_data(Bytes::from_static(ANSWER), true).unwrap();
        }
    }
}

/// Takes a request without looking at it, says or does not say that no stream was looked at, and
/// closes the connection.
async fn go(mut stream: TcpStream, politely: bool) -> std::io::Result<()> {
    stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await?; // SETTINGS
    let mut came = Vec::new();
    while !came.windows(9).any(|nine| nine == b"Rate this") {
        assert!(stream.read_buf(&mut came).await? > 0, "the request comes whole");
    }
    if politely {
        // GOAWAY: the last stream that was looked at is 0, and there is no error.
        stream.write_all(&[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).await?;
        // Until the other side hangs up: closing with something unread would be a reset, which may
        // overtake what was sent.
        while stream.read_buf(&mut came).await? > 0 {}
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_a_server_ignored_are_sent_once_more() {
    assert_eq!(judged(First::Reset(Reason::REFUSED_STREAM), 0).await, (Status::Ok, String::new(), 2, 1));
    assert_eq!(judged(First::GoneAway, 0).await, (Status::Ok, String::new(), 2, 2));
}

/// Fault: a judge's server resets a stream of HTTP/2, before or amid its answer, or ends the
/// connection
/// Sees: `error` after `retries`: ConnectionError; a stream that it refused, or did not look at
/// before a GOAWAY, costs no attempt
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_a_server_began_are_attempts() {
    for first in [First::Reset(Reason::INTERNAL_ERROR), First::TransportError, First::CutOff] {
        let (status, reason, requests, _) = judged(first, 0).await;
        assert_eq!((status, requests), (Status::Error, 1), "{first:?}: {reason}");
        assert!(reason.starts_with("ConnectionError: 127.0.0.1"), "{first:?}: {reason}");
        let (status, reason, requests, connections) = judged(first, 1).await;
        assert_eq!((status, requests), (Status::Ok, 2), "{first:?}: {reason}");
        assert_eq!(connections, if matches!(first, First::CutOff) { 2 } else { 1 }, "{first:?}");
    }
}

/// A server that allows four streams gets four, and as many connections as that takes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_many_streams_as_the_server_allows() {
    const STREAMS: usize = 4;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1/chat/completions", listener.local_addr().unwrap());
    let (connections, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counted = (connections.clone(), most.clone());
    let server = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (connections, most) = counted.clone();
            connections.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                let mut builder = h2::server::Builder::new();
                builder.max_concurrent_streams(STREAMS as u32);
                let mut connection = builder.handshake::<_, Bytes>(stream).await.unwrap();
                let now = Arc::new(AtomicUsize::new(0));
                while let Some(Ok((_, respond))) = connection.accept().await {
                    most.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                    let now = now.clone();
                    tokio::spawn(async move {
                        tokio::time::sleep(SECOND / 10).await;
                        now.fetch_sub(1, Ordering::Relaxed);
                        answer(respond, None);
                    });
                }
            });
        }
    });
    let rig = Rig::new(chat(Endpoint::new(&url, Vec::new(), None, true, None).unwrap()), policy(20 * SECOND, 0, 20));
    let found = rig.score(&["x"; 60]).await;
    assert!(found.iter().all(|(status, value, _)| (*status, *value) == (Status::Ok, 7.0)), "{found:?}");
    rig.scheduler.close().await;
    server.abort();
    assert_eq!((connections.load(Ordering::Relaxed), most.load(Ordering::Relaxed)), (5, STREAMS));
}
