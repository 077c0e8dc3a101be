//! A server that requests go to, and the connections to it.
//!
//! - E-1  One endpoint, one pool: functions that go to the same server in the same way share its connections.
//! - E-2  A connection is kept for the next request: as many as there may be requests at a time.
//! - E-3  With HTTP/2 a connection carries many requests, but servers bound how many (often 100): there are as many connections as that takes,
//!   so that none waits behind others where nobody sees it.
//! - E-4  A key shows nowhere: not in `Debug`, not in a reason.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, Url};

use crate::names::Names;
use crate::tls;

/// Requests that a connection of HTTP/2 is given at a time (E-3).
const STREAMS: usize = 100;
/// How long a connection is kept that nobody uses.
const IDLE: Duration = Duration::from_secs(90);
/// How long making a connection may take: what doesn't answer by then would take the whole timeout of the call.
const CONNECT: Duration = Duration::from_secs(10);
/// When a silent connection is asked whether the other side is still there.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// An API key (E-4).
#[derive(Clone, PartialEq, Eq)]
pub struct Key(String);

impl Key {
    #[must_use]
    pub const fn new(key: String) -> Self {
        Self(key)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Key(…)")
    }
}

/// What makes an endpoint unusable.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    #[error("{0:?} is no address: expected one like http://localhost:8000/v1")]
    Address(String),
    #[error("the address holds a user name or password: give a key as api_key_env= or api_key_file=")]
    Credentials,
    #[error("the header {0:?} can't be sent")]
    Header(String),
    #[error("the API key holds characters that a header can't have")]
    Key,
    #[error("the certificates in ca_file= can't be used: {0}")]
    Certificates(String),
    #[error("no client for it can be made: {0}")]
    Client(String),
}

/// A server, and how it is talked to.
#[derive(Clone, Debug)]
pub struct Endpoint {
    url: Url,
    headers: HeaderMap,
    key: Option<Key>,
    http2: bool,
    /// Certificates of authorities, PEM, beside those of the system.
    authorities: Option<Vec<u8>>,
}

impl Endpoint {
    /// The endpoint at `url`; a key goes as `Authorization: Bearer`, unless a header says `{key}` where it is to stand.
    pub fn new(
        url: &str,
        headers: Vec<(String, String)>,
        key: Option<Key>,
        http2: bool,
        authorities: Option<Vec<u8>>,
    ) -> Result<Self, EndpointError> {
        let parsed = Url::parse(url).map_err(|_| EndpointError::Address(url.to_owned()))?;
        if !matches!(parsed.scheme(), "http" | "https") || parsed.host_str().is_none() {
            return Err(EndpointError::Address(url.to_owned()));
        }
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return Err(EndpointError::Credentials);
        }
        let mut all = HeaderMap::new();
        all.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let mut placed = false;
        for (name, value) in headers {
            let wrong = || EndpointError::Header(name.clone());
            let header: HeaderName = name.parse().map_err(|_| wrong())?;
            let secret = value.contains("{key}");
            let filled = key.as_ref().filter(|_| secret).map(|Key(key)| value.replace("{key}", key));
            placed |= filled.is_some();
            let mut value = HeaderValue::try_from(filled.unwrap_or(value)).map_err(|_| wrong())?;
            value.set_sensitive(secret);
            all.insert(header, value);
        }
        if let Some(Key(key)) = key.as_ref().filter(|_| !placed) {
            let mut value = HeaderValue::try_from(format!("Bearer {key}")).map_err(|_| EndpointError::Key)?;
            value.set_sensitive(true);
            all.insert(AUTHORIZATION, value);
        }
        Ok(Self { url: parsed, headers: all, key, http2, authorities })
    }

    /// The same with HTTP/2, or without.
    #[must_use]
    pub const fn with_http2(mut self, http2: bool) -> Self {
        self.http2 = http2;
        self
    }

    /// Where it is, for people: host and port.
    #[must_use]
    pub fn host(&self) -> String {
        let host = self.url.host_str().unwrap_or_default();
        self.url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
    }

    /// `text` without the key.
    #[must_use]
    pub fn without_key(&self, text: &str) -> String {
        match &self.key {
            Some(Key(key)) if !key.is_empty() => text.replace(key.as_str(), "…"),
            _ => text.to_owned(),
        }
    }

    pub(crate) const fn url(&self) -> &Url {
        &self.url
    }

    pub(crate) const fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Whether both can use the same connections (E-1).
    #[must_use]
    pub(crate) fn shares_pool(&self, other: &Self) -> bool {
        self.url.origin() == other.url.origin() && self.http2 == other.http2 && self.authorities == other.authorities
    }

    /// How many connections `requests` at a time need.
    #[must_use]
    pub const fn connections(&self, requests: usize) -> usize {
        if self.http2 { requests.div_ceil(STREAMS) } else { requests }
    }

    /// The pool for so many requests at a time.
    pub(crate) fn pool(&self, requests: usize) -> Result<Pool, EndpointError> {
        let names = Arc::new(Names::default());
        let client = || {
            let builder = Client::builder()
                .redirect(Policy::none())
                .connect_timeout(CONNECT)
                .pool_idle_timeout(IDLE)
                .pool_max_idle_per_host(requests)
                .tcp_nodelay(true)
                .tcp_keepalive(KEEPALIVE)
                .dns_resolver(names.clone());
            let secure = self.url.scheme() == "https";
            let builder = if self.http2 {
                // Known beforehand: else each of the first requests would make a connection to find out.
                builder.http2_prior_knowledge().http2_keep_alive_interval(KEEPALIVE)
            } else {
                builder.http1_only()
            };
            let tls = tls::config(secure, self.http2, self.authorities.as_deref())?;
            let builder = builder.tls_backend_preconfigured(tls);
            builder.build().map_err(|error| EndpointError::Client(error.to_string()))
        };
        let shards = if self.http2 { self.connections(requests).max(1) } else { 1 };
        let clients: Result<Vec<Client>, EndpointError> = (0..shards).map(|_| client()).collect();
        let clients = clients?.into_iter().map(|client| (client, AtomicUsize::new(0))).collect();
        Ok(Pool { clients })
    }
}

