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

mod outbox_total;
mod pieces;
mod waiting;

use std::io::ErrorKind;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::{Bytes, BytesMut};
use tokio::sync::Notify;
use tokio::task::coop;

use self::waiting::Waiting;
use super::socket::WriteHalf;

pub(crate) use self::outbox_total::OutboxTotal;
pub(crate) use self::waiting::Place;

/// Largest buffer that is kept for reuse. Larger ones are freed when empty; otherwise each connection would keep as much memory as its
/// longest reply took.
pub(crate) const KEPT_BYTES: usize = 64 << 10;

/// How many bytes may wait for a client before no further request of it is read (backpressure). So a client that does not read its replies
/// costs little memory, and no time that others need.
const CROWDED_BYTES: usize = 256 << 10;

/// How many bytes one flush writes at most. The connection's task writes the rest, so that many long replies or events do not keep the
/// publishing thread from the next writes.
const WRITE_BYTES: usize = 128 << 10;

/// Bytes to be sent to one client.
#[derive(Debug)]
pub(crate) struct Outbox {
    state: Mutex<State>,
    bytes_max: usize,
    together: Arc<OutboxTotal>,
    /// Wakes the connection's task: bytes are left to it, or the connection ends.
    stuck: Notify,
    /// Wakes tasks that wait for room or for the end.
    changed: Notify,
}

#[derive(Debug)]
struct State {
    waiting: Waiting,
    /// How many of these bytes are counted in [`OutboxTotal`] as those of this outbox alone.
    counted: usize,
    /// Bytes put in so far.
    put_bytes: u64,
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
    pub(crate) fn new(bytes_max: usize, together: Arc<OutboxTotal>) -> Self {
        Self {
            together,
            state: Mutex::new(State {
                waiting: Waiting::default(),
                counted: 0,
                put_bytes: 0,
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
        self.add(|waiting| waiting.push(write));
    }

    /// As [`push`](Self::push), with bytes that other clients receive as well ([`share`](Self::share)).
    pub(crate) fn push_shared(&self, bytes: Bytes) {
        self.add(|waiting| waiting.push_shared(bytes));
    }

    /// Copies bytes once for several outboxes.
    pub(crate) fn share(&self, bytes: &[u8]) -> Bytes {
        self.together.share(bytes)
    }

    fn add(&self, add: impl FnOnce(&mut Waiting)) {
        let mut state = self.lock();
        if state.ending != Ending::Open {
            return;
        }
        if self.is_full(&state) {
            return self.overflow(state);
        }
        let before = state.waiting.len();
        add(&mut state.waiting);
        self.put(&mut state, before);
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
        self.put(&mut state, before);
    }

    /// Counts what was put in after `before` bytes.
    fn put(&self, state: &mut State, before: usize) {
        let bytes = state.waiting.len() - before;
        state.put_bytes += bytes as u64;
        self.together.put(bytes);
        self.count(state);
    }

    /// Bytes put in so far.
    pub(crate) fn put_bytes(&self) -> u64 {
        self.lock().put_bytes
    }

    /// Updates the total of all outboxes. Bytes that several of them share are counted once, where they are.
    fn count(&self, state: &mut State) {
        let bytes = state.waiting.own_len();
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

    /// Writes pending bytes with one non-blocking write of at most [`WRITE_BYTES`]. Only one, so that a client that sends requests faster than it reads does not delay
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
        let mut piece = state.waiting.take();
        drop(state);
        if was_crowded {
            // Wakes the task that waits for room.
            self.changed.notify_waiters();
        }
        let bytes = piece.as_ref();
        match socket.try_write(&bytes[..bytes.len().min(WRITE_BYTES)]) {
            Ok(count) => piece.advance(count),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => self.close(),
        }
        let mut state = self.lock();
        if state.ending == Ending::Now {
            state.waiting.clear();
        } else {
            state.waiting.put_back(piece);
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
                    // The socket may accept bytes as fast as they come: other tasks get their turn.
                    coop::consume_budget().await;
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

    /// Takes all bytes that may be sent.
    #[cfg(test)]
    pub(crate) fn take_all(&self) -> Vec<u8> {
        let mut state = self.lock();
        let mut all = Vec::new();
        while state.waiting.is_ready() {
            all.extend_from_slice(state.waiting.take().as_ref());
        }
        self.count(&mut state);
        all
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
