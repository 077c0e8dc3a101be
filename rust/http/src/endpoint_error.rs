//! Why an endpoint can't be used at all: found before anything is sent.

/// Reason that makes an endpoint unusable.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    #[error("{0:?} is not an address: expected one like http://localhost:8000/v1")]
    Address(String),
    #[error("the address holds a user name or password: give a key as api_key_env= or api_key_file=")]
    Credentials,
    #[error("the header {0:?} is not a valid HTTP header")]
    Header(String),
    #[error("the API key contains characters that a header can't hold")]
    Key,
    #[error("the certificates in ca_file= can't be used: {0}")]
    Certificates(String),
    #[error("the certificates in {0} can't be used: {1}")]
    SystemCertificates(&'static str, String),
    #[error("the certificate in client_cert= can't be used: {0}")]
    ClientCertificate(String),
    #[error("the key in client_key= can't be used with the certificate in client_cert=: {0}")]
    ClientKey(String),
    #[error(
        "the environment sets a {0}:// proxy, which is not supported: use an http:// or https:// proxy, or list the host in NO_PROXY"
    )]
    Proxy(String),
    #[error(
        "resolve='all' needs the addresses of {0}, but the environment sets a proxy, which looks up names by itself: list the host in NO_PROXY, or give the addresses as base_url=[...]"
    )]
    ResolveBehindProxy(String),
    #[error("the TLS client could not be set up: {0}")]
    Client(String),
}
