//! Where clients connect.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use tokio::net::{TcpListener, UnixListener};

use super::socket::Socket;
use crate::config::UnixPeers;
use crate::peer_address::PeerAddress;

/// A socket that takes connections.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixSocket),
}

impl Listener {
    /// Listens on an address; returns it with the port that was free if it has none.
    pub(crate) async fn tcp(address: SocketAddr) -> io::Result<(Self, SocketAddr)> {
        let listener = TcpListener::bind(address).await?;
        let bound = listener.local_addr()?;
        Ok((Self::Tcp(listener), bound))
    }

    /// Takes the next connection in. Cancel safe.
    pub(crate) async fn accept(&self) -> io::Result<(Socket, PeerAddress)> {
        match self {
            Self::Tcp(listener) => {
                let (socket, address) = listener.accept().await?;
                Ok((Socket::Tcp(socket), address.into()))
            }
            Self::Unix(listener) => listener.accept().await,
        }
    }
}

/// A Unix socket that listens. Its file is removed with it.
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
        Ok(Self {
            listener,
            path: path.to_owned(),
            peers,
        })
    }

    /// Takes the next connection in that is allowed to connect. Others are closed before a byte of theirs is read.
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
            tracing::warn!(user, "connection of another user is refused");
        }
    }
}

impl Drop for UnixSocket {
    /// The file is removed while the socket still listens: the next server does not find it left over, and so cannot have
    /// put its own in its place.
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the socket");
        }
    }
}

/// Whether a server that was killed has left its socket behind.
fn is_left_over(path: &Path) -> bool {
    let is_refused = |connected: io::Result<_>| {
        connected.is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused)
    };
    // Other kinds of files refuse connections too.
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    is_socket && is_refused(UnixStream::connect(path))
}
