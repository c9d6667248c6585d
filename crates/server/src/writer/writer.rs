//! Turns a submission into a transaction, a new tree version and a reply.

use std::sync::Arc;

use bellwether_wire::code::ErrorCode;
use bellwether_wire::connect::ConnectReply;
use bellwether_wire::jute::{Reader, Writer as _};
use bellwether_wire::multi as multi_proto;
use bellwether_wire::op::Op;
use bellwether_wire::request::{Create, PathVersion, SetAcl, SetData};
use bellwether_wire::{frame, reply};
use bytes::BytesMut;
use tokio::sync::oneshot;

use super::acl_pool::AclPool;
use super::growth::{Allowance, Shortage};
use super::multi::{self, Outcome, Spoiled};
use super::prepare::{Mode, Preparation, Rules};
use crate::audit::Lines;
use crate::client::{Peer, Request};
use crate::metrics::Limit;
use crate::session::{Password, Session};
use crate::slow_requests::StageTimes;
use crate::storage::{DiskRoom, DiskState};
use crate::tree::txn::{Txn, TxnBody};
use crate::tree::{Change, Tree, zxid};

/// Length of an event without its path.
const EVENT_BYTES: usize = 32;

/// Bytes of a record in the log, besides those of its request.
const RECORD_BYTES: usize = 128;

/// Bytes by which the tree grows at most for each byte of a request: many empty nodes with short names.
const GROWTH_MAX: usize = 64;

/// A request to change the tree.
#[derive(Debug)]
pub(crate) enum Submission {
    /// A client's write.
    Request {
        session: Arc<Session>,
        request: Request,
        /// Whether reads of the session wait between its previous write and this one.
        behind_reads: bool,
    },
    /// A client asks for a new session.
    OpenSession {
        session: Arc<Session>,
        /// The connection that asked. It gets the reply, whatever happens to the session meanwhile.
        peer: Arc<Peer>,
        timeout_ms: i32,
        password: Password,
        has_read_only: bool,
    },
    /// A session timed out.
    ExpireSession { session: Arc<Session> },
    /// A container or TTL node that looks due for deletion. A container that never had a child may stay for `never_used_ms`; zero means for
    /// ever.
    DeleteContainer { path: Arc<str>, never_used_ms: i64 },
    /// A test sets the next sequence number under `path` to `count`.
    SetChildCounter {
        path: String,
        count: i32,
        done: oneshot::Sender<bool>,
    },
    /// A question whether the pipeline answers.
    Pulse,
    /// The settings have changed.
    SetRules(Rules),
    /// The server stops: later submissions are not decided.
    Stop,
}

impl Submission {
    /// Session whose submissions stay in order; 0 for those of the server itself.
    pub(super) fn session_id(&self) -> i64 {
        match self {
            Self::Request { session, .. }
            | Self::OpenSession { session, .. }
            | Self::ExpireSession { session } => session.id,
            Self::DeleteContainer { .. }
            | Self::SetChildCounter { .. }
            | Self::Pulse
            | Self::SetRules(_)
            | Self::Stop => 0,
        }
    }

    /// Length of the request.
    pub(super) fn body_len(&self) -> usize {
        match self {
            Self::Request { request, .. } => request.body.len(),
            _ => 0,
        }
    }

    /// Whether a read must see the version before this write, so that the write starts a new group.
    pub(crate) fn ends_group(&self) -> bool {
        matches!(
            self,
            Self::Request {
                behind_reads: true,
                ..
            }
        )
    }
}

/// Writes that become visible together, because no reader asked for the versions between them.
#[derive(Debug)]
pub(crate) struct Group {
    /// In the order of their zxids.
    pub(crate) decided: Vec<Decided>,
    /// The version after the last of them.
    pub(crate) tree: Tree,
    /// Bytes of all writes decided so far, as [`DiskRoom`] counts them.
    pub(crate) bytes: u64,
    pub(crate) times: StageTimes,
}

