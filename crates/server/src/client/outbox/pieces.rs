//! Bytes for one client, some of which are shared with other clients.

use std::collections::VecDeque;

use bytes::{Buf as _, Bytes, BytesMut};

use super::KEPT_BYTES;

/// Length at which own bytes become a piece that no longer grows. A longer buffer would be copied whenever it grows, and could take twice
/// the memory of its content.
const PIECE_BYTES: usize = 256 << 10;

/// Bytes in order: pieces that are complete, then those that still grow.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    complete: VecDeque<Piece>,
    growing: BytesMut,
    /// Whether that buffer has held more than [`KEPT_BYTES`]. If so, it is freed once it is empty.
    is_large: bool,
    /// Total bytes of `complete`.
    complete_bytes: usize,
    /// Bytes in `complete` that other clients share.
    shared_bytes: usize,
}

/// Bytes that leave with one write.
#[derive(Debug)]
pub(super) enum Piece {
    Own(BytesMut),
    Shared(Bytes),
}

impl Pieces {
    pub(super) fn len(&self) -> usize {
        self.complete_bytes + self.growing.len()
    }

    /// Bytes of this client alone.
    pub(super) fn own_len(&self) -> usize {
        self.len() - self.shared_bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends what `write` writes.
    pub(super) fn push(&mut self, write: impl FnOnce(&mut BytesMut)) {
        if self.growing.len() > PIECE_BYTES {
            self.complete_growing();
        }
        write(&mut self.growing);
    }

    /// Appends bytes that other clients receive as well, without a copy.
    pub(super) fn push_shared(&mut self, bytes: Bytes) {
        self.complete_growing();
        self.complete(Piece::Shared(bytes));
    }

    /// Appends `bytes`, without a copy if they are many.
    pub(super) fn unsplit(&mut self, bytes: BytesMut) {
        if self.growing.len() + bytes.len() > PIECE_BYTES && !self.growing.is_empty() {
            self.complete_growing();
        }
        self.growing.unsplit(bytes);
    }

    /// Appends all of `others`.
    pub(super) fn append(&mut self, others: Self) {
        if !others.complete.is_empty() {
            self.complete_growing();
            for piece in others.complete {
                self.complete(piece);
            }
        }
        self.unsplit(others.growing);
    }

    fn complete_growing(&mut self) {
        if !self.growing.is_empty() {
            let piece = std::mem::take(&mut self.growing);
            self.complete(Piece::Own(piece));
        }
    }

    fn complete(&mut self, piece: Piece) {
        self.count(&piece);
        self.complete.push_back(piece);
    }

    fn count(&mut self, piece: &Piece) {
        self.complete_bytes += piece.len();
        self.shared_bytes += piece.shared_len();
    }

    /// Takes the first piece.
    pub(super) fn take(&mut self) -> Piece {
        if let Some(piece) = self.complete.pop_front() {
            self.complete_bytes -= piece.len();
            self.shared_bytes -= piece.shared_len();
            return piece;
        }
        self.is_large |= self.growing.len() > KEPT_BYTES;
        Piece::Own(self.growing.split())
    }

    /// Puts back what was not written of the piece taken last, before everything pushed meanwhile.
    pub(super) fn put_back(&mut self, rest: Piece) {
        match rest {
            Piece::Own(mut rest) if self.complete.is_empty() && self.is_cheap(&rest) => {
                rest.unsplit(std::mem::take(&mut self.growing));
                self.growing = rest;
            }
            rest if rest.len() > 0 => {
                self.count(&rest);
                self.complete.push_front(rest);
            }
            _ => {}
        }
        if self.growing.is_empty() && std::mem::take(&mut self.is_large) {
            self.growing = BytesMut::new();
        }
    }

    /// Whether `rest` can be put before the growing bytes without a long copy.
    fn is_cheap(&self, rest: &BytesMut) -> bool {
        rest.len() <= KEPT_BYTES || self.growing.is_empty()
    }
}

impl Piece {
    pub(super) fn len(&self) -> usize {
        self.as_ref().len()
    }

    fn shared_len(&self) -> usize {
        match self {
            Self::Own(_) => 0,
            Self::Shared(bytes) => bytes.len(),
        }
    }

    /// Drops the first `count` bytes, which are written.
    pub(super) fn advance(&mut self, count: usize) {
        match self {
            Self::Own(bytes) => bytes.advance(count),
            Self::Shared(bytes) => bytes.advance(count),
        }
    }
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Shared(bytes) => bytes,
        }
    }
}
