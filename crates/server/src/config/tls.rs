//! TLS settings.

use std::net::SocketAddr;
use std::path::PathBuf;

/// TLS listener, with certificates and keys in PEM files. Changed files take effect within a second, for new connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsConfig {
    /// Where to listen; port 0 takes a free one. Empty if only [pages](crate::PageTls) use the certificate.
    pub listen: Vec<SocketAddr>,
    /// Server certificate, followed by those of intermediate authorities.
    pub certificate: PathBuf,
    /// Private key of the server, unencrypted. May be in the same file.
    pub key: PathBuf,
    /// Authorities that sign client certificates.
    pub client_authorities: Option<PathBuf>,
    /// Whether clients need a certificate. Without `client_authorities` none is requested.
    pub client_certificates: ClientCertificates,
    /// Accepted versions.
    pub versions: Vec<TlsVersion>,
    /// Certificate subject that may do everything, such as `CN=admin,O=flock`.
    pub super_subject: Option<String>,
}

/// Policy for client certificates (`ssl.clientAuth`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClientCertificates {
    /// A client without a certificate is refused: Apache's `need`, and its default.
    #[default]
    Required,
    /// A client may have no certificate: Apache's `want`. A certificate of an unknown authority is refused.
    Optional,
    /// No certificate is requested: Apache's `none`.
    Ignored,
}

/// A version of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "named as they are")]
pub enum TlsVersion {
    V1_2,
    V1_3,
}

impl TlsConfig {
    /// TLS 1.2 and 1.3 on a free port of the loopback address, without client certificates.
    pub fn new(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
            certificate: certificate.into(),
            key: key.into(),
            client_authorities: None,
            client_certificates: ClientCertificates::default(),
            versions: vec![TlsVersion::V1_2, TlsVersion::V1_3],
            super_subject: None,
        }
    }

    /// Whether client certificates are requested.
    pub(crate) fn knows_clients(&self) -> bool {
        self.client_authorities.is_some() && self.client_certificates != ClientCertificates::Ignored
    }

    /// The files, each of which may change.
    pub(crate) fn files(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.certificate, &self.key]
            .into_iter()
            .chain(&self.client_authorities)
    }
}