impl Group {
    /// Bytes of the requests.
    pub(super) fn bytes(&self) -> usize {
        let lengths = self.decided.iter().map(|one| match &one.answer {
            Answer::Reply { request, .. } => request.body.len(),
            _ => 0,
        });
        lengths.sum()
    }
}

/// A decided write. It is written to disk first, then published.
#[derive(Debug)]
pub(crate) struct Decided {
    /// What the log records, with the digest of the tree after it; `None` if there is nothing to record.
    pub(crate) txn: Option<(Txn, u64)>,
    pub(crate) changes: Vec<Change>,
    pub(crate) answer: Answer,
}

/// Who gets a reply when the write is on disk.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The client that sent the request.
    Reply {
        session: Arc<Session>,
        request: Request,
        frame: BytesMut,
        zxid: i64,
    },
    /// The client that asked for a session.
    Connected {
        session: Arc<Session>,
        peer: Arc<Peer>,
        frame: BytesMut,
    },
    /// The client whose session has expired: its connection is closed.
    Expired { session: Arc<Session> },
    /// No reply.
    Nobody,
    /// The pipeline answers.
    Pulse,
    /// A test that set a child counter.
    CounterSet {
        found: bool,
        done: oneshot::Sender<bool>,
    },
}

impl Decided {
    /// About how many bytes of events a watcher of everything receives.
    pub(super) fn event_bytes(&self) -> usize {
        let changes = self.changes.iter();
        changes.map(|change| EVENT_BYTES + change.path.len()).sum()
    }

    /// Adds the audit log's lines for this write.
    pub(crate) fn tell_audit(&self, lines: &mut Lines<'_>) {
        let txn = self.txn.as_ref().map(|(txn, _)| txn);
        match (&self.answer, txn) {
            (Answer::Reply { request, .. }, Some(txn)) => {
                lines.add_write(Some(request), None, txn);
            }
            (
                Answer::Reply {
                    session, request, ..
                },
                None,
            ) => lines.add_refused(session.id, request),
            (Answer::Connected { peer, .. }, Some(txn)) => lines.add_write(None, Some(peer), txn),
            (_, Some(txn)) => lines.add_write(None, None, txn),
            (_, None) => {}
        }
    }
}

/// Decides writes in order, each on the version that the previous one made.
#[derive(Debug)]
pub(crate) struct Writer {
    head: Tree,
    rules: Rules,
    room: Arc<DiskRoom>,
    /// Bytes of all decided writes: about what they take in the log.
    bytes: u64,
    acl_pool: AclPool,
}

impl Writer {
    pub(crate) fn new(head: Tree, rules: Rules, room: Arc<DiskRoom>) -> Self {
        Self {
            head,
            rules,
            room,
            bytes: 0,
            acl_pool: AclPool::new(),
        }
    }

    /// The room on the disk of the log.
    pub(crate) fn room(&self) -> &Arc<DiskRoom> {
        &self.room
    }

    /// Bytes of all writes decided so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The newest version. While no one else holds a copy of it, writes change it in place (copy-on-write).
    pub(crate) fn head(&self) -> &Tree {
        &self.head
    }

