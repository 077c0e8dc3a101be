//! The connections to an endpoint: kept, and never more of them than requests at a time.
//!
//! The pools of ready-made clients (reqwest's is hyper-util's) begin a new connection for a request while another one may come free, and keep
//! both: beside 2048 requests at a time that was a few new TLS handshakes in every round. So this one is our own, over hyper's connections.
//!
//! - K-1  In HTTP/1.1 a connection is made only while none is idle, and goes back before its request's calls end: there are never more than there
//!   were requests at a time, and none is made anew for as many as that.
//! - K-2  One that broke, or whose answer was not read to its end, is closed.
//! - K-3  A request that finds its connection closed by the server, before anything of it was sent, takes another: that is no attempt.
//! - K-4  One that nobody used for `IDLE` is closed.
//! - K-5  With HTTP/2 a connection carries many requests, but servers bound how many (often 100): there are as many connections as that takes,
//!   so that none waits behind others where nobody sees it. A server that turns out not to have it gets requests in HTTP/1.1 from then on.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Response;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;

use crate::connector::{Connector, Io, KEEPALIVE, NoConnection};
use crate::endpoint::{Endpoint, Form};
use crate::error::EndpointError;

/// Requests that a connection of HTTP/2 is given at a time (K-5).
const STREAMS: usize = 100;
/// See K-4.
const IDLE: Duration = Duration::from_secs(90);
/// How long an answer that was read may keep its connection busy; it only does where the server did not wait for all of the request.
const SETTLED: Duration = Duration::from_millis(100);

type One = http1::SendRequest<Full<Bytes>>;
type Many = http2::SendRequest<Full<Bytes>>;

/// Why there is no answer.
#[derive(Debug)]
pub enum Broken {
    NoConnection(NoConnection),
    OnTheWay(hyper::Error),
}

/// See the module.
pub struct Pool {
    connector: Connector,
    idle: Arc<Mutex<Idle>>,
    /// Of HTTP/2, where that is wanted.
    shared: Box<[Shared]>,
    /// Without TLS nothing tells whether the server has HTTP/2: who wants it is taken at his word.
    prior_knowledge: bool,
    /// The server has no HTTP/2 (K-5). Written by who makes the first connection.
    refused: AtomicBool,
}

/// Connections of HTTP/1.1 that nobody uses, and since when: the one used last is used next. Written by requests and `reap`.
#[derive(Default)]
struct Idle {
    free: VecDeque<(Instant, One)>,
    reaping: bool,
}

/// A connection of HTTP/2, once it is made.
#[derive(Default)]
struct Shared {
    /// Requests on their way. Written by `Counted`.
    count: AtomicUsize,
    sender: AsyncMutex<Option<Many>>,
}

/// An answer whose body is still to be read.
pub struct Answering<'a> {
    pub response: Response<Incoming>,
    pub connection: Used<'a>,
}

/// The connection that an answer comes by.
pub struct Used<'a>(Kind<'a>);

enum Kind<'a> {
    One(One, &'a Arc<Mutex<Idle>>),
    Many(#[expect(dead_code, reason = "counts until it is dropped")] Counted<'a>),
}

struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How many connections so many requests at a time need, if the server has what is asked for (K-1, K-5).
pub const fn connections(endpoint: &Endpoint, requests: usize) -> usize {
    if endpoint.http2() { requests.div_ceil(STREAMS) } else { requests }
}

impl Pool {
    /// The pool for so many requests at a time.
    pub fn new(endpoint: &Endpoint, requests: usize) -> Result<Self, EndpointError> {
        let connector = Connector::new(endpoint.uri(), endpoint.http2(), endpoint.authorities())?;
        let shared = if endpoint.http2() { connections(endpoint, requests).max(1) } else { 0 };
        Ok(Self {
            connector,
            idle: Arc::default(),
            shared: (0..shared).map(|_| Shared::default()).collect(),
            prior_knowledge: endpoint.uri().scheme_str() == Some("http"),
            refused: AtomicBool::new(false),
        })
    }

    /// Sends a request.
    pub async fn send(&self, endpoint: &Endpoint, body: Bytes) -> Result<Answering<'_>, Broken> {
        if !self.shared.is_empty()
            && !self.refused.load(Ordering::Relaxed)
            && let Some(answering) = self.send_shared(endpoint, body.clone()).await?
        {
            return Ok(answering);
        }
        let form = self.connector.handed().map_or(Form::ToServer, Form::ToProxy);
        let mut request = endpoint.request(body, form);
        loop {
            let idle = self.idle.lock().take();
            let (mut sender, used) = match idle {
                Some(sender) => (sender, true),
                None => (one(self.connector.connect().await.map_err(Broken::NoConnection)?.io).await?, false),
            };
            match sender.try_send_request(request).await {
                Ok(response) => {
                    return Ok(Answering { response, connection: Used(Kind::One(sender, &self.idle)) });
                }
                Err(mut failed) => match failed.take_message() {
                    Some(unsent) if used => request = unsent, // K-3
                    _ => return Err(Broken::OnTheWay(failed.into_error())),
                },
            }
        }
    }

    /// Sends a request by a connection that many share; `None` if the server has no HTTP/2.
    async fn send_shared(&self, endpoint: &Endpoint, body: Bytes) -> Result<Option<Answering<'_>>, Broken> {
        let Some(shared) = self.shared.iter().min_by_key(|shared| shared.count.load(Ordering::Relaxed)) else {
            return Ok(None);
        };
        shared.count.fetch_add(1, Ordering::Relaxed);
        let counted = Counted(&shared.count);
        let mut request = endpoint.request(body, Form::Shared);
        loop {
            let (mut sender, used) = {
                let mut place = shared.sender.lock().await; // who comes while it is made waits for it
                match place.as_ref().filter(|sender| !sender.is_closed()) {
                    Some(sender) => (sender.clone(), true),
                    None if self.refused.load(Ordering::Relaxed) => return Ok(None),
                    None => {
                        let made = self.connector.connect().await.map_err(Broken::NoConnection)?;
                        if !made.http2 && !self.prior_knowledge {
                            self.refused.store(true, Ordering::Relaxed);
                            let sender = one(made.io).await?;
                            give_back(&self.idle, sender);
                            return Ok(None);
                        }
                        let sender = many(made.io).await?;
                        (place.insert(sender).clone(), false)
                    }
                }
            };
            match sender.try_send_request(request).await {
                Ok(response) => return Ok(Some(Answering { response, connection: Used(Kind::Many(counted)) })),
                Err(mut failed) => match failed.take_message() {
                    Some(unsent) if used => request = unsent, // K-3
                    _ => return Err(Broken::OnTheWay(failed.into_error())),
                },
            }
        }
    }
}

