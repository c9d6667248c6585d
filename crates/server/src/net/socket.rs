//! The stream of a connection: TCP or a Unix socket.

use std::io;

use bytes::BytesMut;
use tokio::net::{TcpStream, UnixStream, tcp, unix};

/// A connection that was accepted.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    pub(crate) fn into_split(self) -> (ReadHalf, WriteHalf) {
        match self {
            Self::Tcp(socket) => {
                // Only a matter of speed, and the socket may be gone already.
                let _ = socket.set_nodelay(true);
                let (reading, writing) = socket.into_split();
                (ReadHalf::Tcp(reading), WriteHalf::Tcp(writing))
            }
            Self::Unix(socket) => {
                let (reading, writing) = socket.into_split();
                (ReadHalf::Unix(reading), WriteHalf::Unix(writing))
            }
        }
    }
}

#[derive(Debug)]
pub(crate) enum ReadHalf {
    Tcp(tcp::OwnedReadHalf),
    Unix(unix::OwnedReadHalf),
}

impl ReadHalf {
    /// Waits until there is something to read. Cancel safe.
    pub(crate) async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => socket.readable().await,
            Self::Unix(socket) => socket.readable().await,
        }
    }

    pub(crate) fn try_read_buf(&self, bytes: &mut BytesMut) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.try_read_buf(bytes),
            Self::Unix(socket) => socket.try_read_buf(bytes),
        }
    }
}

#[derive(Debug)]
pub(crate) enum WriteHalf {
    Tcp(tcp::OwnedWriteHalf),
    Unix(unix::OwnedWriteHalf),
}

impl WriteHalf {
    /// Waits until there is room to write. Cancel safe.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => socket.writable().await,
            Self::Unix(socket) => socket.writable().await,
        }
    }

    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.try_write(bytes),
            Self::Unix(socket) => socket.try_write(bytes),
        }
    }
}
