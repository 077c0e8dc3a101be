//! Connections of HTTP/2: each carries many requests.
//!
//! - A connection carries as many requests as its server allows, `STREAMS` at most. One that is
//!   older than its lifetime gets no new ones.
//! - A server that turns out not to speak HTTP/2 gets HTTP/1.1 from then on.
//! - A request that the server did not process (a GOAWAY, a refused stream) or that finds its
//!   connection closed before anything was sent is sent once more: that does not count as an
//!   attempt.
//! - A response that waits for a permit to be read takes no window from other streams.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use hyper::Response;
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;

use crate::connector::{Connector, Io, TransportError};
use crate::endpoint::{Endpoint, Target};
use crate::http2_settings::{Http2Io, Peer};
use crate::progress::Progress;
use crate::request_body::{RequestBody, SentBody};
use crate::tcp::KEEPALIVE;

/// Streams that a connection is given at once, where the server allows them.
pub const STREAMS: usize = 100;
/// Bytes of a response that a server may send before they are read.
const STREAM_WINDOW: u32 = 128 << 10;
/// The same for a whole connection: twice what its streams take.
const CONNECTION_WINDOW: u32 = 2 * STREAMS as u32 * STREAM_WINDOW;
/// Time that a ping may stay without an answer: with `KEEPALIVE` less than a call's usual timeout.
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// Time that a server has to send its settings, which come first of all.
const SETTINGS_PATIENCE: Duration = Duration::from_secs(1);

type Http2Sender = http2::SendRequest<SentBody>;

/// See the module.
pub struct Http2Connections {
    /// Those that take requests. Written by requests.
    open: Mutex<Vec<Arc<Http2Connection>>>,
    /// Largest number of connections.
    most: usize,
    lifetime: fn() -> Duration,
    /// If there is no TLS, nothing tells whether the server speaks HTTP/2: the option is trusted.
    prior_knowledge: bool,
    /// The server has no HTTP/2. Written by the request that makes the first connection.
    unsupported: AtomicBool,
}

/// A connection, made by the first of its requests.
struct Http2Connection {
    /// Requests in flight. Written by `StreamGuard`.
    count: AtomicUsize,
    peer: Arc<Peer>,
    ends: Instant,
    sender: AsyncMutex<Http2State>,
}

enum Http2State {
    New,
    Open(Http2Sender),
    /// Its requests go elsewhere.
    Closed,
}

/// Result of a request.
pub enum SendOutcome {
    Responded(Response<Incoming>, StreamGuard),
    /// The server has no HTTP/2; a connection that was made to find that out.
    NoHttp2(Option<Box<dyn Io>>),
}

/// Connection for a request.
enum Found {
    /// `used`: it was there before.
    Sender {
        sender: Http2Sender,
        used: bool,
        guard: StreamGuard,
    },
    NoHttp2(Option<Box<dyn Io>>),
}

/// Counts a request until its response was read.
pub struct StreamGuard(Arc<Http2Connection>);

impl Drop for StreamGuard {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Http2Connections {
    /// Makes one for at most `most` connections, each with a `lifetime`.
    pub fn new(most: usize, lifetime: fn() -> Duration, prior_knowledge: bool) -> Self {
        Self { open: Mutex::default(), most, lifetime, prior_knowledge, unsupported: AtomicBool::new(false) }
    }

    /// A connection for a request, and whether it has room: the fullest that has, so that few are
    /// needed.
    fn choose(&self) -> (StreamGuard, bool) {
        let now = Instant::now();
        let mut open = self.open.lock();
        open.retain(|one| now < one.ends);
        let count = |one: &&Arc<Http2Connection>| one.count.load(Ordering::Relaxed);
        let with_room = open.iter().filter(|one| count(one) < one.peer.streams()).max_by_key(count);
        let crowded = with_room.is_none() && open.len() >= self.most; // streams wait in hyper
        let found = if crowded { open.iter().min_by_key(count) } else { with_room };
        let chosen = found.cloned().unwrap_or_else(|| {
            let made = Arc::new(Http2Connection {
                count: AtomicUsize::new(0),
                peer: Arc::new(Peer::new(STREAMS)),
                ends: now + (self.lifetime)(),
                sender: AsyncMutex::new(Http2State::New),
            });
            open.push(made.clone());
            made
        });
        chosen.count.fetch_add(1, Ordering::Relaxed);
        (StreamGuard(chosen), !crowded)
    }

