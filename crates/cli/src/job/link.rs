//! The messages between front and keeper, and between keeper and job.
//!
//! They use a socket pair, one end of which is the stdin of the child: without unsafe code, a child can only use the standard descriptors by
//! number. The first message carries the real stdin, and for the keeper a file in memory in which the keeper writes until when the job may run. It is
//! not sent as a message, which could be delayed behind others. Each side notices the death of the other process by the end of the
//! socket. Messages arrive whole or not at all.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
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

/// Messages of the front to the keeper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Pass a signal on to the job, or give up waiting if there is no job yet.
    Signal(Signal),
    /// The front died, and the job must not survive it.
    FrontGone,
}

/// Messages of the keeper to the front.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    /// The job was started, with this process group.
    Started(Pid),
    /// The job was stopped from the terminal.
    Stopped,
}

/// The time since boot, including suspend.
pub(crate) fn since_boot() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::try_from(time).expect("no time is before boot")
}

/// The front's end.
#[derive(Debug)]
pub(crate) struct ToKeeper {
    socket: UnixStream,
    held_until: OwnedFd,
}

impl ToKeeper {
    /// Makes a link, and returns its other end, to become the keeper's stdin. The keeper receives the real `stdin` through it.
    pub(crate) fn carrying(stdin: impl AsFd) -> io::Result<(Self, OwnedFd)> {
        let held_until = memfd_create("held-until", MemfdFlags::CLOEXEC)?;
        let (here, there) = carrying(&[stdin.as_fd(), held_until.as_fd()])?;
        let socket = socket(here)?;
        Ok((Self { socket, held_until }, there))
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let number = u8::try_from(signal.as_raw()).expect("signals have small numbers");
        send_now(&self.socket, &[number]);
    }

    /// Until when the job may run, in time since boot; `None` if there is no job.
    pub(crate) fn held_until(&self) -> io::Result<Option<Duration>> {
        let mut time = [0; 8];
        let count = pread(&self.held_until, &mut time, 0)?;
        let time = u64::from_ne_bytes(time);
        Ok((count == 8 && time > 0).then(|| Duration::from_nanos(time)))
    }

    /// The next message; `None` if the keeper has ended. Cancel safe.
    pub(crate) async fn news(&self) -> io::Result<Option<News>> {
        let mut message = [0; NEWS_BYTES];
        match receive(&self.socket, &mut message).await? {
            0 => Ok(None),
            _ => Ok(Some(decode(message))),
        }
    }
}

/// The keeper's end.
#[derive(Debug)]
pub(crate) struct ToFront {
    socket: UnixStream,
    held_until: OwnedFd,
}

impl ToFront {
    /// Takes the link from stdin, and restores the real stdin.
    pub(crate) fn from_stdin() -> io::Result<Self> {
        let (link, held_until) = from_stdin()?;
        let held_until = held_until.ok_or(io::ErrorKind::InvalidData)?;
        let socket = socket(link)?;
        Ok(Self { socket, held_until })
    }

    /// Sets until when the job may run, in time since boot; `None` if there is no job.
    pub(crate) fn hold_until(&self, time: Option<Duration>) -> io::Result<()> {
        // It overflows only centuries after boot.
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

/// The keeper's end of the link to a process that is about to execute the job. It is closed when it does.
#[derive(Debug)]
pub(crate) struct ToJob(OwnedFd);

impl ToJob {
    /// As [`ToKeeper::carrying`].
    pub(crate) fn carrying(stdin: impl AsFd) -> io::Result<(Self, OwnedFd)> {
        let (here, there) = carrying(&[stdin.as_fd()])?;
        Ok((Self(here), there))
    }

    /// Whether a process that has ended could not execute the job.
    pub(crate) fn has_failed(&self) -> bool {
        let message = recv(&self.0, &mut [0], RecvFlags::DONTWAIT);
        message.is_ok_and(|(count, _)| count > 0)
    }
}

/// The other end, in the process that is about to execute the job.
#[derive(Debug)]
pub(crate) struct FromKeeper(OwnedFd);

impl FromKeeper {
    /// Takes the link from stdin, and restores the real stdin.
    pub(crate) fn from_stdin() -> io::Result<Self> {
        Ok(Self(from_stdin()?.0))
    }

    /// Reports that the job cannot be executed. A keeper that is gone need not know.
    pub(crate) fn tell_failure(&self) {
        let _ = send(&self.0, b"0", SendFlags::NOSIGNAL);
    }
}

/// A socket pair, one end of which has a message with these descriptors, two at most.
fn carrying(descriptors: &[BorrowedFd<'_>]) -> io::Result<(OwnedFd, OwnedFd)> {
    let (here, there) = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fits = ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    assert!(fits, "there is space for two descriptors");
    let message = [IoSlice::new(b"0")];
    sendmsg(&here, &message, &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok((here, there))
}

/// Takes a socket from stdin, receives the real stdin through it and restores it. Returns the socket, and the second descriptor if
/// there is one.
fn from_stdin() -> io::Result<(OwnedFd, Option<OwnedFd>)> {
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
    let stdin = received.next().ok_or(io::ErrorKind::InvalidData)?;
    rustix::stdio::dup2_stdin(stdin)?;
    Ok((link, received.next()))
}

/// The process group of the job, or 0 for a stop.
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

/// Registers a socket with tokio. Its stream type also works for other sockets if it is only used to wait.
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

/// Sends a message, or drops it if the other end does not read. The receiver can do without it, and a dead peer is noticed when reading.
fn send_now(socket: &UnixStream, message: &[u8]) {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    if let Err(error) = send(socket, message, flags) {
        tracing::debug!(%error, "the other process does not read");
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