    /// Decides one submission. Returns `None` for `Stop`. `now_ms` is the time of day.
    pub(crate) fn decide(&mut self, submission: Submission, now_ms: i64) -> Option<Decided> {
        let decided = match submission {
            Submission::Request {
                session, request, ..
            } => self.request(session, request, now_ms),
            Submission::OpenSession {
                session,
                peer,
                timeout_ms,
                password,
                has_read_only,
            } => {
                let txn = self.txn(session.id, 0, now_ms, TxnBody::CreateSession { timeout_ms });
                let reply = ConnectReply {
                    timeout_ms,
                    session_id: session.id,
                    password,
                };
                let mut frame = BytesMut::new();
                frame::put(&mut frame, |out| reply.encode(has_read_only, out));
                let answer = Answer::Connected {
                    session,
                    peer,
                    frame,
                };
                self.apply(txn, answer)
            }
            Submission::ExpireSession { session } if self.head.has_session(session.id) => {
                let txn = self.txn(session.id, 0, now_ms, self.close_body(session.id));
                self.apply(txn, Answer::Expired { session })
            }
            Submission::ExpireSession { session } => self.nothing(Answer::Expired { session }),
            // The node may have got a child or other data since it was found due.
            Submission::DeleteContainer {
                path,
                never_used_ms,
            } if self
                .head
                .get(&path)
                .is_some_and(|node| node.is_outlived(now_ms, never_used_ms)) =>
            {
                let txn = self.txn(0, 0, now_ms, TxnBody::DeleteContainer { path });
                self.apply(txn, Answer::Nobody)
            }
            Submission::DeleteContainer { .. } => self.nothing(Answer::Nobody),
            Submission::Pulse => self.nothing(Answer::Pulse),
            Submission::SetRules(rules) => {
                self.rules = rules;
                self.nothing(Answer::Nobody)
            }
            Submission::SetChildCounter { path, count, done } => {
                let found = self.head.set_child_counter(&path, count);
                self.nothing(Answer::CounterSet { found, done })
            }
            Submission::Stop => return None,
        };
        Some(decided)
    }

    fn request(&mut self, session: Arc<Session>, request: Request, now_ms: i64) -> Decided {
        let pending = self.txn(session.id, request.xid, now_ms, TxnBody::Multi(Vec::new()));
        let op = request.op.expect("only known operations are writes");
        let mut zxid = pending.zxid;
        let mut frame = BytesMut::new();
        let allowance = self.allowance(request.body.len());
        let written = if op == Op::Multi && self.head.has_session(session.id) {
            self.multi(pending, &request, allowance, &mut frame)
        } else {
            self.single(op, pending, &request, allowance, &mut frame)
        };
        let (txn, changes) = match written {
            Ok((txn, changes)) => {
                self.bytes += (request.body.len() + RECORD_BYTES) as u64;
                if changes.is_empty() && is_over_quota(&txn.body) {
                    request.peer.reach(Limit::Quota);
                }
                (Some((txn, self.head.digest())), changes)
            }
            Err(shortage) => {
                if shortage == Shortage::Disk {
                    self.room.refused();
                }
                request.peer.reach(match shortage {
                    Shortage::Disk => Limit::Disk,
                    Shortage::Tree => Limit::Tree,
                });
                zxid = self.head.last_zxid();
                (None, Vec::new())
            }
        };
        Decided {
            txn,
            changes,
            answer: Answer::Reply {
                session,
                request,
                frame,
                zxid,
            },
        }
    }

    /// What a request of this length may do; `None` if it cannot reach any limit.
    fn allowance(&self, request_bytes: usize) -> Option<Allowance> {
        let disk = self
            .room
            .state_at(self.bytes + (request_bytes + RECORD_BYTES) as u64);
        let (size, limits) = (self.head.size(), self.rules.tree);
        let is_far = size.bytes.saturating_add(request_bytes * GROWTH_MAX) < limits.bytes_max
            && size.nodes.saturating_add(request_bytes) < limits.nodes_max;
        let allowance = Allowance { size, limits, disk };
        (disk != DiskState::Ample || !is_far).then_some(allowance)
    }

