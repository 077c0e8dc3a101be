//! TLS of the http lane: rustls with ring, the system's authorities, and others that are given.
//!
//! - Certificates are always checked.
//! - A machine without authorities (a bare container) gets Mozilla's; one whose `SSL_CERT_FILE` or
//!   `SSL_CERT_DIR` can't be used gets an error: that may be meant to trust less.
//! - HTTP/2 is offered, never assumed: a server that lacks it gets HTTP/1.1.

use std::fmt;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use rustls_native_certs::CertificateResult;

use crate::endpoint_error::EndpointError;

/// Trusted servers, and the client's certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// Certificates of authorities, PEM.
    pub authorities: Option<Vec<u8>>,
    /// No authorities but these.
    pub only_these: bool,
    pub client: Option<ClientCertificate>,
}

/// The client's certificate and its key, both PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    pub chain: Vec<u8>,
    pub key: Vec<u8>,
}

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("ClientCertificate(…)")
    }
}

/// The configuration for HTTP/1.1. If it is not `secure`, the system's authorities are not loaded.
pub fn config(secure: bool, tls: &Tls) -> Result<ClientConfig, EndpointError> {
    let mut roots = RootCertStore::empty();
    if secure && !tls.only_these {
        let named = ["SSL_CERT_FILE", "SSL_CERT_DIR"].into_iter().find(|name| std::env::var_os(name).is_some());
        add_system(&mut roots, rustls_native_certs::load_native_certs(), named)?;
    }
    if let Some(pem) = &tls.authorities {
        for certificate in certificates(pem).map_err(EndpointError::Certificates)? {
            roots.add(certificate).map_err(|error| EndpointError::Certificates(error.to_string()))?;
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| EndpointError::Client(error.to_string()))?.with_root_certificates(roots);
    let mut config = match &tls.client {
        None => builder.with_no_client_auth(),
        Some(ClientCertificate { chain, key }) => {
            let chain = certificates(chain).map_err(EndpointError::ClientCertificate)?;
            let key =
                PrivateKeyDer::from_pem_slice(key).map_err(|error| EndpointError::ClientKey(error.to_string()))?;
            builder.with_client_auth_cert(chain, key).map_err(|error| EndpointError::ClientKey(error.to_string()))?
        }
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Adds the system's authorities; `named` is the variable that says where they are.
fn add_system(
    roots: &mut RootCertStore,
    found: CertificateResult,
    named: Option<&'static str>,
) -> Result<(), EndpointError> {
    roots.add_parsable_certificates(found.certs);
    if !roots.is_empty() {
        return Ok(());
    }
    if let Some(name) = named {
        let why = found.errors.first().map_or_else(|| "there are none in PEM form".to_owned(), ToString::to_string);
        return Err(EndpointError::SystemCertificates(name, why));
    }
    roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    Ok(())
}

/// The certificates in a PEM file: at least one.
fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(|error| error.to_string())?;
    if found.is_empty() { Err("there are none in PEM form".to_owned()) } else { Ok(found) }
}

/// The same, offering HTTP/2 first.
pub fn with_http2(mut config: ClientConfig) -> ClientConfig {
    config.alpn_protocols.insert(0, b"h2".to_vec());
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_that_are_none_are_refused() {
        let error = |tls: Tls| config(false, &tls).unwrap_err().to_string();
        let trusting = |pem: &[u8]| error(Tls { authorities: Some(pem.to_vec()), ..Tls::default() });
        assert!(trusting(b"hello").contains("ca_file= can't be used: there are none in PEM form"));
        assert!(trusting(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").contains("can't be used"));
        let client = ClientCertificate { chain: b"hello".to_vec(), key: b"secret".to_vec() };
        assert!(!format!("{client:?}").contains("secret"));
        let of_ours = error(Tls { client: Some(client), ..Tls::default() });
        assert!(of_ours.contains("client_cert= can't be used: there are none in PEM form"), "{of_ours}");
    }

    /// A file that narrows the trusted authorities must not, if broken, widen them to the public's.
    #[test]
    fn broken_settings_of_the_system_do_not_widen_trust() {
        let none = CertificateResult::default;
        let error = add_system(&mut RootCertStore::empty(), none(), Some("SSL_CERT_FILE")).unwrap_err().to_string();
        assert!(error.starts_with("the certificates in SSL_CERT_FILE can't be used: there are none"), "{error}");
        let mut bare = RootCertStore::empty();
        add_system(&mut bare, none(), None).unwrap();
        assert!(!bare.is_empty(), "a container without authorities");
    }
}
