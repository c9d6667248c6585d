//! What front and keeper say to each other.
//!
//! A socket pair, whose one end is the keeper's stdin: the standard descriptors are the only ones that a child can
//! take up by number without unsafe code. The first message carries the real stdin, and a file in memory by which the
//! keeper tells how long the job may run: in messages, that might wait unread, behind others or for room. Either end
//! sees that the other process has died by the end of the socket. Each message comes whole or not at all.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{pread, pwrite};
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
    /// The job was stopped from the terminal.
    Stopped,
}

/// The time since the machine was started, sleep included.
pub(crate) fn since_boot() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::try_from(time).expect("no time is before boot")
}

/// The end of the front.
#[derive(Debug)]
pub(crate) struct ToKeeper {
    socket: UnixStream,
    held_until: OwnedFd,
}

impl ToKeeper {
    /// A link whose other end, to be the keeper's stdin, has a descriptor to be its stdin afterwards.
    pub(crate) fn carrying(stdin: impl AsFd) -> io::Result<(Self, OwnedFd)> {
        let (here, there) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        let held_until = memfd_create("held-until", MemfdFlags::CLOEXEC)?;
        let descriptors = [stdin.as_fd(), held_until.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let fits = ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        assert!(fits, "there is space for two descriptors");
        let message = [IoSlice::new(b"0")];
        sendmsg(&here, &message, &mut ancillary, SendFlags::NOSIGNAL)?;
        let socket = socket(here)?;
        Ok((Self { socket, held_until }, there))
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let number = u8::try_from(signal.as_raw()).expect("signals have small numbers");
        send_now(&self.socket, &[number]);
    }

    /// Until when the job may run, in time since boot; `None` if there is none.
    pub(crate) fn held_until(&self) -> io::Result<Option<Duration>> {
        let mut time = [0; 8];
        let count = pread(&self.held_until, &mut time, 0)?;
        let time = u64::from_ne_bytes(time);
        Ok((count == 8 && time > 0).then(|| Duration::from_nanos(time)))
    }

    /// The next news; `None` if the keeper is gone. Cancel safe.
    pub(crate) async fn news(&self) -> io::Result<Option<News>> {
        let mut message = [0; NEWS_BYTES];
        match receive(&self.socket, &mut message).await? {
            0 => Ok(None),
            _ => Ok(Some(decode(message))),
        }
    }
}

/// The end of the keeper.
#[derive(Debug)]
pub(crate) struct ToFront {
    socket: UnixStream,
    held_until: OwnedFd,
}

impl ToFront {
    /// Takes the link from stdin, and puts the real stdin in its place.
    pub(crate) fn from_stdin() -> io::Result<Self> {
        let link = rustix::stdio::stdin().try_clone_to_owned()?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let mut message = [IoSliceMut::new(&mut byte)];
        recvmsg(&link, &mut message, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
        let mut received = ancillary.drain().flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect(),
            _ => Vec::new(),
        });
        let (Some(stdin), Some(held_until)) = (received.next(), received.next()) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        rustix::stdio::dup2_stdin(stdin)?;
        let socket = socket(link)?;
        Ok(Self { socket, held_until })
    }

    /// Tells until when the job may run, in time since boot; `None` if there is none.
    pub(crate) fn hold_until(&self, time: Option<Duration>) -> io::Result<()> {
        // It overflows centuries after boot.
        let time = time.map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        pwrite(&self.held_until, &time.to_ne_bytes(), 0)?;
        Ok(())
    }

    pub(crate) fn tell(&self, news: News) {
        send_now(&self.socket, &encode(news));
    }

    /// The next order. Cancel safe.
    pub(crate) async fn order(&self) -> Order {
        let mut number = [0];
        match receive(&self.socket, &mut number).await {
            Ok(1..) => {
                Signal::from_named_raw(number[0].into()).map_or(Order::FrontGone, Order::Signal)
            }
            Ok(0) | Err(_) => Order::FrontGone,
        }
    }
}

/// The number of the group, or 0 for a stop.
const NEWS_BYTES: usize = 4;

fn encode(news: News) -> [u8; NEWS_BYTES] {
    match news {
        News::Started(group) => group.as_raw_pid().to_ne_bytes(),
        News::Stopped => [0; NEWS_BYTES],
    }
}

fn decode(message: [u8; NEWS_BYTES]) -> News {
    match Pid::from_raw(i32::from_ne_bytes(message)) {
        Some(group) => News::Started(group),
        None => News::Stopped,
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
        for news in [News::Started(Pid::from_raw(4711).unwrap()), News::Stopped] {
            assert_eq!(decode(encode(news)), news);
        }
    }
}
