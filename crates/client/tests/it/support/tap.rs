//! A `Dial` that counts writes, and can stop accepting them.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bellwether_client::{Dial, Dialing, Endpoint, Sockets, Stream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Opens sockets, and observes what is written to them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tap(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    writes: AtomicUsize,
    clogged: AtomicBool,
}

impl Tap {
    /// The number of writes that the sockets accepted.
    pub(crate) fn writes(&self) -> usize {
        self.0.writes.load(Ordering::SeqCst)
    }

    /// From now on the sockets accept nothing, like those of a peer that does not read.
    pub(crate) fn clog(&self) {
        self.0.clogged.store(true, Ordering::SeqCst);
    }

    /// New connections accept everything again.
    pub(crate) fn unclog(&self) {
        self.0.clogged.store(false, Ordering::SeqCst);
    }
}

impl Dial for Tap {
    fn dial(&self, endpoint: &Endpoint) -> Dialing {
        let (dialing, counts) = (Sockets.dial(endpoint), Arc::clone(&self.0));
        Box::pin(async move {
            let stream = dialing.await?;
            Ok(Box::new(Tapped { stream, counts }) as Box<dyn Stream>)
        })
    }
}

struct Tapped {
    stream: Box<dyn Stream>,
    counts: Arc<Counts>,
}

impl AsyncRead for Tapped {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Tapped {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.counts.clogged.load(Ordering::SeqCst) {
            return Poll::Pending;
        }
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if let Poll::Ready(Ok(_)) = written {
            self.counts.writes.fetch_add(1, Ordering::SeqCst);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
