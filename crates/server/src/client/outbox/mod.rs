//! Outbox of a connection: bytes that wait to be written to its socket.
//!
//! Any thread with a reply or event appends it here, in the order in which the client must receive it. Appending never blocks: a client
//! that does not read is disconnected when its outbox is full.
//!
//! The appending thread flushes once it holds no lock. A flush writes to the socket directly, without waking the connection's task: an
//! event for a thousand watchers wakes no task. The task is woken only for bytes that the socket does not accept at once, and when the
//! connection ends.
//!
//! A reply that is still being computed can have its place reserved: bytes appended later wait behind it.

mod together;
mod waiting;

use std::io::ErrorKind;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::{Buf as _, BytesMut};
use tokio::sync::Notify;

use self::waiting::Waiting;
use super::socket::WriteHalf;

pub(crate) use self::together::Together;
pub(crate) use self::waiting::Place;

/// Largest buffer that is kept for reuse. Larger ones are freed when empty; otherwise each connection would keep as much memory as its
/// longest reply took.
pub(crate) const KEPT_BYTES: usize = 64 << 10;

/// How many bytes may wait for a client before no further request of it is read (backpressure). So a client that does not read its replies
/// costs little memory, and no time that others need.
const CROWDED_BYTES: usize = 256 << 10;

/// Bytes to be sent to one client.
#[derive(Debug)]
pub(crate) struct Outbox {
    state: Mutex<State>,
    bytes_max: usize,
    together: Arc<Together>,
    /// Wakes the connection's task: bytes are left to it, or the connection ends.
    stuck: Notify,
    /// Wakes tasks that wait for room or for the end.
    changed: Notify,
}

#[derive(Debug)]
struct State {
    waiting: Waiting,
    /// How many of these bytes are counted in [`Together`].
    counted: usize,
    /// Shut down when it is dropped, at the end.
    socket: Option<Arc<WriteHalf>>,
    turn: Turn,
    ending: Ending,
}

/// Who may write next. Only one writes at a time, so that bytes leave in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// The next thread that flushes.
    Anyone,
    /// A thread is writing now.
    Taken,
    /// The connection's task, once the socket is writable: some bytes are left.
    Task,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// The connection stays open.
    Open,
    /// Closes when everything is written.
    WhenWritten,
    /// Closes at once.
    Now,
}

impl Outbox {
    pub(crate) fn new(bytes_max: usize, together: Arc<Together>) -> Self {
        Self {
            together,
            state: Mutex::new(State {
                waiting: Waiting::default(),
                counted: 0,
                socket: None,
                turn: Turn::Anyone,
                ending: Ending::Open,
            }),
            bytes_max,
            stuck: Notify::new(),
            changed: Notify::new(),
        }
    }

    /// Appends what `write` writes, or nothing if the connection is ending. The next [`flush`](Self::flush) sends it; call that once no
    /// lock is held.
    ///
    /// Accepts a frame of any size as long as no more than the limit waits before it.
    pub(crate) fn push(&self, write: impl FnOnce(&mut BytesMut)) {
        let mut state = self.lock();
        if state.ending != Ending::Open {
            return;
        }
        if self.is_full(&state) {
            return self.overflow(state);
        }
        let before = state.waiting.len();
        state.waiting.push(write);
        self.together.put(state.waiting.len() - before);
        self.count(&mut state);
    }

    /// Reserves the place of a reply that is still being computed: everything pushed later waits behind it. Each place must be
    /// [filled](Self::fill).
    pub(crate) fn reserve(&self) -> Place {
        let mut state = self.lock();
        if state.ending != Ending::Open {
            return Place::NOWHERE;
        }
        state.waiting.reserve()
    }

    /// Fills a place with `content`. Call [`flush`](Self::flush) next, as after a push.
    pub(crate) fn fill(&self, place: Place, content: BytesMut) {
        let mut state = self.lock();
        if self.is_full(&state) {
            return self.overflow(state);
        }
        let before = state.waiting.len();
        state.waiting.fill(place, content);
        self.together.put(state.waiting.len() - before);
        self.count(&mut state);
    }

    /// Updates the total of all outboxes.
    fn count(&self, state: &mut State) {
        let bytes = state.waiting.len();
        self.together.count(state.counted, bytes);
        state.counted = bytes;
    }

    /// Whether a limit is reached: that of this outbox, or that of all together while this one holds more than its share.
    fn is_full(&self, state: &State) -> bool {
        state.waiting.len() > self.bytes_max
            || self.together.is_full() && state.waiting.len() > KEPT_BYTES
    }

    fn overflow(&self, state: MutexGuard<'_, State>) {
        drop(state);
        self.together.overflow();
        tracing::warn!(
            limit = self.bytes_max,
            "client does not read, connection closed"
        );
        self.close();
    }

