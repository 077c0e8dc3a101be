//! The connection pool of an endpoint: never more connections than requests in flight.
//!
//! - A connection is made only while none is idle. One that broke, or whose response was not read
//!   to its end, is closed; so is one that was idle for `IDLE`.
//! - A request that finds its connection closed before anything was sent takes another: no attempt.
//! - A connection that was idle for `RESEND_AFTER_IDLE` and closes without a response was closed by
//!   the server for being idle: its request is sent once more on a new one, and that is no attempt
//!   either.

use std::collections::VecDeque;
use std::error::Error;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Response;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::connector::{Connector, Io, TransportError};
use crate::endpoint::{Endpoint, Target};
use crate::endpoint_error::EndpointError;
use crate::http2::{Http2Connections, STREAMS, Sent, StreamGuard};

/// How long an idle connection is kept.
const IDLE: Duration = Duration::from_secs(90);
/// Less than any server waits before it closes an idle connection.
const RESEND_AFTER_IDLE: Duration = Duration::from_secs(1);
/// How long a connection may stay busy after its response was read; it only does where the server
/// did not wait for all of the request.
const DRAIN: Duration = Duration::from_millis(100);

type Http1Sender = http1::SendRequest<Full<Bytes>>;

/// See the module. hyper-util's pool (reqwest's) opened 375 connections for 256 requests in flight
/// with varying latencies, and has one HTTP/2 connection for each server.
pub struct Pool {
    connector: Connector,
    idle: Arc<Mutex<Idle>>,
    /// Where HTTP/2 is wanted.
    http2: Option<Http2Connections>,
    resend_after_idle: Duration,
    /// Permits to read long responses, which bound the memory. Taken by `request`.
    pub long_responses: Arc<Semaphore>,
}

/// Idle connections of HTTP/1.1, and since when: the one used last is used next.
/// Written by requests and `reap`.
#[derive(Default)]
struct Idle {
    connections: VecDeque<(Instant, Http1Sender)>,
    reaping: bool,
}

/// A response whose body is still to be read.
pub struct Exchange<'a> {
    pub response: Response<Incoming>,
    pub connection: Connection<'a>,
}

/// The connection that a response comes by.
pub struct Connection<'a>(Kind<'a>);

enum Kind<'a> {
    Http1(Http1Sender, &'a Arc<Mutex<Idle>>),
    Http2(#[expect(dead_code, reason = "counts until it is dropped")] StreamGuard<'a>),
}

/// How many connections so many requests in flight need.
pub const fn connections(endpoint: &Endpoint, requests: usize) -> usize {
    if endpoint.http2() { requests.div_ceil(STREAMS) } else { requests }
}

impl Pool {
    /// The pool for so many requests in flight; all pools share `long_responses`.
    pub fn new(endpoint: &Endpoint, requests: usize, long_responses: Arc<Semaphore>) -> Result<Self, EndpointError> {
        let connector = Connector::new(endpoint.uri(), endpoint.http2(), endpoint.authorities())?;
        let prior_knowledge = endpoint.uri().scheme_str() == Some("http");
        let http2 =
            endpoint.http2().then(|| Http2Connections::new(connections(endpoint, requests).max(1), prior_knowledge));
        Ok(Self { connector, idle: Arc::default(), http2, resend_after_idle: RESEND_AFTER_IDLE, long_responses })
    }

    /// Sends a request.
    pub async fn send(&self, endpoint: &Endpoint, body: Bytes) -> Result<Exchange<'_>, TransportError> {
        if let Some(http2) = &self.http2 {
            match http2.send(endpoint, &body, &self.connector).await? {
                Sent::Responded(response, counted) => {
                    return Ok(Exchange { response, connection: Connection(Kind::Http2(counted)) });
                }
                Sent::NoHttp2(Some(io)) => release(&self.idle, handshake(io).await?),
                Sent::NoHttp2(None) => {}
            }
        }
        let form = || self.connector.forward_proxy().map_or(Target::Server, Target::Proxy);
        let (mut request, mut resent) = (endpoint.request(body.clone(), form()), false);
        loop {
            let idle = if resent { None } else { self.idle.lock().take() };
            let (mut sender, resend_after_idle) = match idle {
                Some((since, sender)) => (sender, Some(since.elapsed())),
                None => (handshake(self.connector.connect().await.map_err(TransportError::Connect)?.io).await?, None),
            };
            let mut failed = match sender.try_send_request(request).await {
                Ok(response) => {
                    return Ok(Exchange { response, connection: Connection(Kind::Http1(sender, &self.idle)) });
                }
                Err(failed) => failed,
            };
            request = match (failed.take_message(), resend_after_idle) {
                (Some(unsent), Some(_)) => unsent, // nothing was sent
                (None, Some(resend_after_idle))
                    if resend_after_idle >= self.resend_after_idle && closed_without_response(failed.error()) =>
                {
                    resent = true; // see the head
                    endpoint.request(body.clone(), form())
                }
                _ => return Err(TransportError::Exchange(failed.into_error())),
            };
        }
    }
}

/// The server closed or reset the connection before any byte of a response.
fn closed_without_response(error: &hyper::Error) -> bool {
    let behind = || error.source().and_then(|error| error.downcast_ref::<io::Error>());
    let gone = [io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionAborted];
    error.is_incomplete_message() || behind().is_some_and(|error| gone.contains(&error.kind()))
}

impl Connection<'_> {
    /// The response was read to its end: the connection is free for the next request.
    pub async fn release(self) {
        if let Kind::Http1(mut sender, idle) = self.0
            && let Ok(Ok(())) = tokio::time::timeout(DRAIN, sender.ready()).await
        {
            release(idle, sender);
        }
    }
}

