//! TLS of the http lane: rustls with ring, the system's authorities, and others that are given.
//!
//! - There is no way to leave certificates unchecked.
//! - A machine without authorities of its own (a bare container) gets Mozilla's.
//! - HTTP/2 is offered, never assumed: a server that lacks it gets HTTP/1.1.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::endpoint_error::EndpointError;

/// The configuration for HTTP/1.1; `authorities` are certificates in PEM. If it is not `secure`,
/// the system's are not loaded.
pub fn config(secure: bool, authorities: Option<&[u8]>) -> Result<ClientConfig, EndpointError> {
    let wrong = |why: String| EndpointError::Certificates(why);
    let mut roots = RootCertStore::empty();
    if secure {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    if secure && roots.is_empty() {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    if let Some(pem) = authorities {
        let mut found = 0;
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
            roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
            found += 1;
        }
        if found == 0 {
            return Err(wrong("there are none in PEM form".to_owned()));
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| EndpointError::Client(error.to_string()))?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
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
        let error = |pem: &[u8]| config(false, Some(pem)).unwrap_err().to_string();
        assert!(error(b"hello").contains("none in PEM form"));
        assert!(error(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").contains("can't be used"));
    }
}
