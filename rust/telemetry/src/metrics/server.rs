//! The server: HTTP/1 on a Unix socket and on TCP.
//!
//! - TCP has the metrics only. The state has stacks in it, so only the same user may read it.
//! - A server with a TCP port runs on a separate thread, which the engine cannot delay. A Unix
//!   socket alone is served on the engine's runtime, and needs no thread.
//! - Headers, their time, the time of a connection and the number of connections have bounds.
//! - `stop` leaves no thread, descriptor or file.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fs;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use crate::background_work::BackgroundWork;
use crate::metrics::families::Figures;
use crate::metrics::open_sockets::{self, AddressEntry};
use crate::metrics::pages;
use crate::metrics::snapshot::{Identity, Source};
use crate::metrics::tallies::Tallies;
use crate::metrics::text::metrics;

const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(120);
const LARGEST_HEAD: usize = 16 << 10;
/// The most connections of a listener at a time; another one closes the oldest.
const MOST: usize = 16;
/// Time that the state may wait for the stacks of workers; for those of this process it is half.
const STACKS_WITHIN: Duration = Duration::from_millis(300);
/// Pause after a failed accept, mostly for lack of descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest that `stop` waits.
const STOP: Duration = Duration::from_secs(5);

const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const JSON: &str = "application/json";
const PLAIN: &str = "text/plain; charset=utf-8";

/// See the module.
pub struct Server {
    stop: watch::Sender<bool>,
    /// Its places, each with the reason why it can't be used; `None` if it was not asked for.
    pub socket: Option<io::Result<PathBuf>>,
    pub address: Option<io::Result<SocketAddr>>,
    ended: BackgroundWork,
}

struct ServerShared {
    identity: Identity,
    source: Arc<dyn Source>,
    tallies: Arc<Tallies>,
    runtime: Handle,
}

impl Server {
    /// Starts to serve on a Unix socket, where a file of its name is replaced, and on an address.
    pub fn start(
        runtime: &Handle,
        socket: Option<PathBuf>,
        address: Option<SocketAddr>,
        identity: Identity,
        source: Arc<dyn Source>,
        tallies: Arc<Tallies>,
    ) -> Self {
        let (mut own, mut listeners) = (None, Vec::new());
        let mut address = address.map(|address| -> io::Result<SocketAddr> {
            let (runtime, listener, address) = Listener::tcp(address)?;
            own = Some(runtime);
            listeners.push(listener);
            Ok(address)
        });
        let socket = socket.map(|path| -> io::Result<PathBuf> {
            let _inside = own.as_ref().map_or(runtime, Runtime::handle).enter();
            listeners.push(Listener::unix(&path)?);
            Ok(path)
        });
        let (stop, stopped) = watch::channel(false);
        let shared = Arc::new(ServerShared { identity, source, tallies, runtime: runtime.clone() });
        let serving = serve_all(listeners, shared, stopped);
        let ended = match own {
            Some(own) => {
                BackgroundWork::of_thread("guerdon-metrics", move || own.block_on(serving)).unwrap_or_else(|error| {
                    address = Some(Err(error));
                    BackgroundWork::default()
                })
            }
            None => BackgroundWork::of_task(runtime, serving),
        };
        Self { stop, socket, address, ended }
    }

    /// Stops serving and waits for the end, which takes some milliseconds. May be called again.
    pub fn stop(&self) {
        self.signal();
        self.ended.wait(STOP);
    }

    fn signal(&self) {
        self.stop.send_replace(true);
        if let Some(Ok(socket)) = &self.socket {
            // Gone already the second time.
            let _ = fs::remove_file(socket);
        }
    }
}

impl Drop for Server {
    /// Stops serving, without waiting.
    fn drop(&mut self) {
        self.signal();
    }
}

/// A listening socket. Fields are dropped in order: the socket is closed before its entry goes.
struct Listener {
    socket: ListenerSocket,
    _entry: AddressEntry,
}

enum ListenerSocket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

async fn serve_all(listeners: Vec<Listener>, shared: Arc<ServerShared>, stopped: watch::Receiver<bool>) {
    let mut serving = JoinSet::new();
    for listener in listeners {
        serving.spawn(listener.serve(shared.clone(), stopped.clone()));
    }
    while serving.join_next().await.is_some() {}
}

