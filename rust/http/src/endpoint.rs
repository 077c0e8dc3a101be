//! A server that requests go to.
//!
//! - E-1  One endpoint, one pool: functions that go to the same server in the same way share its connections.
//! - E-2  A key shows nowhere: not in `Debug`, not in a reason.

use std::fmt;
use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHORIZATION,
};
use hyper::{Method, Request, Uri};
use url::{Position, Url};

use crate::error::EndpointError;
use crate::redaction::Redaction;

/// An API key (E-2).
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

/// How a request says where it goes.
pub(crate) enum Form<'a> {
    ToServer,
    /// To a proxy that passes it on, with what that wants to see of a password.
    ToProxy(Option<&'a HeaderValue>),
    /// By a connection of HTTP/2.
    Shared,
}

/// A server, and how it is talked to.
#[derive(Clone, Debug)]
pub struct Endpoint {
    url: Url,
    uri: Uri,
    /// The address without server.
    path: Uri,
    headers: HeaderMap,
    redaction: Redaction,
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
        let address = || EndpointError::Address(url.to_owned());
        let uri: Uri = parsed[..Position::AfterQuery].parse().map_err(|_| address())?;
        let path: Uri = parsed[Position::BeforePath..Position::AfterQuery].parse().map_err(|_| address())?;
        let host = &parsed[Position::BeforeHost..Position::AfterPort];
        let mut all = HeaderMap::new();
        all.insert(HOST, HeaderValue::from_str(host).map_err(|_| address())?);
        all.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        all.insert(ACCEPT, HeaderValue::from_static("*/*"));
        all.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
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
        let redaction = Redaction::of(key.as_ref().map_or("", |Key(key)| key));
        Ok(Self { url: parsed, uri, path, headers: all, redaction, http2, authorities })
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

    /// Whether this is the address that its own names, so that saying it again says nothing new.
    pub(crate) fn is_at(&self, address: SocketAddr) -> bool {
        let host = self.url.host_str().unwrap_or_default();
        self.url.port_or_known_default().is_some_and(|port| format!("{host}:{port}") == address.to_string())
    }

    /// `text` without the key, or what is left of it in pieces.
    #[must_use]
    pub fn without_key(&self, text: &str) -> String {
        self.redaction.clean(text)
    }

    pub(crate) const fn uri(&self) -> &Uri {
        &self.uri
    }

    pub(crate) const fn http2(&self) -> bool {
        self.http2
    }

    pub(crate) fn authorities(&self) -> Option<&[u8]> {
        self.authorities.as_deref()
    }

    /// Whether both can use the same connections (E-1).
    #[must_use]
    pub(crate) fn shares_pool(&self, other: &Self) -> bool {
        self.url.origin() == other.url.origin() && self.http2 == other.http2 && self.authorities == other.authorities
    }

    /// A request with this body.
    pub(crate) fn request(&self, body: Bytes, form: Form<'_>) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = if matches!(form, Form::ToServer) { self.path.clone() } else { self.uri.clone() };
        *request.headers_mut() = self.headers.clone();
        match form {
            Form::Shared => {
                request.headers_mut().remove(HOST); // the address says it
            }
            Form::ToProxy(Some(auth)) => {
                request.headers_mut().insert(PROXY_AUTHORIZATION, auth.clone());
            }
            Form::ToServer | Form::ToProxy(None) => {}
        }
        request
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
    fn e2_a_key_shows_nowhere() {
        let bearer = endpoint("https://api.example/v1", &[], Some("sk-123")).unwrap();
        assert_eq!(bearer.headers[AUTHORIZATION], "Bearer sk-123");
        let own = endpoint("https://api.example/v1", &[("api-key", "{key}")], Some("sk-123")).unwrap();
        assert_eq!(own.headers["api-key"], "sk-123");
        assert!(!own.headers.contains_key(AUTHORIZATION));
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
    fn e1_functions_of_one_server_share_its_connections() {
        let one = endpoint("http://x/v1/a", &[], None).unwrap();
        assert!(one.shares_pool(&endpoint("http://x:80/v1/b", &[], Some("k")).unwrap()));
        assert!(!one.shares_pool(&endpoint("http://y/v1/a", &[], None).unwrap()));
        let other = Endpoint { http2: true, ..one.clone() };
        assert!(!one.shares_pool(&other));
    }

    #[test]
    fn requests_say_where_they_go() {
        let one = endpoint("http://x:8000/v1/a?b=c#d", &[], Some("k")).unwrap();
        let sent = |form| one.request(Bytes::new(), form);
        let direct = sent(Form::ToServer);
        assert_eq!(
            (direct.uri().to_string().as_str(), &direct.headers()[HOST]),
            ("/v1/a?b=c", &HeaderValue::from_static("x:8000"))
        );
        let shared = sent(Form::Shared);
        assert_eq!(shared.uri(), "http://x:8000/v1/a?b=c");
        assert!(!shared.headers().contains_key(HOST) && !direct.headers().contains_key(PROXY_AUTHORIZATION));
        let word = HeaderValue::from_static("Basic bWU6cHc=");
        let handed = sent(Form::ToProxy(Some(&word)));
        assert_eq!(handed.uri(), "http://x:8000/v1/a?b=c");
        assert_eq!((&handed.headers()[HOST], &handed.headers()[PROXY_AUTHORIZATION]), (&direct.headers()[HOST], &word));
    }
}