    fn leave(&self, connection: &Arc<Http2Connection>) {
        self.open.lock().retain(|one| !Arc::ptr_eq(one, connection));
    }

    /// Connections that brought nothing since then take no more requests.
    pub fn purge(&self, since: Instant) {
        self.open.lock().retain(|one| one.peer.heard_since(since));
    }

    /// A sender of a connection with room.
    async fn sender(&self, connector: &Connector) -> Result<Found, TransportError> {
        loop {
            let (guard, has_room) = self.choose();
            let connection = guard.0.clone();
            let mut state = connection.sender.lock().await; // others wait here while it is made
            let found = match &*state {
                Http2State::Open(sender) if !sender.is_closed() => Some(sender.clone()),
                Http2State::Open(_) | Http2State::Closed => {
                    *state = Http2State::Closed;
                    self.leave(&connection);
                    continue;
                }
                Http2State::New if self.unsupported.load(Ordering::Relaxed) => return Ok(Found::NoHttp2(None)),
                Http2State::New => None,
            };
            if let Some(sender) = found {
                // The server may allow less than was assumed: who came too many goes elsewhere.
                if has_room && connection.count.load(Ordering::Relaxed) > connection.peer.streams() {
                    continue;
                }
                return Ok(Found::Sender { sender, used: true, guard });
            }
            match self.make(connector, &connection).await {
                Ok(Ok(sender)) => {
                    *state = Http2State::Open(sender.clone());
                    return Ok(Found::Sender { sender, used: false, guard });
                }
                Ok(Err(io)) => return Ok(Found::NoHttp2(Some(io))),
                Err(error) => {
                    *state = Http2State::Closed;
                    self.leave(&connection);
                    return Err(error);
                }
            }
        }
    }

    /// Makes a connection; `Err` where the server has no HTTP/2.
    async fn make(
        &self,
        connector: &Connector,
        connection: &Http2Connection,
    ) -> Result<Result<Http2Sender, Box<dyn Io>>, TransportError> {
        let permit = connector.permit().await;
        let made = connector.connect(permit).await.map_err(TransportError::Connect)?;
        if !made.http2 && !self.prior_knowledge {
            self.unsupported.store(true, Ordering::Relaxed);
            return Ok(Err(made.io));
        }
        let sender = handshake(made.io, &connection.peer).await?;
        connection.peer.settings_came(SETTINGS_PATIENCE).await;
        Ok(Ok(sender))
    }

    /// Sends a request.
    pub async fn send(
        &self,
        endpoint: &Endpoint,
        body: &RequestBody,
        connector: &Connector,
        progress: &Progress,
    ) -> Result<SendOutcome, TransportError> {
        let (mut request, mut resent) = (endpoint.request(body, Target::Http2), false);
        loop {
            let (mut sender, used, guard) = match self.sender(connector).await? {
                Found::Sender { sender, used, guard } => (sender, used, guard),
                Found::NoHttp2(io) => return Ok(SendOutcome::NoHttp2(io)),
            };
            progress.connected();
            let mut failed = match sender.try_send_request(request).await {
                Ok(response) => return Ok(SendOutcome::Responded(response, guard)),
                Err(failed) => failed,
            };
            if !is_stream_error(failed.error()) {
                self.leave(&guard.0);
            }
            request = match failed.take_message() {
                Some(unsent) if used => unsent,
                None if !resent && was_not_processed(failed.error()) => {
                    resent = true;
                    endpoint.request(body, Target::Http2)
                }
                _ => return Err(TransportError::Exchange(failed.into_error())),
            };
        }
    }
}

async fn handshake(io: Box<dyn Io>, peer: &Arc<Peer>) -> Result<Http2Sender, TransportError> {
    let io = Http2Io::new(io, peer.clone());
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.timer(TokioTimer::new()).keep_alive_interval(KEEPALIVE).keep_alive_timeout(PING_TIMEOUT);
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
