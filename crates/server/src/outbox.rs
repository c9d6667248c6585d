//! What waits to be written to one connection.
//!
//! Whoever has something for a client appends it here, in the order in which the client must see
//! it. Appending never waits: a client that does not read is cut off when its outbox is full.
//!
//! Whoever has appended flushes when it holds no lock any more. That writes to the socket at once,
//! without waking the task of the connection: a change that a thousand clients watch wakes nobody
//! here. The task is woken only for what one write leaves, and for the end.
//!
//! What is not known yet can have its place reserved: what is appended later waits behind it.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::{Buf as _, BytesMut};
use tokio::sync::Notify;

use crate::net::WriteHalf;

/// How large a buffer may be that is kept for the next bytes. Larger ones are given back when they are empty, or each
/// connection would keep as much as the longest reply that it ever got.
pub(crate) const KEPT_BYTES: usize = 64 << 10;

/// The bytes on their way to one client.
#[derive(Debug)]
pub(crate) struct Outbox {
    state: Mutex<State>,
    bytes_max: usize,
    together: Arc<Together>,
    /// Wakes the task of the connection: something was left to it, or the end has come.
    stuck: Notify,
    /// Wakes whoever waits for room or for the end.
    changed: Notify,
}

/// What waits in all outboxes together.
#[derive(Debug)]
pub(crate) struct Together {
    bytes: AtomicUsize,
    bytes_max: usize,
}

impl Together {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            bytes: AtomicUsize::new(0),
            bytes_max,
        }
    }

    /// How many bytes wait.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    fn is_full(&self) -> bool {
        self.bytes() > self.bytes_max
    }

    /// Counts what waits in one of them now, instead of what was counted before.
    fn count(&self, state: &mut State) {
        let bytes = state.len();
        if bytes >= state.counted {
            self.bytes.fetch_add(bytes - state.counted, Relaxed);
        } else {
            self.bytes.fetch_sub(state.counted - bytes, Relaxed);
        }
        state.counted = bytes;
    }
}

/// A place that was reserved.
#[derive(Debug)]
pub(crate) struct Place(u64);

#[derive(Debug)]
struct State {
    /// What may leave now.
    waiting: BytesMut,
    /// Whether more than [`KEPT_BYTES`] were in that buffer: it is given back when it is empty.
    is_large: bool,
    /// Reserved places in their order, and what waits behind each.
    places: VecDeque<Reserved>,
    /// The bytes in `places`.
    held_bytes: usize,
    /// How much of this is counted in [`Together`].
    counted: usize,
    next_place: u64,
    /// Shut down when it is dropped, at the end.
    socket: Option<Arc<WriteHalf>>,
    turn: Turn,
    ending: Ending,
}

#[derive(Debug)]
struct Reserved {
    number: u64,
    /// `None` until it is known.
    content: Option<BytesMut>,
    behind: BytesMut,
}

