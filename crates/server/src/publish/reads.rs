//! Answers all requests that read the tree without changing it.

use std::sync::{Mutex, MutexGuard};

use bellwether_wire::acl::{ADMIN, Acl, Id, READ};
use bellwether_wire::code::ErrorCode;
use bellwether_wire::jute::{Reader, Writer as _};
use bellwether_wire::multi::{self, Ops, ReadOp};
use bellwether_wire::op::Op;
use bellwether_wire::reply;
use bellwether_wire::request::{PathNumber, PathWatch, Text};
use bytes::{BufMut, BytesMut};

use super::long_reads::{ITEM_BYTES, LONG_BYTES};
use super::rearming::Rearming;
use super::watches::{WatchSort, WatchType, Watches};
use crate::client::outbox::Place;
use crate::client::{Peer, Request};
use crate::tree::{Node, Tree, access};

/// The zxid in the reply to an unknown operation.
const UNKNOWN_OP_ZXID: i64 = -1;

/// Room for a usual reply: it is allocated once, not again each time it grows.
const USUAL_BYTES: usize = 256;

/// One read to be answered.
#[derive(Debug)]
pub(super) struct Read<'a> {
    pub(super) tree: &'a Tree,
    /// `None` outside the lock: watches are armed by then, and reads of any length are answered.
    pub(super) watches: Option<&'a Mutex<Watches>>,
    pub(super) session_id: i64,
    pub(super) request: &'a Request,
    pub(super) skip_acl: bool,
}

/// Reply of a failed read: an error code, and in two cases of multiRead also a body.
struct ReadFailure {
    code: ErrorCode,
    body: BytesMut,
}

impl<E: Into<ErrorCode>> From<E> for ReadFailure {
    fn from(error: E) -> Self {
        Self {
            code: error.into(),
            body: BytesMut::new(),
        }
    }
}

/// Whether a reply is computed.
enum ReadProgress {
    Done,
    /// The watch is armed, but the reply takes too long to compute under the lock.
    Long,
}

