//! TLS on the connections of browsers: who does it is up to the program that serves the dashboard.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bellwether::zk::Stream;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;

/// First byte of a TLS handshake.
const HANDSHAKE: u8 = 22;

/// The answer to a request without TLS.
const PLAIN_REFUSED: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 44\r\nConnection: close\r\n\r\n\
      this port speaks TLS: ask it with https://\r\n";

/// How much of a request without TLS is read before the connection is closed, so that its sender sees the answer.
const PLAIN_BYTES_MAX: u64 = 64 << 10;

type Opening = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send>>;

/// Does the TLS handshakes of a dashboard.
#[derive(Clone)]
pub struct TlsAccept(Arc<dyn Fn(TcpStream) -> Opening + Send + Sync>);

impl TlsAccept {
    /// Calls `accept` for each connection. A connection that it keeps waiting is closed after 30 seconds.
    pub fn new<F, S>(accept: impl Fn(TcpStream) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = io::Result<S>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        Self(Arc::new(move |tcp| {
            let accepting = accept(tcp);
            Box::pin(async move {
                let stream: Box<dyn Stream> = Box::new(accepting.await?);
                Ok(stream)
            })
        }))
    }

    /// Opens a connection, or explains to its peer that this port speaks TLS.
    async fn open(self, tcp: TcpStream) -> io::Result<Box<dyn Stream>> {
        let mut first = [0];
        let length = tcp.peek(&mut first).await?;
        if length > 0 && first[0] != HANDSHAKE {
            refuse_plain(tcp).await?;
            return Err(io::ErrorKind::InvalidData.into());
        }
        (self.0)(tcp).await
    }
}

impl fmt::Debug for TlsAccept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsAccept").finish_non_exhaustive()
    }
}

async fn refuse_plain(mut tcp: TcpStream) -> io::Result<()> {
    tcp.write_all(PLAIN_REFUSED).await?;
    tcp.shutdown().await?;
    let mut rest = tcp.take(PLAIN_BYTES_MAX);
    tokio::io::copy(&mut rest, &mut tokio::io::sink()).await?;
    Ok(())
}

/// The connection of a browser, which may still be in its TLS handshake.
pub(crate) enum Transport {
    Plain(TcpStream),
    Opening(Opening),
    Secure(Box<dyn Stream>),
    Failed,
}

impl Transport {
    pub(crate) fn new(tcp: TcpStream, tls: Option<&TlsAccept>) -> Self {
        match tls {
            None => Self::Plain(tcp),
            Some(tls) => Self::Opening(Box::pin(tls.clone().open(tcp))),
        }
    }

    /// The stream, once the handshake is over.
    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Pin<&mut dyn Stream>>> {
        if let Self::Opening(opening) = self {
            let opened = ready!(opening.as_mut().poll(cx));
            *self = Self::Failed;
            match opened {
                Ok(stream) => *self = Self::Secure(stream),
                Err(error) => {
                    tracing::debug!(%error, "TLS handshake of a browser failed");
                    return Poll::Ready(Err(error));
                }
            }
        }
        match self {
            Self::Plain(stream) => Poll::Ready(Ok(Pin::new(stream))),
            Self::Secure(stream) => Poll::Ready(Ok(Pin::new(stream))),
            Self::Opening(_) | Self::Failed => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }
}

impl AsyncRead for Transport {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_open(cx))?.poll_read(cx, buffer)
    }
}

impl AsyncWrite for Transport {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_open(cx))?.poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_open(cx))?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            // Nothing was sent that has to arrive.
            Self::Opening(_) | Self::Failed => Poll::Ready(Ok(())),
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Secure(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
