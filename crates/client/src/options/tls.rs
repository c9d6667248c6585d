//! TLS options: trusted authorities, client certificate, expected server name.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::options::address::Endpoint;

/// TLS options; see [`Connect::tls`](crate::Connect::tls).
///
/// By default, a server's certificate must be issued by an authority that the system trusts, for the host name or
/// address in the connect string. TLS 1.2 and 1.3 are supported.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use bellwether_client::{Client, TlsOptions};
///
/// let tls = TlsOptions::new()
///     .ca_file("/etc/zookeeper/ca.pem")
///     .client_certificate("/etc/jobs/cert.pem", "/etc/jobs/key.pem");
/// let client = Client::connect("zk1:2281,zk2:2281").tls(tls).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct TlsOptions {
    ca_file: Option<PathBuf>,
    identity: Option<(PathBuf, PathBuf)>,
    server_name: Option<String>,
    ignore_server_name: bool,
}

impl TlsOptions {
    /// Trusts the authorities that the system trusts, and has no client certificate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts the authorities in this PEM file, and no others.
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.ca_file = Some(path.into());
        self
    }

    /// Authenticates this client by a certificate and its key, both PEM files. The first file may continue with the
    /// certificates of intermediate authorities; one file may hold everything.
    pub fn client_certificate(
        mut self,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        self.identity = Some((certificate.into(), key.into()));
        self
    }

    /// Expects certificates for this name or address instead of the host in the connect string. Connections through a Unix
    /// socket need it.
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    /// Accepts a trusted certificate for any name.
    ///
    /// Then every holder of a certificate from a trusted authority can impersonate the server and read and change everything. Use it only
    /// with authorities that issue certificates to the servers of one ensemble only; [`server_name`](Self::server_name) is
    /// the safe way to connect by another name.
    pub fn dangerously_accept_any_server_name(mut self) -> Self {
        self.ignore_server_name = true;
        self
    }
}

/// Why TLS cannot be used. Names the file, and never shows its contents.
#[derive(Clone, Debug, thiserror::Error)]
#[error("TLS: {0}")]
pub(crate) struct TlsError(pub(crate) String);

impl TlsError {
    fn file(path: &Path, reason: impl std::fmt::Display) -> Self {
        Self(format!("{}: {reason}", path.display()))
    }
}

/// Options with the authorities of the system, which are many and therefore read once.
#[derive(Clone, Debug)]
pub(crate) struct Tls {
    options: TlsOptions,
    system_roots: Option<Arc<RootCertStore>>,
    provider: Arc<CryptoProvider>,
}

impl Tls {
    /// Reads all files once, so that mistakes are found before anything is sent. Blocks.
    pub(crate) fn load(options: TlsOptions) -> Result<Self, TlsError> {
        let system_roots = match options.ca_file {
            Some(_) => None,
            None => Some(Arc::new(system_roots()?)),
        };
        let tls = Self {
            options,
            system_roots,
            provider: Arc::new(ring::default_provider()),
        };
        if let Some(name) = &tls.options.server_name {
            parse_name(name)?;
        }
        tls.config()?;
        Ok(tls)
    }

    /// The configuration of a new connection, from the current files. Blocks.
    pub(crate) fn config(&self) -> Result<ClientConfig, TlsError> {
        let roots = match (&self.options.ca_file, &self.system_roots) {
            (Some(path), _) => Arc::new(file_roots(path)?),
            (None, Some(roots)) => Arc::clone(roots),
            (None, None) => return Err(TlsError("no authority to trust".to_owned())),
        };
        let builder = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError(error.to_string()))?;
        let builder = match self.options.ignore_server_name {
            false => builder.with_root_certificates(roots),
            true => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(AnyName {
                    roots,
                    algorithms: self.provider.signature_verification_algorithms,
                })),
        };
        match &self.options.identity {
            None => Ok(builder.with_no_client_auth()),
            Some((certificate, key)) => builder
                .with_client_auth_cert(certificates(certificate)?, private_key(key)?)
                .map_err(|error| TlsError::file(key, key_reason(&error, certificate))),
        }
    }

    /// The name that the certificate of a server must have.
    pub(crate) fn server_name(&self, endpoint: &Endpoint) -> Result<ServerName<'static>, TlsError> {
        match (&self.options.server_name, endpoint) {
            (Some(name), _) => parse_name(name),
            (None, Endpoint::Tcp(host, _)) => parse_name(host),
            (None, Endpoint::Unix(_)) if self.options.ignore_server_name => parse_name("localhost"),
            (None, Endpoint::Unix(_)) => Err(TlsError(
                "a Unix socket has no host name to verify; set the server name".to_owned(),
            )),
        }
    }
}

fn parse_name(name: &str) -> Result<ServerName<'static>, TlsError> {
    ServerName::try_from(name.to_owned())
        .map_err(|_| TlsError(format!("{name:?} is neither a host name nor an address")))
}

fn system_roots() -> Result<RootCertStore, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // Some systems have certificates in their store that are not authorities.
    roots.add_parsable_certificates(found.certs);
    match (roots.is_empty(), found.errors.first()) {
        (false, _) => Ok(roots),
        (true, Some(error)) => Err(TlsError(format!("the system trusts no authority: {error}"))),
        (true, None) => Err(TlsError("the system trusts no authority".to_owned())),
    }
}

fn file_roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots
            .add(certificate)
            .map_err(|_| TlsError::file(path, "a certificate in it cannot be used"))?;
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates: Vec<_> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| TlsError::file(path, pem_reason(&error, "certificate")))?;
    match certificates.is_empty() {
        true => Err(TlsError::file(path, "no certificate in it")),
        false => Ok(certificates),
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path)
        .map_err(|error| TlsError::file(path, pem_reason(&error, "unencrypted private key")))
}

/// What is wrong with a file, without its contents: they may be part of a key.
fn pem_reason(error: &pem::Error, wanted: &str) -> String {
    match error {
        pem::Error::Io(error) if error.kind() == io::ErrorKind::NotFound => "no such file".into(),
        pem::Error::Io(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            "permission denied".into()
        }
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

/// Verifies everything except the name.
#[derive(Debug)]
struct AnyName {
    roots: Arc<RootCertStore>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let certificate = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.algorithms.all;
        verify_server_cert_signed_by_trust_anchor(
            &certificate,
            &self.roots,
            intermediates,
            now,
            algorithms,
        )?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unix_socket_needs_a_name_to_expect() {
        let socket = Endpoint::Unix("/run/socket".into());
        let tls = |options: TlsOptions| Tls {
            options,
            system_roots: None,
            provider: Arc::new(ring::default_provider()),
        };
        assert!(tls(TlsOptions::new()).server_name(&socket).is_err());
        let named = tls(TlsOptions::new().server_name("zk1"));
        assert_eq!(named.server_name(&socket).unwrap().to_str(), "zk1");
        let host = Endpoint::Tcp("::1".to_owned(), 2281);
        let by_host = tls(TlsOptions::new()).server_name(&host).unwrap();
        assert_eq!(by_host.to_str(), "::1");
    }
}
