//! The stream of a connection: TCP, TLS or a Unix socket.

use std::io;
use std::sync::Arc;

use bytes::BytesMut;
use tokio::net::{TcpStream, UnixStream, tcp, unix};

use crate::tls::{Acceptor, TlsReadHalf, TlsWriteHalf};

/// An accepted connection.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
    /// A TLS connection before its handshake.
    Tls(TcpStream, Arc<Acceptor>),
}

/// A connection ready to be read and written.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) reading: ReadHalf,
    pub(crate) writing: WriteHalf,
    /// Subject of the client's certificate.
    pub(crate) client_name: Option<String>,
}

impl Socket {
    /// Prepares the connection; TLS needs a handshake, for which the caller sets a time limit.
    pub(crate) async fn open(self) -> io::Result<Opened> {
        if let Self::Tcp(socket) | Self::Tls(socket, _) = &self {
            // Affects only speed, and the socket may be closed already.
            let _ = socket.set_nodelay(true);
        }
        let (reading, writing, client_name) = match self {
            Self::Tcp(socket) => {
                let (reading, writing) = socket.into_split();
                (ReadHalf::Tcp(reading), WriteHalf::Tcp(writing), None)
            }
            Self::Unix(socket) => {
                let (reading, writing) = socket.into_split();
                (ReadHalf::Unix(reading), WriteHalf::Unix(writing), None)
            }
            Self::Tls(socket, acceptor) => {
                let secured = acceptor.handshake(socket).await?;
                let (reading, writing) = (secured.reading, secured.writing);
                let name = secured.client_name;
                (ReadHalf::Tls(reading), WriteHalf::Tls(writing), name)
            }
        };
        Ok(Opened {
            reading,
            writing,
            client_name,
        })
    }
}

#[derive(Debug)]
pub(crate) enum ReadHalf {
    Tcp(tcp::OwnedReadHalf),
    Unix(unix::OwnedReadHalf),
    Tls(TlsReadHalf),
}

impl ReadHalf {
    /// Waits until there are bytes to read. Cancel safe.
    pub(crate) async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => socket.readable().await,
            Self::Unix(socket) => socket.readable().await,
            Self::Tls(socket) => socket.readable().await,
        }
    }

    pub(crate) fn try_read_buf(&self, bytes: &mut BytesMut) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.try_read_buf(bytes),
            Self::Unix(socket) => socket.try_read_buf(bytes),
            Self::Tls(socket) => socket.try_read_buf(bytes),
        }
    }
}

#[derive(Debug)]
pub(crate) enum WriteHalf {
    Tcp(tcp::OwnedWriteHalf),
    Unix(unix::OwnedWriteHalf),
    Tls(TlsWriteHalf),
}

impl WriteHalf {
    /// Waits until the socket is writable. Cancel safe.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => socket.writable().await,
            Self::Unix(socket) => socket.writable().await,
            Self::Tls(socket) => socket.writable().await,
        }
    }

    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.try_write(bytes),
            Self::Unix(socket) => socket.try_write(bytes),
            Self::Tls(socket) => socket.try_write(bytes),
        }
    }

    /// Whether written bytes wait until the socket is writable, as TLS records may.
    pub(crate) fn is_stuck(&self) -> bool {
        match self {
            Self::Tcp(_) | Self::Unix(_) => false,
            Self::Tls(socket) => socket.is_stuck(),
        }
    }
}
