//! multi and multiRead: a list of operations in one request.

use bytes::{BufMut, BytesMut};

use crate::code::ErrorCode;
use crate::jute::{Malformed, Reader, Writer};
use crate::op::Op;
use crate::request::{Create, PathVersion, PathWatch, SetData};

/// The type of failed results, and of the end marker of a list.
pub const ERROR_TYPE: i32 = -1;

/// One write inside a multi.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "named for their operations")]
pub enum WriteOp<'a> {
    Create(Op, Create<'a>),
    Delete(PathVersion<'a>),
    SetData(SetData<'a>),
    Check(PathVersion<'a>),
}

impl WriteOp<'_> {
    /// Whether the operation has a null path, which makes the whole request invalid.
    pub fn path_is_null(&self) -> bool {
        match self {
            Self::Create(_, create) => create.path.is_none(),
            Self::Delete(body) | Self::Check(body) => body.path.is_none(),
            Self::SetData(body) => body.path.is_none(),
        }
    }
}

/// One read inside a multiRead; its watch flag has no effect.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "named for their operations")]
pub enum ReadOp<'a> {
    GetData(PathWatch<'a>),
    GetChildren(PathWatch<'a>),
}

/// The operations of a request: all writes or all reads; a mixture is malformed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "named for their contents")]
pub enum Ops<'a> {
    Writes(Vec<WriteOp<'a>>),
    Reads(Vec<ReadOp<'a>>),
    Empty,
}

impl<'a> Ops<'a> {
    /// Reads the list up to its end marker.
    pub fn decode(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let mut writes = Vec::new();
        let mut reads = Vec::new();
        loop {
            let kind = reader.int()?;
            let done = reader.bool()?;
            reader.int()?;
            if done {
                break;
            }
            let op = Op::from_number(kind).ok_or(Malformed)?;
            match op {
                Op::Create | Op::Create2 | Op::CreateContainer | Op::CreateTtl => {
                    writes.push(WriteOp::Create(op, Create::decode(op, reader)?));
                }
                Op::Delete => writes.push(WriteOp::Delete(PathVersion::decode(reader)?)),
                Op::SetData => writes.push(WriteOp::SetData(SetData::decode(reader)?)),
                Op::Check => writes.push(WriteOp::Check(PathVersion::decode(reader)?)),
                Op::GetData => reads.push(ReadOp::GetData(PathWatch::decode(reader)?)),
                Op::GetChildren => reads.push(ReadOp::GetChildren(PathWatch::decode(reader)?)),
                _ => return Err(Malformed),
            }
        }
        match (writes.is_empty(), reads.is_empty()) {
            (true, true) => Ok(Self::Empty),
            (false, true) => Ok(Self::Writes(writes)),
            (true, false) => Ok(Self::Reads(reads)),
            (false, false) => Err(Malformed),
        }
    }
}

/// Appends the header of one operation of a request; its body follows.
pub fn put_op(out: &mut BytesMut, op: Op) {
    put_header(out, op.number(), false, -1);
}

/// One result of a multi or multiRead, read up to its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultHeader {
    /// The operation succeeded. Its body follows. A server may report another operation than the one requested (create for
    /// create2).
    Done(Op),
    /// The number of an [`ErrorCode`]; 0 if the operation would have succeeded but another one failed.
    Failed(i32),
    /// The end of the results.
    End,
}

impl ResultHeader {
    /// Reads the header, and the body if the operation failed.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let kind = reader.int()?;
        let done = reader.bool()?;
        let err = reader.int()?;
        if done {
            return Ok(Self::End);
        }
        if kind == ERROR_TYPE {
            return match reader.int()? == err {
                true => Ok(Self::Failed(err)),
                false => Err(Malformed),
            };
        }
        match (Op::from_number(kind), err) {
            (Some(op), 0) => Ok(Self::Done(op)),
            _ => Err(Malformed),
        }
    }
}

/// Appends the header of one successful result.
pub fn put_success(out: &mut BytesMut, kind: Op) {
    put_header(out, kind.number(), false, 0);
}

/// Appends one result that is an error, or that was rolled back because another operation failed.
pub fn put_failure(out: &mut BytesMut, outcome: Result<(), ErrorCode>) {
    let code = outcome.err().map_or(0, ErrorCode::number);
    put_header(out, ERROR_TYPE, false, code);
    out.put_i32(code);
}

/// Appends the end marker.
pub fn put_end(out: &mut BytesMut) {
    put_header(out, ERROR_TYPE, true, -1);
}

fn put_header(out: &mut BytesMut, kind: i32, done: bool, err: i32) {
    out.put_i32(kind);
    out.put_bool(done);
    out.put_i32(err);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The recorded answer of Apache 3.8 to create, failing delete, create.
    #[test]
    fn a_failed_multi_reports_every_operation_as_an_error() {
        let mut out = BytesMut::new();
        put_failure(&mut out, Ok(()));
        put_failure(&mut out, Err(ErrorCode::NoNode));
        put_failure(&mut out, Err(ErrorCode::RuntimeInconsistency));
        put_end(&mut out);
        let expected = [
            &[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0][..],
            &[
                0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, 0xff, 0x9b, 0xff, 0xff, 0xff, 0x9b,
            ],
            &[
                0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, 0xff, 0xfe, 0xff, 0xff, 0xff, 0xfe,
            ],
            &[0xff, 0xff, 0xff, 0xff, 1, 0xff, 0xff, 0xff, 0xff],
        ]
        .concat();
        assert_eq!(out, expected);
    }
}
