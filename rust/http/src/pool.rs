//! The connection pool of an endpoint: never more connections than requests in flight.
//!
//! - A connection is made only while none is idle. One that broke, or whose response was not read
//!   to its end, is closed; so is one that was idle for `IDLE`, or is older than its `lifetime`.
//! - A request that finds its connection closed before anything was sent takes another: no attempt.
//! - One that was idle for `RESEND_AFTER_IDLE` and closes within `RESEND_WITHIN` without a response
//!   was closed for being idle: its request is sent once more on a new one, and is no attempt.

use std::collections::VecDeque;
use std::error::Error;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use hyper::Response;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::connector::{Connector, Io, TransportError};
use crate::endpoint::{Endpoint, Target};
use crate::endpoint_error::EndpointError;
use crate::http2::{Http2Connections, STREAMS, Sent, StreamGuard};
use crate::progress::Progress;
use crate::request_body::{RequestBody, SentBody};

/// How long an idle connection is kept.
const IDLE: Duration = Duration::from_secs(90);
/// Less than any server waits before it closes an idle connection.
const RESEND_AFTER_IDLE: Duration = Duration::from_secs(1);
/// How soon such a connection ends: a request that ran longer may have been begun.
const RESEND_WITHIN: Duration = Duration::from_secs(1);
/// How old a connection gets at least, and twice that at most: the next one may lead to another
/// server behind the name. Not all at once, where all were made at once.
const LIFETIME: Duration = Duration::from_secs(300);
/// How long a connection may stay busy after its response was read; it only does where the server
/// did not wait for all of the request.
const DRAIN: Duration = Duration::from_millis(100);

type Http1Sender = http1::SendRequest<SentBody>;

/// See the module. hyper-util's pool (reqwest's) opened 375 connections for 256 requests in flight
/// with varying latencies, and has one HTTP/2 connection for each server.
pub struct Pool {
    connector: Connector,
    idle: Arc<Mutex<Idle>>,
    /// Where HTTP/2 is wanted.
    http2: Option<Http2Connections>,
    resend_after_idle: Duration,
}

/// Idle connections of HTTP/1.1, and since when: the one used last is used next.
/// Written by requests and `reap`.
#[derive(Default)]
struct Idle {
    connections: VecDeque<(Instant, Http1Connection)>,
    reaping: bool,
}

struct Http1Connection {
    sender: Http1Sender,
    ends: Instant,
}

/// A response whose body is still to be read.
pub struct Exchange<'a> {
    pub response: Response<Incoming>,
    pub connection: Connection<'a>,
}

/// The connection that a response comes by.
pub struct Connection<'a>(Kind<'a>);

enum Kind<'a> {
    Http1(Http1Connection, &'a Arc<Mutex<Idle>>),
    Http2(#[expect(dead_code, reason = "counts until it is dropped")] StreamGuard),
}

/// How many connections so many requests in flight need.
pub const fn connections(endpoint: &Endpoint, requests: usize) -> usize {
    if endpoint.http2() { requests.div_ceil(STREAMS) } else { requests }
}

impl Pool {
    /// The pool for so many requests in flight.
    pub fn new(endpoint: &Endpoint, requests: usize) -> Result<Self, EndpointError> {
        let (uri, http2, tls) = (endpoint.uri(), endpoint.http2(), endpoint.tls());
        let connector = match endpoint.address() {
            None => Connector::new(uri, http2, tls)?,
            Some(address) => Connector::at(address, uri, http2, tls)?,
        };
        let prior_knowledge = endpoint.uri().scheme_str() == Some("http");
        // A proxy that forwards requests would have to speak HTTP/2 without having been asked.
        let wanted = endpoint.http2() && connector.forward_proxy().is_none();
        let http2 = wanted.then(|| Http2Connections::new(requests.max(1), lifetime, prior_knowledge));
        Ok(Self { connector, idle: Arc::default(), http2, resend_after_idle: RESEND_AFTER_IDLE })
    }

    /// Sends a request.
    pub async fn send(
        &self,
        endpoint: &Endpoint,
        body: &RequestBody,
        progress: &Progress,
    ) -> Result<Exchange<'_>, TransportError> {
        if let Some(http2) = &self.http2 {
            match http2.send(endpoint, body, &self.connector, progress).await? {
                Sent::Responded(response, counted) => {
                    return Ok(Exchange { response, connection: Connection(Kind::Http2(counted)) });
                }
                Sent::NoHttp2(Some(io)) => release(&self.idle, handshake(io).await?),
                Sent::NoHttp2(None) => {}
            }
        }
        let form = || self.connector.forward_proxy().map_or(Target::Server, Target::Proxy);
        let (mut request, mut resent) = (endpoint.request(body, form()), false);
        loop {
            let (mut connection, resend_after_idle) = self.connection(resent).await?;
            progress.connected();
            let begun = Instant::now();
            let mut failed = match connection.sender.try_send_request(request).await {
                Ok(response) => {
                    return Ok(Exchange { response, connection: Connection(Kind::Http1(connection, &self.idle)) });
                }
                Err(failed) => failed,
            };
            request = match (failed.take_message(), resend_after_idle) {
                (Some(unsent), Some(_)) => unsent, // nothing was sent
                (None, Some(resend_after_idle))
                    if resend_after_idle >= self.resend_after_idle
                        && begun.elapsed() < RESEND_WITHIN
                        && closed_without_response(failed.error()) =>
                {
                    resent = true; // see the head
                    endpoint.request(body, form())
                }
                _ => return Err(TransportError::Exchange(failed.into_error())),
            };
        }
    }
}

