//! What waits to be written to one connection.
//!
//! Whoever has something for a client appends it here, in the order in which the client must see
//! it. Appending never waits: a client that does not read is cut off when its outbox is full.
//!
//! Whoever has appended flushes when it holds no lock any more. That writes to the socket at once,
//! without waking the task of the connection: a change that a thousand clients watch wakes nobody
//! here. The task is woken only for what one write leaves, and for the end.

use std::io::ErrorKind;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::{Buf as _, BytesMut};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::Notify;

/// The bytes on their way to one client.
#[derive(Debug)]
pub(crate) struct Outbox {
    state: Mutex<State>,
    bytes_max: usize,
    /// Wakes the task of the connection: something was left to it, or the end has come.
    stuck: Notify,
    /// Wakes whoever waits for room or for the end.
    changed: Notify,
}

#[derive(Debug)]
struct State {
    waiting: BytesMut,
    /// Shut down when it is dropped, at the end.
    socket: Option<Arc<OwnedWriteHalf>>,
    turn: Turn,
    ending: Ending,
}

/// Whose turn it is to write: bytes leave in order because only one does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// That of the next who flushes.
    Anyone,
    /// That of a thread that is writing now.
    Taken,
    /// That of the connection's task, when the socket has room: something was left.
    Task,
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
            state: Mutex::new(State {
                waiting: BytesMut::new(),
                socket: None,
                turn: Turn::Anyone,
                ending: Ending::Open,
            }),
            bytes_max,
            stuck: Notify::new(),
            changed: Notify::new(),
        }
    }

    /// Appends what `write` writes, or does nothing if the connection is ending. It leaves with the
    /// next [`flush`](Self::flush), which is due when no lock is held any more.
    ///
    /// A frame of any size has its place as long as no more than the limit waits before it.
    pub(crate) fn push(&self, write: impl FnOnce(&mut BytesMut)) {
        let mut state = self.lock();
        if state.ending != Ending::Open {
            return;
        }
        if state.waiting.len() > self.bytes_max {
            drop(state);
            tracing::warn!(
                limit = self.bytes_max,
                "client does not read, connection closed"
            );
            return self.close();
        }
        write(&mut state.waiting);
    }

    /// Writes what waits, as far as the socket takes it at once. One write and no more: whoever publishes
    /// must not be kept by a client that asks faster than it is written to.
    pub(crate) fn flush(&self) {
        let mut state = self.lock();
        let may_write = state.turn == Turn::Anyone && state.ending != Ending::Now;
        if !may_write || state.waiting.is_empty() {
            return;
        }
        let Some(socket) = state.socket.clone() else {
            return;
        };
        state.turn = Turn::Taken;
        let mut bytes = self.take(&mut state);
        drop(state);
        match socket.try_write(&bytes) {
            Ok(count) => bytes.advance(count),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => self.close(),
        }
        let mut state = self.lock();
        bytes.unsplit(std::mem::take(&mut state.waiting));
        state.waiting = bytes;
        let is_done = state.waiting.is_empty();
        state.turn = if is_done { Turn::Anyone } else { Turn::Task };
        // The task also waits for this turn to be over if the end has come meanwhile.
        if !is_done || state.ending != Ending::Open {
            self.stuck.notify_one();
        }
    }

    /// Takes all that waits. Whoever waits for room has it then.
    fn take(&self, state: &mut State) -> BytesMut {
        if state.waiting.len() > self.crowded_at() {
            self.changed.notify_waiters();
        }
        state.waiting.split()
    }

    /// Writes to `socket` from now on, and returns when the connection is to be closed: the work of
    /// its task, which does what nobody else can do without waiting.
    pub(crate) async fn write_to(&self, socket: OwnedWriteHalf) {
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
                        // An error shows when it is written to.
                        _ = socket.writable() => {}
                        () = self.closed() => break,
                    }
                    self.lock().turn = Turn::Anyone;
                }
                _ => self.stuck.notified().await,
            }
        }
        self.close();
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
        if state.ending == Ending::Now {
            state.socket = None;
        }
        drop(state);
        self.stuck.notify_one();
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

    /// Resolves when the connection is to end at once.
    async fn closed(&self) {
        self.until(|state| state.ending == Ending::Now).await;
    }

    /// Whether so much waits already that no more should be asked for.
    pub(crate) fn is_crowded(&self) -> bool {
        self.lock().waiting.len() > self.crowded_at()
    }

    /// How many bytes may wait before no more should be asked for.
    pub(crate) fn crowded_at(&self) -> usize {
        self.bytes_max / 2
    }

    /// How many bytes wait.
    pub(crate) fn len(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Resolves when there is room for more replies, or the connection is ending.
    pub(crate) async fn room(&self) {
        let crowded_at = self.crowded_at();
        self.until(|state| state.ending != Ending::Open || state.waiting.len() <= crowded_at)
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
mod tests {
    use std::time::Duration;

    use tokio::io::AsyncReadExt as _;
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::timeout;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    fn put(outbox: &Outbox, text: &str) {
        outbox.push(|bytes| bytes.extend_from_slice(text.as_bytes()));
    }

    /// Both ends of a connection.
    async fn pair() -> (OwnedWriteHalf, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let (client, server) = tokio::join!(client, listener.accept());
        (server.unwrap().0.into_split().1, client.unwrap())
    }

    /// What the client of `outbox` reads until the end.
    async fn read_all(outbox: &Outbox) -> Vec<u8> {
        let (socket, mut client) = pair().await;
        let mut read = Vec::new();
        let both = async { tokio::join!(outbox.write_to(socket), client.read_to_end(&mut read)) };
        timeout(LIMIT, both).await.unwrap().1.unwrap();
        read
    }

    #[tokio::test]
    async fn what_waits_is_written_and_then_the_end() {
        let outbox = Outbox::new(100);
        put(&outbox, "one ");
        put(&outbox, "two");
        outbox.finish();
        put(&outbox, "too late");
        assert_eq!(read_all(&outbox).await, b"one two");
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_is_cut_off() {
        let outbox = Outbox::new(2);
        put(&outbox, "long");
        assert!(outbox.is_open(), "one reply of any size has its place");
        put(&outbox, "more");
        assert!(!outbox.is_open());
        assert_eq!(read_all(&outbox).await, b"");
    }

    /// Threads flush while the socket is full again and again: nothing is lost, and each finds its own
    /// numbers in order.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn many_threads_write_in_order_through_a_full_socket() {
        const THREADS: u8 = 4;
        const EACH: u32 = 2000;
        let outbox = Arc::new(Outbox::new(usize::MAX));
        let (socket, mut client) = pair().await;
        let task = tokio::spawn({
            let outbox = outbox.clone();
            async move { outbox.write_to(socket).await }
        });
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let outbox = outbox.clone();
                std::thread::spawn(move || {
                    for number in 0..EACH {
                        outbox.push(|bytes| {
                            bytes.extend_from_slice(&[thread; 1000]);
                            bytes.extend_from_slice(&number.to_be_bytes());
                        });
                        outbox.flush();
                    }
                })
            })
            .collect();
        let mut next = [0; THREADS as usize];
        let reading = async {
            for _ in 0..u32::from(THREADS) * EACH {
                let mut frame = [0; 1004];
                client.read_exact(&mut frame).await.unwrap();
                let thread = frame[0];
                assert_eq!(frame[..1000], [thread; 1000]);
                let next = &mut next[usize::from(thread)];
                assert_eq!(frame[1000..], u32::to_be_bytes(*next));
                *next += 1;
            }
        };
        timeout(LIMIT, reading).await.unwrap();
        for thread in threads {
            thread.join().unwrap();
        }
        outbox.finish();
        timeout(LIMIT, task).await.unwrap().unwrap();
    }
}