impl State {
    fn len(&self) -> usize {
        self.waiting.len() + self.held_bytes
    }

    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.places.is_empty()
    }

    /// Lets everything go that waits behind no place any more.
    fn advance(&mut self) {
        while let Some(first) = self.places.front_mut() {
            let Some(content) = first.content.take() else {
                break;
            };
            let behind = std::mem::take(&mut first.behind);
            self.held_bytes -= content.len() + behind.len();
            self.waiting.unsplit(content);
            self.waiting.unsplit(behind);
            self.places.pop_front();
        }
    }
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
    pub(crate) fn new(bytes_max: usize, together: Arc<Together>) -> Self {
        Self {
            together,
            state: Mutex::new(State {
                waiting: BytesMut::new(),
                is_large: false,
                places: VecDeque::new(),
                held_bytes: 0,
                counted: 0,
                next_place: 0,
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
        if self.is_full(&state) {
            return self.overflow(state);
        }
        let state = &mut *state;
        match state.places.back_mut() {
            None => write(&mut state.waiting),
            Some(last) => {
                let before = last.behind.len();
                write(&mut last.behind);
                state.held_bytes += last.behind.len() - before;
            }
        }
        self.together.count(state);
    }

    /// Reserves the place for something that is not known yet: everything that is pushed from now on waits behind it.
    /// Each place is to be [filled](Self::fill).
    pub(crate) fn reserve(&self) -> Place {
        let mut state = self.lock();
        let number = state.next_place;
        state.next_place += 1;
        if state.ending == Ending::Open {
            state.places.push_back(Reserved {
                number,
                content: None,
                behind: BytesMut::new(),
            });
        }
        Place(number)
    }

    /// Puts what `write` writes into a place. Like a push, it is followed by a flush.
    pub(crate) fn fill(&self, place: Place, write: impl FnOnce(&mut BytesMut)) {
        let mut state = self.lock();
        if self.is_full(&state) {
            return self.overflow(state);
        }
        let state = &mut *state;
        let mut places = state.places.iter_mut();
        // Gone if the connection is.
        let Some(reserved) = places.find(|one| one.number == place.0) else {
            return;
        };
        let mut content = BytesMut::new();
        write(&mut content);
        state.held_bytes += content.len();
        reserved.content = Some(content);
        state.advance();
        self.together.count(state);
    }

    /// Whether no more may wait: here, or in all outboxes, of which this one has its share.
    fn is_full(&self, state: &State) -> bool {
        state.len() > self.bytes_max || self.together.is_full() && state.len() > KEPT_BYTES
    }

    fn overflow(&self, state: MutexGuard<'_, State>) {
        drop(state);
        tracing::warn!(
            limit = self.bytes_max,
            "client does not read, connection closed"
        );
        self.close();
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
        state.is_large |= state.waiting.len() > KEPT_BYTES;
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
        if is_done && std::mem::take(&mut state.is_large) || state.ending == Ending::Now {
            state.waiting = BytesMut::new();
        }
        self.together.count(&mut state);
        state.turn = if is_done { Turn::Anyone } else { Turn::Task };
        // The task also waits for this turn to be over if the end has come meanwhile.
        if !is_done || state.ending != Ending::Open {
            self.stuck.notify_one();
        }
    }

    /// Takes all that waits. Whoever waits for room has it then.
    fn take(&self, state: &mut State) -> BytesMut {
        if state.len() > self.crowded_at() {
            self.changed.notify_waiters();
        }
        state.waiting.split()
    }

    /// Writes to `socket` from now on, and returns when the connection is to be closed: the work of
    /// its task, which does what nobody else can do without waiting.
    pub(crate) async fn write_to(&self, socket: WriteHalf) {
        let socket = Arc::new(socket);
        self.lock().socket = Some(socket.clone());
        loop {
            self.flush();
            let (turn, ending, is_empty) = {
                let state = self.lock();
                (state.turn, state.ending, state.is_empty())
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
            state.waiting = BytesMut::new();
            state.places.clear();
            state.held_bytes = 0;
            self.together.count(&mut state);
        }
        drop(state);
        self.stuck.notify_one();
        self.changed.notify_waiters();
    }

    /// Whether something can still be sent.
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

    /// Resolves when the connection is to end at once.
    async fn closed(&self) {
        self.until(|state| state.ending == Ending::Now).await;
    }

    /// Whether so much waits already that no more should be asked for.
    pub(crate) fn is_crowded(&self) -> bool {
        self.lock().len() > self.crowded_at()
    }

    /// How many bytes may wait before no more should be asked for.
    pub(crate) fn crowded_at(&self) -> usize {
        self.bytes_max / 2
    }

    /// How many bytes wait.
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Resolves when there is room for more replies, or the connection is ending.
    pub(crate) async fn room(&self) {
        let crowded_at = self.crowded_at();
        self.until(|state| state.ending != Ending::Open || state.len() <= crowded_at)
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

    fn outbox(bytes_max: usize) -> Outbox {
        Outbox::new(bytes_max, Arc::new(Together::new(usize::MAX)))
    }

    fn put(outbox: &Outbox, text: &str) {
        outbox.push(|bytes| bytes.extend_from_slice(text.as_bytes()));
    }

    /// Both ends of a connection.
    async fn pair() -> (WriteHalf, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let (client, server) = tokio::join!(client, listener.accept());
        let (_, socket) = server.unwrap().0.into_split();
        (WriteHalf::Tcp(socket), client.unwrap())
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
        let outbox = outbox(100);
        put(&outbox, "one ");
        put(&outbox, "two");
        outbox.finish();
        put(&outbox, "too late");
        assert_eq!(read_all(&outbox).await, b"one two");
    }

    /// The client reads slowly, so that the last bytes are few.
    #[tokio::test]
    async fn a_large_buffer_is_given_back_when_it_is_empty() {
        let outbox = Arc::new(outbox(usize::MAX));
        let (socket, mut client) = pair().await;
        let task = tokio::spawn({
            let outbox = outbox.clone();
            async move { outbox.write_to(socket).await }
        });
        for bytes in [20 << 20, 100] {
            outbox.push(|out| out.extend_from_slice(&vec![b'x'; bytes]));
            outbox.flush();
            let mut read = vec![0; bytes];
            timeout(LIMIT, client.read_exact(&mut read))
                .await
                .unwrap()
                .unwrap();
        }
        outbox.push(|out| {
            let kept = out.capacity();
            assert!(kept <= KEPT_BYTES, "{kept} bytes kept");
        });
        outbox.finish();
        timeout(LIMIT, task).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_is_cut_off() {
        let outbox = outbox(2);
        put(&outbox, "long");
        assert!(outbox.is_open(), "one reply of any size has its place");
        put(&outbox, "more");
        assert!(!outbox.is_open());
        assert_eq!(read_all(&outbox).await, b"");
    }

    #[tokio::test]
    async fn what_is_pushed_behind_a_reserved_place_waits_for_it() {
        let outbox = outbox(100);
        put(&outbox, "one ");
        let two = outbox.reserve();
        put(&outbox, "three ");
        let four = outbox.reserve();
        put(&outbox, "five");
        outbox.finish();
        assert_eq!(outbox.len(), "one three five".len());
        outbox.fill(four, |bytes| bytes.extend_from_slice(b"four "));
        let ending = async {
            outbox.fill(two, |bytes| bytes.extend_from_slice(b"two "));
            outbox.flush();
        };
        let (read, ()) = tokio::join!(read_all(&outbox), ending);
        assert_eq!(read, b"one two three four five");
        assert_eq!(outbox.len(), 0);
    }

    #[test]
    fn when_all_have_too_much_the_large_ones_are_closed() {
        let together = Arc::new(Together::new(100 << 10));
        let [large, small] = [(); 2].map(|()| Outbox::new(usize::MAX, together.clone()));
        let text = "x".repeat(90 << 10);
        put(&small, "small");
        put(&large, &text);
        put(&large, &text);
        assert_eq!(together.bytes(), 2 * text.len() + 5);
        put(&small, "small");
        assert!(
            small.is_open() && large.is_open(),
            "one reply of any size has its place"
        );
        put(&large, "more");
        assert!(small.is_open() && !large.is_open());
        assert_eq!(together.bytes(), 10);
        small.close();
        assert_eq!(together.bytes(), 0);
    }

    #[tokio::test]
    async fn a_place_in_a_closed_outbox_is_filled_to_no_effect() {
        let outbox = outbox(100);
        let place = outbox.reserve();
        put(&outbox, "behind");
        outbox.close();
        outbox.fill(place, |_| panic!("nobody reads it"));
        assert_eq!(outbox.len(), 0);
        assert_eq!(read_all(&outbox).await, b"");
    }

    /// Threads flush while the socket is full again and again: nothing is lost, and each finds its own
    /// numbers in order.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn many_threads_write_in_order_through_a_full_socket() {
        const THREADS: u8 = 4;
        const EACH: u32 = 2000;
        let outbox = Arc::new(outbox(usize::MAX));
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
