//! A server that requests go to, with the headers and the key that they carry.
//!
//! - Functions that use the same server in the same way share one pool.
//! - A key is shown nowhere: not in `Debug`, not in a reason.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHORIZATION, USER_AGENT,
};
use hyper::{Method, Request, Uri};
use url::{Position, Url};

use crate::api_key::{ApiKey, KeySource};
use crate::endpoint_error::EndpointError;
use crate::request_body::{RequestBody, SentBody};
use crate::tls::{self, ClientCertificate, Tls};

/// Our name in servers' logs.
const USER_AGENT_VALUE: &str = concat!("guerdon/", env!("CARGO_PKG_VERSION"));

/// Address of a request.
pub(crate) enum Target<'a> {
    Server,
    /// A forwarding proxy, with its `Proxy-Authorization`.
    Proxy(Option<&'a HeaderValue>),
    /// A server, over HTTP/2.
    Http2,
}

/// A server, and how requests to it look.
#[derive(Clone)]
pub struct Endpoint {
    url: Url,
    pub(crate) uri: Uri,
    /// Path and query.
    path: Uri,
    /// The headers without the key.
    headers: HeaderMap,
    pub(crate) key: Option<Arc<ApiKey>>,
    pub(crate) http2: bool,
    pub(crate) tls: Tls,
    /// The one address of its host that is used.
    pub(crate) address: Option<IpAddr>,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { url, headers, http2, address, .. } = self;
        out.debug_struct("Endpoint")
            .field("url", &url.as_str())
            .field("headers", headers)
            .field("http2", http2)
            .field("address", address)
            .finish_non_exhaustive()
    }
}

/// A URL, and what requests to it need.
struct ParsedUrl {
    url: Url,
    uri: Uri,
    path: Uri,
    host: HeaderValue,
}

impl ParsedUrl {
    fn of(url: &str) -> Result<Self, EndpointError> {
        let address = || EndpointError::Address(url.to_owned());
        let parsed = Url::parse(url).map_err(|_| address())?;
        if !matches!(parsed.scheme(), "http" | "https") || parsed.host_str().is_none() {
            return Err(address());
        }
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return Err(EndpointError::Credentials);
        }
        let uri: Uri = parsed[..Position::AfterQuery].parse().map_err(|_| address())?;
        let path: Uri = parsed[Position::BeforePath..Position::AfterQuery].parse().map_err(|_| address())?;
        let host = &parsed[Position::BeforeHost..Position::AfterPort];
        let host = HeaderValue::from_str(host).map_err(|_| address())?;
        Ok(Self { url: parsed, uri, path, host })
    }
}

impl Endpoint {
    /// The endpoint at `url`; a key goes as `Authorization: Bearer`, unless a header says `{key}`
    /// where it belongs.
    pub fn new(
        url: &str,
        headers: Vec<(String, String)>,
        key: Option<KeySource>,
        http2: bool,
        authorities: Option<Vec<u8>>,
    ) -> Result<Self, EndpointError> {
        let ParsedUrl { url: parsed, uri, path, host } = ParsedUrl::of(url)?;
        let mut all = HeaderMap::new();
        all.insert(HOST, host);
        all.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        all.insert(ACCEPT, HeaderValue::from_static("*/*"));
        all.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        all.insert(USER_AGENT, HeaderValue::from_static(USER_AGENT_VALUE));
        let mut carrying = Vec::new();
        for (name, value) in headers {
            let wrong = || EndpointError::Header(name.clone());
            let header: HeaderName = name.parse().map_err(|_| wrong())?;
            let plain = HeaderValue::try_from(&value).map_err(|_| wrong())?;
            if key.is_some() && value.contains("{key}") {
                carrying.push((header, value));
            } else {
                all.insert(header, plain);
            }
        }
        let key = key.map(|source| ApiKey::new(source, carrying).map(Arc::new));
        let tls = Tls { authorities, ..Tls::default() };
        Ok(Self { url: parsed, uri, path, headers: all, key: key.transpose()?, http2, tls, address: None })
    }

