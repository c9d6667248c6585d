//! What waits to be written to one connection.
//!
//! Whoever has something for a client appends it here, in the order in which the client must see
//! it. Appending never waits: a client that does not read is cut off when its outbox is full.

use std::sync::Mutex;

use bytes::BytesMut;
use tokio::sync::Notify;

/// The bytes on their way to one client.
#[derive(Debug)]
pub(crate) struct Outbox {
    state: Mutex<State>,
    bytes_max: usize,
    /// Wakes the one task that writes to the socket.
    filled: Notify,
    /// Wakes whoever waits for room or for the end.
    changed: Notify,
}

#[derive(Debug)]
struct State {
    waiting: BytesMut,
    ending: Ending,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// The connection goes on.
    Open,
    /// It ends when everything has been written.
    WhenWritten,
    /// It ends at once.
    Now,
}

impl Outbox {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            state: Mutex::new(State { waiting: BytesMut::new(), ending: Ending::Open }),
            bytes_max,
            filled: Notify::new(),
            changed: Notify::new(),
        }
    }

    /// Appends what `write` writes, or does nothing if the connection is ending.
    ///
    /// A frame of any size has its place as long as no more than the limit waits before it.
    pub(crate) fn push(&self, write: impl FnOnce(&mut BytesMut)) {
        let mut state = self.lock();
        if state.ending != Ending::Open {
            return;
        }
        if state.waiting.len() > self.bytes_max {
            drop(state);
            tracing::warn!(limit = self.bytes_max, "client does not read, connection closed");
            return self.close();
        }
        let was_empty = state.waiting.is_empty();
        write(&mut state.waiting);
        drop(state);
        if was_empty {
            self.filled.notify_one();
        }
    }

    /// Ends the connection when everything has been written.
    pub(crate) fn finish(&self) {
        self.end(Ending::WhenWritten);
    }

    /// Ends the connection; what still waits is not written.
    pub(crate) fn close(&self) {
        self.end(Ending::Now);
    }

    fn end(&self, ending: Ending) {
        let mut state = self.lock();
        if state.ending != Ending::Now {
            state.ending = ending;
        }
        drop(state);
        self.filled.notify_one();
        self.changed.notify_waiters();
    }

    /// Whether something can still be sent.
    pub(crate) fn is_open(&self) -> bool {
        self.lock().ending == Ending::Open
    }

    /// Resolves when the connection is ending.
    pub(crate) async fn ended(&self) {
        self.until(|state| state.ending != Ending::Open).await;
    }

    /// Resolves when there is room for more replies, or the connection is ending.
    pub(crate) async fn room(&self) {
        self.until(|state| state.ending != Ending::Open || state.waiting.len() <= self.bytes_max / 2)
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

    /// The next bytes to write, all that wait; `None` when the connection is to be closed.
    pub(crate) async fn next(&self) -> Option<BytesMut> {
        loop {
            {
                let mut state = self.lock();
                match state.ending {
                    Ending::Now => return None,
                    _ if !state.waiting.is_empty() => {
                        let bytes = state.waiting.split();
                        drop(state);
                        self.changed.notify_waiters();
                        return Some(bytes);
                    }
                    Ending::WhenWritten => return None,
                    Ending::Open => {}
                }
            }
            self.filled.notified().await;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while it holds an outbox")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(outbox: &Outbox, text: &str) {
        outbox.push(|bytes| bytes.extend_from_slice(text.as_bytes()));
    }

    #[tokio::test]
    async fn what_waits_comes_out_in_one_piece_and_then_the_end() {
        let outbox = Outbox::new(100);
        put(&outbox, "one ");
        put(&outbox, "two");
        outbox.finish();
        put(&outbox, "too late");
        assert_eq!(outbox.next().await.unwrap(), "one two");
        assert_eq!(outbox.next().await, None);
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_is_cut_off() {
        let outbox = Outbox::new(2);
        put(&outbox, "long");
        assert!(outbox.is_open(), "one reply of any size has its place");
        put(&outbox, "more");
        assert!(!outbox.is_open());
        assert_eq!(outbox.next().await, None);
    }
}
