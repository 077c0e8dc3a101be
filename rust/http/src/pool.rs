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
//! - K-5  Servers close connections that nobody used for some seconds, now and then in the very moment of the next request. One that nobody used
//!   for `RESTED`, and that ends without a word of an answer, is such a case: its request is sent once more, by a new connection, and that is no
//!   attempt. A POST may then come twice, as it may with `retries`: asking a judge again changes nothing. A connection in steady use that
//!   ends so is a server that died, perhaps of this request: that is an attempt.
//! - K-6  Long answers are read a few at a time (`room`), whatever the number of requests: memory has a bound.

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

use crate::connector::{Broken, Connector, Io};
use crate::endpoint::{Endpoint, Form};
use crate::error::EndpointError;
use crate::streams::{Counted, STREAMS, Sent, Streams};

/// See K-4.
const IDLE: Duration = Duration::from_secs(90);
/// See K-5: less than any server waits before it closes a connection.
const RESTED: Duration = Duration::from_secs(1);
/// How long an answer that was read may keep its connection busy; it only does where the server did not wait for all of the request.
const SETTLED: Duration = Duration::from_millis(100);

type One = http1::SendRequest<Full<Bytes>>;

/// See the module.
pub struct Pool {
    connector: Connector,
    idle: Arc<Mutex<Idle>>,
    /// Where HTTP/2 is wanted.
    streams: Option<Streams>,
    rested: Duration,
    /// For long answers (K-6). Permits are taken by whoever reads one.
    pub room: Arc<Semaphore>,
}

/// Connections of HTTP/1.1 that nobody uses, and since when: the one used last is used next. Written by requests and `reap`.
#[derive(Default)]
struct Idle {
    free: VecDeque<(Instant, One)>,
    reaping: bool,
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

/// How many connections so many requests at a time need, if the server has what is asked for (K-1, M-1 of `streams`).
pub const fn connections(endpoint: &Endpoint, requests: usize) -> usize {
    if endpoint.http2() { requests.div_ceil(STREAMS) } else { requests }
}

impl Pool {
    /// The pool for so many requests at a time; long answers of all pools share `room`.
    pub fn new(endpoint: &Endpoint, requests: usize, room: Arc<Semaphore>) -> Result<Self, EndpointError> {
        let connector = Connector::new(endpoint.uri(), endpoint.http2(), endpoint.authorities())?;
        let prior_knowledge = endpoint.uri().scheme_str() == Some("http");
        let streams = endpoint.http2().then(|| Streams::new(connections(endpoint, requests).max(1), prior_knowledge));
        Ok(Self { connector, idle: Arc::default(), streams, rested: RESTED, room })
    }

    /// Sends a request.
    pub async fn send(&self, endpoint: &Endpoint, body: Bytes) -> Result<Answering<'_>, Broken> {
        if let Some(streams) = &self.streams {
            match streams.send(endpoint, &body, &self.connector).await? {
                Sent::Answered(response, counted) => {
                    return Ok(Answering { response, connection: Used(Kind::Many(counted)) });
                }
                Sent::NoHttp2(Some(io)) => give_back(&self.idle, one(io).await?),
                Sent::NoHttp2(None) => {}
            }
        }
        let form = || self.connector.handed().map_or(Form::ToServer, Form::ToProxy);
        let (mut request, mut again) = (endpoint.request(body.clone(), form()), false);
        loop {
            let idle = if again { None } else { self.idle.lock().take() };
            let (mut sender, rested) = match idle {
                Some((since, sender)) => (sender, Some(since.elapsed())),
                None => (one(self.connector.connect().await.map_err(Broken::NoConnection)?.io).await?, None),
            };
            let mut failed = match sender.try_send_request(request).await {
                Ok(response) => {
                    return Ok(Answering { response, connection: Used(Kind::One(sender, &self.idle)) });
                }
                Err(failed) => failed,
            };
            request = match (failed.take_message(), rested) {
                (Some(unsent), Some(_)) => unsent, // K-3
                (None, Some(rested)) if rested >= self.rested && ended_without_a_word(failed.error()) => {
                    again = true; // K-5
                    endpoint.request(body.clone(), form())
                }
                _ => return Err(Broken::OnTheWay(failed.into_error())),
            };
        }
    }
}

/// The other side closed or reset the connection, and nothing of an answer came.
fn ended_without_a_word(error: &hyper::Error) -> bool {
    let behind = || error.source().and_then(|error| error.downcast_ref::<io::Error>());
    let gone = [io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionAborted];
    error.is_incomplete_message() || behind().is_some_and(|error| gone.contains(&error.kind()))
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
    fn take(&mut self) -> Option<(Instant, One)> {
        while let Some((since, sender)) = self.free.pop_back() {
            if !sender.is_closed() {
                return Some((since, sender));
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    fn pool(endpoint: &Endpoint) -> Pool {
        Pool::new(endpoint, 1, Arc::new(Semaphore::new(1))).unwrap()
    }

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
        let pool = pool(&endpoint);
        for _ in 0..20 {
            exchange(&pool, &endpoint).await;
        }
        assert_eq!(connections.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn k3_what_the_server_closed_is_not_used() {
        let (endpoint, connections) = server(1).await;
        let pool = pool(&endpoint);
        for round in 1..=3 {
            exchange(&pool, &endpoint).await;
            while pool.idle.lock().free.iter().any(|(_, sender)| !sender.is_closed()) {
                tokio::task::yield_now().await;
            }
            assert_eq!(connections.load(Ordering::Relaxed), round);
        }
    }

    /// A server that answers `most` requests of a connection, and reads one more before it closes it.
    async fn hasty(most: usize) -> (Endpoint, Arc<AtomicUsize>) {
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
    async fn k5_a_connection_that_is_closed_when_it_is_used_again() {
        let (endpoint, requests) = hasty(1).await;
        let rested = Pool { rested: Duration::ZERO, ..pool(&endpoint) };
        exchange(&rested, &endpoint).await;
        exchange(&rested, &endpoint).await;
        assert_eq!(requests.load(Ordering::Relaxed), 3, "one came twice");
        // In steady use it is the server that died, not its patience that ended.
        let (endpoint, requests) = hasty(1).await;
        let busy = Pool { rested: Duration::MAX, ..pool(&endpoint) };
        exchange(&busy, &endpoint).await;
        assert!(matches!(busy.send(&endpoint, Bytes::new()).await, Err(Broken::OnTheWay(_))));
        assert_eq!(requests.load(Ordering::Relaxed), 2);
        // Nor is a new one tried for ever.
        let (endpoint, requests) = hasty(0).await;
        let never = Pool { rested: Duration::ZERO, ..pool(&endpoint) };
        assert!(never.send(&endpoint, Bytes::new()).await.is_err());
        assert_eq!(requests.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn k4_what_nobody_uses_is_closed() {
        let (endpoint, _) = server(usize::MAX).await;
        let pool = pool(&endpoint);
        exchange(&pool, &endpoint).await;
        assert_eq!(pool.idle.lock().free.len(), 1);
        tokio::time::pause(); // no answer is waited for any more
        tokio::time::sleep(IDLE + Duration::from_secs(1)).await;
        assert!(pool.idle.lock().free.is_empty() && !pool.idle.lock().reaping);
    }
}