/// The connections to an endpoint.
pub(crate) struct Pool {
    /// One that looks after its own connections with HTTP/1; with HTTP/2 each has one (E-3). The counts are of requests on their way, written by
    /// `Leased`.
    clients: Box<[(Client, AtomicUsize)]>,
}

/// A client while a request uses it.
pub(crate) struct Leased<'a> {
    pub client: &'a Client,
    count: &'a AtomicUsize,
}

impl Pool {
    /// The client with the fewest requests on their way.
    pub(crate) fn lease(&self) -> Option<Leased<'_>> {
        let (client, count) = self.clients.iter().min_by_key(|(_, count)| count.load(Ordering::Relaxed))?;
        count.fetch_add(1, Ordering::Relaxed);
        Some(Leased { client, count })
    }
}

impl Drop for Leased<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(url: &str, headers: &[(&str, &str)], key: Option<&str>) -> Result<Endpoint, EndpointError> {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Endpoint::new(url, headers, key.map(|key| Key::new(key.to_owned())), false, None)
    }

    #[test]
    fn e4_a_key_shows_nowhere() {
        let bearer = endpoint("https://api.example/v1", &[], Some("sk-123")).unwrap();
        assert_eq!(bearer.headers()[AUTHORIZATION], "Bearer sk-123");
        let own = endpoint("https://api.example/v1", &[("api-key", "{key}")], Some("sk-123")).unwrap();
        assert_eq!(own.headers()["api-key"], "sk-123");
        assert!(!own.headers().contains_key(AUTHORIZATION));
        for one in [bearer, own] {
            assert!(!format!("{one:?}").contains("sk-123"));
            assert_eq!(one.without_key("your key sk-123 is bad"), "your key … is bad");
        }
    }

    #[test]
    fn what_is_no_endpoint() {
        let error = |url: &str| endpoint(url, &[], None).unwrap_err().to_string();
        assert!(error("localhost:8000").contains("is no address"));
        assert!(error("ftp://x").contains("is no address"));
        assert!(error("http://user:secret@x/").contains("api_key_env"));
        assert!(!error("http://user:secret@x/").contains("secret"));
        assert!(matches!(endpoint("http://x", &[("a b", "")], None), Err(EndpointError::Header(_))));
        assert!(matches!(endpoint("http://x", &[], Some("a\nb")), Err(EndpointError::Key)));
    }

    #[test]
    fn e1_e3_pools() {
        let one = endpoint("http://x/v1/a", &[], None).unwrap();
        assert!(one.shares_pool(&endpoint("http://x:80/v1/b", &[], Some("k")).unwrap()));
        assert!(!one.shares_pool(&endpoint("http://y/v1/a", &[], None).unwrap()));
        assert_eq!(one.connections(2048), 2048);
        let many = Endpoint { http2: true, ..one };
        assert_eq!(many.connections(2048), 21);
        assert_eq!(many.pool(250).unwrap().clients.len(), 3);
    }
}