    /// The same at another URL: with the same key, headers and certificates.
    pub(crate) fn at_url(&self, url: &str) -> Result<Self, EndpointError> {
        let ParsedUrl { url, uri, path, host } = ParsedUrl::of(url)?;
        let mut headers = self.headers.clone();
        headers.insert(HOST, host);
        Ok(Self { url, uri, path, headers, address: None, ..self.clone() })
    }

    /// The same at one address of its host.
    pub(crate) fn at_address(&self, address: IpAddr) -> Self {
        Self { address: Some(address), ..self.clone() }
    }

    pub(crate) fn url(&self) -> &str {
        self.url.as_str()
    }

    /// The host without its port, and without the brackets of an address.
    pub(crate) fn name(&self) -> &str {
        self.url.host_str().unwrap_or_default().trim_matches(['[', ']'])
    }

    /// Returns whether its path is that of a judge's API, but for the version: `/v1`.
    pub(crate) fn lacks_version(&self) -> bool {
        const APIS: [&str; 3] = ["/completions", "/responses", "/messages"];
        let is_version = |part: &str| {
            let digits = part.strip_prefix('v').unwrap_or_default();
            digits.starts_with(|digit: char| digit.is_ascii_digit())
        };
        let path = self.url.path();
        APIS.iter().any(|api| path.ends_with(api)) && !path.split('/').any(is_version)
    }

