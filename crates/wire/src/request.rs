//! Requests: a header and a body. Servers decode them without copying; clients write them with the `put` functions.

use std::borrow::Cow;
use std::fmt;

use bytes::{BufMut, BytesMut};

use crate::acl::{Acl, RawAcl};
use crate::frame;
use crate::jute::{Malformed, Reader, Writer};
use crate::op::Op;

/// A text that may be null.
pub type Text<'a> = Option<Cow<'a, str>>;

/// The first eight bytes of every request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestHeader {
    /// Chosen by the client; the server echoes it without a check.
    pub xid: i32,
    /// The number of the operation.
    pub op: i32,
}

impl RequestHeader {
    /// The length of the header in bytes.
    pub const LENGTH: usize = 8;

    /// Reads the header.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            xid: reader.int()?,
            op: reader.int()?,
        })
    }
}

/// Appends a whole request frame whose body `body` appends.
pub fn put(out: &mut BytesMut, xid: i32, op: Op, body: impl FnOnce(&mut BytesMut)) {
    frame::put(out, |out| {
        out.put_i32(xid);
        out.put_i32(op.number());
        body(out);
    });
}

/// Appends the body of a request that has only a path: getACL, sync, getEphemerals, getAllChildrenNumber.
pub fn put_path(out: &mut BytesMut, path: &str) {
    out.put_ustring(path);
}

/// Appends the body of [`Create`]; only createTTL has a time to live.
pub fn put_create(
    out: &mut BytesMut,
    path: &str,
    data: Option<&[u8]>,
    acl: &[Acl],
    flags: i32,
    ttl_ms: Option<i64>,
) {
    out.put_ustring(path);
    out.put_buffer(data);
    Acl::encode_list(acl, out);
    out.put_i32(flags);
    if let Some(ttl_ms) = ttl_ms {
        out.put_i64(ttl_ms);
    }
}

/// Appends the body of [`PathVersion`].
pub fn put_path_version(out: &mut BytesMut, path: &str, version: i32) {
    out.put_ustring(path);
    out.put_i32(version);
}

/// Appends the body of [`SetData`].
pub fn put_set_data(out: &mut BytesMut, path: &str, data: Option<&[u8]>, version: i32) {
    out.put_ustring(path);
    out.put_buffer(data);
    out.put_i32(version);
}

/// Appends the body of [`SetAcl`].
pub fn put_set_acl(out: &mut BytesMut, path: &str, acl: &[Acl], version: i32) {
    out.put_ustring(path);
    Acl::encode_list(acl, out);
    out.put_i32(version);
}

/// Appends the body of [`PathWatch`].
pub fn put_path_watch(out: &mut BytesMut, path: &str, watch: bool) {
    out.put_ustring(path);
    out.put_bool(watch);
}

/// Appends the body of [`PathNumber`].
pub fn put_path_number(out: &mut BytesMut, path: &str, number: i32) {
    out.put_ustring(path);
    out.put_i32(number);
}

/// Appends the body of setWatches (three lists: data, exist, child) or setWatches2 (two more: persistent, recursive).
pub fn put_set_watches<'p>(
    out: &mut BytesMut,
    relative_zxid: i64,
    lists: impl IntoIterator<Item = &'p [String]>,
) {
    out.put_i64(relative_zxid);
    for list in lists {
        out.put_count(list.len());
        for path in list {
            out.put_ustring(path);
        }
    }
}

/// Appends the body of a reconfig; a null text leaves that part of the membership unchanged.
pub fn put_reconfig(
    out: &mut BytesMut,
    joining: Option<&str>,
    leaving: Option<&str>,
    members: Option<&str>,
    config_id: i64,
) {
    for text in [joining, leaving, members] {
        out.put_buffer(text.map(str::as_bytes));
    }
    out.put_i64(config_id);
}

/// Appends the body of [`Auth`].
pub fn put_auth(out: &mut BytesMut, scheme: &str, data: Option<&[u8]>) {
    out.put_i32(0);
    out.put_ustring(scheme);
    out.put_buffer(data);
}

/// Appends the body of sasl: a token of the mechanism.
pub fn put_sasl(out: &mut BytesMut, token: &[u8]) {
    out.put_buffer(Some(token));
}

