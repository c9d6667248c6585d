//! The stream of a connection: TCP, a Unix socket, or a layer such as TLS.

use std::fmt::Debug;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::BytesMut;
use tokio::net::{TcpStream, UnixStream, tcp, unix};

use crate::tls::{Acceptor, Secured, TlsReadHalf, TlsWriteHalf};

/// An accepted connection.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
    /// A TLS connection before its handshake.
    Tls(TcpStream, Arc<Acceptor>),
    /// A TLS connection after its handshake.
    Secured(Box<Secured>),
}

/// How many bytes the kernel accepts beyond what it can send (`TCP_NOTSENT_LOWAT`). Without it the kernel takes up to some megabytes for a
/// client that does not read: memory that no limit counts, and copying that delays other clients. Bytes that are on their way do not count, so
/// long distances stay fast.
#[cfg(target_os = "linux")]
const UNSENT_BYTES_MAX: u32 = 128 << 10;

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
    pub(crate) async fn shake_hands(self) -> io::Result<Self> {
        if let Self::Tcp(socket) | Self::Tls(socket, _) = &self {
            // Affects only speed, and the socket may be closed already.
            let _ = socket.set_nodelay(true);
            #[cfg(target_os = "linux")]
            let _ = socket2::SockRef::from(socket).set_tcp_notsent_lowat(UNSENT_BYTES_MAX);
        }
        Ok(match self {
            Self::Tls(socket, acceptor) => {
                Self::Secured(Box::new(acceptor.handshake(socket).await?))
            }
            other => other,
        })
    }

    /// Moves the connection to the runtime of the caller, from the one that accepted it.
    pub(crate) fn move_here(self) -> io::Result<Self> {
        let move_here = |socket: TcpStream| TcpStream::from_std(socket.into_std()?);
        Ok(match self {
            Self::Tcp(socket) => Self::Tcp(move_here(socket)?),
            Self::Unix(socket) => Self::Unix(UnixStream::from_std(socket.into_std()?)?),
            Self::Tls(socket, acceptor) => Self::Tls(move_here(socket)?, acceptor),
            Self::Secured(secured) => Self::Secured(Box::new(secured.move_here()?)),
        })
    }

    /// Splits a connection whose handshake is done.
    ///
    /// # Panics
    ///
    /// If a TLS handshake is still to be done.
    pub(crate) fn open(self) -> Opened {
        let (reading, writing, client_name) = match self {
            Self::Tcp(socket) => {
                let (reading, writing) = socket.into_split();
                (ReadHalf::Tcp(reading), WriteHalf::Tcp(writing), None)
            }
            Self::Unix(socket) => {
                let (reading, writing) = socket.into_split();
                (ReadHalf::Unix(reading), WriteHalf::Unix(writing), None)
            }
            Self::Secured(secured) => {
                let (reading, writing, client_name) = secured.split();
                let reading = ReadHalf::Layer(Box::new(reading));
                let writing = WriteHalf::Layer(Box::new(writing));
                (reading, writing, client_name)
            }
            Self::Tls(..) => panic!("no TLS handshake was done"),
        };
        Opened {
            reading,
            writing,
            client_name,
        }
    }
}

#[derive(Debug)]
pub(crate) enum ReadHalf {
    Tcp(tcp::OwnedReadHalf),
    Unix(unix::OwnedReadHalf),
    Layer(Box<dyn ReadLayer>),
}

impl ReadHalf {
    /// Waits until there are bytes to read. Cancel safe.
    pub(crate) async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => socket.readable().await,
            Self::Unix(socket) => socket.readable().await,
            Self::Layer(layer) => poll_fn(|cx| layer.poll_readable(cx)).await,
        }
    }

    pub(crate) fn try_read_buf(&self, bytes: &mut BytesMut) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.try_read_buf(bytes),
            Self::Unix(socket) => socket.try_read_buf(bytes),
            Self::Layer(layer) => layer.try_read_buf(bytes),
        }
    }
}

#[derive(Debug)]
pub(crate) enum WriteHalf {
    Tcp(tcp::OwnedWriteHalf),
    Unix(unix::OwnedWriteHalf),
    Layer(Box<dyn WriteLayer>),
}

impl WriteHalf {
    /// Waits until the socket is writable. Cancel safe.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => socket.writable().await,
            Self::Unix(socket) => socket.writable().await,
            Self::Layer(layer) => poll_fn(|cx| layer.poll_writable(cx)).await,
        }
    }

    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.try_write(bytes),
            Self::Unix(socket) => socket.try_write(bytes),
            Self::Layer(layer) => layer.try_write(bytes),
        }
    }

    /// Whether written bytes wait until the socket is writable, as TLS records may.
    pub(crate) fn is_stuck(&self) -> bool {
        match self {
            Self::Tcp(_) | Self::Unix(_) => false,
            Self::Layer(layer) => layer.is_stuck(),
        }
    }
}

/// The reading half of a stream that is more than a socket.
pub(crate) trait ReadLayer: Debug + Send + Sync {
    /// Resolves when there are bytes to read, or the end.
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// As [`ReadHalf::try_read_buf`].
    fn try_read_buf(&self, bytes: &mut BytesMut) -> io::Result<usize>;
}

/// The writing half of a stream that is more than a socket. The stream is closed when this is dropped.
pub(crate) trait WriteLayer: Debug + Send + Sync {
    /// Resolves when bytes can be written.
    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// As [`WriteHalf::try_write`].
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize>;

    /// As [`WriteHalf::is_stuck`].
    fn is_stuck(&self) -> bool;
}

impl ReadLayer for TlsReadHalf {
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_readable(cx)
    }

    fn try_read_buf(&self, bytes: &mut BytesMut) -> io::Result<usize> {
        self.try_read_buf(bytes)
    }
}

impl WriteLayer for TlsWriteHalf {
    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_writable(cx)
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.try_write(bytes)
    }

    fn is_stuck(&self) -> bool {
        self.is_stuck()
    }
}
