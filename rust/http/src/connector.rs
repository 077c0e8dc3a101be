//! Making a connection to a server: name, TCP, a proxy's tunnel, TLS.
//!
//! - C-1  The proxies that the environment names (`HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY`, and `NO_PROXY` for what goes without) are used as
//!   curl does: a tunnel for TLS, so that the proxy sees neither key nor text; what has no TLS is handed to the proxy as it is.
//! - C-2  It takes `LONGEST` at most, name and TLS included: what doesn't answer by then would take the whole timeout of the call.
//! - C-3  A proxy's own user name and password go to the proxy and nowhere else.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use hyper::Uri;
use hyper::header::HeaderValue;
use hyper::rt::{Read, Write};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::Connection;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use rustls::ClientConfig;
use tower_service::Service;

use crate::error::EndpointError;
use crate::tcp::Tcp;
use crate::tls;

const LONGEST: Duration = Duration::from_secs(10);
type BoxError = Box<dyn Error + Send + Sync>;

/// Why there is no connection.
#[derive(Debug)]
pub enum NoConnection {
    /// After this time (C-2).
    Late(Duration),
    Failed(BoxError),
}

/// Why there is no answer.
#[derive(Debug)]
pub enum Broken {
    NoConnection(NoConnection),
    OnTheWay(hyper::Error),
}

/// A connection, and what is spoken on it.
pub struct Made {
    pub io: Box<dyn Io>,
    pub http2: bool,
}

/// What a connection is made of, whatever it goes through.
pub trait Io: Read + Write + Send + Unpin {}

impl<T: Read + Write + Send + Unpin> Io for T {}

/// See the module.
pub struct Connector {
    uri: Uri,
    way: Way,
}

enum Way {
    Direct(HttpsConnector<Tcp>),
    Tunnel(Box<HttpsConnector<Tunnel<HttpsConnector<Tcp>>>>),
    /// Without TLS to the server: the proxy gets the requests.
    Handed(HttpsConnector<Tcp>, Box<Intercept>),
}

impl fmt::Debug for Connector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Connector({}, proxy: {})", self.uri, !matches!(self.way, Way::Direct(_)))
    }
}

impl Connector {
    /// For the server at `uri`; the environment's proxies are looked up once, here.
    pub fn new(uri: &Uri, http2: bool, authorities: Option<&[u8]>) -> Result<Self, EndpointError> {
        Self::with_proxies(uri, http2, authorities, &Matcher::from_system())
    }

    fn with_proxies(
        uri: &Uri,
        http2: bool,
        authorities: Option<&[u8]>,
        proxies: &Matcher,
    ) -> Result<Self, EndpointError> {
        let proxy = proxies.intercept(uri);
        let scheme = proxy.as_ref().and_then(|proxy| proxy.uri().scheme_str());
        if let Some(other) = scheme.filter(|scheme| !matches!(*scheme, "http" | "https")) {
            return Err(EndpointError::Proxy(other.to_owned()));
        }
        let secure = uri.scheme_str() == Some("https");
        let plain = tls::config(secure || scheme == Some("https"), authorities)?;
        let to_server = if http2 && secure { tls::with_http2(plain.clone()) } else { plain.clone() };
        let way = match proxy {
            None => Way::Direct(over(to_server)),
            Some(proxy) if secure => {
                let mut tunnel = Tunnel::new(proxy.uri().clone(), over(plain));
                if let Some(auth) = proxy.basic_auth() {
                    tunnel = tunnel.with_auth(auth.clone());
                }
                Way::Tunnel(Box::new((tunnel, to_server).into()))
            }
            Some(proxy) => Way::Handed(over(plain), Box::new(proxy)),
        };
        Ok(Self { uri: uri.clone(), way })
    }

    /// Whether requests are the proxy's to pass on, and what it wants to see of a password (C-3).
    pub fn handed(&self) -> Option<Option<&HeaderValue>> {
        match &self.way {
            Way::Handed(_, proxy) => Some(proxy.basic_auth()),
            Way::Direct(_) | Way::Tunnel(_) => None,
        }
    }

    /// Makes a connection (C-2).
    pub async fn connect(&self) -> Result<Made, NoConnection> {
        let made = async {
            match &self.way {
                Way::Direct(direct) => call(direct, &self.uri).await,
                Way::Tunnel(tunnel) => call(&**tunnel, &self.uri).await,
                Way::Handed(direct, proxy) => call(direct, proxy.uri()).await,
            }
        };
        match tokio::time::timeout(LONGEST, made).await {
            Ok(made) => made.map_err(NoConnection::Failed),
            Err(_) => Err(NoConnection::Late(LONGEST)),
        }
    }
}

fn over(config: ClientConfig) -> HttpsConnector<Tcp> {
    (Tcp::default(), config).into()
}

async fn call<C>(connector: &C, uri: &Uri) -> Result<Made, BoxError>
where
    C: Service<Uri, Error = BoxError> + Clone,
    C::Response: Connection + Io + 'static,
{
    let mut connector = connector.clone();
    std::future::poll_fn(|context| connector.poll_ready(context)).await?;
    let io = connector.call(uri.clone()).await?;
    Ok(Made { http2: io.connected().is_negotiated_h2(), io: Box::new(io) })
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
        Connector::with_proxies(&uri.parse().unwrap(), true, None, &proxies)
    }

    /// C-1, C-3: a proxy sees where a tunnel leads and its own password, and of what goes through it nothing that it can read.
    #[tokio::test]
    async fn c1_c3_a_tunnel_leads_to_the_server() {
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
        let authority = judge.authority().map(str::as_bytes);
        let connector = Connector::with_proxies(&uri, false, authority, &proxies).unwrap();
        drop(connector.connect().await.unwrap());
        let asked = passed.await.unwrap();
        assert!(asked.starts_with(&format!("CONNECT localhost:{} HTTP/1.1\r\n", uri.port_u16().unwrap())), "{asked}");
        assert!(asked.to_lowercase().contains("\r\nproxy-authorization: basic bwu6chc=\r\n"), "{asked}");
        assert_eq!(judge.seen().handshakes.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn c1_c3_proxies_as_the_environment_names_them() {
        let way = |uri: &str| connector(uri, "http://me:pw@proxy.example:3128").unwrap();
        assert!(matches!(way("https://judge.example/v1").way, Way::Tunnel(_)));
        assert!(matches!(way("https://local.example/v1").way, Way::Direct(_)));
        let handed = way("http://judge.example/v1");
        assert_eq!(handed.handed().unwrap().unwrap(), "Basic bWU6cHc=");
        assert!(way("http://local.example/v1").handed().is_none());
        for one in [way("https://judge.example/v1"), handed] {
            assert!(!format!("{one:?}").contains("pw"), "C-3");
        }
        let error = connector("https://judge.example/v1", "socks5://me:pw@proxy.example").unwrap_err().to_string();
        assert!(error.contains("socks5") && !error.contains("pw"), "{error}");
    }
}
