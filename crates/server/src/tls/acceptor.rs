//! TLS handshakes, with reload of changed certificates.

use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustls::{ServerConfig, ServerConnection};
use tokio::net::TcpStream;

use super::certificates::{self, Fingerprint, TlsError};
use super::stream::{Nonblocking, TlsReadHalf, TlsStream, TlsWriteHalf};
use super::subject;
use crate::config::TlsConfig;

/// Interval at which handshakes check the files for changes.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Accepts TLS on TCP connections.
#[derive(Debug)]
pub(crate) struct Acceptor {
    loaded: Mutex<LoadedCertificates>,
}

/// Certificates and keys from files.
#[derive(Debug)]
pub(crate) struct LoadedCertificates {
    files: TlsConfig,
    config: Arc<ServerConfig>,
    fingerprint: Fingerprint,
    looked: Instant,
}

/// A connection after its handshake.
#[derive(Debug)]
pub(crate) struct Secured {
    tcp: TcpStream,
    session: ServerConnection,
    /// Subject of the client's certificate, which a trusted authority has signed.
    client_name: Option<String>,
}

impl Secured {
    /// Moves the connection to the runtime of the caller.
    pub(crate) fn move_here(self) -> io::Result<Self> {
        let tcp = TcpStream::from_std(self.tcp.into_std()?)?;
        Ok(Self { tcp, ..self })
    }

    /// Returns both directions, and the subject of the client's certificate.
    pub(crate) fn split(self) -> (TlsReadHalf, TlsWriteHalf, Option<String>) {
        let stream = Arc::new(TlsStream::new(self.tcp, self.session));
        (
            TlsReadHalf(stream.clone()),
            TlsWriteHalf(stream),
            self.client_name,
        )
    }
}

impl LoadedCertificates {
    /// Blocks.
    pub(crate) fn from(files: TlsConfig) -> Result<Self, TlsError> {
        let fingerprint = Fingerprint::of(&files);
        Ok(Self {
            config: certificates::load(&files)?,
            files,
            fingerprint,
            looked: Instant::now(),
        })
    }
}

impl Acceptor {
    /// Loads the files, so that errors show at the start. Blocks.
    pub(crate) fn new(files: TlsConfig) -> Result<Self, TlsError> {
        let loaded = LoadedCertificates::from(files)?;
        Ok(Self {
            loaded: Mutex::new(loaded),
        })
    }

    /// Uses what was loaded from now on, for new connections.
    pub(crate) fn replace(&self, loaded: LoadedCertificates) {
        *self.loaded.lock().expect("never panics inside") = loaded;
    }

    /// Configuration for a new connection, from files checked at most a second ago. If changed files cannot be used, the previous
    /// certificates stay in force, so that a renewal in several steps does no harm.
    pub(super) fn config(&self) -> Arc<ServerConfig> {
        let mut loaded = self.loaded.lock().expect("never panics inside");
        if loaded.looked.elapsed() >= LOOK_INTERVAL {
            loaded.looked = Instant::now();
            let fingerprint = Fingerprint::of(&loaded.files);
            if fingerprint != loaded.fingerprint {
                match certificates::load(&loaded.files) {
                    Ok(config) => {
                        loaded.config = config;
                        tracing::info!("loaded changed certificates");
                    }
                    Err(error) => {
                        tracing::error!(%error, "changed certificates cannot be used; the previous ones stay in force");
                    }
                }
                loaded.fingerprint = fingerprint;
            }
        }
        loaded.config.clone()
    }

    /// Performs the handshake. The caller sets a time limit.
    ///
    /// # Cancel safety
    ///
    /// The connection is closed.
    pub(crate) async fn handshake(&self, tcp: TcpStream) -> io::Result<Secured> {
        let mut session = ServerConnection::new(self.config()).map_err(io::Error::other)?;
        while session.is_handshaking() || session.wants_write() {
            if session.wants_write() {
                match session.write_tls(&mut Nonblocking(&tcp)) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => tcp.writable().await?,
                    written => drop(written?),
                }
                continue;
            }
            match session.read_tls(&mut Nonblocking(&tcp)) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => tcp.readable().await?,
                Err(error) => return Err(error),
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) => {
                    if let Err(error) = session.process_new_packets() {
                        // The alert tells the client the reason.
                        let _ = session.write_tls(&mut Nonblocking(&tcp));
                        return Err(io::Error::new(ErrorKind::InvalidData, error));
                    }
                }
            }
        }
        let certificate = session.peer_certificates().and_then(|chain| chain.first());
        let client_name = match certificate {
            None => None,
            Some(certificate) => Some(subject::of(certificate).ok_or(ErrorKind::InvalidData)?),
        };
        Ok(Secured {
            tcp,
            session,
            client_name,
        })
    }
}
