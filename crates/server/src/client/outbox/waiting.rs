//! Bytes in the order in which a client must receive them, with reserved places for replies still being computed.

use std::collections::VecDeque;

use bytes::BytesMut;

use super::KEPT_BYTES;

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
    ready: BytesMut,
    /// Whether that buffer has held more than [`KEPT_BYTES`]. If so, it is freed once it is empty.
    is_large: bool,
    /// Reserved places in order, each with the bytes that wait behind it.
    places: VecDeque<Reserved>,
    /// Total bytes in `places`.
    held_bytes: usize,
    next_place: u64,
}

#[derive(Debug)]
struct Reserved {
    number: u64,
    /// `None` until it is filled.
    content: Option<BytesMut>,
    behind: BytesMut,
}

impl Waiting {
    /// Number of bytes, including those behind a reserved place.
    pub(super) fn len(&self) -> usize {
        self.ready.len() + self.held_bytes
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
            None => write(&mut self.ready),
            Some(last) => {
                let before = last.behind.len();
                write(&mut last.behind);
                self.held_bytes += last.behind.len() - before;
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
            behind: BytesMut::new(),
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
            self.ready.unsplit(content);
            self.ready.unsplit(behind);
            self.places.pop_front();
        }
    }

    /// Takes all bytes that may be sent.
    pub(super) fn take(&mut self) -> BytesMut {
        self.is_large |= self.ready.len() > KEPT_BYTES;
        self.ready.split()
    }

    /// Puts back bytes that were not written, before those pushed meanwhile.
    pub(super) fn put_back(&mut self, mut rest: BytesMut) {
        rest.unsplit(std::mem::take(&mut self.ready));
        self.ready = rest;
        if self.ready.is_empty() && std::mem::take(&mut self.is_large) {
            self.ready = BytesMut::new();
        }
    }

    /// Drops everything. A reply for a place reserved before this is dropped as well.
    pub(super) fn clear(&mut self) {
        *self = Self {
            next_place: self.next_place,
            ..Self::default()
        };
    }
}
