//! Bytes in the order in which a client must receive them, with reserved places for replies still being computed.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use super::pieces::{Piece, Pieces};

/// A reserved place.
#[derive(Debug)]
pub(crate) struct Place(u64);

impl Place {
    /// No place: a reply put there is dropped.
    pub(super) const NOWHERE: Self = Self(u64::MAX);
}

/// Content of one outbox.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// Bytes that may be sent now.
    ready: Pieces,
    /// Reserved places in order, each with the bytes that wait behind it.
    places: VecDeque<Reserved>,
    /// Total bytes in `places`.
    held_bytes: usize,
    /// Those of them that no other client shares.
    held_own_bytes: usize,
    next_place: u64,
}

#[derive(Debug)]
struct Reserved {
    number: u64,
    /// `None` until it is filled.
    content: Option<BytesMut>,
    behind: Pieces,
}

impl Waiting {
    /// Number of bytes, including those behind a reserved place.
    pub(super) fn len(&self) -> usize {
        self.ready.len() + self.held_bytes
    }

    /// Number of those bytes that no other client shares.
    pub(super) fn own_len(&self) -> usize {
        self.ready.own_len() + self.held_own_bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.places.is_empty()
    }

    /// Whether some bytes may be sent now.
    pub(super) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Appends what `write` writes.
    pub(super) fn push(&mut self, write: impl FnOnce(&mut BytesMut)) {
        match self.places.back_mut() {
            None => self.ready.push(write),
            Some(last) => {
                let before = last.behind.len();
                last.behind.push(write);
                let more = last.behind.len() - before;
                self.held_bytes += more;
                self.held_own_bytes += more;
            }
        }
    }

    /// Appends bytes that other clients receive as well.
    pub(super) fn push_shared(&mut self, bytes: Bytes) {
        match self.places.back_mut() {
            None => self.ready.push_shared(bytes),
            Some(last) => {
                self.held_bytes += bytes.len();
                last.behind.push_shared(bytes);
            }
        }
    }

    /// Reserves a place: all bytes pushed later wait behind it.
    pub(super) fn reserve(&mut self) -> Place {
        let number = self.next_place;
        self.next_place += 1;
        self.places.push_back(Reserved {
            number,
            content: None,
            behind: Pieces::default(),
        });
        Place(number)
    }

    /// Fills a place with `content`. Does nothing if the place was cleared.
    pub(super) fn fill(&mut self, place: Place, content: BytesMut) {
        let mut places = self.places.iter_mut();
        let Some(reserved) = places.find(|one| one.number == place.0) else {
            return;
        };
        self.held_bytes += content.len();
        self.held_own_bytes += content.len();
        reserved.content = Some(content);
        self.advance();
    }

    /// Moves bytes that no longer wait behind an unfilled place to `ready`.
    fn advance(&mut self) {
        while let Some(first) = self.places.front_mut() {
            let Some(content) = first.content.take() else {
                break;
            };
            let behind = std::mem::take(&mut first.behind);
            self.held_bytes -= content.len() + behind.len();
            self.held_own_bytes -= content.len() + behind.own_len();
            self.ready.unsplit(content);
            self.ready.append(behind);
            self.places.pop_front();
        }
    }

    /// Takes the first bytes that may be sent.
    pub(super) fn take(&mut self) -> Piece {
        self.ready.take()
    }

    /// Puts back bytes that were not written, before those pushed meanwhile.
    pub(super) fn put_back(&mut self, rest: Piece) {
        self.ready.put_back(rest);
    }

    /// Drops everything. A reply for a place reserved before this is dropped as well.
    pub(super) fn clear(&mut self) {
        *self = Self {
            next_place: self.next_place,
            ..Self::default()
        };
    }
}
