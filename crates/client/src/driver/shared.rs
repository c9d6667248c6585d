//! A session between its callers and its driver.
//!
//! The caller writes: a request is encoded under the session's lock, on the thread that makes it, and is written to the socket
//! there. The driver only reads, keeps the clock, and writes what the socket did not accept.

use std::fmt;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::io::AsyncWrite;
use tokio::sync::{Notify, watch};

use crate::clock::Moment;
use crate::core::session::{Broken, Delivery, Session};
use crate::core::watches::{Listener, PersistentEvent};
use crate::error::SessionEnd;

/// Whether a session can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionState {
    /// There is no connection. The servers keep the session for its timeout; requests wait.
    Disconnected,
    /// There is a connection.
    Connected,
    /// The session has ended.
    Ended(SessionEnd),
}

impl SessionState {
    /// Whether the session has ended.
    pub fn is_ended(self) -> bool {
        matches!(self, Self::Ended(_))
    }
}

/// The write half of a stream.
pub(crate) type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// The state that callers and the driver share.
pub(crate) struct Shared {
    inner: Mutex<Inner>,
    /// Wakes the driver: bytes are left to write, or the session shall end.
    pub(crate) wake: Notify,
    state: watch::Sender<SessionState>,
}

struct Inner {
    session: Session,
    writer: Option<Writer>,
    /// The number of open batches. Until the last one ends, nothing is written.
    batches: usize,
}

impl Shared {
    pub(crate) fn new(session: Session) -> Self {
        Self {
            inner: Mutex::new(Inner {
                session,
                writer: None,
                batches: 0,
            }),
            wake: Notify::new(),
            state: watch::Sender::new(SessionState::Disconnected),
        }
    }

    /// A panic under the lock is a bug of this crate; the session continues as well as it can.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn states(&self) -> watch::Receiver<SessionState> {
        self.state.subscribe()
    }

    pub(crate) fn state(&self) -> SessionState {
        *self.state.borrow()
    }

    /// Reads the session.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&Session) -> T) -> T {
        look(&self.lock().session)
    }

    /// Changes the session; then writes its bytes and delivers its answers and events.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Session) -> T) -> T {
        let mut inner = self.lock();
        let result = act(&mut inner.session);
        let is_left = inner.batches == 0 && inner.write_now();
        self.unlock(inner);
        if is_left {
            self.wake.notify_one();
        }
        result
    }

    /// Lets the session check the clock. A heartbeat does not wait for the end of a batch.
    pub(crate) fn tick(&self) -> Result<Duration, Broken> {
        let mut inner = self.lock();
        let before = inner.session.out().len();
        let next = inner.session.tick(Moment::now());
        let has_ping = inner.session.out().len() > before;
        let is_left = (has_ping || inner.batches == 0) && inner.write_now();
        self.unlock(inner);
        if is_left {
            self.wake.notify_one();
        }
        next
    }

    /// Holds requests back until [`end_batch`](Self::end_batch), so that they are sent together.
    pub(crate) fn begin_batch(&self) {
        self.lock().batches += 1;
    }

    pub(crate) fn end_batch(&self) {
        {
            let mut inner = self.lock();
            // In a forked child, a batch may end that its parent has begun.
            inner.batches = inner.batches.saturating_sub(1);
        }
        self.with(|_| ());
    }

    /// Gives the session a connection, once its handshake is done.
    pub(crate) fn attach(&self, writer: Writer) {
        self.lock().writer = Some(writer);
    }

    /// Takes the connection away.
    pub(crate) fn detach(&self) {
        let mut inner = self.lock();
        inner.writer = None;
        inner.session.disconnected();
        self.unlock(inner);
    }

    /// Writes as much as the socket accepts. The driver is woken when it accepts more.
    pub(crate) fn poll_write(&self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let mut inner = self.lock();
        if inner.batches > 0 {
            // The end of the batch writes, and wakes the driver if something is left.
            return Poll::Ready(Ok(()));
        }
        inner.poll_write(cx)
    }

    /// Releases the lock, then delivers answers and events.
    fn unlock(&self, mut inner: MutexGuard<'_, Inner>) {
        let deliveries = inner.session.take_deliveries();
        let state = match (inner.session.end(), inner.session.is_up()) {
            (Some(end), _) => SessionState::Ended(end),
            (None, true) => SessionState::Connected,
            (None, false) => SessionState::Disconnected,
        };
        // Under the lock, so that states are reported in order.
        self.state.send_if_modified(|known| {
            let is_new = *known != state;
            *known = state;
            is_new
        });
        let has_ended = state.is_ended();
        drop(inner);
        if has_ended {
            self.wake.notify_one();
        }
        for delivery in deliveries {
            deliver(delivery);
        }
    }
}

impl Inner {
    /// Writes from the caller's thread. Returns whether bytes are left for the driver.
    fn write_now(&mut self) -> bool {
        if self.session.out().is_empty() {
            return false;
        }
        let mut cx = Context::from_waker(Waker::noop());
        // The driver handles errors: it gets the same one.
        !matches!(self.poll_write(&mut cx), Poll::Ready(Ok(())))
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let Some(writer) = &mut self.writer else {
            return Poll::Ready(Ok(()));
        };
        while !self.session.out().is_empty() {
            match Pin::new(&mut *writer).poll_write(cx, self.session.out()) {
                Poll::Ready(Ok(0)) => {
                    return Poll::Ready(Err(std::io::ErrorKind::WriteZero.into()));
                }
                Poll::Ready(Ok(bytes)) => self.session.wrote(bytes),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        Pin::new(writer).poll_flush(cx)
    }
}

fn deliver(delivery: Delivery) {
    match delivery {
        // The caller may be gone, which is no error.
        Delivery::Reply(sender, answer) => drop(sender.send(answer)),
        Delivery::Notice((Listener::OneShot(sender), PersistentEvent::Node(event))) => {
            drop(sender.send(event));
        }
        Delivery::Notice((Listener::OneShot(_), PersistentEvent::Missed)) => {}
        Delivery::Notice((Listener::Stream(sender), event)) => sender.send(event),
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}
