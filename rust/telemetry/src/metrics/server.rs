//! The server: HTTP/1 on a Unix socket and on TCP.
//!
//! - On TCP there are the metrics alone; the state has stacks in it, and is for the same user.
//! - If it has a TCP port it runs on a separate thread, which no part of the engine can hold up; a
//!   Unix socket alone is served by the engine's runtime, and costs no thread.
//! - Headers, their time, the time of a connection and the number of connections have bounds.
//! - `stop` leaves no thread, descriptor or file.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fs;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::runtime::{Builder, Handle};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use crate::metrics::families::Figures;
use crate::metrics::open_sockets::{self, AddressEntry};
use crate::metrics::pages;
use crate::metrics::snapshot::{Identity, Source};
use crate::metrics::tallies::Tallies;
use crate::metrics::text::metrics;

const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(120);
const LARGEST_HEAD: usize = 16 << 10;
/// Connections of a listener at a time; one more ends the oldest.
const MOST: usize = 16;
/// Time that the state may wait for the stacks of workers, and half of it for those of this
/// process.
const STACKS_WITHIN: Duration = Duration::from_millis(300);
/// After an accept that failed: mostly for lack of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const JSON: &str = "application/json";
const PLAIN: &str = "text/plain; charset=utf-8";

/// Address of the server.
#[derive(Clone, Debug, Default)]
pub struct Listen {
    /// A path for the socket; a file there is replaced.
    pub socket: Option<PathBuf>,
    pub address: Option<SocketAddr>,
}

/// Address that could not be used, and the reason.
#[derive(Debug, Default)]
pub struct NotServed {
    pub socket: Option<io::Error>,
    pub address: Option<io::Error>,
}

/// See the module.
pub struct Server {
    stop: watch::Sender<bool>,
    socket: Option<PathBuf>,
    address: Option<SocketAddr>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Closed once what serves on the engine's runtime has ended.
    ended: Mutex<Option<std::sync::mpsc::Receiver<()>>>,
}

struct ServerShared {
    identity: Identity,
    source: Arc<dyn Source>,
    tallies: Arc<Tallies>,
    runtime: Handle,
}

impl Server {
    /// Starts to serve. Addresses that can't be used are reported, and the rest is served.
    pub fn start(
        runtime: &Handle,
        listen: &Listen,
        identity: Identity,
        source: Arc<dyn Source>,
        tallies: Arc<Tallies>,
    ) -> (Self, NotServed) {
        let mut not_served = NotServed::default();
        let tcp = listen.address.map(bind_tcp).transpose().unwrap_or_else(|error| {
            not_served.address = Some(error);
            None
        });
        let unix = listen.socket.as_deref().map(bind_unix).transpose().unwrap_or_else(|error| {
            not_served.socket = Some(error);
            None
        });
        let address = tcp.as_ref().and_then(|(listener, _)| match listener {
            Bound::Tcp(listener) => listener.local_addr().ok(),
            Bound::Unix(_) => None,
        });
        let socket = unix.as_ref().and(listen.socket.clone());
        let (stop, stopped) = watch::channel(false);
        let shared = ServerShared { identity, source, tallies, runtime: runtime.clone() };
        let own_thread = tcp.is_some();
        let serving = serve_all(tcp.into_iter().chain(unix).collect(), Arc::new(shared), stopped);
        let (ending, ended) = std::sync::mpsc::channel();
        let mut thread = None;
        if own_thread {
            match spawn_thread(serving) {
                Ok(started) => thread = Some(started),
                Err(error) => not_served.address = Some(error),
            }
        } else if socket.is_some() {
            runtime.spawn(async move {
                let _ending = ending;
                serving.await;
            });
        }
        let (thread, ended) = (Mutex::new(thread), Mutex::new(Some(ended)));
        (Self { stop, socket, address, thread, ended }, not_served)
    }

