//! Certificates and keys from PEM files.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};

use crate::config::{ClientCertificates, TlsConfig, TlsVersion};

/// Why TLS cannot be set up. Names the file at fault, and never shows its content.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{}: {reason}", file.display())]
pub struct TlsError {
    file: PathBuf,
    reason: String,
}

impl TlsError {
    fn of(file: &Path, reason: impl Into<String>) -> Self {
        Self {
            file: file.to_owned(),
            reason: reason.into(),
        }
    }
}

/// State of the files (inode, size, modification time), to detect changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fingerprint(Vec<Option<(u64, u64, i64, i64)>>);

impl Fingerprint {
    pub(super) fn of(config: &TlsConfig) -> Self {
        let of_file = |path: &PathBuf| {
            let file = fs::metadata(path).ok()?;
            Some((file.ino(), file.size(), file.mtime(), file.mtime_nsec()))
        };
        Self(config.files().map(of_file).collect())
    }
}

/// Loads everything that a handshake needs. Blocks.
pub(crate) fn load(config: &TlsConfig) -> Result<Arc<ServerConfig>, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let versions: Vec<&SupportedProtocolVersion> =
        [(TlsVersion::V1_2, &TLS12), (TlsVersion::V1_3, &TLS13)]
            .into_iter()
            .filter(|(version, _)| config.versions.contains(version))
            .map(|(_, version)| version)
            .collect();
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&versions)
        .map_err(|error| TlsError::of(&config.certificate, error.to_string()))?;
    let builder = match (&config.client_authorities, config.client_certificates) {
        (None, _) | (_, ClientCertificates::Ignored) => builder.with_no_client_auth(),
        (Some(path), wanted) => {
            builder.with_client_cert_verifier(verifier(path, wanted, provider)?)
        }
    };
    let certificate = certificates(&config.certificate)?;
    let key = private_key(&config.key)?;
    let mut tls = builder
        .with_single_cert(certificate, key)
        .map_err(|error| TlsError::of(&config.key, key_reason(&error, &config.certificate)))?;
    // A resumed session would keep the identity of a certificate that has been revoked or has expired meanwhile.
    tls.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    tls.send_tls13_tickets = 0;
    Ok(Arc::new(tls))
}

fn verifier(
    path: &Path,
    wanted: ClientCertificates,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn rustls::server::danger::ClientCertVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots
            .add(certificate)
            .map_err(|_| TlsError::of(path, "a certificate in it cannot be used"))?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let builder = match wanted {
        ClientCertificates::Required => builder,
        _ => builder.allow_unauthenticated(),
    };
    builder
        .build()
        .map_err(|error| TlsError::of(path, error.to_string()))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates: Vec<_> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| TlsError::of(path, pem_reason(&error, "certificate")))?;
    if certificates.is_empty() {
        return Err(TlsError::of(path, "no certificate in it"));
    }
    Ok(certificates)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path)
        .map_err(|error| TlsError::of(path, pem_reason(&error, "unencrypted private key")))
}

/// What is wrong with a file, without quoting it: its bytes may be part of a key.
fn pem_reason(error: &pem::Error, wanted: &str) -> String {
    match error {
        pem::Error::Io(error) if error.kind() == io::ErrorKind::NotFound => "no such file".into(),
        pem::Error::Io(error) => format!("cannot be read ({})", error.kind()),
        pem::Error::NoItemsFound => format!("no {wanted} in it"),
        _ => "not a PEM file".into(),
    }
}

fn key_reason(error: &rustls::Error, certificate: &Path) -> String {
    match error {
        rustls::Error::InconsistentKeys(_) => {
            format!("not the key of the certificate {}", certificate.display())
        }
        _ => "a key that cannot be used".to_owned(),
    }
}