/// create, create2, createContainer and createTTL.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields of the record")]
pub struct Create<'a> {
    pub path: Text<'a>,
    pub data: Option<&'a [u8]>,
    pub acl: Option<Vec<RawAcl>>,
    pub flags: i32,
    /// Only createTTL has one.
    pub ttl_ms: Option<i64>,
}

impl<'a> Create<'a> {
    /// Reads the body; `op` says whether a time to live follows.
    pub fn decode(op: Op, reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self {
            path: reader.ustring()?,
            data: reader.buffer()?,
            acl: reader.vector(RawAcl::decode)?,
            flags: reader.int()?,
            ttl_ms: (op == Op::CreateTtl).then(|| reader.long()).transpose()?,
        })
    }
}

/// delete and check.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields of the record")]
pub struct PathVersion<'a> {
    pub path: Text<'a>,
    pub version: i32,
}

impl<'a> PathVersion<'a> {
    /// Reads the body.
    pub fn decode(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self {
            path: reader.ustring()?,
            version: reader.int()?,
        })
    }
}

/// setData.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields of the record")]
pub struct SetData<'a> {
    pub path: Text<'a>,
    pub data: Option<&'a [u8]>,
    pub version: i32,
}

impl<'a> SetData<'a> {
    /// Reads the body.
    pub fn decode(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self {
            path: reader.ustring()?,
            data: reader.buffer()?,
            version: reader.int()?,
        })
    }
}

/// setACL.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields of the record")]
pub struct SetAcl<'a> {
    pub path: Text<'a>,
    pub acl: Option<Vec<RawAcl>>,
    pub version: i32,
}

impl<'a> SetAcl<'a> {
    /// Reads the body.
    pub fn decode(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self {
            path: reader.ustring()?,
            acl: reader.vector(RawAcl::decode)?,
            version: reader.int()?,
        })
    }
}

/// exists, getData, getChildren and getChildren2.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields of the record")]
pub struct PathWatch<'a> {
    pub path: Text<'a>,
    pub watch: bool,
}

impl<'a> PathWatch<'a> {
    /// Reads the body.
    pub fn decode(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self {
            path: reader.ustring()?,
            watch: reader.bool()?,
        })
    }
}

/// checkWatches, removeWatches (`number` is a type) and addWatch (a mode).
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields of the record")]
pub struct PathNumber<'a> {
    pub path: Text<'a>,
    pub number: i32,
}

impl<'a> PathNumber<'a> {
    /// Reads the body.
    pub fn decode(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self {
            path: reader.ustring()?,
            number: reader.int()?,
        })
    }
}

/// setWatches and setWatches2: the watches that a client restores after a reconnect.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields of the record")]
pub struct SetWatches<'a> {
    pub relative_zxid: i64,
    pub data: Option<Vec<Text<'a>>>,
    pub exist: Option<Vec<Text<'a>>>,
    pub child: Option<Vec<Text<'a>>>,
    pub persistent: Option<Vec<Text<'a>>>,
    pub recursive: Option<Vec<Text<'a>>>,
}

impl<'a> SetWatches<'a> {
    /// Reads the body; only setWatches2 has the last two lists.
    pub fn decode(op: Op, reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let relative_zxid = reader.long()?;
        let more = op == Op::SetWatches2;
        let mut list = |present: bool| {
            if present {
                reader.vector(Reader::ustring)
            } else {
                Ok(Some(Vec::new()))
            }
        };
        Ok(Self {
            relative_zxid,
            data: list(true)?,
            exist: list(true)?,
            child: list(true)?,
            persistent: list(more)?,
            recursive: list(more)?,
        })
    }
}

/// reconfig. A single server only checks that it is well-formed.
pub fn skip_reconfig(reader: &mut Reader<'_>) -> Result<(), Malformed> {
    for _ in 0..3 {
        reader.ustring()?;
    }
    reader.long().map(drop)
}

/// auth. `Debug` does not show the data, which may be a password.
#[derive(Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields of the record")]
pub struct Auth<'a> {
    pub scheme: Text<'a>,
    pub data: Option<&'a [u8]>,
}

impl<'a> Auth<'a> {
    /// Reads the body; its type field is ignored.
    pub fn decode(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        reader.int()?;
        Ok(Self {
            scheme: reader.ustring()?,
            data: reader.buffer()?,
        })
    }
}

impl fmt::Debug for Auth<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Auth")
            .field("scheme", &self.scheme)
            .finish_non_exhaustive()
    }
}