impl Idle {
    /// One that is open, as far as is known.
    fn take(&mut self) -> Option<(Instant, Http1Sender)> {
        while let Some((since, sender)) = self.connections.pop_back() {
            if !sender.is_closed() {
                return Some((since, sender));
            }
        }
        None
    }
}

fn release(idle: &Arc<Mutex<Idle>>, sender: Http1Sender) {
    let reaping = {
        let mut state = idle.lock();
        state.connections.push_back((Instant::now(), sender));
        std::mem::replace(&mut state.reaping, true)
    };
    if !reaping {
        tokio::spawn(reap(Arc::downgrade(idle)));
    }
}

/// Closes connections that were idle for `IDLE`, until none is left.
async fn reap(idle: Weak<Mutex<Idle>>) {
    loop {
        let next = {
            let Some(idle) = idle.upgrade() else { return };
            let mut idle = idle.lock();
            while idle.connections.pop_front_if(|(since, _)| since.elapsed() >= IDLE).is_some() {}
            match idle.connections.front() {
                Some((since, _)) => *since + IDLE,
                None => {
                    idle.reaping = false;
                    return;
                }
            }
        };
        tokio::time::sleep_until(next).await;
    }
}

async fn handshake(io: Box<dyn Io>) -> Result<Http1Sender, TransportError> {
    let (sender, connection) = http1::handshake(io).await.map_err(TransportError::Exchange)?;
    tokio::spawn(connection); // ends with the sender; its request gets the error
    Ok(sender)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    fn pool(endpoint: &Endpoint) -> Pool {
        Pool::new(endpoint, 1, Arc::new(Semaphore::new(1))).unwrap()
    }

    /// A server with empty responses that closes connections after `most` of them; counts
    /// connections.
    async fn server(most: usize) -> (Endpoint, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let count = Arc::new(AtomicUsize::new(0));
        let counted = count.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(async move {
                    for _ in 0..most {
                        let mut head = Vec::new();
                        while !head.ends_with(b"\r\n\r\n") {
                            head.push(stream.read_u8().await?);
                        }
                        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await?;
                    }
                    io::Result::Ok(())
                });
            }
        });
        (Endpoint::new(&url, Vec::new(), None, false, None).unwrap(), count)
    }

    async fn exchange(pool: &Pool, endpoint: &Endpoint) {
        let answering = pool.send(endpoint, Bytes::new()).await.unwrap();
        assert!(answering.response.status().is_success());
        drop(answering.response);
        answering.connection.release().await;
    }

    #[test]
    fn there_are_as_many_connections_as_the_requests_take() {
        let endpoint = Endpoint::new("http://x", Vec::new(), None, false, None).unwrap();
        assert_eq!(connections(&endpoint, 2048), 2048);
        assert_eq!(connections(&endpoint.with_http2(true), 2048), 21);
    }

    #[tokio::test]
    async fn a_connection_serves_one_request_after_the_other() {
        let (endpoint, connections) = server(usize::MAX).await;
        let pool = pool(&endpoint);
        for _ in 0..20 {
            exchange(&pool, &endpoint).await;
        }
        assert_eq!(connections.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn what_the_server_closed_is_not_used() {
        let (endpoint, connections) = server(1).await;
        let pool = pool(&endpoint);
        for round in 1..=3 {
            exchange(&pool, &endpoint).await;
            while pool.idle.lock().connections.iter().any(|(_, sender)| !sender.is_closed()) {
                tokio::task::yield_now().await;
            }
            assert_eq!(connections.load(Ordering::Relaxed), round);
        }
    }

    /// A server that answers `most` requests of a connection, and reads one more before it closes
    /// it.
    async fn closing_server(most: usize) -> (Endpoint, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = requests.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                for answered in 0..=most {
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        head.push(stream.read_u8().await?);
                    }
                    counted.fetch_add(1, Ordering::Relaxed);
                    if answered < most {
                        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await?;
                    }
                }
            }
            io::Result::Ok(())
        });
        (Endpoint::new(&url, Vec::new(), None, false, None).unwrap(), requests)
    }

    #[tokio::test]
    async fn a_connection_that_is_closed_when_it_is_used_again() {
        let (endpoint, requests) = closing_server(1).await;
        let resend_after_idle = Pool { resend_after_idle: Duration::ZERO, ..pool(&endpoint) };
        exchange(&resend_after_idle, &endpoint).await;
        exchange(&resend_after_idle, &endpoint).await;
        assert_eq!(requests.load(Ordering::Relaxed), 3, "one came twice");
        // In steady use it is the server that died, not its idle timeout.
        let (endpoint, requests) = closing_server(1).await;
        let busy = Pool { resend_after_idle: Duration::MAX, ..pool(&endpoint) };
        exchange(&busy, &endpoint).await;
        assert!(matches!(busy.send(&endpoint, Bytes::new()).await, Err(TransportError::Exchange(_))));
        assert_eq!(requests.load(Ordering::Relaxed), 2);
        // A new connection is not tried for ever.
        let (endpoint, requests) = closing_server(0).await;
        let never = Pool { resend_after_idle: Duration::ZERO, ..pool(&endpoint) };
        assert!(never.send(&endpoint, Bytes::new()).await.is_err());
        assert_eq!(requests.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn what_nobody_uses_is_closed() {
        let (endpoint, _) = server(usize::MAX).await;
        let pool = pool(&endpoint);
        exchange(&pool, &endpoint).await;
        assert_eq!(pool.idle.lock().connections.len(), 1);
        tokio::time::pause(); // no response is pending
        tokio::time::sleep(IDLE + Duration::from_secs(1)).await;
        assert!(pool.idle.lock().connections.is_empty() && !pool.idle.lock().reaping);
    }
}
