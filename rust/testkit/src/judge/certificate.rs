//! A certificate for `localhost`, made for each server.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

/// Fault of a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Certificate {
    #[default]
    Good,
    Expired,
    /// It belongs to another host.
    AnotherHosts,
}

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Certificate and key of a TLS server, and the root for its clients.
pub struct Certificates {
    pub acceptor: TlsAcceptor,
    /// PEM of the authority to trust.
    pub authority: String,
    /// PEM of a certificate for clients, and of its key.
    pub client: (String, String),
}

/// Makes a server's certificate. If `of_clients` is set, the server requires one of each client.
pub fn make(http2: bool, kind: Certificate, of_clients: bool) -> Result<Certificates, Error> {
    let mut params = CertificateParams::new(Vec::<String>::new())?;
    // A name different from the certificate's, which would otherwise count as self-signed.
    params.distinguished_name.push(DnType::CommonName, "mock judge's authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
    let key = KeyPair::generate()?;
    let names = match kind {
        Certificate::AnotherHosts => vec!["judge.example".to_owned()],
        Certificate::Good | Certificate::Expired => vec!["localhost".to_owned(), "127.0.0.1".to_owned()],
    };
    let mut params = CertificateParams::new(names)?;
    if kind == Certificate::Expired {
        (params.not_before, params.not_after) = (date_time_ymd(2001, 1, 1), date_time_ymd(2002, 1, 1));
    }
    let certificate = params.signed_by(&key, &authority)?;
    let chain: Vec<CertificateDer<'static>> = vec![certificate.der().clone()];
    let key = PrivateKeyDer::try_from(key.serialize_der())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let clients_key = KeyPair::generate()?;
    let of_client = CertificateParams::new(vec!["trainer".to_owned()])?.signed_by(&clients_key, &authority)?;
    let builder = if of_clients {
        let mut roots = RootCertStore::empty();
        roots.add(authority.der().clone())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build()?;
        builder.with_client_cert_verifier(verifier)
    } else {
        builder.with_no_client_auth()
    };
    let mut config = builder.with_single_cert(chain, key)?;
    config.alpn_protocols = vec![if http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
    Ok(Certificates {
        acceptor: TlsAcceptor::from(Arc::new(config)),
        authority: authority.pem(),
        client: (of_client.pem(), clients_key.serialize_pem()),
    })
}
