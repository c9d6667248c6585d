//! Replies and events, as a client decodes them.

use anyhow::{Context, Result, bail, ensure};
use bellwether_wire::acl::Acl;
use bellwether_wire::code::ErrorCode;
use bellwether_wire::event::{self, EVENT_XID, EventKind};
use bellwether_wire::jute::{Malformed, Reader};
use bellwether_wire::multi::ResultHeader;
use bellwether_wire::op::Op;
use bellwether_wire::reply::ReplyHeader;
use bellwether_wire::stat::Stat;
use bytes::Bytes;

/// A frame that a server sends after the handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// The answer to a request.
    Reply(Reply),
    /// A watch event.
    Event(WatchEvent),
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The xid of the request.
    pub xid: i32,
    /// The zxid of the write, or the last zxid that the server had applied.
    pub zxid: i64,
    /// The result of the request.
    pub outcome: Result<Body, ErrorCode>,
    /// The bytes after the header. A few errors have some, see [`Reply::decode`].
    pub bytes: Bytes,
}

/// A watch that fired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchEvent {
    /// What happened.
    pub kind: EventKind,
    /// The path.
    pub path: String,
    /// The zxid of the header, which is -1 before Apache 3.9.
    pub zxid: i64,
}

/// The body of a successful reply.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "named for the fields of ZooKeeper's records")]
pub enum Body {
    None,
    Path(String),
    PathStat(String, Stat),
    Stat(Stat),
    DataStat(Option<Vec<u8>>, Stat),
    /// Names, sorted: the server's order has no meaning.
    Children(Vec<String>),
    /// As `Children`.
    ChildrenStat(Vec<String>, Stat),
    AclStat(Vec<Acl>, Stat),
    Count(i32),
    /// Paths, sorted.
    Ephemerals(Vec<String>),
    /// Scheme and user of each credential, in the server's order.
    ClientInfos(Vec<(String, String)>),
    Multi(Vec<MultiResult>),
    Token(Option<Vec<u8>>),
    /// The answer to addWatch: an error record without an error.
    Code(i32),
    /// Not decoded: the request was a raw one, or not sent as a request.
    Raw(Bytes),
}

/// The result of one operation of a multi or multiRead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MultiResult {
    /// It succeeded; a server may report another operation than the one requested (create for create2).
    Done(Op, Body),
    /// It would have succeeded, but another one failed.
    Undone,
    /// It failed, or was not tried because another one had failed before.
    Failed(ErrorCode),
}

impl Frame {
    /// Reads a frame. `op_of` returns the operation of a reply by its xid.
    pub fn decode(frame: &Bytes, op_of: impl FnOnce(i32) -> Option<Op>) -> Result<Self> {
        let mut reader = Reader::new(frame);
        let header = ReplyHeader::decode(&mut reader).context("header of a reply")?;
        let bytes = frame.slice_ref(reader.rest());
        if header.xid == EVENT_XID {
            let (kind, path) = event::decode(&mut reader).context("event")?;
            ensure!(reader.rest().is_empty(), "bytes behind an event");
            let zxid = header.zxid;
            return Ok(Self::Event(WatchEvent { kind, path, zxid }));
        }
        Reply::decode(header, op_of(header.xid), bytes).map(Self::Reply)
    }
}

impl Reply {
    /// Reads the body of a reply to `op`; without one it stays [`Body::Raw`].
    ///
    /// Every byte must be accounted for: a body that is too long is refused like one too short. An
    /// error has no body, except those of sasl, multi and multiRead, which is left in `bytes`.
    pub fn decode(header: ReplyHeader, op: Option<Op>, bytes: Bytes) -> Result<Self> {
        let ReplyHeader { xid, zxid, err } = header;
        let outcome = if err != 0 {
            let code = ErrorCode::from_number(err).with_context(|| format!("error code {err}"))?;
            let may_have_body = matches!(op, None | Some(Op::Sasl | Op::Multi | Op::MultiRead));
            ensure!(
                may_have_body || bytes.is_empty(),
                "{} bytes behind error {err} of {op:?}",
                bytes.len()
            );
            Err(code)
        } else if let Some(op) = op {
            Ok(Body::decode(op, &bytes)?)
        } else {
            Ok(Body::Raw(bytes.clone()))
        };
        Ok(Self {
            xid,
            zxid,
            outcome,
            bytes,
        })
    }

    /// The body, or an error with the server's code.
    pub fn ok(self) -> Result<Body> {
        let Self { xid, outcome, .. } = self;
        outcome.with_context(|| format!("request {xid} failed"))
    }
}