impl Pool {
    /// A connection, and how long it was idle; a `fresh` one is made in any case.
    async fn connection(&self, fresh: bool) -> Result<(Http1Connection, Option<Duration>), TransportError> {
        let idle = || {
            let found = if fresh { None } else { self.idle.lock().take() };
            found.map(|(since, connection)| (connection, Some(since.elapsed())))
        };
        if let Some(found) = idle() {
            return Ok(found);
        }
        let permit = self.connector.permit().await;
        // While this waited, another request may have done with its own.
        if let Some(found) = idle() {
            return Ok(found);
        }
        let made = self.connector.connect(permit).await.map_err(TransportError::Connect)?;
        Ok((handshake(made.io).await?, None))
    }

    /// A request that was sent at `since` got no answer in its time: connections that were last
    /// used before may lead nowhere, as after a firewall forgot them, and are not used again.
    pub fn purge(&self, since: Instant) {
        if let Some(http2) = &self.http2 {
            http2.purge(since);
        }
        let unsure = {
            let mut idle = self.idle.lock();
            let later = idle.connections.partition_point(|(used, _)| *used < since);
            let sure = idle.connections.split_off(later);
            std::mem::replace(&mut idle.connections, sure)
        };
        drop(unsure); // closes them, without the lock
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
        if let Kind::Http1(mut connection, idle) = self.0
            && let Ok(Ok(())) = tokio::time::timeout(DRAIN, connection.sender.ready()).await
        {
            release(idle, connection);
        }
    }
}

impl Http1Connection {
    fn is_good(&self) -> bool {
        Instant::now() < self.ends && !self.sender.is_closed()
    }
}

impl Idle {
    /// One that is open, as far as is known.
    fn take(&mut self) -> Option<(Instant, Http1Connection)> {
        while let Some((since, connection)) = self.connections.pop_back() {
            if connection.is_good() {
                return Some((since, connection));
            }
        }
        None
    }
}