    /// Returns the address of the metrics, if they are on TCP at all.
    #[must_use]
    pub const fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// The Unix socket, if there is one.
    #[must_use]
    pub fn socket(&self) -> Option<&Path> {
        self.socket.as_deref()
    }

    /// Ends it, and waits until it has ended: some milliseconds. May be called more than once.
    pub fn stop(&self) {
        self.signal();
        let ended = self.ended.lock().take();
        if let Some(ended) = ended {
            let _ = ended.recv_timeout(PAUSE * 10);
        }
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }

    fn signal(&self) {
        self.stop.send_replace(true);
        if let Some(socket) = &self.socket {
            // Gone already the second time.
            let _ = fs::remove_file(socket);
        }
    }
}

impl Drop for Server {
    /// Ends it without waiting.
    fn drop(&mut self) {
        self.signal();
    }
}

/// A listener of the standard library until it is served.
enum Bound {
    Tcp(std::net::TcpListener),
    Unix(StdUnixListener),
}

fn bind_tcp(address: SocketAddr) -> io::Result<(Bound, AddressEntry)> {
    let (listener, entry) = open_sockets::listen(|| std::net::TcpListener::bind(address))?;
    listener.set_nonblocking(true)?;
    Ok((Bound::Tcp(listener), entry))
}

fn bind_unix(path: &Path) -> io::Result<(Bound, AddressEntry)> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let (listener, entry) = open_sockets::listen(|| StdUnixListener::bind(path))?;
    listener.set_nonblocking(true)?;
    Ok((Bound::Unix(listener), entry))
}

fn spawn_thread(serving: impl Future<Output = ()> + Send + 'static) -> io::Result<JoinHandle<()>> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("guerdon-metrics".to_owned()).spawn(move || runtime.block_on(serving))
}

async fn serve_all(listening: Vec<(Bound, AddressEntry)>, shared: Arc<ServerShared>, stopped: watch::Receiver<bool>) {
    let mut serving = JoinSet::new();
    for (bound, entry) in listening {
        serving.spawn(serve_one(bound, entry, shared.clone(), stopped.clone()));
    }
    while serving.join_next().await.is_some() {}
}

async fn serve_one(
    bound: Bound,
    entry: AddressEntry,
    shared: Arc<ServerShared>,
    mut stopped: watch::Receiver<bool>,
) -> io::Result<()> {
    let listener = match bound {
        Bound::Tcp(listener) => Listener::Tcp(TcpListener::from_std(listener)?),
        Bound::Unix(listener) => Listener::Unix(UnixListener::from_std(listener)?),
    };
    let mut open = Connections::default();
    while let Some(accepted) = until(&mut stopped, listener.next(&shared)).await {
        match accepted {
            Ok(connection) => open.start(connection).await,
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
    open.tasks.shutdown().await;
    drop((listener, entry)); // nothing of it is open when its address leaves
    Ok(())
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

type Connection = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Listener {
    /// The next connection, being served.
    async fn next(&self, shared: &Arc<ServerShared>) -> io::Result<Connection> {
        Ok(match self {
            Self::Tcp(listener) => Box::pin(serve(listener.accept().await?.0, shared.clone(), false)),
            Self::Unix(listener) => Box::pin(serve(same_user(listener).await?, shared.clone(), true)),
        })
    }
}

/// The next connection of this user.
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

/// The connections of one listener; they end with it.
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

async fn answer(request: &Request<Incoming>, shared: &ServerShared, same_user: bool) -> Response<Full<Bytes>> {
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
    let source = shared.source.clone();
    let looking = shared.runtime.spawn_blocking(move || source.state(stacks, STACKS_WITHIN));
    let state = looking.await.unwrap_or_default();
    page(StatusCode::OK, JSON, pages::state(&shared.identity, &snapshot, &shared.tallies, state))
}

fn page(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut page = Response::new(Full::new(body.into()));
    *page.status_mut() = status;
    page.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    page.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    page
}
