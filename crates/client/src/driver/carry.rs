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

/// Room for replies that is kept between them.
const INPUT_BYTES: usize = 4 * 1024;
/// The most that is read at once, and so the most that a large reply makes the buffer grow by.
const READ_BYTES_MAX: usize = 256 * 1024;

/// Why a connection is over.
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

/// Carries the session until its connection is lost, which is the only way out.
pub(super) async fn carry(
    shared: &Shared,
    mut reader: impl AsyncRead + Unpin,
    mut input: BytesMut,
    reply_bytes_max: usize,
) -> Lost {
    let timer = sleep_until(Instant::now());
    tokio::pin!(timer);
    let mut is_writing = false;
    // What came behind the handshake.
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
            () = shared.wake.notified() => {
                is_writing = true;
                // What woke this may also ask for pings more often.
                timer.as_mut().reset(Instant::now());
                match shared.look(|session| session.end()) {
                    Some(_) => Err(Broken::Ended.into()),
                    None => Ok(()),
                }
            }
            written = poll_fn(|cx| shared.poll_write(cx)), if is_writing => {
                is_writing = false;
                written.map_err(Lost::from)
            }
            read = read_some(&mut reader, &mut input) => match read {
                Ok(0) => Err(Lost::Closed),
                Ok(_) => take_frames(shared, &mut input, reply_bytes_max),
                Err(error) => Err(error.into()),
            },
        };
        if let Err(lost) = step {
            return lost;
        }
    }
}

/// Reads what is there, with room for what is announced.
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
                Ok(None) => return Ok(()),
                Err(frame::BadLength(length)) => return Err(Lost::TooLarge(length)),
            }
        }
    });
    if input.is_empty() && input.capacity() > 16 * INPUT_BYTES {
        // Replies share their memory with the buffer that they came in: a large one would keep it alive.
        *input = BytesMut::new();
    }
    result
}
