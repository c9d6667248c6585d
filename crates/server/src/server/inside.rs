//! Connections to a server from within its process.

use std::io;

use tokio::net::UnixStream;
use tokio::sync::mpsc;

/// Connects to a server from within its process, without a port and without credentials. The user id of the process is its id for access
/// lists, as on a Unix socket.
#[derive(Debug, Clone)]
pub struct Inside(pub(super) mpsc::Sender<UnixStream>);

impl Inside {
    /// Maximum number of connections that wait to be accepted.
    pub(super) const WAITING_MAX: usize = 16;

    /// Opens a connection.
    ///
    /// # Cancel safety
    ///
    /// A connection that was opened already is closed.
    ///
    /// # Errors
    ///
    /// If the server has stopped, or if the process has no free file descriptor.
    pub async fn connect(&self) -> io::Result<UnixStream> {
        let (ours, theirs) = UnixStream::pair()?;
        let accepted = self.0.send(theirs).await;
        accepted.map_err(|_| io::ErrorKind::ConnectionRefused)?;
        Ok(ours)
    }
}
