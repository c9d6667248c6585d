//! Accepts browser connections, limits their number, and closes those on which nothing is sent.
//!
//! Every request is answered within seconds, and an open page is sent something every ten seconds. So one rule, that a connection must be
//! written to again and again, closes a peer that sends half a request, sends it byte by byte, keeps an unused connection, or does not read
//! its answers. None of them can use up the connections of others. A TLS handshake is under the same rule: it is part of the connection, and
//! does not delay those that are accepted after it.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::tls::{TlsAccept, Transport};

/// Maximum concurrent connections; others wait to be accepted.
const CONNECTIONS_MAX: usize = 256;

/// Maximum time without a byte written to a connection. Then it is closed. Longer than any answer takes, and than the pause between two
/// keep-alives of an open page.
const QUIET_MAX: Duration = Duration::from_secs(30);

pub(super) struct Patient {
    listener: TcpListener,
    tls: Option<TlsAccept>,
    room: Arc<Semaphore>,
    quiet_max: Duration,
}

impl Patient {
    pub(super) fn new(listener: TcpListener, tls: Option<TlsAccept>) -> Self {
        Self {
            tls,
            ..Self::with_limits(listener, CONNECTIONS_MAX, QUIET_MAX)
        }
    }

    fn with_limits(listener: TcpListener, connections_max: usize, quiet_max: Duration) -> Self {
        Self {
            listener,
            tls: None,
            room: Arc::new(Semaphore::new(connections_max)),
            quiet_max,
        }
    }
}

impl axum::serve::Listener for Patient {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        let room = self.room.clone().acquire_owned().await;
        let room = room.expect("the semaphore is never closed");
        let (stream, address) = axum::serve::Listener::accept(&mut self.listener).await;
        let connection = Connection {
            stream: Transport::new(stream, self.tls.as_ref()),
            quiet_max: self.quiet_max,
            is_quiet: Box::pin(sleep_until(Instant::now() + self.quiet_max)),
            _room: room,
        };
        (connection, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that fails if nothing is written to it for [`QUIET_MAX`].
pub(super) struct Connection {
    stream: Transport,
    quiet_max: Duration,
    /// Deadline of the next write.
    is_quiet: Pin<Box<Sleep>>,
    _room: OwnedSemaphorePermit,
}

impl Connection {
    /// Passes on the result of a write, and starts the deadline anew after a success.
    fn written(
        &mut self,
        written: Poll<io::Result<usize>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(1..)) = written {
            let until = Instant::now() + self.quiet_max;
            self.is_quiet.as_mut().reset(until);
        }
        self.unless_quiet(written, cx)
    }

    /// Fails what waits, if nothing was written for too long.
    fn unless_quiet<T>(
        &mut self,
        result: Poll<io::Result<T>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if result.is_ready() {
            return result;
        }
        ready!(self.is_quiet.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // A byte every now and then is no reason to wait on.
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.unless_quiet(read, cx)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.written(written, cx)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.unless_quiet(flushed, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::Router;
    use axum::response::sse::{Event, Sse};
    use axum::routing::get;
    use futures_util::stream;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;
    use tokio::time::{interval, timeout};

    use super::*;

    const QUIET: Duration = Duration::from_millis(300);
    /// Far more than a connection may be quiet.
    const PATIENCE: Duration = Duration::from_secs(20);

    /// Serves one connection: `/` at once, `/events` for ever, and `/much` without an end.
    async fn served(quiet_max: Duration) -> SocketAddr {
        let events = move || async move {
            let ticks = stream::unfold(interval(quiet_max / 50), async |mut ticks| {
                ticks.tick().await;
                Some((Ok::<_, Infallible>(Event::default().data("tick")), ticks))
            });
            Sse::new(ticks)
        };
        let much = || async {
            let text = "x".repeat(1 << 16);
            let much = stream::repeat_with(move || {
                Ok::<_, Infallible>(Event::default().data(text.clone()))
            });
            Sse::new(much)
        };
        let router = Router::new()
            .route("/", get(|| async { "here" }))
            .route("/events", get(events))
            .route("/much", get(much));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let listener = Patient::with_limits(listener, 1, quiet_max);
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        address
    }

    async fn ask(address: SocketAddr, path: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    /// Reads to the end of the connection.
    async fn end(mut stream: TcpStream) -> Vec<u8> {
        let mut all = Vec::new();
        // A reset is an end too.
        let _ = timeout(PATIENCE, stream.read_to_end(&mut all))
            .await
            .expect("the connection should have been closed");
        all
    }

    #[tokio::test]
    async fn half_a_request_is_closed_also_if_it_comes_byte_by_byte() {
        let address = served(QUIET).await;
        let mut half = TcpStream::connect(address).await.unwrap();
        half.write_all(b"GET / HTTP/1.1\r\nX: ").await.unwrap();
        let (half, mut writer) = half.into_split();
        let dribbling = tokio::spawn(async move {
            let mut often = interval(QUIET / 10);
            loop {
                often.tick().await;
                if writer.write_all(b"x").await.is_err() {
                    return;
                }
            }
        });
        // There is room for one connection, so this one waits until the other is closed.
        let other = ask(address, "/").await;
        assert!(
            String::from_utf8(end(other).await)
                .unwrap()
                .ends_with("here")
        );
        timeout(PATIENCE, dribbling).await.unwrap().unwrap();
        drop(half);
    }

    #[tokio::test]
    async fn unused_connection_is_closed() {
        let address = served(QUIET).await;
        let unused = TcpStream::connect(address).await.unwrap();
        assert_eq!(end(unused).await, b"");
    }

    #[tokio::test]
    async fn peer_that_does_not_read_is_closed() {
        let address = served(QUIET).await;
        let _not_reading = ask(address, "/much").await;
        let other = ask(address, "/").await;
        assert!(
            String::from_utf8(end(other).await)
                .unwrap()
                .ends_with("here")
        );
    }

    #[tokio::test]
    async fn open_page_stays() {
        // Long enough for a busy machine to send something meanwhile.
        const QUIET: Duration = Duration::from_secs(2);
        let address = served(QUIET).await;
        let mut page = ask(address, "/events").await;
        let begin = Instant::now();
        while begin.elapsed() < 2 * QUIET {
            let mut some = [0; 1024];
            let read = timeout(PATIENCE, page.read(&mut some)).await.unwrap();
            assert!(read.unwrap() > 0, "closed after {:?}", begin.elapsed());
        }
    }
}
