//! A session on an established connection.

use std::future::poll_fn;
use std::io;

use bellwether_wire::frame;
use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::time::{Instant, sleep_until};

use crate::clock::Moment;
use crate::core::session::Broken;
use crate::driver::shared::Shared;
use crate::environment::yield_now;

/// The capacity of the input buffer that is kept between replies.
const INPUT_BYTES: usize = 4 * 1024;
/// The most bytes that one read takes, and so the most by which a large reply grows the buffer.
const READ_BYTES_MAX: usize = 256 * 1024;
/// How much is read before other sessions on the same thread have their turn: one with much to read has no power over their heartbeats.
const TURN_BYTES_MAX: usize = 256 * 1024;

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum Lost {
    #[error(transparent)]
    Broken(#[from] Broken),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("a reply of {0} bytes is larger than the limit")]
    TooLarge(i32),
    #[error("the server closed the connection")]
    Closed,
}

/// Carries the session until its connection is lost.
pub(super) async fn carry(
    shared: &Shared,
    mut reader: impl AsyncRead + Unpin,
    mut input: BytesMut,
    reply_bytes_max: usize,
) -> Lost {
    let timer = sleep_until(Instant::now());
    tokio::pin!(timer);
    let mut is_writing = false;
    let mut turn_bytes = 0;
    // Bytes that arrived after the handshake.
    if let Err(lost) = take_frames(shared, &mut input, reply_bytes_max) {
        return lost;
    }
    loop {
        let step: Result<(), Lost> = tokio::select! {
            biased;
            () = &mut timer => {
                match shared.tick() {
                    Ok(next) => {
                        timer.as_mut().reset(Instant::now() + next);
                        Ok(())
                    }
                    Err(broken) => Err(broken.into()),
                }
            }
            // Before the wake-up: what a tick cannot write wakes this up again, and the two would never come to the error.
            written = poll_fn(|cx| shared.poll_write(cx)), if is_writing => {
                is_writing = false;
                written.map_err(Lost::from)
            }
            () = shared.wake.notified() => {
                is_writing = true;
                // The wake-up may also be a request for more frequent pings.
                timer.as_mut().reset(Instant::now());
                match shared.look(|session| session.end()) {
                    Some(_) => Err(Broken::Ended.into()),
                    None => Ok(()),
                }
            }
            read = read_some(&mut reader, &mut input) => match read {
                Ok(0) => Err(Lost::Closed),
                Ok(bytes) => {
                    turn_bytes += bytes;
                    take_frames(shared, &mut input, reply_bytes_max)
                }
                Err(error) => Err(error.into()),
            },
        };
        if let Err(lost) = step {
            return lost;
        }
        if turn_bytes >= TURN_BYTES_MAX {
            turn_bytes = 0;
            // Sockets and timers of all sessions come first.
            yield_now().await;
        }
    }
}

/// Reads available bytes, with capacity for the announced frame.
async fn read_some(
    reader: &mut (impl AsyncRead + Unpin),
    input: &mut BytesMut,
) -> io::Result<usize> {
    let announced = match input.first_chunk::<4>() {
        Some(prefix) => usize::try_from(i32::from_be_bytes(*prefix)).unwrap_or_default() + 4,
        None => 0,
    };
    let missing = announced.saturating_sub(input.len());
    input.reserve(missing.clamp(INPUT_BYTES, READ_BYTES_MAX));
    reader.read_buf(input).await
}

fn take_frames(shared: &Shared, input: &mut BytesMut, reply_bytes_max: usize) -> Result<(), Lost> {
    let result = shared.with(|session| {
        let now = Moment::now();
        loop {
            match frame::take(input, reply_bytes_max) {
                Ok(Some(frame)) => session.frame(now, &frame)?,
                Ok(None) => {
                    if !input.is_empty() {
                        session.heard_part(now);
                    }
                    return Ok(());
                }
                Err(frame::BadLength(length)) => return Err(Lost::TooLarge(length)),
            }
        }
    });
    if input.is_empty() && input.capacity() > 16 * INPUT_BYTES {
        // Replies share memory with the input buffer: a large one would keep it alive.
        *input = BytesMut::new();
    }
    result
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::pin::Pin;
    use std::rc::Rc;
    use std::task::{Context, Poll};
    use std::time::Duration;

    use bellwether_wire::connect::ConnectReply;
    use tokio::io::{AsyncWrite, ReadBuf};
    use tokio::task::LocalSet;

    use super::*;
    use crate::core::session::Session;
    use crate::options::session::{Credential, Limits};

    /// A server that always has something to say, until it closes the connection.
    struct Talkative {
        left: usize,
        read: Rc<Cell<usize>>,
    }

    impl AsyncRead for Talkative {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            // Answers to pings, whole ones only.
            let mut frame = 16i32.to_be_bytes().to_vec();
            frame.extend((-2i32).to_be_bytes());
            frame.extend([0; 12]);
            while self.left > 0 && buf.remaining() >= frame.len() {
                buf.put_slice(&frame);
                self.left -= 1;
                self.read.set(self.read.get() + frame.len());
            }
            Poll::Ready(Ok(()))
        }
    }

    /// A connection whose writes fail, and that never has anything to say.
    #[derive(Default)]
    struct Unwritable {
        writes: usize,
    }

    impl AsyncWrite for Unwritable {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.writes += 1;
            assert!(self.writes < 100, "the driver spins");
            Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncRead for Unwritable {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    /// On a clock that stands still while the driver runs, a timer that is set to now is due at once.
    #[tokio::test(start_paused = true)]
    async fn failing_write_ends_the_connection() {
        let now = Moment::now();
        let timeout = Duration::from_secs(10);
        let credentials = vec![Credential::new("digest", "name:password")];
        let mut session = Session::new(now, timeout, None, credentials, Limits::default());
        let granted = ConnectReply {
            timeout_ms: 10_000,
            session_id: 7,
            password: [0; 16],
        };
        session.connected(now, now, granted).unwrap();
        let shared = Shared::new(session);
        shared.attach(Box::new(Unwritable::default()));
        let lost = carry(&shared, Unwritable::default(), BytesMut::new(), 1 << 20).await;
        assert!(matches!(lost, Lost::Io(_)), "{lost:?}");
    }

    #[tokio::test]
    async fn session_with_much_to_read_leaves_room_for_others() {
        let timeout = Duration::from_secs(10);
        let session = Session::new(Moment::now(), timeout, None, Vec::new(), Limits::default());
        let shared = Shared::new(session);
        let read = Rc::new(Cell::new(0));
        let talkative = Talkative {
            left: 100_000,
            read: read.clone(),
        };
        let carried = LocalSet::new();
        let (longest, total) = carried
            .run_until(async {
                let carrying = tokio::task::spawn_local(async move {
                    carry(&shared, talkative, BytesMut::new(), 1 << 20).await
                });
                let (mut longest, mut last) = (0, 0);
                while !carrying.is_finished() {
                    yield_now().await;
                    longest = longest.max(read.get() - last);
                    last = read.get();
                }
                assert!(matches!(carrying.await.unwrap(), Lost::Closed));
                (longest, last)
            })
            .await;
        assert_eq!(total, 100_000 * 20);
        assert!(
            longest <= 2 * TURN_BYTES_MAX,
            "{longest} bytes without a pause"
        );
    }
}
