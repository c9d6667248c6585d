//! Listening sockets: TCP, TLS and Unix.

use std::fs::Permissions;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Mutex, mpsc};

use crate::client::{PeerAddress, Socket};
use crate::config::UnixPeers;
use crate::tls::Acceptor;

/// A listening socket.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Tls(TcpListener, Arc<Acceptor>),
    Unix(UnixSocket),
    /// Connections from within this process.
    Inside(Mutex<mpsc::Receiver<tokio::net::UnixStream>>),
}

impl Listener {
    /// Listens on `address`, with TLS if there is an acceptor. Returns the address with the actual port.
    pub(crate) async fn tcp(
        address: SocketAddr,
        acceptor: Option<&Arc<Acceptor>>,
    ) -> io::Result<(Self, SocketAddr)> {
        let listener = TcpListener::bind(address).await?;
        let bound = listener.local_addr()?;
        let listener = match acceptor {
            None => Self::Tcp(listener),
            Some(acceptor) => Self::Tls(listener, acceptor.clone()),
        };
        Ok((listener, bound))
    }

    /// Accepts connections from within this process.
    pub(crate) fn inside(streams: mpsc::Receiver<tokio::net::UnixStream>) -> Self {
        Self::Inside(Mutex::new(streams))
    }

    /// Moves the socket to the runtime of the caller, from the one where it was bound. A Unix socket stays where it is.
    pub(crate) fn move_here(self) -> io::Result<Self> {
        let move_here = |listener: TcpListener| TcpListener::from_std(listener.into_std()?);
        Ok(match self {
            Self::Tcp(listener) => Self::Tcp(move_here(listener)?),
            Self::Tls(listener, acceptor) => Self::Tls(move_here(listener)?, acceptor),
            Self::Unix(_) | Self::Inside(_) => self,
        })
    }

    /// Accepts the next connection. Cancel safe.
    pub(crate) async fn accept(&self) -> io::Result<(Socket, PeerAddress)> {
        match self {
            Self::Tcp(listener) => {
                let (socket, address) = listener.accept().await?;
                Ok((Socket::Tcp(socket), address.into()))
            }
            Self::Tls(listener, acceptor) => {
                let (socket, address) = listener.accept().await?;
                Ok((Socket::Tls(socket, acceptor.clone()), address.into()))
            }
            Self::Unix(listener) => listener.accept().await,
            Self::Inside(streams) => match streams.lock().await.recv().await {
                Some(stream) => Ok((Socket::Unix(stream), PeerAddress::Inside)),
                None => std::future::pending().await,
            },
        }
    }
}

/// A listening Unix socket. Dropping it removes its file.
#[derive(Debug)]
pub(crate) struct UnixSocket {
    listener: UnixListener,
    path: PathBuf,
    peers: UnixPeers,
}

impl UnixSocket {
    pub(crate) fn bind(path: &Path, peers: UnixPeers) -> io::Result<Self> {
        let listener = match UnixListener::bind(path) {
            Err(error) if error.kind() == ErrorKind::AddrInUse && is_left_over(path) => {
                std::fs::remove_file(path)?;
                UnixListener::bind(path)
            }
            bound => bound,
        }?;
        if peers == UnixPeers::AllUsers {
            // Connecting takes write permission on the file.
            std::fs::set_permissions(path, Permissions::from_mode(0o666))?;
        }
        Ok(Self {
            listener,
            path: path.to_owned(),
            peers,
        })
    }

    /// Accepts the next connection from a permitted user. Other connections are closed before a byte is read.
    async fn accept(&self) -> io::Result<(Socket, PeerAddress)> {
        loop {
            let (socket, _) = self.listener.accept().await?;
            let peer = socket.peer_cred()?;
            let user = peer.uid();
            if self.peers.allows(user) {
                let process = peer.pid();
                let address = PeerAddress::Unix { user, process };
                return Ok((Socket::Unix(socket), address));
            }
            tracing::warn!(user, "refused a connection of another user");
        }
    }
}

impl Drop for UnixSocket {
    /// Removes the file while the socket still listens. Until then no other server takes the file for stale, so this is never the file of
    /// another server.
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the socket");
        }
    }
}

/// Whether the file is the stale socket of a server that was killed.
fn is_left_over(path: &Path) -> bool {
    let is_refused = |connected: io::Result<_>| {
        connected.is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused)
    };
    // Connecting to a file of another kind is refused too.
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    is_socket && is_refused(UnixStream::connect(path))
}
