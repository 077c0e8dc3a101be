//! Makes a connection to a server: DNS, TCP, a proxy's tunnel, TLS.
//!
//! - The environment's proxies (`HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY`, `NO_PROXY`) are used as
//!   curl does: a tunnel for TLS, so that the proxy sees no key and no text; other requests are
//!   forwarded.
//! - All of it takes `CONNECT_TIMEOUT` at most: more would use up the timeout of the call.
//! - A proxy's own user name and password go to the proxy and nowhere else.

use std::error::Error;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use hyper::Uri;
use hyper::header::HeaderValue;
use hyper::rt::{Read, Write};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::Connection;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use rustls::ClientConfig;
use tokio::sync::{Semaphore, SemaphorePermit};
use tower_service::Service;

use crate::endpoint_error::EndpointError;
use crate::tcp::Tcp;
use crate::tls::{self, Tls};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections to one server that are made at a time.
const CONNECTS: usize = 64;
type BoxError = Box<dyn Error + Send + Sync>;

/// Reason why there is no connection.
#[derive(Debug)]
pub enum ConnectError {
    /// After this time.
    Timeout(Duration),
    Failed(BoxError),
}

/// Reason why there is no response.
#[derive(Debug)]
pub enum TransportError {
    Connect(ConnectError),
    Exchange(hyper::Error),
}

/// A connection, and its protocol.
pub struct OpenConnection {
    pub io: Box<dyn Io>,
    pub http2: bool,
}

/// A byte stream, on any transport.
pub trait Io: Read + Write + Send + Unpin {}

impl<T: Read + Write + Send + Unpin> Io for T {}

/// See the module.
pub struct Connector {
    uri: Uri,
    route: Route,
    /// Host and port of the proxy, if there is one.
    proxy: Option<String>,
    /// Connections that are being made: more at once would be a flood, of handshakes here and of
    /// connections in the server's backlog. Taken by `connect`.
    permits: Semaphore,
}

/// The environment's proxies: none where `NO_PROXY` is `*`, which the matcher takes for names only
/// and not for addresses.
fn proxies() -> Matcher {
    let no_proxy = std::env::var("no_proxy").or_else(|_| std::env::var("NO_PROXY")).unwrap_or_default();
    if no_proxy.split(',').any(|host| host.trim() == "*") { Matcher::builder().build() } else { Matcher::from_system() }
}

enum Route {
    Direct(HttpsConnector<Tcp>),
    Tunnel(Box<HttpsConnector<Tunnel<HttpsConnector<Tcp>>>>),
    /// A connection without TLS to the server: the proxy forwards the requests.
    ForwardProxy(HttpsConnector<Tcp>, Box<Intercept>),
}

impl fmt::Debug for Connector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Connector({}, proxy: {})", self.uri, !matches!(self.route, Route::Direct(_)))
    }
}

impl Connector {
    /// Makes one for the server at `uri`; the environment's proxies are looked up once, here. One
    /// for a single `address` of it has none.
    pub fn new(address: Option<IpAddr>, uri: &Uri, http2: bool, tls: &Tls) -> Result<Self, EndpointError> {
        let proxies = if address.is_some() { Matcher::builder().build() } else { proxies() };
        Self::with_proxies(address, uri, http2, tls, &proxies)
    }

    /// Returns whether the environment has a proxy for it.
    pub fn has_proxy(uri: &Uri) -> bool {
        proxies().intercept(uri).is_some()
    }

    fn with_proxies(
        address: Option<IpAddr>,
        uri: &Uri,
        http2: bool,
        tls: &Tls,
        proxies: &Matcher,
    ) -> Result<Self, EndpointError> {
        let over = |config: ClientConfig| HttpsConnector::from((Tcp::new(address), config));
        let proxy = proxies.intercept(uri);
        let scheme = proxy.as_ref().and_then(|proxy| proxy.uri().scheme_str()).map(str::to_owned);
        if let Some(other) = scheme.as_deref().filter(|scheme| !matches!(*scheme, "http" | "https")) {
            return Err(EndpointError::Proxy(other.to_owned()));
        }
        let place = proxy.as_ref().map(|proxy| place_of(proxy.uri()));
        let secure = uri.scheme_str() == Some("https");
        let of_server = tls::config(secure, tls)?;
        let to_server = if http2 && secure { tls::with_http2(of_server) } else { of_server };
        // The client's certificate is for the server, not for the proxy.
        let to_proxy = || tls::config(scheme.as_deref() == Some("https"), &Tls { client: None, ..tls.clone() });
        let route = match proxy {
            None => Route::Direct(over(to_server)),
            Some(proxy) if secure => {
                let mut tunnel = Tunnel::new(proxy.uri().clone(), over(to_proxy()?));
                if let Some(auth) = proxy.basic_auth() {
                    tunnel = tunnel.with_auth(auth.clone());
                }
                Route::Tunnel(Box::new((tunnel, to_server).into()))
            }
            Some(proxy) => Route::ForwardProxy(over(to_proxy()?), Box::new(proxy)),
        };
        Ok(Self { uri: uri.clone(), route, proxy: place, permits: Semaphore::new(CONNECTS) })
    }

