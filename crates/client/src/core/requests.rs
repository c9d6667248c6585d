//! Requests that wait for an answer, in the order in which they were made.

use std::collections::VecDeque;

use bellwether_wire::op::Op;
use bytes::{Bytes, BytesMut};
use tokio::sync::oneshot;

use crate::clock::Moment;
use crate::core::watches::Arming;
use crate::error::Error;

/// The body of a successful reply, or why there is none.
pub(crate) type Answer = Result<Bytes, Error>;

/// What to do with an answer.
#[derive(Debug)]
pub(crate) enum Slot {
    /// A caller waits for it.
    Caller(oneshot::Sender<Answer>),
    /// The client sent the request for itself, to remove a watch.
    Nobody,
    /// The client armed watches again.
    Rearmed,
    /// It is the end of the session.
    Close,
}

/// A request without an answer.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) xid: i32,
    pub(crate) op: Op,
    /// When it was handed to the connection, or made, as long as there is none.
    pub(crate) sent: Moment,
    /// Where its frame ends in the bytes of the connection.
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
    on_connection: VecDeque<Pending>,
    waiting: VecDeque<(Pending, BytesMut)>,
    waiting_bytes: usize,
}

impl Requests {
    /// The number of the next request: positive, and for ever new as far as one connection can tell.
    pub(crate) fn next_xid(&mut self) -> i32 {
        self.last_xid = match self.last_xid {
            i32::MAX => 1,
            xid => xid + 1,
        };
        self.last_xid
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

    /// The oldest request on the connection, which the next reply belongs to.
    pub(crate) fn oldest(&self) -> Option<&Pending> {
        self.on_connection.front()
    }

    pub(crate) fn oldest_waiting(&self) -> Option<&Pending> {
        self.waiting.front().map(|(pending, _)| pending)
    }

    /// Takes the oldest request if its number is `xid`. Servers answer in order, so any other number is a broken connection.
    pub(crate) fn answer(&mut self, xid: i32) -> Option<Pending> {
        self.on_connection.pop_front_if(|oldest| oldest.xid == xid)
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
