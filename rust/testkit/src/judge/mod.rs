//! A mock judge: a server for judges and reward services with fault injection. It answers
//! `/v1/chat/completions` and `/rewards` (a list).
//!
//! - A request's text chooses its fault: `[[score 7]]` is the judgment, `[[status 500]]` fails,
//!   `[[reset once]]` breaks the connection the first time. Rates and latencies use a seed.
//! - `Counts` counts its requests. Dropping the judge ends its tasks, sockets and connections.

mod certificate;
mod connection;
mod fault;
mod handler;
mod http2;
mod latency;
mod reply;
mod state;
mod window;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

pub use certificate::Certificate;
use certificate::Certificates;
pub use latency::Latency;
use state::JudgeState;
pub use state::{Counts, JudgeConfig};
pub use window::Window;

/// A running mock judge; dropping it ends it.
pub struct MockJudge {
    address: SocketAddr,
    shared: Arc<JudgeState>,
    /// PEM of the authority that signed its certificate, with TLS.
    authority: Option<String>,
    /// PEM of a certificate for its clients, and of the key.
    client: Option<(String, String)>,
    task: JoinHandle<()>,
}

impl MockJudge {
    /// Starts a judge on the current runtime.
    pub async fn start(config: JudgeConfig) -> io::Result<Self> {
        let listener = listen(config.port)?;
        let address = listener.local_addr()?;
        let tls = if config.tls {
            let made = certificate::make(config.http2, config.certificate, config.of_clients);
            Some(made.map_err(io::Error::other)?)
        } else {
            None
        };
        let (acceptor, authority, client) = match tls {
            Some(Certificates { acceptor, authority, client }) => (Some(acceptor), Some(authority), Some(client)),
            None => (None, None, None),
        };
        let shared = Arc::new(JudgeState {
            window: Mutex::default(),
            random: Mutex::new(fastrand::Rng::with_seed(config.seed)),
            seen: Arc::default(),
            spent: Mutex::default(),
            bodies: Mutex::default(),
            config,
        });
        let task = tokio::spawn(serve(listener, acceptor, shared.clone()));
        Ok(Self { address, shared, authority, client, task })
    }

    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://127.0.0.1:…` and then `path`; with TLS `https://localhost:…`.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        let port = self.address.port();
        let base = if self.authority.is_some() {
            format!("https://localhost:{port}")
        } else {
            format!("http://127.0.0.1:{port}")
        };
        format!("{base}{path}")
    }

    #[must_use]
    pub fn authority(&self) -> Option<&str> {
        self.authority.as_deref()
    }

    /// Returns an accepted certificate and its key, if one is required.
    #[must_use]
    pub fn client(&self) -> Option<(&str, &str)> {
        self.client.as_ref().map(|(chain, key)| (chain.as_str(), key.as_str()))
    }

    #[must_use]
    pub fn seen(&self) -> &Counts {
        &self.shared.seen
    }

    /// The bodies of the last requests.
    #[must_use]
    pub fn bodies(&self) -> Vec<String> {
        self.shared.bodies.lock().clone()
    }
}

impl Drop for MockJudge {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A socket with a backlog for thousands of connections at once.
fn listen(port: u16) -> io::Result<TcpListener> {
    let socket = tokio::net::TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(([127, 0, 0, 1], port).into())?;
    socket.listen(4096)
}

async fn serve(listener: TcpListener, acceptor: Option<TlsAcceptor>, shared: Arc<JudgeState>) {
    let mut connections = JoinSet::new(); // dropped, and so ended, with this task
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                shared.seen.connections.fetch_add(1, Ordering::Relaxed);
                connections.spawn(connection::serve(stream, acceptor.clone(), shared.clone()));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}