    /// Returns whether both are the same place.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.uri == other.uri && self.address == other.address
    }

    /// The same with HTTP/2, or without.
    #[must_use]
    pub const fn with_http2(mut self, http2: bool) -> Self {
        self.http2 = http2;
        self
    }

    /// Returns the same with a client certificate, PEM; `only_these` trusts no authorities but
    /// those given. The files are checked here.
    pub fn with_tls(mut self, only_these: bool, client: Option<(Vec<u8>, Vec<u8>)>) -> Result<Self, EndpointError> {
        let client = client.map(|(chain, key)| ClientCertificate { chain, key });
        self.tls = Tls { only_these, client, ..self.tls };
        tls::config(false, &self.tls)?;
        Ok(self)
    }

    /// Host and port, for messages.
    #[must_use]
    pub fn host(&self) -> String {
        let host = self.url.host_str().unwrap_or_default();
        let host = self.url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        self.address.map_or_else(|| host.clone(), |address| format!("{host} ({address})"))
    }

    /// Returns whether this address is the one in its URL, which then need not be shown twice.
    pub(crate) fn is_at(&self, address: SocketAddr) -> bool {
        let host = self.url.host_str().unwrap_or_default();
        self.url.port_or_known_default().is_some_and(|port| format!("{host}:{port}") == address.to_string())
    }

    /// `text` with the key, or pieces of it, replaced by `…`.
    #[must_use]
    pub fn redact(&self, text: &str) -> String {
        self.key.as_ref().map_or_else(|| text.to_owned(), |key| key.redact(text))
    }

    /// Returns whether both can use the same connections.
    #[must_use]
    pub(crate) fn shares_pool(&self, other: &Self) -> bool {
        self.url.origin() == other.url.origin()
            && self.address == other.address
            && self.http2 == other.http2
            && self.tls == other.tls
    }

    /// A request with this body.
    pub(crate) fn request(&self, body: &RequestBody, form: Target<'_>) -> Request<SentBody> {
        let mut request = Request::new(body.sent());
        *request.method_mut() = Method::POST;
        *request.uri_mut() = if matches!(form, Target::Server) { self.path.clone() } else { self.uri.clone() };
        *request.headers_mut() = self.headers.clone();
        if let Some(key) = &self.key {
            key.add_to(request.headers_mut());
        }
        match form {
            Target::Http2 => {
                request.headers_mut().remove(HOST); // `:authority` says it
            }
            Target::Proxy(Some(auth)) => {
                request.headers_mut().insert(PROXY_AUTHORIZATION, auth.clone());
            }
            Target::Server | Target::Proxy(None) => {}
        }
        request
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use hyper::header::AUTHORIZATION;

    use super::*;

    fn endpoint(url: &str, headers: &[(&str, &str)], key: Option<&str>) -> Result<Endpoint, EndpointError> {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Endpoint::new(url, headers, key.map(|key| KeySource::Text(key.to_owned())), false, None)
    }

    #[test]
    fn a_key_shows_nowhere() {
        let sent = |one: &Endpoint| one.request(&Bytes::new().into(), Target::Server).headers().clone();
        let bearer = endpoint("https://api.example/v1", &[], Some("sk-123")).unwrap();
        assert_eq!(sent(&bearer)[AUTHORIZATION], "Bearer sk-123");
        let own = endpoint("https://api.example/v1", &[("api-key", "{key}")], Some("sk-123")).unwrap();
        assert_eq!(sent(&own)["api-key"], "sk-123");
        assert!(!sent(&own).contains_key(AUTHORIZATION));
        for one in [bearer, own] {
            assert!(!format!("{one:?}").contains("sk-123"));
            assert_eq!(one.redact("your key sk-123 is bad"), "your key … is bad");
        }
    }

    #[test]
    fn invalid_addresses_are_not_endpoints() {
        let error = |url: &str| endpoint(url, &[], None).unwrap_err().to_string();
        assert!(error("localhost:8000").contains("is not an address"));
        assert!(error("ftp://x").contains("is not an address"));
        assert!(error("http://user:secret@x/").contains("api_key_env"));
        assert!(!error("http://user:secret@x/").contains("secret"));
        assert!(matches!(endpoint("http://x", &[("a b", "")], None), Err(EndpointError::Header(_))));
        assert!(matches!(endpoint("http://x", &[], Some("a\nb")), Err(EndpointError::Key)));
    }

    #[test]
    fn servers_see_who_asks() {
        let named = |headers: &[(&str, &str)]| endpoint("http://x", headers, None).unwrap().headers[USER_AGENT].clone();
        assert_eq!(named(&[]), concat!("guerdon/", env!("CARGO_PKG_VERSION")));
        assert_eq!(named(&[("User-Agent", "mine")]), "mine");
    }

    #[test]
    fn functions_of_one_server_share_its_connections() {
        let one = endpoint("http://x/v1/a", &[], None).unwrap();
        assert!(one.shares_pool(&endpoint("http://x:80/v1/b", &[], Some("k")).unwrap()));
        assert!(!one.shares_pool(&endpoint("http://y/v1/a", &[], None).unwrap()));
        let other = Endpoint { http2: true, ..one.clone() };
        assert!(!one.shares_pool(&other));
    }

    #[test]
    fn requests_say_where_they_go() {
        let one = endpoint("http://x:8000/v1/a?b=c#d", &[], Some("k")).unwrap();
        let sent = |form| one.request(&Bytes::new().into(), form);
        let direct = sent(Target::Server);
        assert_eq!(
            (direct.uri().to_string().as_str(), &direct.headers()[HOST]),
            ("/v1/a?b=c", &HeaderValue::from_static("x:8000"))
        );
        let shared = sent(Target::Http2);
        assert_eq!(shared.uri(), "http://x:8000/v1/a?b=c");
        assert!(!shared.headers().contains_key(HOST) && !direct.headers().contains_key(PROXY_AUTHORIZATION));
        let word = HeaderValue::from_static("Basic bWU6cHc=");
        let forward_proxy = sent(Target::Proxy(Some(&word)));
        assert_eq!(forward_proxy.uri(), "http://x:8000/v1/a?b=c");
        assert_eq!(
            (&forward_proxy.headers()[HOST], &forward_proxy.headers()[PROXY_AUTHORIZATION]),
            (&direct.headers()[HOST], &word)
        );
    }
}