impl Body {
    /// Reads the whole body of a successful reply to `op`.
    pub fn decode(op: Op, bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes);
        let body =
            Self::read(op, &mut reader).with_context(|| format!("reply to {op:?}: {bytes:?}"))?;
        let left = reader.rest().len();
        ensure!(left == 0, "{left} bytes behind the reply to {op:?}");
        Ok(body)
    }

    /// The Stat, if this body has one.
    pub fn stat(&self) -> Option<&Stat> {
        match self {
            Self::Stat(stat)
            | Self::PathStat(_, stat)
            | Self::DataStat(_, stat)
            | Self::ChildrenStat(_, stat)
            | Self::AclStat(_, stat) => Some(stat),
            _ => None,
        }
    }

    /// The same body with all times at zero, to be compared with that of another server.
    #[must_use]
    pub fn without_times(mut self) -> Self {
        match &mut self {
            Self::Stat(stat)
            | Self::PathStat(_, stat)
            | Self::DataStat(_, stat)
            | Self::ChildrenStat(_, stat)
            | Self::AclStat(_, stat) => (stat.ctime, stat.mtime) = (0, 0),
            Self::Multi(results) => {
                for result in results {
                    if let MultiResult::Done(_, body) = result {
                        *body = std::mem::replace(body, Self::None).without_times();
                    }
                }
            }
            _ => {}
        }
        self
    }

    fn read(op: Op, reader: &mut Reader<'_>) -> Result<Self> {
        Ok(match op {
            Op::Create | Op::Sync => Self::Path(reader.string()?),
            Op::Create2 | Op::CreateContainer | Op::CreateTtl => {
                Self::PathStat(reader.string()?, Stat::decode(reader)?)
            }
            Op::Exists | Op::SetData | Op::SetAcl => Self::Stat(Stat::decode(reader)?),
            Op::GetData | Op::Reconfig => {
                let data = reader.buffer()?.map(<[u8]>::to_vec);
                Self::DataStat(data, Stat::decode(reader)?)
            }
            Op::GetAcl => {
                let list = reader.vector(Acl::decode)?.ok_or(Malformed)?;
                Self::AclStat(list, Stat::decode(reader)?)
            }
            Op::GetChildren => Self::Children(sorted_texts(reader)?),
            Op::GetChildren2 => Self::ChildrenStat(sorted_texts(reader)?, Stat::decode(reader)?),
            Op::GetEphemerals => Self::Ephemerals(sorted_texts(reader)?),
            Op::GetAllChildrenNumber => Self::Count(reader.int()?),
            Op::AddWatch => Self::Code(reader.int()?),
            Op::WhoAmI => {
                let info = |reader: &mut Reader<'_>| Ok((reader.string()?, reader.string()?));
                Self::ClientInfos(reader.vector(info)?.ok_or(Malformed)?)
            }
            Op::Sasl => Self::Token(reader.buffer()?.map(<[u8]>::to_vec)),
            Op::Multi | Op::MultiRead => Self::Multi(multi(reader)?),
            Op::Delete
            | Op::Ping
            | Op::Check
            | Op::CheckWatches
            | Op::RemoveWatches
            | Op::Auth
            | Op::SetWatches
            | Op::SetWatches2
            | Op::CloseSession => Self::None,
            Op::DeleteContainer | Op::CreateSession => bail!("not a request of clients"),
        })
    }
}

fn sorted_texts(reader: &mut Reader<'_>) -> Result<Vec<String>, Malformed> {
    let mut texts = reader.strings()?;
    texts.sort();
    Ok(texts)
}

fn multi(reader: &mut Reader<'_>) -> Result<Vec<MultiResult>> {
    let mut results = Vec::new();
    loop {
        results.push(match ResultHeader::decode(reader)? {
            ResultHeader::End => return Ok(results),
            ResultHeader::Done(op) => MultiResult::Done(op, Body::read(op, reader)?),
            ResultHeader::Failed(0) => MultiResult::Undone,
            ResultHeader::Failed(err) => MultiResult::Failed(
                ErrorCode::from_number(err).with_context(|| format!("error code {err}"))?,
            ),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_must_have_its_exact_length() {
        assert_eq!(
            Body::decode(Op::GetAllChildrenNumber, &[0, 0, 0, 7]).unwrap(),
            Body::Count(7)
        );
        assert!(Body::decode(Op::GetAllChildrenNumber, &[0, 0, 0, 7, 0]).is_err());
        assert!(Body::decode(Op::GetAllChildrenNumber, &[0, 0, 0]).is_err());
        assert!(Body::decode(Op::Ping, &[0]).is_err());
    }

    #[test]
    fn an_error_has_no_body() {
        let header = ReplyHeader {
            xid: 1,
            zxid: 2,
            err: -101,
        };
        let reply = Reply::decode(header, Some(Op::Exists), Bytes::new()).unwrap();
        assert_eq!(reply.outcome, Err(ErrorCode::NoNode));
        assert!(Reply::decode(header, Some(Op::Exists), Bytes::from("x")).is_err());
    }
}
