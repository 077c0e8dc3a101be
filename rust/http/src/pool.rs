//! The connection pool of an endpoint: never more connections than requests in flight.
//!
//! - A connection is made only while none is idle. One that broke, or whose response was not read
//!   to its end, is closed; so is one that was idle for `IDLE`, or is older than its `lifetime`.
//! - A request that finds its connection closed before anything was sent takes another: no attempt.
//! - One that was idle for `RESEND_AFTER_IDLE` and closes within `RESEND_WITHIN` without a response
//!   was closed for being idle: its request is sent once more on a new one, and does not count as
//!   an attempt.

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
use crate::http2::{Http2Connections, NoHttp2, STREAMS, StreamGuard};
use crate::progress::Progress;
use crate::request_body::{RequestBody, SentBody};

/// Time that an idle connection is kept.
const IDLE: Duration = Duration::from_secs(90);
/// Less than any server waits before it closes an idle connection.
const RESEND_AFTER_IDLE: Duration = Duration::from_secs(1);
/// Age up to which such a connection's end is repaired by sending again: a request that ran longer
/// may have been begun.
const RESEND_WITHIN: Duration = Duration::from_secs(1);
/// Shortest lifetime of a connection, half of the longest: the next one may lead to another server
/// behind the name. Not all at once, where all were made at once.
const LIFETIME: Duration = Duration::from_secs(300);
/// Time that a connection may stay busy after its response was read; it only does where the server
/// did not wait for all of the request.
const DRAIN: Duration = Duration::from_millis(100);

type Http1Sender = http1::SendRequest<SentBody>;

/// See the module. hyper-util's pool (reqwest's) opened 375 connections for 256 requests in flight
/// with varying latencies, and has one HTTP/2 connection for each server.
pub struct Pool {
    connector: Connector,
    idle: Arc<Mutex<Idle>>,
    /// Present if HTTP/2 is wanted.
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

/// Returns the number of connections that this many requests in flight need.
pub const fn connections(endpoint: &Endpoint, requests: usize) -> usize {
    if endpoint.http2 { requests.div_ceil(STREAMS) } else { requests }
}

impl Pool {
    /// Makes the pool for `requests` requests in flight.
    pub fn new(endpoint: &Endpoint, requests: usize) -> Result<Self, EndpointError> {
        let connector = Connector::new(endpoint.address, &endpoint.uri, endpoint.http2, &endpoint.tls)?;
        let prior_knowledge = endpoint.uri.scheme_str() == Some("http");
        // A proxy that forwards requests would have to speak HTTP/2 without having been asked.
        let wanted = endpoint.http2 && connector.forward_proxy().is_none();
        let http2 = wanted.then(|| Http2Connections::new(requests.max(1), lifetime, prior_knowledge));
        Ok(Self { connector, idle: Arc::default(), http2, resend_after_idle: RESEND_AFTER_IDLE })
    }

    /// The host and port of the proxy that its requests go through, if they do.
    pub fn proxy(&self) -> Option<&str> {
        self.connector.proxy()
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
                Ok((response, counted)) => {
                    return Ok(Exchange { response, connection: Connection(Kind::Http2(counted)) });
                }
                Err(NoHttp2(Some(io))) => release(&self.idle, handshake(io).await?),
                Err(NoHttp2(None)) => {}
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

/// Returns the lifetime of a connection: `LIFETIME` to twice that.
pub fn lifetime() -> Duration {
    LIFETIME.mul_f64(1.0 + fastrand::f64())
}

#[cfg(test)]
mod tests;
