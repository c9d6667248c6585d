//! Replies: a header, and a body if there was no error.

use bytes::{BufMut, BytesMut};

use crate::code::ErrorCode;
use crate::frame;
use crate::jute::{Malformed, Reader};

/// The longest body that fits into a frame after the header.
pub const BODY_BYTES_MAX: usize = i32::MAX as usize - ReplyHeader::LENGTH;

/// The first sixteen bytes of every reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyHeader {
    /// The xid of the request; [`EVENT_XID`](crate::event::EVENT_XID) in a watch event.
    pub xid: i32,
    /// The zxid of the write, or the last zxid that the server had applied.
    pub zxid: i64,
    /// 0, or the number of an [`ErrorCode`].
    pub err: i32,
}

impl ReplyHeader {
    /// The length of the header in bytes.
    const LENGTH: usize = 16;

    /// Reads the header of a reply or event.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            xid: reader.int()?,
            zxid: reader.long()?,
            err: reader.int()?,
        })
    }

    fn encode(&self, out: &mut BytesMut) {
        out.put_i32(self.xid);
        out.put_i64(self.zxid);
        out.put_i32(self.err);
    }
}

/// Whether a whole reply frame carries no error.
pub fn is_ok(frame: &[u8]) -> bool {
    const ERR: std::ops::Range<usize> = 16..20;
    frame.get(ERR) == Some(&[0; 4])
}

/// Appends a whole reply frame, with a body of at most [`BODY_BYTES_MAX`] bytes.
pub fn put(
    out: &mut BytesMut,
    xid: i32,
    zxid: i64,
    outcome: Result<(), ErrorCode>,
    body: impl FnOnce(&mut BytesMut),
) {
    let err = outcome.err().map_or(0, ErrorCode::number);
    frame::put(out, |out| {
        ReplyHeader { xid, zxid, err }.encode(out);
        body(out);
    });
}
