//! TLS of the http lane: rustls with ring, the system's authorities, and others where they are given.
//!
//! - T-1  There is no way to leave certificates unchecked.
//! - T-2  A machine without authorities of its own (a bare container) gets Mozilla's.
//! - T-3  HTTP/2 is asked for, never assumed: a server that does not have it is talked to in HTTP/1.1.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::error::EndpointError;

/// How servers are checked and talked to, in HTTP/1.1; `authorities` are certificates in PEM. With nothing to check, if none is `secure`,
/// nothing is loaded.
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

/// The same, with HTTP/2 where the server has it (T-3).
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