    /// Decides a write that is not a multi. One that is refused for a shortage takes neither a zxid nor space in the log: clients may repeat
    /// it as often as they like.
    fn single(
        &mut self,
        op: Op,
        mut txn: Txn,
        request: &Request,
        allowance: Option<Allowance>,
        frame: &mut BytesMut,
    ) -> Result<(Txn, Vec<Change>), Shortage> {
        let body = self.prepare(op, &txn, request);
        if let (Ok(body), Some(allowance)) = (&body, allowance)
            && let Some(shortage) = allowance.refuses(self.head.growth(body))
        {
            let refused = Err(ErrorCode::QuotaExceeded);
            reply::put(frame, request.xid, self.head.last_zxid(), refused, |_| {});
            return Err(shortage);
        }
        Ok(match body {
            Ok(body) => {
                txn.body = body;
                let changes = self.head.apply(&txn);
                reply::put(frame, request.xid, txn.zxid, Ok(()), |out| {
                    put_result(out, op, &txn.body, &self.head);
                });
                if op == Op::Check {
                    // Apache cannot recover from a log that holds a check by itself, so it is logged as a multi.
                    txn.body = TxnBody::Multi(vec![txn.body]);
                }
                (txn, changes)
            }
            Err(code) => {
                txn.body = TxnBody::Error(code.number());
                self.head.apply(&txn);
                reply::put(frame, request.xid, txn.zxid, Err(code), |_| {});
                (txn, Vec::new())
            }
        })
    }

    fn prepare(&mut self, op: Op, txn: &Txn, request: &Request) -> Result<TxnBody, ErrorCode> {
        if !self.head.has_session(txn.session_id) {
            return Err(ErrorCode::SessionExpired);
        }
        let mut acl_bytes_left = self.rules.acl_bytes_max;
        let mut preparation = Preparation {
            tree: &self.head,
            rules: self.rules,
            session_id: txn.session_id,
            ids: &request.ids,
            acl_pool: &mut self.acl_pool,
            acl_bytes_left: &mut acl_bytes_left,
        };
        let mut body = Reader::new(&request.body);
        match op {
            Op::Create | Op::Create2 | Op::CreateContainer | Op::CreateTtl => {
                let create = Create::decode(op, &mut body)?;
                let mode = Mode::of_request(op, &create, self.rules)?;
                preparation.create(mode, create)
            }
            Op::Delete => preparation.delete(&PathVersion::decode(&mut body)?),
            Op::SetData => preparation.set_data(&SetData::decode(&mut body)?),
            Op::SetAcl => preparation.set_acl(SetAcl::decode(&mut body)?),
            Op::Check => preparation.check(&PathVersion::decode(&mut body)?),
            Op::CloseSession => Ok(self.close_body(txn.session_id)),
            // This server forms no ensemble.
            Op::Reconfig if self.rules.reconfig_enabled => Err(ErrorCode::Unimplemented),
            Op::Reconfig => Err(ErrorCode::ReconfigDisabled),
            // Only the server itself submits this.
            Op::DeleteContainer => Err(ErrorCode::BadArguments),
            _ => Err(ErrorCode::MarshallingError),
        }
    }

    fn multi(
        &mut self,
        mut txn: Txn,
        request: &Request,
        allowance: Option<Allowance>,
        frame: &mut BytesMut,
    ) -> Result<(Txn, Vec<Change>), Shortage> {
        let ops = multi_proto::Ops::decode(&mut Reader::new(&request.body));
        let outcome = ops.map_err(|_| Spoiled::Malformed).and_then(|ops| {
            multi::decide(
                &self.head,
                self.rules,
                &request.ids,
                &mut self.acl_pool,
                &txn,
                ops,
                allowance,
            )
        });
        let (xid, zxid) = (request.xid, txn.zxid);
        let changes = match outcome {
            Ok(Outcome {
                shortage: Some(shortage),
                results,
                ..
            }) => {
                let zxid = self.head.last_zxid();
                reply::put(frame, xid, zxid, Ok(()), |out| out.unsplit(results));
                return Err(shortage);
            }
            Ok(outcome) => {
                reply::put(frame, xid, zxid, Ok(()), |out| out.unsplit(outcome.results));
                txn.body = outcome.body;
                self.head = outcome.tree;
                outcome.changes
            }
            Err(spoiled) => {
                let code = ErrorCode::MarshallingError;
                txn.body = TxnBody::Error(code.number());
                reply::put(frame, xid, zxid, Err(code), |out| {
                    if matches!(spoiled, Spoiled::NullPath) {
                        multi_proto::put_end(out);
                    }
                });
                Vec::new()
            }
        };
        self.head.advance(zxid);
        Ok((txn, changes))
    }

