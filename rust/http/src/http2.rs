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
use tokio::sync::{Mutex as AsyncMutex, oneshot};
use tokio::time::Instant;

use crate::connector::{Connector, Io, TransportError};
use crate::endpoint::{Endpoint, Target};
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
/// Time that a server has to send its settings, which come first of all, and between two looks.
const SETTINGS_PATIENCE: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// Streams as long as the settings are not there. Every other number is the server's.
const UNSAID: usize = STREAMS + 1;

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
    /// Streams that its server allows at a time, `STREAMS` at most. Written by `make`.
    streams: AtomicUsize,
    /// When its last response came, or it was made. Written by requests.
    answered: Mutex<Instant>,
    ends: Instant,
    sender: AsyncMutex<Http2State>,
}

enum Http2State {
    New,
    Open(Http2Sender),
    /// Its requests go elsewhere.
    Closed,
}

/// The server has no HTTP/2; a connection that was made to find that out.
pub struct NoHttp2(pub Option<Box<dyn Io>>);

/// A connection for a request, and whether it was there before.
type Found = (Http2Sender, bool, StreamGuard);

/// Counts a request until its response was read.
pub struct StreamGuard(Arc<Http2Connection>);

impl Drop for StreamGuard {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Http2Connection {
    fn new(now: Instant, lifetime: Duration) -> Self {
        Self {
            count: AtomicUsize::new(0),
            streams: AtomicUsize::new(STREAMS),
            answered: Mutex::new(now),
            ends: now + lifetime,
            sender: AsyncMutex::new(Http2State::New),
        }
    }

    fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    fn streams(&self) -> usize {
        self.streams.load(Ordering::Relaxed)
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
        let with_room = open.iter().filter(|one| one.count() < one.streams()).max_by_key(|one| one.count());
        let crowded = with_room.is_none() && open.len() >= self.most; // streams wait in hyper
        let found = if crowded { open.iter().min_by_key(|one| one.count()) } else { with_room };
        let chosen = found.cloned().unwrap_or_else(|| {
            let made = Arc::new(Http2Connection::new(now, (self.lifetime)()));
            open.push(made.clone());
            made
        });
        chosen.count.fetch_add(1, Ordering::Relaxed);
        (StreamGuard(chosen), !crowded)
    }

    fn leave(&self, connection: &Arc<Http2Connection>) {
        self.open.lock().retain(|one| !Arc::ptr_eq(one, connection));
    }

    /// Connections that brought no response since then take no more requests.
    pub fn purge(&self, since: Instant) {
        self.open.lock().retain(|one| *one.answered.lock() >= since);
    }

    /// A sender of a connection with room.
    async fn sender(&self, connector: &Connector) -> Result<Result<Found, NoHttp2>, TransportError> {
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
                Http2State::New if self.unsupported.load(Ordering::Relaxed) => return Ok(Err(NoHttp2(None))),
                Http2State::New => None,
            };
            if let Some(sender) = found {
                // The server may allow less than was assumed: who came too many goes elsewhere.
                if has_room && connection.count() > connection.streams() {
                    continue;
                }
                return Ok(Ok((sender, true, guard)));
            }
            match self.make(connector, &connection).await {
                Ok(Ok(sender)) => {
                    *state = Http2State::Open(sender.clone());
                    return Ok(Ok((sender, false, guard)));
                }
                Ok(Err(none)) => return Ok(Err(none)),
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
    ) -> Result<Result<Http2Sender, NoHttp2>, TransportError> {
        let permit = connector.permit().await;
        let made = connector.connect(permit).await.map_err(TransportError::Connect)?;
        if !made.http2 && !self.prior_knowledge {
            self.unsupported.store(true, Ordering::Relaxed);
            return Ok(Err(NoHttp2(Some(made.io))));
        }
        let (sender, settings) = handshake(made.io).await?;
        if let Ok(Ok(streams)) = tokio::time::timeout(SETTINGS_PATIENCE, settings).await {
            connection.streams.fetch_min(streams, Ordering::Relaxed);
        }
        Ok(Ok(sender))
    }

    /// Sends a request.
    pub async fn send(
        &self,
        endpoint: &Endpoint,
        body: &RequestBody,
        connector: &Connector,
        progress: &Progress,
    ) -> Result<Result<(Response<Incoming>, StreamGuard), NoHttp2>, TransportError> {
        let (mut request, mut resent) = (endpoint.request(body, Target::Http2), false);
        loop {
            let (mut sender, used, guard) = match self.sender(connector).await? {
                Ok(found) => found,
                Err(none) => return Ok(Err(none)),
            };
            progress.connected();
            let mut failed = match sender.try_send_request(request).await {
                Ok(response) => {
                    *guard.0.answered.lock() = Instant::now();
                    return Ok(Ok((response, guard)));
                }
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

/// A connection, and how many streams its server allows, once its settings came.
async fn handshake(io: Box<dyn Io>) -> Result<(Http2Sender, oneshot::Receiver<usize>), TransportError> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.timer(TokioTimer::new()).keep_alive_interval(KEEPALIVE).keep_alive_timeout(PING_TIMEOUT);
    builder.initial_stream_window_size(STREAM_WINDOW).initial_connection_window_size(CONNECTION_WINDOW);
    builder.initial_max_send_streams(UNSAID);
    let (sender, mut connection) = builder.handshake(io).await.map_err(TransportError::Exchange)?;
    let (told, settings) = oneshot::channel();
    tokio::spawn(async move {
        // hyper reads them in another task, which does not wake this one.
        while connection.current_max_send_streams() == UNSAID && !told.is_closed() {
            if tokio::time::timeout(LOOK_AGAIN, &mut connection).await.is_ok() {
                return;
            }
        }
        let _ = told.send(connection.current_max_send_streams());
        let _ = connection.await; // its requests get the error
    });
    Ok((sender, settings))
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
