//! What front and keeper say to each other.
//!
//! A socket pair, whose one end is the keeper's stdin: the standard descriptors are the only ones that a child can
//! take up by number without unsafe code. The first message carries the real stdin. Either end sees that the other
//! process has died by the end of the socket. Each message comes whole or not at all.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv, recvmsg, send, sendmsg,
    socketpair,
};
use rustix::process::{Pid, Signal};
use rustix::time::{ClockId, clock_gettime};
use tokio::io::Interest;
use tokio::net::UnixStream;

/// What the front asks of the keeper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// To pass a signal on to the job, or to give up if there is none yet.
    Signal(Signal),
    /// The front has died, and the job must not outlive it.
    FrontGone,
}

/// What the keeper tells the front.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    /// The job has been started, with this process group.
    Started(Pid),
    /// The job may run until then, in time since boot.
    HeldUntil(Duration),
    /// The job was stopped from the terminal.
    Stopped,
    /// The job has ended, and time does not matter any more.
    Ended,
}

/// The time since the machine was started, sleep included.
pub(crate) fn since_boot() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::try_from(time).expect("no time is before boot")
}

/// The end of the front.
#[derive(Debug)]
pub(crate) struct ToKeeper(UnixStream);

impl ToKeeper {
    /// A link whose other end, to be the keeper's stdin, has a descriptor to be its stdin afterwards.
    pub(crate) fn carrying(stdin: impl AsFd) -> io::Result<(Self, OwnedFd)> {
        let (here, there) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        let descriptors = [stdin.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let fits = ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        assert!(fits, "there is space for one descriptor");
        let message = [IoSlice::new(b"0")];
        sendmsg(&here, &message, &mut ancillary, SendFlags::NOSIGNAL)?;
        Ok((Self(socket(here)?), there))
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let number = u8::try_from(signal.as_raw()).expect("signals have small numbers");
        send_now(&self.0, &[number]);
    }

    /// The next news; `None` if the keeper is gone. Cancel safe.
    pub(crate) async fn news(&self) -> io::Result<Option<News>> {
        let mut message = [0; NEWS_BYTES];
        match receive(&self.0, &mut message).await? {
            0 => Ok(None),
            _ => decode(message).map(Some),
        }
    }
}

/// The end of the keeper.
#[derive(Debug)]
pub(crate) struct ToFront(UnixStream);

impl ToFront {
    /// Takes the link from stdin, and puts the real stdin in its place.
    pub(crate) fn from_stdin() -> io::Result<Self> {
        let link = rustix::stdio::stdin().try_clone_to_owned()?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let mut message = [IoSliceMut::new(&mut byte)];
        recvmsg(&link, &mut message, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
        let mut received = ancillary.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        let stdin = received.next().ok_or(io::ErrorKind::InvalidData)?;
        rustix::stdio::dup2_stdin(stdin)?;
        Ok(Self(socket(link)?))
    }

    pub(crate) fn tell(&self, news: News) {
        send_now(&self.0, &encode(news));
    }

    /// The next order. Cancel safe.
    pub(crate) async fn order(&self) -> Order {
        let mut number = [0];
        match receive(&self.0, &mut number).await {
            Ok(1..) => {
                Signal::from_named_raw(number[0].into()).map_or(Order::FrontGone, Order::Signal)
            }
            Ok(0) | Err(_) => Order::FrontGone,
        }
    }
}

/// A kind, and a number.
const NEWS_BYTES: usize = 9;

fn encode(news: News) -> [u8; NEWS_BYTES] {
    let (kind, number) = match news {
        News::Started(group) => (b'g', u64::from(group.as_raw_pid().cast_unsigned())),
        // Centuries after boot.
        News::HeldUntil(time) => (b'h', u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)),
        News::Stopped => (b's', 0),
        News::Ended => (b'e', 0),
    };
    let mut message = [kind; NEWS_BYTES];
    message[1..].copy_from_slice(&number.to_ne_bytes());
    message
}

fn decode(message: [u8; NEWS_BYTES]) -> io::Result<News> {
    let [kind, number @ ..] = message;
    let number = u64::from_ne_bytes(number);
    match kind {
        b'g' => {
            let group = i32::try_from(number).ok().and_then(Pid::from_raw);
            group
                .map(News::Started)
                .ok_or(io::ErrorKind::InvalidData.into())
        }
        b'h' => Ok(News::HeldUntil(Duration::from_nanos(number))),
        b's' => Ok(News::Stopped),
        b'e' => Ok(News::Ended),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Lets tokio wait for a socket. Its type for streams serves others as well, as long as it only waits.
fn socket(socket: OwnedFd) -> io::Result<UnixStream> {
    let socket = std::os::unix::net::UnixStream::from(socket);
    socket.set_nonblocking(true)?;
    UnixStream::from_std(socket)
}

async fn receive(socket: &UnixStream, message: &mut [u8]) -> io::Result<usize> {
    let read = socket.async_io(Interest::READABLE, || {
        Ok(recv(socket, &mut *message, RecvFlags::DONTWAIT)?.0)
    });
    match read.await {
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(0),
        read => read,
    }
}

/// Sends, or loses the message if the other end does not listen: the reader of the next one is none the worse, and one
/// that is dead is noticed when reading.
fn send_now(socket: &UnixStream, message: &[u8]) {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    if let Err(error) = send(socket, message, flags) {
        tracing::debug!(%error, "the other process does not listen");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_come_out_as_they_went_in() {
        for news in [
            News::Started(Pid::from_raw(4711).unwrap()),
            News::HeldUntil(Duration::new(86_400, 17)),
            News::Stopped,
            News::Ended,
        ] {
            assert_eq!(decode(encode(news)).unwrap(), news);
        }
    }
}