impl Used<'_> {
    /// The answer was read to its end: the connection is the next request's (K-1).
    pub async fn give_back(self) {
        if let Kind::One(mut sender, idle) = self.0
            && let Ok(Ok(())) = tokio::time::timeout(SETTLED, sender.ready()).await
        {
            give_back(idle, sender);
        }
    }
}

impl Idle {
    /// One that is open, as far as is known.
    fn take(&mut self) -> Option<One> {
        while let Some((_, sender)) = self.free.pop_back() {
            if !sender.is_closed() {
                return Some(sender);
            }
        }
        None
    }
}

fn give_back(idle: &Arc<Mutex<Idle>>, sender: One) {
    let reaping = {
        let mut state = idle.lock();
        state.free.push_back((Instant::now(), sender));
        std::mem::replace(&mut state.reaping, true)
    };
    if !reaping {
        tokio::spawn(reap(Arc::downgrade(idle)));
    }
}

/// Closes what nobody used for long (K-4), until there is nothing left.
async fn reap(idle: Weak<Mutex<Idle>>) {
    loop {
        let next = {
            let Some(idle) = idle.upgrade() else { return };
            let mut idle = idle.lock();
            while idle.free.pop_front_if(|(since, _)| since.elapsed() >= IDLE).is_some() {}
            match idle.free.front() {
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

async fn one(io: Box<dyn Io>) -> Result<One, Broken> {
    let (sender, connection) = http1::handshake(io).await.map_err(Broken::OnTheWay)?;
    tokio::spawn(connection); // ends with the sender; what breaks it, its request is told
    Ok(sender)
}

async fn many(io: Box<dyn Io>) -> Result<Many, Broken> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.timer(TokioTimer::new()).keep_alive_interval(KEEPALIVE);
    let (sender, connection) = builder.handshake(io).await.map_err(Broken::OnTheWay)?;
    tokio::spawn(connection);
    Ok(sender)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// A server that answers each request with nothing, and closes connections after `most` of them. It tells how many it had.
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
                    std::io::Result::Ok(())
                });
            }
        });
        (Endpoint::new(&url, Vec::new(), None, false, None).unwrap(), count)
    }

    async fn exchange(pool: &Pool, endpoint: &Endpoint) {
        let answering = pool.send(endpoint, Bytes::new()).await.unwrap();
        assert!(answering.response.status().is_success());
        drop(answering.response);
        answering.connection.give_back().await;
    }

    #[test]
    fn k5_there_are_as_many_connections_as_the_requests_take() {
        let endpoint = Endpoint::new("http://x", Vec::new(), None, false, None).unwrap();
        assert_eq!(connections(&endpoint, 2048), 2048);
        assert_eq!(connections(&endpoint.with_http2(true), 2048), 21);
    }

    #[tokio::test]
    async fn k1_a_connection_serves_one_request_after_the_other() {
        let (endpoint, connections) = server(usize::MAX).await;
        let pool = Pool::new(&endpoint, 1).unwrap();
        for _ in 0..20 {
            exchange(&pool, &endpoint).await;
        }
        assert_eq!(connections.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn k3_what_the_server_closed_is_not_used() {
        let (endpoint, connections) = server(1).await;
        let pool = Pool::new(&endpoint, 1).unwrap();
        for round in 1..=3 {
            exchange(&pool, &endpoint).await;
            while pool.idle.lock().free.iter().any(|(_, sender)| !sender.is_closed()) {
                tokio::task::yield_now().await;
            }
            assert_eq!(connections.load(Ordering::Relaxed), round);
        }
    }

    #[tokio::test]
    async fn k4_what_nobody_uses_is_closed() {
        let (endpoint, _) = server(usize::MAX).await;
        let pool = Pool::new(&endpoint, 1).unwrap();
        exchange(&pool, &endpoint).await;
        assert_eq!(pool.idle.lock().free.len(), 1);
        tokio::time::pause(); // no answer is waited for any more
        tokio::time::sleep(IDLE + Duration::from_secs(1)).await;
        assert!(pool.idle.lock().free.is_empty() && !pool.idle.lock().reaping);
    }
}