    /// Writes pending bytes with one non-blocking write. Only one, so that a client that sends requests faster than it reads does not delay
    /// the publishing thread.
    pub(crate) fn flush(&self) {
        let mut state = self.lock();
        if state.turn != Turn::Anyone || state.ending == Ending::Now {
            return;
        }
        let Some(socket) = state.socket.clone() else {
            return;
        };
        if !state.waiting.is_ready() && !socket.is_stuck() {
            return;
        }
        state.turn = Turn::Taken;
        let was_crowded = state.waiting.len() > self.crowded_at();
        let mut bytes = state.waiting.take();
        drop(state);
        if was_crowded {
            // Wakes the task that waits for room.
            self.changed.notify_waiters();
        }
        match socket.try_write(&bytes) {
            Ok(count) => bytes.advance(count),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => self.close(),
        }
        let mut state = self.lock();
        if state.ending == Ending::Now {
            state.waiting.clear();
        } else {
            state.waiting.put_back(bytes);
        }
        self.count(&mut state);
        let is_done = !state.waiting.is_ready() && !socket.is_stuck();
        state.turn = if is_done { Turn::Anyone } else { Turn::Task };
        // The task also waits for the end of this turn if the connection was ended meanwhile.
        let task_waits = !is_done || state.ending != Ending::Open;
        drop(state);
        if task_waits {
            self.stuck.notify_one();
        }
    }

    /// The work of the connection's task: writes to `socket` whenever that needs waiting. Returns when the connection is to be closed.
    pub(crate) async fn write_to(&self, socket: WriteHalf) {
        let socket = Arc::new(socket);
        self.lock().socket = Some(socket.clone());
        loop {
            self.flush();
            let (turn, ending, is_empty) = {
                let state = self.lock();
                (state.turn, state.ending, state.waiting.is_empty())
            };
            match (turn, ending) {
                (_, Ending::Now) => break,
                (Turn::Anyone, Ending::WhenWritten) if is_empty => break,
                (Turn::Task, _) => {
                    tokio::select! {
                        biased;
                        () = self.closed() => break,
                        // A socket error is reported by the write below.
                        _ = socket.writable() => {}
                    }
                    self.lock().turn = Turn::Anyone;
                }
                _ => self.stuck.notified().await,
            }
        }
        self.close();
    }

    /// Closes the connection when everything is written.
    pub(crate) fn finish(&self) {
        self.end(Ending::WhenWritten);
    }

    /// Closes the connection; pending bytes are dropped.
    pub(crate) fn close(&self) {
        self.end(Ending::Now);
    }

    fn end(&self, ending: Ending) {
        let mut state = self.lock();
        if state.ending != Ending::Now {
            state.ending = ending;
        }
        if state.ending == Ending::Now {
            state.socket = None;
            state.waiting.clear();
            self.count(&mut state);
        }
        drop(state);
        self.stuck.notify_one();
        self.changed.notify_waiters();
    }

    /// Whether bytes can still be appended.
    pub(crate) fn is_open(&self) -> bool {
        self.lock().ending == Ending::Open
    }

    /// Whether nothing is sent any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().ending == Ending::Now
    }

    /// Resolves when the connection is ending.
    pub(crate) async fn ended(&self) {
        self.until(|state| state.ending != Ending::Open).await;
    }

    /// Resolves when the connection is to be closed at once.
    async fn closed(&self) {
        self.until(|state| state.ending == Ending::Now).await;
    }

    /// Whether no further request should be read, because too many bytes wait to be sent.
    pub(crate) fn is_crowded(&self) -> bool {
        self.lock().waiting.len() > self.crowded_at()
    }

    /// Number of waiting bytes at which no more requests should be read.
    fn crowded_at(&self) -> usize {
        CROWDED_BYTES.min(self.largest_reply())
    }

    /// Maximum length of a reply that a short request can make as long as it likes (multiRead).
    pub(crate) fn largest_reply(&self) -> usize {
        self.bytes_max / 2
    }

    /// Number of waiting bytes.
    pub(crate) fn len(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Resolves when there is room for more replies, or the connection is ending. Calls `has_read` whenever the client has read some.
    pub(crate) async fn room(&self, has_read: impl Fn()) {
        let crowded_at = self.crowded_at();
        self.until(|state| {
            // Each flush wakes this, and follows the news that the socket accepts more.
            has_read();
            state.ending != Ending::Open || state.waiting.len() <= crowded_at
        })
        .await;
    }

    async fn until(&self, condition: impl Fn(&State) -> bool) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if condition(&self.lock()) {
                return;
            }
            changed.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .expect("no code panics while it holds an outbox")
    }
}

#[cfg(test)]
mod tests;
