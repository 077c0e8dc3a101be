//! Connections of HTTP/2: each carries many requests.
//!
//! - Servers bound the streams of a connection (often 100): there are as many connections as that
//!   takes.
//! - A server that turns out not to speak HTTP/2 gets HTTP/1.1 from then on.
//! - A request that the server did not process (after a GOAWAY, or a refused stream) is sent once
//!   more: that is no attempt. Nor is one that finds its connection closed before anything was
//!   sent.
//! - A response that waits to be read (`Pool::long_responses`) takes no window from other streams.

use std::error::Error;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use http_body_util::Full;
use hyper::Response;
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::sync::Mutex as AsyncMutex;

use crate::connector::{Connector, Io, TransportError};
use crate::endpoint::{Endpoint, Target};
use crate::tcp::KEEPALIVE;

/// Streams that a connection is given at once.
pub const STREAMS: usize = 100;
/// Bytes of a response that a server may send before they are read.
const STREAM_WINDOW: u32 = 128 << 10;
/// The same for a whole connection. Twice what its streams take: two requests may choose a
/// connection at the same time.
const CONNECTION_WINDOW: u32 = 2 * STREAMS as u32 * STREAM_WINDOW;

type Http2Sender = http2::SendRequest<Full<Bytes>>;

/// See the module.
pub struct Http2Connections {
    connection: Box<[Http2Connection]>,
    /// Without TLS nothing tells whether the server speaks HTTP/2: the option is trusted.
    prior_knowledge: bool,
    /// The server has no HTTP/2. Written by the request that makes the first connection.
    unsupported: AtomicBool,
    /// Numbers connections.
    made: AtomicU64,
}

/// A connection, once it is made, and its number.
#[derive(Default)]
struct Http2Connection {
    /// Requests in flight. Written by `StreamGuard`.
    count: AtomicUsize,
    sender: AsyncMutex<Option<(u64, Http2Sender)>>,
}

/// What became of a request.
pub enum Sent<'a> {
    Responded(Response<Incoming>, StreamGuard<'a>),
    /// The server has no HTTP/2; a connection that was made to find that out.
    NoHttp2(Option<Box<dyn Io>>),
}

/// Counts a request until its response was read.
pub struct StreamGuard<'a>(&'a AtomicUsize);

impl Drop for StreamGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Http2Connections {
    /// So many connections at most.
    pub fn new(connections: usize, prior_knowledge: bool) -> Self {
        Self {
            connection: (0..connections).map(|_| Http2Connection::default()).collect(),
            prior_knowledge,
            unsupported: AtomicBool::new(false),
            made: AtomicU64::new(0),
        }
    }

    /// Sends a request on the connection that has the fewest.
    pub async fn send(
        &self,
        endpoint: &Endpoint,
        body: &Bytes,
        connector: &Connector,
    ) -> Result<Sent<'_>, TransportError> {
        let Some(connection) = self.connection.iter().min_by_key(|connection| connection.count.load(Ordering::Relaxed))
        else {
            return Ok(Sent::NoHttp2(None));
        };
        connection.count.fetch_add(1, Ordering::Relaxed);
        let guard = StreamGuard(&connection.count);
        let (mut request, mut resent) = (endpoint.request(body.clone(), Target::Http2), false);
        loop {
            let (number, mut sender, used) = {
                // Others wait here while it is made.
                let mut sender_slot = connection.sender.lock().await;
                match sender_slot.as_ref().filter(|(_, sender)| !sender.is_closed()) {
                    Some((number, sender)) => (*number, sender.clone(), true),
                    None if self.unsupported.load(Ordering::Relaxed) => return Ok(Sent::NoHttp2(None)),
                    None => {
                        let made = connector.connect().await.map_err(TransportError::Connect)?;
                        if !made.http2 && !self.prior_knowledge {
                            self.unsupported.store(true, Ordering::Relaxed);
                            return Ok(Sent::NoHttp2(Some(made.io)));
                        }
                        let number = self.made.fetch_add(1, Ordering::Relaxed);
                        let (_, sender) = sender_slot.insert((number, handshake(made.io).await?));
                        (number, sender.clone(), false)
                    }
                }
            };
            let mut failed = match sender.try_send_request(request).await {
                Ok(response) => return Ok(Sent::Responded(response, guard)),
                Err(failed) => failed,
            };
            if !is_stream_error(failed.error()) {
                // The next request makes another connection, if no other has done so.
                let mut sender_slot = connection.sender.lock().await;
                sender_slot.take_if(|(known, _)| *known == number);
            }
            request = match failed.take_message() {
                Some(unsent) if used => unsent,
                None if !resent && was_not_processed(failed.error()) => {
                    resent = true;
                    endpoint.request(body.clone(), Target::Http2)
                }
                _ => return Err(TransportError::Exchange(failed.into_error())),
            };
        }
    }
}

async fn handshake(io: Box<dyn Io>) -> Result<Http2Sender, TransportError> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.timer(TokioTimer::new()).keep_alive_interval(KEEPALIVE);
    builder.initial_stream_window_size(STREAM_WINDOW).initial_connection_window_size(CONNECTION_WINDOW);
    let (sender, connection) = builder.handshake(io).await.map_err(TransportError::Exchange)?;
    tokio::spawn(connection);
    Ok(sender)
}

fn h2_error(error: &hyper::Error) -> Option<&h2::Error> {
    error.source()?.downcast_ref()
}

fn is_stream_error(error: &hyper::Error) -> bool {
    h2_error(error).is_some_and(h2::Error::is_reset)
}

/// Streams beyond the last one that a GOAWAY names, and refused ones (RFC 9113, 8.7).
fn was_not_processed(error: &hyper::Error) -> bool {
    h2_error(error).is_some_and(|error| {
        error.is_remote() && (error.is_go_away() || error.reason() == Some(h2::Reason::REFUSED_STREAM))
    })
}
