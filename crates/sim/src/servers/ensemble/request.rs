//! Reads, which a member answers from its own version of the tree.

use bellwether_wire::code::ErrorCode;
use bellwether_wire::event::{self, EVENT_XID, EVENT_ZXID, EventKind};
use bellwether_wire::jute::{Reader, Writer as _};
use bellwether_wire::multi::{self, Ops, ReadOp};
use bellwether_wire::op::Op;
use bellwether_wire::reply;
use bellwether_wire::request::{PathNumber, PathWatch, SetWatches};
use bytes::{BufMut as _, BytesMut};

use super::member::{Member, UNKNOWN};
use super::watches::Watch;
use crate::world::ConnId;

/// The xid of the reply to a ping.
const PING_XID: i32 = -2;

impl Member {
    /// Answers a read, and arms its watch.
    pub(super) fn read(
        &mut self,
        session: i64,
        conn: ConnId,
        xid: i32,
        op: i32,
        body: &[u8],
        out: &mut BytesMut,
    ) {
        let op = Op::from_number(op);
        let xid = match op {
            Some(Op::Ping) => PING_XID,
            _ => xid,
        };
        if let Some(op @ (Op::SetWatches | Op::SetWatches2)) = op {
            self.set_watches(conn, op, body, out);
        }
        let mut answer = BytesMut::new();
        let result = match op {
            Some(op) => self.answer_read(session, conn, op, body, &mut answer),
            None => Err(UNKNOWN),
        };
        let zxid = self.zxid();
        reply::put(out, xid, zxid, result, |out| {
            if result.is_ok() {
                out.unsplit(answer);
            }
        });
    }

    fn answer_read(
        &mut self,
        session: i64,
        conn: ConnId,
        op: Op,
        body: &[u8],
        out: &mut BytesMut,
    ) -> Result<(), ErrorCode> {
        let mut reader = Reader::new(body);
        match op {
            Op::Ping | Op::Auth | Op::SetWatches | Op::SetWatches2 => {}
            Op::Exists | Op::GetData | Op::GetChildren | Op::GetChildren2 => {
                let PathWatch { path, watch } = PathWatch::decode(&mut reader)?;
                let path = path.ok_or(ErrorCode::MarshallingError)?;
                let node = self.tree.get(&path);
                let kind = match op {
                    Op::Exists | Op::GetData => Watch::Data,
                    _ => Watch::Child,
                };
                // Only exists watches a node that does not exist.
                if watch && (node.is_ok() || op == Op::Exists) {
                    self.watches.arm(kind, &path, conn);
                }
                let node = node?;
                match op {
                    Op::Exists => node.stat().encode(out),
                    Op::GetData => {
                        out.put_buffer(Some(&node.data));
                        node.stat().encode(out);
                    }
                    _ => {
                        put_children(out, node.children());
                        if op == Op::GetChildren2 {
                            node.stat().encode(out);
                        }
                    }
                }
            }
            Op::GetEphemerals => {
                let prefix = reader.string()?;
                let own = self.tree.ephemerals_of(session);
                let own: Vec<_> = own
                    .iter()
                    .filter(|path| path.starts_with(&prefix))
                    .collect();
                out.put_count(own.len());
                for path in own {
                    out.put_ustring(path);
                }
            }
            Op::MultiRead => {
                let Ops::Reads(reads) = Ops::decode(&mut reader)? else {
                    return Err(ErrorCode::MarshallingError);
                };
                for read in reads {
                    self.put_read(out, &read);
                }
                multi::put_end(out);
            }
            Op::AddWatch => {
                let PathNumber { path, number } = PathNumber::decode(&mut reader)?;
                let watch = match number {
                    0 => Watch::Persistent,
                    _ => Watch::Recursive,
                };
                self.watches.arm(watch, &path.unwrap_or_default(), conn);
                out.put_i32(0);
            }
            Op::RemoveWatches | Op::CheckWatches => {
                let PathNumber { path, number } = PathNumber::decode(&mut reader)?;
                let path = path.unwrap_or_default();
                let kinds: &[Watch] = match number {
                    1 => &[Watch::Child],
                    2 => &[Watch::Data],
                    _ => &[
                        Watch::Data,
                        Watch::Child,
                        Watch::Persistent,
                        Watch::Recursive,
                    ],
                };
                let mut found = false;
                for kind in kinds {
                    found |= self.watches.disarm(*kind, &path, conn);
                }
                if !found {
                    return Err(ErrorCode::NoWatcher);
                }
            }
            _ => return Err(UNKNOWN),
        }
        Ok(())
    }

    fn put_read(&self, out: &mut BytesMut, read: &ReadOp<'_>) {
        let (op, path) = match read {
            ReadOp::GetData(read) => (Op::GetData, &read.path),
            ReadOp::GetChildren(read) => (Op::GetChildren, &read.path),
        };
        match self.tree.get(path.as_deref().unwrap_or_default()) {
            Ok(node) => {
                multi::put_success(out, op);
                match op {
                    Op::GetData => {
                        out.put_buffer(Some(&node.data));
                        node.stat().encode(out);
                    }
                    _ => put_children(out, node.children()),
                }
            }
            Err(code) => multi::put_failure(out, Err(code)),
        }
    }

    /// Arms the watches of a client that reconnects, and fires those whose nodes have changed meanwhile.
    fn set_watches(&mut self, conn: ConnId, op: Op, body: &[u8], out: &mut BytesMut) {
        let Ok(lists) = SetWatches::decode(op, &mut Reader::new(body)) else {
            return;
        };
        let paths = |list: Option<Vec<bellwether_wire::request::Text<'_>>>| {
            let list = list.unwrap_or_default().into_iter();
            list.map(|path| path.unwrap_or_default().into_owned())
                .collect::<Vec<String>>()
        };
        let since = lists.relative_zxid;
        let mut told = Vec::new();
        for path in paths(lists.data) {
            match self.tree.get(&path) {
                Err(_) => told.push((EventKind::NodeDeleted, path)),
                Ok(node) if node.stat().mzxid > since => {
                    told.push((EventKind::NodeDataChanged, path));
                }
                Ok(_) => self.watches.arm(Watch::Data, &path, conn),
            }
        }
        for path in paths(lists.exist) {
            match self.tree.get(&path) {
                Ok(_) => told.push((EventKind::NodeCreated, path)),
                Err(_) => self.watches.arm(Watch::Data, &path, conn),
            }
        }
        for path in paths(lists.child) {
            match self.tree.get(&path) {
                Err(_) => told.push((EventKind::NodeDeleted, path)),
                Ok(node) if node.stat().pzxid > since => {
                    told.push((EventKind::NodeChildrenChanged, path));
                }
                Ok(_) => self.watches.arm(Watch::Child, &path, conn),
            }
        }
        for path in paths(lists.persistent) {
            self.watches.arm(Watch::Persistent, &path, conn);
        }
        for path in paths(lists.recursive) {
            self.watches.arm(Watch::Recursive, &path, conn);
        }
        for (kind, path) in told {
            reply::put(out, EVENT_XID, EVENT_ZXID, Ok(()), |out| {
                event::encode(kind, &path, out);
            });
        }
    }
}

fn put_children<'a>(out: &mut BytesMut, children: impl ExactSizeIterator<Item = &'a str>) {
    out.put_count(children.len());
    for name in children {
        out.put_ustring(name);
    }
}
