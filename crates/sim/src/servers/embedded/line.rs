//! The server's end of a connection: what has arrived, and what waits to be sent.
//!
//! Bytes are sent after each step of the server, in the order of connections. So the order in which a step writes to several of them, which
//! may be that of a hash table, does not affect the run.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bellwether_server::simulation::Stream;
use bytes::{Bytes, BytesMut};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

/// One connection at the server.
#[derive(Debug)]
pub(super) struct Line(Mutex<LineState>);

#[derive(Debug)]
struct LineState {
    arrived: BytesMut,
    /// The client has closed the connection, or the network has.
    is_over: bool,
    reader: Option<Waker>,
    waiting: BytesMut,
    is_closed: bool,
    /// The socket is full until the next step.
    is_full: bool,
    random: StdRng,
}

/// What a step of the server has sent on a connection.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) bytes: Bytes,
    pub(super) is_closed: bool,
}

impl Line {
    pub(super) fn new(seed: u64) -> Self {
        Self(Mutex::new(LineState {
            arrived: BytesMut::new(),
            is_over: false,
            reader: None,
            waiting: BytesMut::new(),
            is_closed: false,
            is_full: false,
            random: StdRng::seed_from_u64(seed),
        }))
    }

    /// Bytes arrive.
    pub(super) fn receive(&self, bytes: &[u8]) {
        let mut state = self.lock();
        state.arrived.extend_from_slice(bytes);
        state.wake();
    }

    /// The connection ends, after the bytes that have arrived.
    pub(super) fn end(&self) {
        let mut state = self.lock();
        state.is_over = true;
        state.wake();
    }

    /// Takes what the server has sent since the last call.
    pub(super) fn take_sent(&self) -> Sent {
        let mut state = self.lock();
        state.is_full = false;
        Sent {
            bytes: state.waiting.split().freeze(),
            is_closed: state.is_closed,
        }
    }

    fn lock(&self) -> MutexGuard<'_, LineState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LineState {
    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

impl Stream for Line {
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if !state.arrived.is_empty() || state.is_over {
            return Poll::Ready(());
        }
        state.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    fn try_read(&self, bytes: &mut BytesMut) -> io::Result<usize> {
        let mut state = self.lock();
        if state.arrived.is_empty() && !state.is_over {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let count = state.arrived.len();
        bytes.extend_from_slice(&state.arrived.split());
        Ok(count)
    }

    /// A socket that is full has room again in the next step.
    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.lock().is_full {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.lock();
        if state.is_full {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        // Now and then the socket takes only a part.
        let count = match state.random.random_ratio(1, 20) {
            true => state.random.random_range(0..=bytes.len()),
            false => bytes.len(),
        };
        state.is_full = count < bytes.len();
        state.waiting.extend_from_slice(&bytes[..count]);
        match count {
            0 if !bytes.is_empty() => Err(io::ErrorKind::WouldBlock.into()),
            _ => Ok(count),
        }
    }

    fn close(&self) {
        self.lock().is_closed = true;
    }
}
