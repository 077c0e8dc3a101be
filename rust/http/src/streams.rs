//! Connections of HTTP/2: each carries many requests.
//!
//! - M-1  Servers bound how many (often 100): there are as many connections as that takes, so that none waits behind others where nobody sees it.
//! - M-2  A server that turns out not to have it gets requests in HTTP/1.1 from then on.
//! - M-3  A request that the server says it did not look at (it came after a GOAWAY, or its stream was refused) is sent once more: that is no
//!   attempt. So is one that finds its connection closed before anything of it was sent.
//! - M-4  A connection that is about to end takes no new request; those that it carries go on.
//! - M-5  Answers that wait for room (K-6 of `pool`) take nothing from others of their connection, which may be those that have it: each has its
//!   part of what the server may send ahead.

use std::error::Error;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use http_body_util::Full;
use hyper::Response;
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::sync::Mutex as AsyncMutex;

use crate::connector::{Broken, Connector, Io};
use crate::endpoint::{Endpoint, Form};
use crate::tcp::KEEPALIVE;

/// Requests that a connection is given at a time (M-1).
pub const STREAMS: usize = 100;
/// How much of an answer a server may send before it is read (M-5).
const AHEAD: u32 = 128 << 10;
/// The same of all answers of a connection. Twice what they take: two requests may choose a connection at the same time.
const ALL_AHEAD: u32 = 2 * STREAMS as u32 * AHEAD;

type Many = http2::SendRequest<Full<Bytes>>;

/// See the module.
pub struct Streams {
    shared: Box<[Shared]>,
    /// Without TLS nothing tells whether the server has HTTP/2: who wants it is taken at his word.
    prior_knowledge: bool,
    /// The server has no HTTP/2 (M-2). Written by who makes the first connection.
    refused: AtomicBool,
    /// Numbers connections.
    made: AtomicU64,
}

/// A connection, once it is made, and its number.
#[derive(Default)]
struct Shared {
    /// Requests on their way. Written by `Counted`.
    count: AtomicUsize,
    sender: AsyncMutex<Option<(u64, Many)>>,
}

/// What became of a request.
pub enum Sent<'a> {
    Answered(Response<Incoming>, Counted<'a>),
    /// The server has no HTTP/2; a connection that was made to find that out.
    NoHttp2(Option<Box<dyn Io>>),
}

/// Counts a request until its answer was read.
pub struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Streams {
    /// So many connections at most.
    pub fn new(connections: usize, prior_knowledge: bool) -> Self {
        Self {
            shared: (0..connections).map(|_| Shared::default()).collect(),
            prior_knowledge,
            refused: AtomicBool::new(false),
            made: AtomicU64::new(0),
        }
    }

    /// Sends a request by the connection that has the fewest.
    pub async fn send(&self, endpoint: &Endpoint, body: &Bytes, connector: &Connector) -> Result<Sent<'_>, Broken> {
        let Some(shared) = self.shared.iter().min_by_key(|shared| shared.count.load(Ordering::Relaxed)) else {
            return Ok(Sent::NoHttp2(None));
        };
        shared.count.fetch_add(1, Ordering::Relaxed);
        let counted = Counted(&shared.count);
        let (mut request, mut again) = (endpoint.request(body.clone(), Form::Shared), false);
        loop {
            let (number, mut sender, used) = {
                let mut place = shared.sender.lock().await; // who comes while it is made waits for it
                match place.as_ref().filter(|(_, sender)| !sender.is_closed()) {
                    Some((number, sender)) => (*number, sender.clone(), true),
                    None if self.refused.load(Ordering::Relaxed) => return Ok(Sent::NoHttp2(None)),
                    None => {
                        let made = connector.connect().await.map_err(Broken::NoConnection)?;
                        if !made.http2 && !self.prior_knowledge {
                            self.refused.store(true, Ordering::Relaxed);
                            return Ok(Sent::NoHttp2(Some(made.io)));
                        }
                        let number = self.made.fetch_add(1, Ordering::Relaxed);
                        let (_, sender) = place.insert((number, many(made.io).await?));
                        (number, sender.clone(), false)
                    }
                }
            };
            let mut failed = match sender.try_send_request(request).await {
                Ok(response) => return Ok(Sent::Answered(response, counted)),
                Err(failed) => failed,
            };
            if !is_of_one_stream(failed.error()) {
                // M-4: whoever comes next makes another, if nobody has done so.
                let mut place = shared.sender.lock().await;
                place.take_if(|(known, _)| *known == number);
            }
            request = match failed.take_message() {
                Some(unsent) if used => unsent,
                None if !again && was_not_looked_at(failed.error()) => {
                    again = true;
                    endpoint.request(body.clone(), Form::Shared)
                }
                _ => return Err(Broken::OnTheWay(failed.into_error())),
            };
        }
    }
}

async fn many(io: Box<dyn Io>) -> Result<Many, Broken> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.timer(TokioTimer::new()).keep_alive_interval(KEEPALIVE);
    builder.initial_stream_window_size(AHEAD).initial_connection_window_size(ALL_AHEAD);
    let (sender, connection) = builder.handshake(io).await.map_err(Broken::OnTheWay)?;
    tokio::spawn(connection);
    Ok(sender)
}

fn behind(error: &hyper::Error) -> Option<&h2::Error> {
    error.source()?.downcast_ref()
}

fn is_of_one_stream(error: &hyper::Error) -> bool {
    behind(error).is_some_and(h2::Error::is_reset)
}

/// M-3: streams beyond the last one that a GOAWAY names, and refused ones (RFC 9113, 8.7).
fn was_not_looked_at(error: &hyper::Error) -> bool {
    behind(error).is_some_and(|error| {
        error.is_remote() && (error.is_go_away() || error.reason() == Some(h2::Reason::REFUSED_STREAM))
    })
}