type Connection = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Listener {
    /// Listens on TCP, with the runtime that serves it.
    fn tcp(address: SocketAddr) -> io::Result<(Runtime, Self, SocketAddr)> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let inside = runtime.enter();
        let (socket, entry) = open_sockets::listen(|| {
            let listener = std::net::TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            TcpListener::from_std(listener)
        })?;
        drop(inside);
        let address = socket.local_addr()?;
        Ok((runtime, Self { socket: ListenerSocket::Tcp(socket), _entry: entry }, address))
    }

    /// Listens on a Unix socket, within a runtime.
    fn unix(path: &Path) -> io::Result<Self> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let (socket, entry) = open_sockets::listen(|| UnixListener::bind(path))?;
        Ok(Self { socket: ListenerSocket::Unix(socket), _entry: entry })
    }

    async fn serve(self, shared: Arc<ServerShared>, mut stopped: watch::Receiver<bool>) {
        let mut open = Connections::default();
        while let Some(accepted) = until(&mut stopped, self.next(&shared)).await {
            match accepted {
                Ok(connection) => open.start(connection).await,
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
        open.tasks.shutdown().await;
    }

    /// Accepts the next connection, and returns the work that serves it.
    async fn next(&self, shared: &Arc<ServerShared>) -> io::Result<Connection> {
        Ok(match &self.socket {
            ListenerSocket::Tcp(listener) => Box::pin(serve(listener.accept().await?.0, shared.clone(), false)),
            ListenerSocket::Unix(listener) => Box::pin(serve(same_user(listener).await?, shared.clone(), true)),
        })
    }
}

/// Accepts the next connection of this user.
async fn same_user(listener: &UnixListener) -> io::Result<UnixStream> {
    let user = rustix::process::geteuid().as_raw();
    loop {
        let (stream, _) = listener.accept().await?;
        if stream.peer_cred().is_ok_and(|peer| peer.uid() == user) {
            return Ok(stream);
        }
    }
}

/// Returns the result of `work`, or `None` when the server stops first.
async fn until<T>(stopped: &mut watch::Receiver<bool>, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        _ = stopped.wait_for(|stopped| *stopped) => None,
        done = work => Some(done),
    }
}

/// The connections of one listener, which end with it.
#[derive(Default)]
struct Connections {
    tasks: JoinSet<()>,
    /// The oldest first.
    order: VecDeque<AbortHandle>,
}

impl Connections {
    async fn start(&mut self, connection: Connection) {
        while self.tasks.try_join_next().is_some() {}
        self.order.retain(|one| !one.is_finished());
        while self.tasks.len() >= MOST {
            // A scrape takes milliseconds: what is still here is slow, or idle.
            if let Some(oldest) = self.order.pop_front() {
                oldest.abort();
            }
            self.tasks.join_next().await;
        }
        self.order.push_back(self.tasks.spawn(connection));
    }
}

async fn serve<S>(stream: S, shared: Arc<ServerShared>, same_user: bool)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let service = |request: Request<Incoming>| {
        let shared = shared.clone();
        async move { Ok::<_, Infallible>(answer(&request, &shared, same_user).await) }
    };
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT).max_buf_size(LARGEST_HEAD);
    let connection = builder.serve_connection(TokioIo::new(stream), service_fn(service));
    let _ = tokio::time::timeout(CONNECTION_TIMEOUT, connection).await;
}

async fn answer(request: &Request<Incoming>, shared: &Arc<ServerShared>, same_user: bool) -> Response<Full<Bytes>> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refused = page(StatusCode::METHOD_NOT_ALLOWED, PLAIN, "only GET\n");
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refused;
    }
    let path = request.uri().path();
    if !(path == "/metrics" || (path == "/state" && same_user)) {
        let there = if same_user { "/metrics and /state\n" } else { "/metrics\n" };
        let status = if path == "/" { StatusCode::OK } else { StatusCode::NOT_FOUND };
        return page(status, PLAIN, there);
    }
    shared.tallies.count();
    let Some(snapshot) = shared.source.snapshot() else {
        return page(StatusCode::SERVICE_UNAVAILABLE, PLAIN, "the dispatcher is closed\n");
    };
    if path == "/metrics" {
        let accepted = request.headers().get_all(ACCEPT).iter();
        let open_metrics = accepted.filter_map(|one| one.to_str().ok()).any(|one| one.contains("openmetrics-text"));
        let figures = Figures { identity: &shared.identity, snapshot: &snapshot, tallies: &shared.tallies.read() };
        let text = metrics(figures, open_metrics);
        return page(StatusCode::OK, if open_metrics { OPEN_METRICS } else { TEXT }, text);
    }
    let stacks = request.uri().query() != Some("stacks=0");
    let blocking = shared.clone();
    let looking = shared.runtime.spawn_blocking(move || {
        let state = blocking.source.state(stacks, STACKS_WITHIN);
        pages::state(&blocking.identity, &snapshot, &blocking.tallies, state)
    });
    match looking.await {
        Ok(state) => page(StatusCode::OK, JSON, state),
        Err(error) if error.is_panic() => page(StatusCode::INTERNAL_SERVER_ERROR, PLAIN, "the state can't be shown\n"),
        Err(_) => page(StatusCode::SERVICE_UNAVAILABLE, PLAIN, "the dispatcher is closing\n"),
    }
}

fn page(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut page = Response::new(Full::new(body.into()));
    *page.status_mut() = status;
    page.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    page.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    page
}
