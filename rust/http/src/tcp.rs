//! TCP connections to the addresses of a host name ("happy eyeballs", RFC 8305).
//!
//! - Each connection begins with the next address of the name (`dns::rotated`); others are tried
//!   `STAGGER` after the one before or as soon as that failed; the first connection is taken. The
//!   error is that of the last one, with its address.
//! - A peer that is gone silently ends its connection: an idle one after `KEEPALIVE` and
//!   `PROBES` unanswered probes, one that was written to after `USER_TIMEOUT_MS`.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Uri;
use hyper_util::rt::TokioIo;
use rustix::net::sockopt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tower_service::Service;

use crate::dns::{DnsCache, rotated};

/// Idle time before a TCP keep-alive, and between two.
pub const KEEPALIVE: Duration = Duration::from_secs(15);
/// Keep-alives without an answer after which the peer is gone.
const PROBES: u32 = 3;
/// Longest time that sent bytes may stay without an acknowledgement, in milliseconds.
#[cfg(target_os = "linux")]
const USER_TIMEOUT_MS: u32 = 30_000;
/// Pause before the next address is tried as well.
const STAGGER: Duration = Duration::from_millis(250);

/// See the module.
#[derive(Clone, Default)]
pub struct Tcp {
    dns: DnsCache,
    /// Counts connections, for the rotation of addresses.
    made: Arc<AtomicUsize>,
    /// The one address to connect to.
    address: Option<IpAddr>,
}

impl Tcp {
    /// Connects to this address, if one is given, whatever the name has.
    pub fn new(address: Option<IpAddr>) -> Self {
        Self { address, ..Self::default() }
    }

    async fn connect(self, uri: Uri) -> io::Result<TokioIo<TcpStream>> {
        let none = || io::Error::new(io::ErrorKind::InvalidInput, "the address has no host");
        let host = uri.host().ok_or_else(none)?.trim_matches(['[', ']']);
        let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
        let addresses = match self.address.or_else(|| host.parse::<IpAddr>().ok()) {
            Some(address) => vec![address],
            None => rotated(self.dns.resolve(host).await?, self.made.fetch_add(1, Ordering::Relaxed)),
        };
        let stream = race(addresses.into_iter().map(|address| SocketAddr::new(address, port)).collect()).await?;
        stream.set_nodelay(true)?;
        notice_silence(&stream)?;
        Ok(TokioIo::new(stream))
    }
}

/// Lets the kernel end a connection whose peer is gone.
fn notice_silence(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE)?;
    sockopt::set_tcp_keepcnt(stream, PROBES)?;
    #[cfg(target_os = "linux")]
    sockopt::set_tcp_user_timeout(stream, USER_TIMEOUT_MS)?;
    Ok(())
}

/// The first connection that succeeds.
async fn race(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    let mut tries = JoinSet::new(); // aborts the losers
    let mut left = addresses.into_iter();
    let mut error = io::Error::new(io::ErrorKind::NotFound, "the host name has no address");
    loop {
        if let Some(address) = left.next() {
            tries.spawn(async move {
                let with_address = |error: io::Error| io::Error::new(error.kind(), format!("{address}: {error}"));
                TcpStream::connect(address).await.map_err(with_address)
            });
        }
        let patience = if left.len() == 0 { Duration::MAX } else { STAGGER };
        match tokio::time::timeout(patience, tries.join_next()).await {
            Ok(Some(Ok(Ok(stream)))) => return Ok(stream),
            Ok(Some(Ok(Err(failed)))) => error = failed,
            Ok(Some(Err(ended))) => error = io::Error::other(ended),
            Ok(None) => return Err(error),
            Err(_) => {}
        }
    }
}

impl Service<Uri> for Tcp {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<TcpStream>>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        Box::pin(self.clone().connect(uri))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use tokio::net::{TcpListener, TcpSocket};

    use super::*;

    #[tokio::test]
    async fn a_dead_address_is_not_waited_for() {
        if !cfg!(target_os = "linux") {
            return; // other systems have one loopback address
        }
        let alive = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = alive.local_addr().unwrap().port();
        // Its backlog is full: further connections are dropped silently.
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(format!("127.0.0.2:{port}").parse().unwrap()).unwrap();
        let dead = socket.listen(0).unwrap();
        let mut held = Vec::new();
        let soon = Duration::from_millis(200);
        while let Ok(taken) = tokio::time::timeout(soon, TcpStream::connect(("127.0.0.2", port))).await {
            held.push(taken.unwrap());
        }
        let mut addresses = vec![dead.local_addr().unwrap(), alive.local_addr().unwrap()];
        let start = Instant::now();
        assert_eq!(race(addresses.clone()).await.unwrap().peer_addr().unwrap(), addresses[1]);
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
        // A refused connection is not waited for at all.
        addresses[0] = "127.0.0.3:9".parse().unwrap();
        assert!(race(addresses).await.is_ok());
    }

    #[tokio::test]
    async fn silent_peers_are_noticed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
        let stream = Tcp::default().connect(uri).await.unwrap().into_inner();
        assert!(sockopt::socket_keepalive(&stream).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&stream).unwrap(), KEEPALIVE);
        assert_eq!(sockopt::tcp_keepintvl(&stream).unwrap(), KEEPALIVE);
        assert_eq!(sockopt::tcp_keepcnt(&stream).unwrap(), PROBES);
        #[cfg(target_os = "linux")]
        assert_eq!(sockopt::tcp_user_timeout(&stream).unwrap(), USER_TIMEOUT_MS);
    }

    #[tokio::test]
    async fn the_last_error_says_where() {
        let error = race(vec!["127.0.0.1:1".parse().unwrap(), "127.0.0.2:1".parse().unwrap()]).await.unwrap_err();
        assert!(error.to_string().contains("127.0.0.2:1: "), "{error}");
        let error = race(Vec::new()).await.unwrap_err();
        assert!(error.to_string().contains("no address"));
    }
}