fn release(idle: &Arc<Mutex<Idle>>, connection: Http1Connection) {
    if !connection.is_good() {
        return;
    }
    let reaping = {
        let mut state = idle.lock();
        state.connections.push_back((Instant::now(), connection));
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

async fn handshake(io: Box<dyn Io>) -> Result<Http1Connection, TransportError> {
    let (sender, connection) = http1::handshake(io).await.map_err(TransportError::Exchange)?;
    tokio::spawn(connection); // ends with the sender; its request gets the error
    Ok(Http1Connection { sender, ends: Instant::now() + lifetime() })
}

/// How old a connection gets: `LIFETIME` to twice that.
pub fn lifetime() -> Duration {
    LIFETIME.mul_f64(1.0 + fastrand::f64())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    fn pool(endpoint: &Endpoint) -> Pool {
        Pool::new(endpoint, 1).unwrap()
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
        let answering = pool.send(endpoint, &Bytes::new().into(), &Progress::new()).await.unwrap();
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
            while pool.idle.lock().connections.iter().any(|(_, one)| !one.sender.is_closed()) {
                tokio::task::yield_now().await;
            }
            assert_eq!(connections.load(Ordering::Relaxed), round);
        }
    }

    #[tokio::test]
    async fn connections_end_with_their_lifetime() {
        let (endpoint, connections) = server(usize::MAX).await;
        let pool = pool(&endpoint);
        exchange(&pool, &endpoint).await;
        pool.idle.lock().connections[0].1.ends = Instant::now();
        exchange(&pool, &endpoint).await;
        assert_eq!(connections.load(Ordering::Relaxed), 2);
        let ends: Vec<Duration> = (0..100).map(|_| lifetime()).collect();
        assert!(ends.iter().all(|one| (LIFETIME..2 * LIFETIME).contains(one)));
        assert!(ends.iter().max() > ends.iter().min(), "not all at once");
    }

    #[tokio::test]
    async fn what_was_idle_when_silence_began_is_not_used() {
        let (endpoint, connections) = server(usize::MAX).await;
        let pool = pool(&endpoint);
        exchange(&pool, &endpoint).await;
        pool.purge(Instant::now() - Duration::from_secs(60));
        exchange(&pool, &endpoint).await;
        assert_eq!(connections.load(Ordering::Relaxed), 1, "it answered since");
        pool.purge(Instant::now());
        exchange(&pool, &endpoint).await;
        assert_eq!(connections.load(Ordering::Relaxed), 2);
    }

    /// So many connections are being made at a time; who waits takes what became idle meanwhile.
    #[tokio::test]
    async fn connections_are_not_made_all_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint =
            Endpoint::new(&format!("http://{}/", listener.local_addr().unwrap()), vec![], None, false, None).unwrap();
        let pool = Arc::new(Pool::new(&endpoint, 500).unwrap());
        let taken = pool.connector.take_permits();
        let waits = tokio::spawn({
            let (pool, endpoint) = (pool.clone(), endpoint.clone());
            async move { exchange(&pool, &endpoint).await }
        });
        let patience = Duration::from_millis(200);
        assert!(tokio::time::timeout(patience, listener.accept()).await.is_err(), "no connection without a permit");
        drop(taken);
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        waits.await.unwrap();
    }

    /// A server that answers `most` requests of a connection, and reads one more before it closes
    /// it.
    async fn closing_server(most: usize) -> (Endpoint, Arc<AtomicUsize>) {
        closing(most, Duration::ZERO).await
    }

    async fn slow_to_close(after: Duration) -> (Endpoint, Arc<AtomicUsize>) {
        closing(1, after).await
    }

    async fn closing(most: usize, after: Duration) -> (Endpoint, Arc<AtomicUsize>) {
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
                    } else {
                        tokio::time::sleep(after).await;
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
        // It ran for longer than a server takes to close what was idle: it may have been begun.
        let (endpoint, requests) = slow_to_close(RESEND_WITHIN + Duration::from_millis(100)).await;
        let slow = Pool { resend_after_idle: Duration::ZERO, ..pool(&endpoint) };
        exchange(&slow, &endpoint).await;
        assert!(matches!(
            slow.send(&endpoint, &Bytes::new().into(), &Progress::new()).await,
            Err(TransportError::Exchange(_))
        ));
        assert_eq!(requests.load(Ordering::Relaxed), 2);
        // In steady use it is the server that died, not its idle timeout.
        let (endpoint, requests) = closing_server(1).await;
        let busy = Pool { resend_after_idle: Duration::MAX, ..pool(&endpoint) };
        exchange(&busy, &endpoint).await;
        assert!(matches!(
            busy.send(&endpoint, &Bytes::new().into(), &Progress::new()).await,
            Err(TransportError::Exchange(_))
        ));
        assert_eq!(requests.load(Ordering::Relaxed), 2);
        // A new connection is not tried for ever.
        let (endpoint, requests) = closing_server(0).await;
        let never = Pool { resend_after_idle: Duration::ZERO, ..pool(&endpoint) };
        assert!(never.send(&endpoint, &Bytes::new().into(), &Progress::new()).await.is_err());
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
