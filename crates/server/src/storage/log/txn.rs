//! Encoding of transactions in the log.

use std::sync::Arc;

use bytes::{BufMut, BytesMut};

use bellwether_wire::acl::Acl;
use bellwether_wire::jute::{Malformed, Reader, Writer};
use bellwether_wire::multi::ERROR_TYPE;
use bellwether_wire::op::Op;

use crate::tree::txn::{AclList, Data, Lifetime, PARENT_CVERSION_UNKNOWN, Txn, TxnBody};

/// Version of the digest recorded with a transaction.
const DIGEST_VERSION: i32 = 2;

/// Length of a digest with its version.
const DIGEST_BYTES: usize = 12;

/// Type under which Apache's ensembles log a change of their members, as data of a node.
const RECONFIG: i32 = 16;

impl Txn {
    /// Appends the transaction in log format, with the digest of the tree after it.
    pub fn encode(&self, digest: Option<u64>, out: &mut BytesMut) {
        out.put_i64(self.session_id);
        out.put_i32(self.cxid);
        out.put_i64(self.zxid);
        out.put_i64(self.time_ms);
        out.put_i32(self.body.kind());
        self.body.encode(out);
        if let Some(digest) = digest {
            out.put_i32(DIGEST_VERSION);
            out.put_u64(digest);
        }
    }

    /// Decodes a transaction, and the digest if there is one. No byte may be left over.
    pub fn decode(payload: &[u8]) -> Result<(Self, Option<u64>), Malformed> {
        let mut reader = Reader::new(payload);
        let (session_id, cxid) = (reader.long()?, reader.int()?);
        let (zxid, time_ms, kind) = (reader.long()?, reader.long()?, reader.int()?);
        let body = TxnBody::decode(kind, &mut reader)?;
        let digest = match reader.rest().len() {
            0 => None,
            DIGEST_BYTES => {
                let version = reader.int()?;
                let digest = reader.long()?.cast_unsigned();
                (version == DIGEST_VERSION).then_some(digest)
            }
            _ => return Err(Malformed),
        };
        Ok((
            Self {
                session_id,
                cxid,
                zxid,
                time_ms,
                body,
            },
            digest,
        ))
    }
}

impl TxnBody {
    /// Its type number in the log.
    ///
    /// A create is always logged with the plain type: create2 means the same, and Apache 3.8.0 silently drops it inside a multi.
    pub fn kind(&self) -> i32 {
        let op = match self {
            Self::Create {
                lifetime: Lifetime::Container,
                ..
            } => Op::CreateContainer,
            Self::Create {
                lifetime: Lifetime::Ttl { .. },
                ..
            } => Op::CreateTtl,
            Self::Create { .. } => Op::Create,
            Self::Delete { .. } => Op::Delete,
            Self::DeleteContainer { .. } => Op::DeleteContainer,
            Self::SetData { .. } => Op::SetData,
            Self::SetAcl { .. } => Op::SetAcl,
            Self::Check { .. } => Op::Check,
            Self::Multi(_) => Op::Multi,
            Self::CreateSession { .. } => Op::CreateSession,
            Self::CloseSession { .. } => Op::CloseSession,
            Self::Error(_) => return ERROR_TYPE,
        };
        op.number()
    }

    fn encode(&self, out: &mut BytesMut) {
        match self {
            Self::Create {
                path,
                data,
                acl,
                lifetime,
                parent_cversion,
            } => {
                out.put_ustring(path);
                out.put_buffer(data.as_deref());
                Acl::encode_list(acl, out);
                match lifetime {
                    Lifetime::Persistent => out.put_bool(false),
                    Lifetime::Ephemeral => out.put_bool(true),
                    Lifetime::Container | Lifetime::Ttl { .. } => {}
                }
                out.put_i32(*parent_cversion);
                if let Lifetime::Ttl { ms } = lifetime {
                    out.put_i64(*ms);
                }
            }
            Self::Delete { path } | Self::DeleteContainer { path } => out.put_ustring(path),
            Self::SetData {
                path,
                data,
                version,
            } => {
                out.put_ustring(path);
                out.put_buffer(data.as_deref());
                out.put_i32(*version);
            }
            Self::SetAcl { path, acl, version } => {
                out.put_ustring(path);
                Acl::encode_list(acl, out);
                out.put_i32(*version);
            }
            Self::Check { path, version } => {
                out.put_ustring(path);
                out.put_i32(*version);
            }
            Self::Multi(parts) => {
                out.put_count(parts.len());
                for part in parts {
                    let mut body = BytesMut::new();
                    part.encode(&mut body);
                    out.put_i32(part.kind());
                    out.put_buffer(Some(&body));
                }
            }
            Self::Error(code) => out.put_i32(*code),
            Self::CreateSession { timeout_ms } => out.put_i32(*timeout_ms),
            Self::CloseSession { paths } => {
                out.put_count(paths.len());
                for path in paths {
                    out.put_ustring(path);
                }
            }
        }
    }

