//! A TLS connection in two halves. Any thread may write to it without blocking.
//!
//! The outbox writes from the thread that has a reply for the client. So the TLS state is behind a lock, which is held for a few records at
//! most and never over an await.

use std::io::{self, BufRead as _, ErrorKind, IoSlice, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

use bytes::BytesMut;
use rustix::net::{Shutdown, shutdown};
use rustls::ServerConnection;
use tokio::net::TcpStream;

/// Both directions of a TLS connection.
#[derive(Debug)]
pub(super) struct TlsStream {
    tcp: TcpStream,
    session: Mutex<ServerConnection>,
}

#[derive(Debug)]
pub(crate) struct TlsReadHalf(pub(super) Arc<TlsStream>);

/// Sends `close_notify` when it is dropped.
#[derive(Debug)]
pub(crate) struct TlsWriteHalf(pub(super) Arc<TlsStream>);

impl TlsStream {
    pub(super) fn new(tcp: TcpStream, session: ServerConnection) -> Self {
        Self {
            tcp,
            session: Mutex::new(session),
        }
    }

    fn lock(&self) -> MutexGuard<'_, ServerConnection> {
        self.session.lock().expect("never panics inside")
    }

    /// Writes pending records to the socket.
    fn write_records(&self, session: &mut ServerConnection) -> io::Result<()> {
        while session.wants_write() {
            session.write_tls(&mut Nonblocking(&self.tcp))?;
        }
        Ok(())
    }
}

impl TlsReadHalf {
    /// Waits until there are bytes to read.
    pub(crate) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let is_there = {
            let state = self.0.lock().process_new_packets();
            // The read reports a TLS error.
            state.map_or(true, |state| {
                state.plaintext_bytes_to_read() > 0 || state.peer_has_closed()
            })
        };
        if is_there {
            return Poll::Ready(Ok(()));
        }
        self.0.tcp.poll_read_ready(cx)
    }

    /// Appends decrypted bytes to `bytes`: at most the records that one read of the socket completes.
    pub(crate) fn try_read_buf(&self, bytes: &mut BytesMut) -> io::Result<usize> {
        let mut session = self.0.lock();
        loop {
            match session.reader().fill_buf() {
                Ok(plain) => {
                    let count = plain.len();
                    bytes.extend_from_slice(plain);
                    session.reader().consume(count);
                    return Ok(count);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            if session.read_tls(&mut Nonblocking(&self.0.tcp))? == 0 {
                return Ok(0);
            }
            let read = session.process_new_packets();
            // TLS itself may have to reply, or to send an alert. What cannot be sent now is sent with the next bytes.
            let _ = self.0.write_records(&mut session);
            read.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
        }
    }
}

impl TlsWriteHalf {
    /// Writes as much of `bytes` as fits. Records that the socket does not accept at once are [kept](Self::is_stuck).
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut session = self.0.lock();
        self.0.write_records(&mut session)?;
        let count = session.writer().write(bytes)?;
        match self.0.write_records(&mut session) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(count),
        }
    }

    /// Whether records wait until the socket is writable.
    pub(crate) fn is_stuck(&self) -> bool {
        self.0.lock().wants_write()
    }

    pub(crate) fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.tcp.poll_write_ready(cx)
    }
}

impl Drop for TlsWriteHalf {
    /// Sends `close_notify`, so that the client can tell the end from a truncation. If the socket is full, the client sees a truncation.
    fn drop(&mut self) {
        let mut session = self.0.lock();
        session.send_close_notify();
        let _ = self.0.write_records(&mut session);
        let _ = shutdown(&self.0.tcp, Shutdown::Write);
    }
}

/// A socket that never blocks.
pub(super) struct Nonblocking<'a>(pub(super) &'a TcpStream);

impl Read for Nonblocking<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(bytes)
    }
}

impl Write for Nonblocking<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