impl Read<'_> {
    /// Arms the watch of the request, if any, before anything can change, and sends the reply. Returns false if computing the reply takes
    /// long: then the caller reserves its place, and [`answer_in`](Self::answer_in) fills it outside the lock.
    #[must_use = "a read that takes long is not answered yet"]
    pub(super) fn answer(&self) -> bool {
        let request = self.request;
        let Some(op) = request.op else {
            request.peer.reply(
                request,
                UNKNOWN_OP_ZXID,
                Err(ErrorCode::Unimplemented),
                |_| {},
            );
            request.peer.outbox.finish();
            return true;
        };
        if let Op::SetWatches | Op::SetWatches2 = op {
            return self.rearm(&mut Rearming::decode(request), usize::MAX);
        }
        let Some((outcome, body)) = self.outcome(op) else {
            return false;
        };
        let zxid = self.tree.last_zxid();
        let peer = &request.peer;
        peer.reply(request, zxid, outcome, |out| out.unsplit(body));
        true
    }

    /// Answers a read that takes long.
    pub(super) fn answer_in(&self, place: Place) {
        let request = self.request;
        let op = request.op.expect("only known operations take long");
        let answer = self.outcome(op);
        let (outcome, body) = answer.expect("nothing takes too long outside the lock");
        let zxid = self.tree.last_zxid();
        let peer = &request.peer;
        peer.reply_in(place, request, zxid, outcome, |out| out.unsplit(body));
    }

    /// Computes the reply, or returns `None` if that takes long.
    fn outcome(&self, op: Op) -> Option<(Result<(), ErrorCode>, BytesMut)> {
        let mut body = BytesMut::with_capacity(USUAL_BYTES);
        match self.execute(op, &mut body) {
            Ok(ReadProgress::Long) => None,
            Ok(ReadProgress::Done) if body.len() > reply::BODY_BYTES_MAX => {
                Some((Err(ErrorCode::MarshallingError), BytesMut::new()))
            }
            Ok(ReadProgress::Done) => Some((Ok(()), body)),
            Err(failure) => Some((Err(failure.code), failure.body)),
        }
    }

    /// Whether a reply of about `bytes` bytes takes too long here.
    fn is_long(&self, bytes: usize) -> bool {
        self.watches.is_some() && bytes > LONG_BYTES
    }

    fn execute(&self, op: Op, out: &mut BytesMut) -> Result<ReadProgress, ReadFailure> {
        let mut reader = Reader::new(&self.request.body);
        match op {
            Op::Ping => {}
            Op::Exists => self.exists(&PathWatch::decode(&mut reader)?, out)?,
            Op::GetData => {
                let body = PathWatch::decode(&mut reader)?;
                let node = self.readable(&body.path)?;
                self.arm(&body, WatchSort::Data)?;
                if self.is_long(node.data_len()) {
                    return Ok(ReadProgress::Long);
                }
                put_data(node, out);
            }
            Op::GetChildren | Op::GetChildren2 => {
                let body = PathWatch::decode(&mut reader)?;
                let node = self.readable(&body.path)?;
                self.arm(&body, WatchSort::Child)?;
                if self.is_long(node.children.len() * ITEM_BYTES) || !self.put_children(node, out) {
                    return Ok(ReadProgress::Long);
                }
                if op == Op::GetChildren2 {
                    node.stat().encode(out);
                }
            }
            Op::GetAcl => return self.get_acl(&reader.ustring()?, out),
            Op::GetAllChildrenNumber => {
                let path = reader.ustring()?;
                self.readable(&path)?;
                let path = path.unwrap_or_default();
                if self.tree.below(&path).is_none() && self.is_long(usize::MAX) {
                    return Ok(ReadProgress::Long);
                }
                out.put_count(self.tree.descendant_count(&path));
            }
            Op::GetEphemerals => {
                let count = self.tree.ephemeral_count_of(self.session_id);
                if self.is_long(count * ITEM_BYTES) {
                    return Ok(ReadProgress::Long);
                }
                self.get_ephemerals(&reader.ustring()?, out);
            }
            Op::Sync => out.put_buffer(reader.buffer()?),
            Op::MultiRead => return self.multi_read(&mut reader, out),
            Op::AddWatch => self.add_watch(&PathNumber::decode(&mut reader)?, out)?,
            Op::CheckWatches | Op::RemoveWatches => {
                self.change_watches(op, &PathNumber::decode(&mut reader)?)?;
            }
            Op::WhoAmI => who_am_i(&self.request.ids, out),
            // Writes do not get here; the rest is malformed, or not allowed to clients.
            _ => return Err(ErrorCode::MarshallingError.into()),
        }
        Ok(ReadProgress::Done)
    }

    fn exists(&self, body: &PathWatch<'_>, out: &mut BytesMut) -> Result<(), ErrorCode> {
        let path = body.path.as_deref().ok_or(ErrorCode::MarshallingError)?;
        if path.contains('\0') {
            return Err(ErrorCode::BadArguments);
        }
        let node = self.tree.get(path);
        if let Some(node) = node {
            self.permit(node, READ)?;
        }
        if body.watch {
            self.watches()
                .arm(path, &self.request.peer, WatchSort::Data)?;
        }
        node.ok_or(ErrorCode::NoNode)?.stat().encode(out);
        Ok(())
    }

    fn get_acl(&self, path: &Text<'_>, out: &mut BytesMut) -> Result<ReadProgress, ReadFailure> {
        let node = self.node(path)?;
        self.permit(node, READ | ADMIN)?;
        if self.is_long(node.acl.len() * ITEM_BYTES) {
            return Ok(ReadProgress::Long);
        }
        if self.permit(node, ADMIN).is_ok() {
            Acl::encode_list(&node.acl, out);
        } else {
            Acl::encode_list(&access::redact(&node.acl), out);
        }
        node.stat().encode(out);
        Ok(ReadProgress::Done)
    }

    fn get_ephemerals(&self, prefix: &Text<'_>, out: &mut BytesMut) {
        let prefix = prefix.as_deref().unwrap_or_default();
        let prefix = if matches!(prefix.trim(), "" | "/") {
            ""
        } else {
            prefix
        };
        let paths: Vec<_> = self
            .tree
            .ephemerals_of(self.session_id)
            .filter(|path| path.starts_with(prefix))
            .collect();
        out.put_count(paths.len());
        for path in paths {
            out.put_ustring(path);
        }
    }

    /// Appends the names of the children. Returns false if they are so long that it takes long.
    fn put_children(&self, node: &Node, out: &mut BytesMut) -> bool {
        out.put_count(node.children.len());
        for name in &node.children {
            out.put_ustring(name);
            if self.is_long(out.len()) {
                return false;
            }
        }
        true
    }

    /// Many reads may name the same node, so a short request could ask for any amount of memory. It is refused if its results exceed half of
    /// what may wait for a client.
    fn multi_read(
        &self,
        reader: &mut Reader<'_>,
        out: &mut BytesMut,
    ) -> Result<ReadProgress, ReadFailure> {
        if self.is_long(self.request.body.len().saturating_mul(ITEM_BYTES)) {
            return Ok(ReadProgress::Long);
        }
        let bytes_max = self.request.peer.outbox.largest_reply();
        let ops = match Ops::decode(reader)? {
            Ops::Empty => Vec::new(),
            Ops::Reads(ops) => ops,
            Ops::Writes(_) => return Err(ended(BytesMut::new())),
        };
        for op in ops {
            let (kind, body) = match &op {
                ReadOp::GetData(body) => (Op::GetData, body),
                ReadOp::GetChildren(body) => (Op::GetChildren, body),
            };
            if body.path.is_none() {
                return Err(ended(out.split()));
            }
            let (node, bytes) = match self.readable(&body.path) {
                Ok(node) if kind == Op::GetData => (Ok(node), node.data_len()),
                Ok(node) => (Ok(node), node.children.len() * ITEM_BYTES),
                Err(code) => (Err(code), 0),
            };
            if self.is_long(out.len() + bytes) {
                return Ok(ReadProgress::Long);
            }
            match node {
                Ok(node) => {
                    multi::put_success(out, kind);
                    if kind == Op::GetData {
                        put_data(node, out);
                    } else if !self.put_children(node, out) {
                        return Ok(ReadProgress::Long);
                    }
                }
                Err(code) => multi::put_failure(out, Err(code)),
            }
            if out.len() > bytes_max {
                return Err(ErrorCode::MarshallingError.into());
            }
        }
        multi::put_end(out);
        Ok(ReadProgress::Done)
    }

    /// Arms the next watches of a setWatches, at most `count`, and replies after the last. Returns whether it has replied. Clients ignore the
    /// result and would assume that all watches are armed, so the connection is closed if a limit is reached.
    pub(super) fn rearm(&self, rearming: &mut Rearming<'_>, count: usize) -> bool {
        let peer = &self.request.peer;
        let may_read = |node: &Node| self.permit(node, READ).is_ok();
        let armed = rearming.arm(count, self.tree, may_read, &mut self.watches(), peer);
        let Some(outcome) = armed else {
            return false;
        };
        peer.reply(self.request, self.tree.last_zxid(), outcome, |_| {});
        if outcome == Err(ErrorCode::QuotaExceeded) {
            peer.outbox.finish();
        }
        true
    }

    fn add_watch(&self, body: &PathNumber<'_>, out: &mut BytesMut) -> Result<(), ErrorCode> {
        let peer: &std::sync::Arc<Peer> = &self.request.peer;
        let path = body.path.as_deref().unwrap_or_default();
        match body.number {
            0 => self.watches().arm(path, peer, WatchSort::Persistent)?,
            1 => self.watches().arm(path, peer, WatchSort::Recursive)?,
            _ => return Err(ErrorCode::MarshallingError),
        }
        // An error record with code 0.
        out.put_i32(0);
        Ok(())
    }

    fn change_watches(&self, op: Op, body: &PathNumber<'_>) -> Result<(), ErrorCode> {
        let kind = WatchType::from_number(body.number).ok_or(ErrorCode::MarshallingError)?;
        let peer = &self.request.peer;
        let found = match (op, body.path.as_deref()) {
            (Op::CheckWatches, None) => return Err(ErrorCode::MarshallingError),
            (_, None) => false,
            (Op::CheckWatches, Some(path)) => self.watches().contains(path, peer, kind),
            (_, Some(path)) => self.watches().disarm(path, peer, kind),
        };
        if found {
            Ok(())
        } else {
            Err(ErrorCode::NoWatcher)
        }
    }

    fn readable(&self, path: &Text<'_>) -> Result<&Node, ErrorCode> {
        let node = self.node(path)?;
        self.permit(node, READ)?;
        Ok(node)
    }

    fn node(&self, path: &Text<'_>) -> Result<&Node, ErrorCode> {
        let path = path.as_deref().ok_or(ErrorCode::MarshallingError)?;
        self.tree.get(path).ok_or(ErrorCode::NoNode)
    }

    fn permit(&self, node: &Node, perms: i32) -> Result<(), ErrorCode> {
        if self.skip_acl || access::allows(&node.acl, perms, &self.request.ids) {
            Ok(())
        } else {
            Err(ErrorCode::NoAuth)
        }
    }

    /// All watches. Requests about watches alone are always answered under the lock.
    fn watches(&self) -> MutexGuard<'_, Watches> {
        self.armable().expect("it is answered under the lock")
    }

    /// Arms the watch of a read, if it asks for one.
    fn arm(&self, read: &PathWatch<'_>, sort: WatchSort) -> Result<(), ReadFailure> {
        if read.watch
            && let Some(mut watches) = self.armable()
        {
            let path = read.path.as_deref().unwrap_or_default();
            watches.arm(path, &self.request.peer, sort)?;
        }
        Ok(())
    }

    fn armable(&self) -> Option<MutexGuard<'_, Watches>> {
        let watches = self.watches?.lock();
        Some(watches.expect("no code panics while it holds the watches"))
    }
}

/// Appends the reply body of getData.
fn put_data(node: &Node, out: &mut BytesMut) {
    out.put_buffer(node.data.as_deref());
    node.stat().encode(out);
}

/// A multiRead that breaks off: the results so far, then the end marker.
fn ended(mut results: BytesMut) -> ReadFailure {
    multi::put_end(&mut results);
    ReadFailure {
        code: ErrorCode::MarshallingError,
        body: results,
    }
}

/// Appends the ids of the connection, without digest hashes.
fn who_am_i(ids: &[Id], out: &mut BytesMut) {
    out.put_count(ids.len());
    for Id { scheme, id } in ids {
        out.put_ustring(scheme);
        out.put_ustring(match scheme.as_str() {
            "digest" => id.split(':').next().unwrap_or_default(),
            "super" => "",
            _ => id,
        });
    }
}
