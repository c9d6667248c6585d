//! Requests that wait for an answer, in the order in which they were made.

use std::collections::VecDeque;

use bellwether_wire::op::Op;
use bytes::{Bytes, BytesMut};
use tokio::sync::oneshot;

use crate::clock::Moment;
use crate::core::watches::Arming;
use crate::error::Error;

/// The body of a successful reply, or the error.
pub(crate) type Answer = Result<Bytes, Error>;

/// The purpose of a request, which decides what happens to its answer.
#[derive(Debug)]
pub(crate) enum Slot {
    /// A caller waits for it.
    Caller(oneshot::Sender<Answer>),
    /// The client itself sent the request, to remove a watch.
    Nobody,
    /// The client armed watches again.
    Rearmed,
    /// It ends the session.
    Close,
}

/// A request without an answer.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) xid: i32,
    pub(crate) op: Op,
    /// When it was handed to the connection, or when it was made while there is no connection.
    pub(crate) sent: Moment,
    /// The offset of the end of its frame in the byte stream of the connection.
    pub(crate) end: u64,
    pub(crate) slot: Slot,
    pub(crate) arming: Option<Arming>,
    /// The path whose watches it removes for the caller.
    pub(crate) removes: Option<String>,
}

/// The requests of a session: those on the connection, and those that wait for one.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    last_xid: i32,
    /// The number of requests that callers have made.
    made: u64,
    on_connection: VecDeque<Pending>,
    waiting: VecDeque<(Pending, BytesMut)>,
    waiting_bytes: usize,
}

impl Requests {
    /// The number of the next request: positive, and unique within a connection.
    pub(crate) fn next_xid(&mut self) -> i32 {
        self.last_xid = match self.last_xid {
            i32::MAX => 1,
            xid => xid + 1,
        };
        self.last_xid
    }

    /// Counts a request of a caller.
    pub(crate) fn count(&mut self) {
        self.made += 1;
    }

    pub(crate) fn made(&self) -> u64 {
        self.made
    }

    pub(crate) fn len(&self) -> usize {
        self.on_connection.len() + self.waiting.len()
    }

    pub(crate) fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    pub(crate) fn push(&mut self, pending: Pending) {
        self.on_connection.push_back(pending);
    }

    pub(crate) fn push_waiting(&mut self, pending: Pending, frame: BytesMut) {
        self.waiting_bytes += frame.len();
        self.waiting.push_back((pending, frame));
    }

    /// The oldest request on the connection, to which the next reply belongs.
    pub(crate) fn oldest(&self) -> Option<&Pending> {
        self.on_connection.front()
    }

    pub(crate) fn oldest_waiting(&self) -> Option<&Pending> {
        self.waiting.front().map(|(pending, _)| pending)
    }

    /// Takes the oldest request if its number is `xid`. Servers answer in order, so any other number means that the connection is broken.
    pub(crate) fn answer(&mut self, xid: i32) -> Option<Pending> {
        self.on_connection.pop_front_if(|oldest| oldest.xid == xid)
    }

    /// Takes the request with this number.
    pub(crate) fn take(&mut self, xid: i32) -> Option<Pending> {
        let place = self.on_connection.iter().position(|one| one.xid == xid)?;
        self.on_connection.remove(place)
    }

    pub(crate) fn next_waiting(&mut self) -> Option<(Pending, BytesMut)> {
        let next = self.waiting.pop_front();
        if let Some((_, frame)) = &next {
            self.waiting_bytes -= frame.len();
        }
        next
    }

    /// Takes everything off the connection, oldest first.
    pub(crate) fn disconnect(&mut self) -> VecDeque<Pending> {
        std::mem::take(&mut self.on_connection)
    }
}