    /// Host and port of the proxy, if there is one.
    pub fn proxy(&self) -> Option<&str> {
        self.proxy.as_deref()
    }

    /// Returns whether a proxy forwards the requests, and its `Proxy-Authorization`.
    pub fn forward_proxy(&self) -> Option<Option<&HeaderValue>> {
        match &self.route {
            Route::ForwardProxy(_, proxy) => Some(proxy.basic_auth()),
            Route::Direct(_) | Route::Tunnel(_) => None,
        }
    }

    /// Waits until a connection may be made: at most `CONNECTS` are being made at a time.
    pub async fn permit(&self) -> Option<SemaphorePermit<'_>> {
        self.permits.acquire().await.ok() // nobody closes it
    }

    #[cfg(test)]
    pub fn take_permits(&self) -> Option<SemaphorePermit<'_>> {
        self.permits.try_acquire_many(CONNECTS as u32).ok()
    }

    /// Makes a connection, with a permit.
    pub async fn connect(&self, _permit: Option<SemaphorePermit<'_>>) -> Result<OpenConnection, ConnectError> {
        let made = async {
            match &self.route {
                Route::Direct(direct) => call(direct, &self.uri).await,
                Route::Tunnel(tunnel) => call(&**tunnel, &self.uri).await,
                Route::ForwardProxy(direct, proxy) => call(direct, proxy.uri()).await,
            }
        };
        match tokio::time::timeout(CONNECT_TIMEOUT, made).await {
            Ok(made) => made.map_err(ConnectError::Failed),
            Err(_) => Err(ConnectError::Timeout(CONNECT_TIMEOUT)),
        }
    }
}

/// Host and port, without the user's name and password.
fn place_of(proxy: &Uri) -> String {
    let (host, port) = (proxy.host().unwrap_or_default(), proxy.port_u16());
    port.map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

async fn call<C>(connector: &C, uri: &Uri) -> Result<OpenConnection, BoxError>
where
    C: Service<Uri, Error = BoxError> + Clone,
    C::Response: Connection + Io + 'static,
{
    let mut connector = connector.clone();
    std::future::poll_fn(|context| connector.poll_ready(context)).await?;
    let io = connector.call(uri.clone()).await?;
    Ok(OpenConnection { http2: io.connected().is_negotiated_h2(), io: Box::new(io) })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use guerdon_testkit::judge::{JudgeConfig, MockJudge};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    fn connector(uri: &str, proxy: &str) -> Result<Connector, EndpointError> {
        let proxies = Matcher::builder().all(proxy).no("local.example").build();
        Connector::with_proxies(None, &uri.parse().unwrap(), true, &Tls::default(), &proxies)
    }

    /// A proxy sees the target of a tunnel and its own password, and nothing else that it can read.
    #[tokio::test]
    async fn a_tunnel_leads_to_the_server() {
        let judge = MockJudge::start(JudgeConfig { tls: true, ..Default::default() }).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = format!("http://me:pw@{}", listener.local_addr().unwrap());
        let passed = tokio::spawn(async move {
            let (mut near, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(near.read_u8().await.unwrap());
            }
            let asked = String::from_utf8(head).unwrap();
            let place = asked.split(' ').nth(1).unwrap();
            let mut far = TcpStream::connect(place).await.unwrap();
            near.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
            let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
            asked
        });
        let uri: Uri = judge.url("/v1").parse().unwrap();
        let proxies = Matcher::builder().all(proxy).build();
        let tls = Tls { authorities: judge.authority().map(|pem| pem.as_bytes().to_vec()), ..Tls::default() };
        let connector = Connector::with_proxies(None, &uri, false, &tls, &proxies).unwrap();
        drop(connector.connect(None).await.unwrap());
        let asked = passed.await.unwrap();
        assert!(asked.starts_with(&format!("CONNECT localhost:{} HTTP/1.1\r\n", uri.port_u16().unwrap())), "{asked}");
        assert!(asked.to_lowercase().contains("\r\nproxy-authorization: basic bwu6chc=\r\n"), "{asked}");
        assert_eq!(judge.seen().handshakes.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn proxies_as_the_environment_names_them() {
        let route = |uri: &str| connector(uri, "http://me:pw@proxy.example:3128").unwrap();
        assert!(matches!(route("https://judge.example/v1").route, Route::Tunnel(_)));
        assert!(matches!(route("https://local.example/v1").route, Route::Direct(_)));
        let forward_proxy = route("http://judge.example/v1");
        assert_eq!(forward_proxy.forward_proxy().unwrap().unwrap(), "Basic bWU6cHc=");
        assert!(route("http://local.example/v1").forward_proxy().is_none());
        assert_eq!(route("http://local.example/v1").proxy(), None);
        for one in [route("https://judge.example/v1"), forward_proxy] {
            assert_eq!(one.proxy(), Some("proxy.example:3128"));
            assert!(!format!("{one:?}").contains("pw"), "no password");
        }
        let error = connector("https://judge.example/v1", "socks5://me:pw@proxy.example").unwrap_err().to_string();
        assert!(error.contains("socks5") && !error.contains("pw"), "{error}");
    }
}