    fn decode(kind: i32, reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        if kind == ERROR_TYPE {
            return reader.int().map(Self::Error);
        }
        if kind == RECONFIG {
            return Self::decode(Op::SetData.number(), reader);
        }
        Ok(match Op::from_number(kind).ok_or(Malformed)? {
            op @ (Op::Create | Op::Create2 | Op::CreateContainer | Op::CreateTtl) => {
                let (path, data, acl) = (path(reader)?, data(reader)?, acl(reader)?);
                let plain = matches!(op, Op::Create | Op::Create2);
                let ephemeral = plain && reader.bool()?;
                // The oldest form of the record ends here.
                let parent_cversion = if plain && reader.rest().is_empty() {
                    PARENT_CVERSION_UNKNOWN
                } else {
                    reader.int()?
                };
                let lifetime = match op {
                    Op::CreateContainer => Lifetime::Container,
                    Op::CreateTtl => Lifetime::Ttl { ms: reader.long()? },
                    _ if ephemeral => Lifetime::Ephemeral,
                    _ => Lifetime::Persistent,
                };
                Self::Create {
                    path,
                    data,
                    acl,
                    lifetime,
                    parent_cversion,
                }
            }
            Op::Delete => Self::Delete {
                path: path(reader)?,
            },
            Op::DeleteContainer => Self::DeleteContainer {
                path: path(reader)?,
            },
            Op::SetData => Self::SetData {
                path: path(reader)?,
                data: data(reader)?,
                version: reader.int()?,
            },
            Op::SetAcl => Self::SetAcl {
                path: path(reader)?,
                acl: acl(reader)?,
                version: reader.int()?,
            },
            Op::Check => Self::Check {
                path: path(reader)?,
                version: reader.int()?,
            },
            Op::Multi => {
                let part = |reader: &mut Reader<'_>| {
                    let kind = reader.int()?;
                    let body = reader.buffer()?.ok_or(Malformed)?;
                    // Apache writes no nested multi, and a file could nest them as deep as its size allows.
                    if kind == Op::Multi.number() {
                        return Err(Malformed);
                    }
                    Self::decode(kind, &mut Reader::new(body))
                };
                Self::Multi(reader.vector(part)?.unwrap_or_default())
            }
            Op::CreateSession => Self::CreateSession {
                timeout_ms: reader.int()?,
            },
            Op::CloseSession => Self::CloseSession {
                paths: closed_paths(reader),
            },
            _ => return Err(Malformed),
        })
    }
}

/// Ephemeral nodes in the end of a session. Older logs have no list there, but possibly a digest.
fn closed_paths(reader: &mut Reader<'_>) -> Vec<Arc<str>> {
    let mut list = reader.clone();
    match list.vector(path) {
        Ok(Some(paths)) if matches!(list.rest().len(), 0 | DIGEST_BYTES) => {
            *reader = list;
            paths
        }
        _ => Vec::new(),
    }
}

fn path(reader: &mut Reader<'_>) -> Result<Arc<str>, Malformed> {
    Ok(reader.ustring()?.ok_or(Malformed)?.as_ref().into())
}

fn data(reader: &mut Reader<'_>) -> Result<Data, Malformed> {
    Ok(reader.buffer()?.map(Arc::from))
}

fn acl(reader: &mut Reader<'_>) -> Result<AclList, Malformed> {
    Ok(reader.vector(Acl::decode)?.unwrap_or_default().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(body: TxnBody) {
        let txn = Txn {
            session_id: 7,
            cxid: 3,
            zxid: 9,
            time_ms: 1_700_000_000_000,
            body,
        };
        for digest in [None, Some(u64::MAX)] {
            let mut bytes = BytesMut::new();
            txn.encode(digest, &mut bytes);
            assert_eq!(Txn::decode(&bytes), Ok((txn.clone(), digest)));
        }
    }

    #[test]
    fn every_kind_is_read_as_it_was_written() {
        let path: Arc<str> = "/a".into();
        let data: Data = Some(Arc::from(&b"data"[..]));
        let acl: AclList = Arc::new([Acl::open()]);
        let create = |lifetime| TxnBody::Create {
            path: path.clone(),
            data: data.clone(),
            acl: acl.clone(),
            lifetime,
            parent_cversion: 5,
        };
        let bodies = vec![
            create(Lifetime::Persistent),
            create(Lifetime::Ephemeral),
            create(Lifetime::Container),
            create(Lifetime::Ttl { ms: 1 }),
            TxnBody::Delete { path: path.clone() },
            TxnBody::SetData {
                path: path.clone(),
                data: None,
                version: 1,
            },
            TxnBody::Check {
                path: path.clone(),
                version: 1,
            },
            TxnBody::Error(-101),
        ];
        for body in bodies.clone() {
            round_trip(body);
        }
        round_trip(TxnBody::Multi(bodies));
        round_trip(TxnBody::Multi(Vec::new()));
        round_trip(TxnBody::DeleteContainer { path: path.clone() });
        round_trip(TxnBody::SetAcl {
            path: path.clone(),
            acl,
            version: 1,
        });
        round_trip(TxnBody::CreateSession { timeout_ms: 10_000 });
        round_trip(TxnBody::CloseSession { paths: vec![path] });
    }

    #[test]
    fn the_end_of_a_session_may_have_no_list() {
        let mut bytes = BytesMut::new();
        let body = TxnBody::CloseSession { paths: Vec::new() };
        Txn {
            session_id: 7,
            cxid: 3,
            zxid: 9,
            time_ms: 0,
            body,
        }
        .encode(Some(1_371_985_504), &mut bytes);
        let without_list = [&bytes[..32], &bytes[36..]].concat();
        let (txn, digest) = Txn::decode(&without_list).unwrap();
        assert_eq!(txn.body, TxnBody::CloseSession { paths: Vec::new() });
        assert_eq!(digest, Some(1_371_985_504));
    }
}
