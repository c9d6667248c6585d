//! TLS for connections that are not those of clients: pages, metrics and probes in the process of a server.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use super::{Acceptor, LoadedCertificates, TlsError};
use crate::config::{ClientCertificates, TlsConfig};

/// Accepts TLS connections of browsers and monitoring with the certificate of a server. Client certificates are not requested: pages have
/// a token. Changed files take effect within a second, for new connections.
#[derive(Debug, Clone)]
pub struct PageTls(Arc<Acceptor>);

impl PageTls {
    /// Loads the certificate and the key. Blocks.
    ///
    /// # Errors
    ///
    /// If they cannot be used; the error names the file.
    pub fn new(server: &TlsConfig) -> Result<Self, TlsError> {
        Ok(Self(Arc::new(Acceptor::new(without_clients(server))?)))
    }

    /// Uses these files from now on, for new connections. Blocks.
    ///
    /// # Errors
    ///
    /// As [`Self::new`]. Then the previous certificate stays in force.
    pub fn reload(&self, server: &TlsConfig) -> Result<(), TlsError> {
        let loaded = LoadedCertificates::from(without_clients(server))?;
        self.0.replace(loaded);
        Ok(())
    }

    /// Performs the handshake. The caller sets a time limit.
    ///
    /// # Cancel safety
    ///
    /// The connection is closed.
    ///
    /// # Errors
    ///
    /// If the handshake fails.
    pub async fn accept(
        &self,
        tcp: TcpStream,
    ) -> io::Result<impl AsyncRead + AsyncWrite + Send + Unpin + use<>> {
        TlsAcceptor::from(self.0.config()).accept(tcp).await
    }
}

fn without_clients(server: &TlsConfig) -> TlsConfig {
    TlsConfig {
        listen: Vec::new(),
        client_authorities: None,
        client_certificates: ClientCertificates::Ignored,
        super_subject: None,
        ..server.clone()
    }
}
