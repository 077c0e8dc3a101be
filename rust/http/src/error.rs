//! Why a server can't be talked to at all: found before anything is sent.

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
    #[error(
        "the environment names a {0}:// proxy for it, which can't be used: name one with http:// or https://, or except its host in NO_PROXY"
    )]
    Proxy(String),
    #[error("no client for it can be made: {0}")]
    Client(String),
}
