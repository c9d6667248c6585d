//! A connection as its simulated process sees it: a stream.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bellwether_client::{Dial, Dialing, Endpoint, Stream};
use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{ConnId, End};
use crate::world::{Process, Shared};

/// Opens connections of one process on the simulated network. Servers are named `server1`, `server2` and so on.
#[derive(Debug, Clone)]
pub(crate) struct SimDial {
    pub(crate) shared: Shared,
    pub(crate) process: Process,
}

impl Dial for SimDial {
    fn dial(&self, endpoint: &Endpoint) -> Dialing {
        let Self { shared, process } = self.clone();
        let server = match endpoint {
            Endpoint::Tcp(host, _) => host
                .strip_prefix("server")
                .and_then(|number| number.parse::<usize>().ok()),
            Endpoint::Unix(_) => None,
        };
        Box::pin(async move {
            let server = server.ok_or(io::ErrorKind::NotFound)?;
            let conn =
                shared.with(|it| it.net.connect(&mut it.agenda, it.now, process, server - 1));
            let stream = SimStream { shared, conn };
            std::future::poll_fn(|cx| stream.poll_open(cx)).await?;
            Ok(Box::new(stream) as Box<dyn Stream>)
        })
    }
}

#[derive(Debug)]
struct SimStream {
    shared: Shared,
    conn: ConnId,
}

impl SimStream {
    fn poll_open(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shared.with(|it| {
            let Some(conn) = it.net.conns.get_mut(&self.conn) else {
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            };
            match conn.client_end {
                Some(end) => Poll::Ready(Err(error(end))),
                None if conn.is_open || conn.is_accepted => Poll::Ready(Ok(())),
                None => {
                    conn.waiting = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
    }
}

impl AsyncRead for SimStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.shared.with(|it| {
            let Some(conn) = it.net.conns.get_mut(&self.conn) else {
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            };
            if !conn.inbox.is_empty() {
                let bytes = conn.inbox.len().min(buf.remaining());
                buf.put_slice(&conn.inbox[..bytes]);
                conn.inbox.advance(bytes);
                return Poll::Ready(Ok(()));
            }
            match conn.client_end {
                Some(End::Closed) => Poll::Ready(Ok(())),
                Some(end) => Poll::Ready(Err(error(end))),
                None => {
                    conn.waiting = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
    }
}

impl AsyncWrite for SimStream {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.shared.with(|it| {
            let Some(conn) = it.net.conns.get(&self.conn) else {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            };
            if let Some(end) = conn.client_end {
                return Poll::Ready(Err(error(end)));
            }
            let bytes = Bytes::copy_from_slice(buf);
            it.net.send_up(&mut it.agenda, it.now, self.conn, bytes);
            Poll::Ready(Ok(buf.len()))
        })
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shared
            .with(|it| it.net.close_by_client(&mut it.agenda, it.now, self.conn));
        Poll::Ready(Ok(()))
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        self.shared.with(|it| {
            it.net.close_by_client(&mut it.agenda, it.now, self.conn);
            it.net.let_go(self.conn);
        });
    }
}

fn error(end: End) -> io::Error {
    match end {
        End::Refused => io::ErrorKind::ConnectionRefused.into(),
        End::Closed => io::ErrorKind::BrokenPipe.into(),
        End::Reset => io::ErrorKind::ConnectionReset.into(),
    }
}