    /// The transaction that ends a session and deletes its ephemeral nodes.
    fn close_body(&self, session_id: i64) -> TxnBody {
        TxnBody::CloseSession {
            paths: self.head.ephemerals_of(session_id).cloned().collect(),
        }
    }

    fn txn(&self, session_id: i64, cxid: i32, time_ms: i64, body: TxnBody) -> Txn {
        Txn {
            session_id,
            cxid,
            zxid: zxid::next(self.head.last_zxid()),
            time_ms,
            body,
        }
    }

    fn apply(&mut self, txn: Txn, answer: Answer) -> Decided {
        self.bytes += RECORD_BYTES as u64;
        let changes = self.head.apply(&txn);
        Decided {
            txn: Some((txn, self.head.digest())),
            changes,
            answer,
        }
    }

    fn nothing(&self, answer: Answer) -> Decided {
        Decided {
            txn: None,
            changes: Vec::new(),
            answer,
        }
    }
}

/// Whether a write was refused because of a quota, or because its session has too many ephemeral nodes.
fn is_over_quota(body: &TxnBody) -> bool {
    match body {
        TxnBody::Error(code) => *code == ErrorCode::QuotaExceeded.number(),
        TxnBody::Multi(parts) => parts.iter().any(is_over_quota),
        _ => false,
    }
}

/// Appends the reply of a successful write, after it was applied to `tree`.
pub(super) fn put_result(out: &mut BytesMut, op: Op, body: &TxnBody, tree: &Tree) {
    let (path, with_path, with_stat) = match body {
        TxnBody::Create { path, .. } => (path, true, op != Op::Create),
        TxnBody::SetData { path, .. } | TxnBody::SetAcl { path, .. } => (path, false, true),
        _ => return,
    };
    if with_path {
        out.put_ustring(path);
    }
    if with_stat {
        let mut stat = tree.get(path).expect("it was just written").stat();
        // A new quota statistics node gets its numbers at once, but this reply shows the data of the request.
        if let TxnBody::Create { data, .. } = body {
            let length = data.as_ref().map_or(0, |data| data.len());
            stat.data_length = i32::try_from(length).unwrap_or(i32::MAX);
        }
        stat.encode(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::access;
    use crate::tree::txn::Lifetime;

    /// Whether the writer deletes `/x` at `now_ms`; the node was created at 0 and last changed at `set_ms`.
    fn is_deleted(lifetime: Lifetime, set_ms: i64, now_ms: i64) -> bool {
        let mut writer = Writer::new(
            Tree::fresh(),
            Rules::default(),
            Arc::new(DiskRoom::unlimited()),
        );
        let path: Arc<str> = "/x".into();
        let create = TxnBody::Create {
            path: path.clone(),
            data: None,
            acl: access::open(),
            lifetime,
            parent_cversion: 1,
        };
        let set = TxnBody::SetData {
            path: path.clone(),
            data: None,
            version: 1,
        };
        for (time_ms, body) in [(0, create), (set_ms, set)] {
            let txn = writer.txn(0, 0, time_ms, body);
            writer.apply(txn, Answer::Nobody);
        }
        let delete = Submission::DeleteContainer {
            path,
            never_used_ms: 100,
        };
        let decided = writer.decide(delete, now_ms);
        decided.is_some_and(|decided| decided.txn.is_some())
    }

    #[test]
    fn a_node_that_was_refreshed_after_it_was_found_stays() {
        for lifetime in [Lifetime::Ttl { ms: 100 }, Lifetime::Container] {
            assert!(is_deleted(lifetime, 0, 101), "{lifetime:?}");
            assert!(!is_deleted(lifetime, 90, 101), "{lifetime:?}");
            assert!(!is_deleted(lifetime, 0, 100), "{lifetime:?}");
        }
        assert!(!is_deleted(Lifetime::Persistent, 0, 101));
    }
}
