//! A server without sockets, threads and disks, for unit tests.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bellwether_testkit::Request as ClientRequest;
use bellwether_wire::jute::Reader;
use bellwether_wire::op::Op;
use bellwether_wire::request::RequestHeader;
use bytes::{Bytes, BytesMut};

use crate::audit::Audit;
use crate::client::outbox::{Outbox, OutboxTotal};
use crate::client::{Peer, PeerAddress, Request};
use crate::clock::Clock;
use crate::config::Config;
use crate::publish::{Published, WatchLimits};
use crate::session::{Passwords, Session, SessionTable};
use crate::slow_requests::StageTimes;
use crate::storage::DiskRoom;
use crate::storage::log::record;
use crate::tree::Tree;
use crate::tree::access::Schemes;
use crate::writer::{Group, Publish as _, Rules, Submission, TreeLimits, Writer};

/// Writes per group.
pub(crate) const GROUP: usize = 10;

pub(crate) const NOW_MS: i64 = 1_700_000_000_000;
const TIMEOUT_MS: i32 = 30_000;

/// Writer, log and published state, called directly.
pub(crate) struct Core {
    sessions: Arc<SessionTable>,
    pub(crate) published: Published,
    writer: Writer,
    log: BytesMut,
    connections: u64,
    pub(crate) outboxes: Arc<OutboxTotal>,
}

/// A connection without a socket.
pub(crate) struct Client {
    pub(crate) session: Arc<Session>,
    pub(crate) peer: Arc<Peer>,
}

impl Core {
    pub(crate) fn new() -> Self {
        Self::with_audit(None)
    }

    /// With an audit log.
    pub(crate) fn with_audit(audit: Option<Audit>) -> Self {
        let sessions = SessionTable::new(
            Clock::start(),
            2000,
            NOW_MS,
            Passwords::apache(),
            std::iter::empty(),
        );
        let sessions = Arc::new(sessions);
        let tree = Tree::fresh();
        let rules = Rules {
            extended_types: true,
            skip_acl: false,
            enforce_quota: false,
            reconfig_enabled: false,
            schemes: Schemes::default(),
            ephemerals_per_session_max: usize::MAX,
            ephemeral_bytes_max: usize::MAX,
            acl_bytes_max: usize::MAX,
            tree: TreeLimits::default(),
        };
        Self {
            published: Published::new(
                tree.clone(),
                sessions.clone(),
                Arc::default(),
                false,
                WatchLimits::of(&Config::default()),
                audit.map(Arc::new),
                // Off: tests that count instructions make all requests first, and valgrind takes long over them.
                Duration::ZERO,
            ),
            sessions,
            writer: Writer::new(tree, rules, Arc::new(DiskRoom::unlimited())),
            log: BytesMut::new(),
            connections: 0,
            outboxes: Arc::new(OutboxTotal::new(usize::MAX, Arc::default())),
        }
    }

    pub(crate) fn connect(&mut self) -> Client {
        self.connections += 1;
        let address = PeerAddress::Tcp((Ipv4Addr::LOCALHOST, 2181).into());
        let outbox = Outbox::new(usize::MAX, self.outboxes.clone());
        let peer = Arc::new(Peer::new(self.connections, address, outbox, Arc::default()));
        let (session, password) = self.sessions.open(TIMEOUT_MS, None);
        let mut order = session.request_order();
        order.attach(peer.clone());
        order.accept_write();
        drop(order);
        peer.request_waits();
        self.commit(vec![Submission::OpenSession {
            session: session.clone(),
            peer: peer.clone(),
            timeout_ms: TIMEOUT_MS,
            password,
            has_read_only: false,
        }]);
        Client { session, peer }
    }

    /// Passes writes through connection, writer, log and publishing.
    pub(crate) fn write(&mut self, client: &Client, requests: Vec<Request>) {
        let mut requests = requests.into_iter().peekable();
        while requests.peek().is_some() {
            let group = requests.by_ref().take(GROUP);
            let submissions = group.map(|request| self.submission(client, request));
            let submissions = submissions.collect();
            self.commit(submissions);
        }
    }

    /// The submission that the connection of `client` makes for a write.
    pub(crate) fn submission(&self, client: &Client, request: Request) -> Submission {
        self.published.wait(&request);
        Submission::Request {
            behind_reads: client.session.request_order().accept_write(),
            session: client.session.clone(),
            request,
        }
    }

    fn commit(&mut self, submissions: Vec<Submission>) {
        let group = self.decide(submissions);
        drop(self.published.publish(group));
    }

    /// Runs writer and log: returns the group to publish.
    pub(crate) fn decide(&mut self, submissions: Vec<Submission>) -> Group {
        let decide = |submission| self.writer.decide(submission, NOW_MS).unwrap();
        let taken = Instant::now();
        let decided: Vec<_> = submissions.into_iter().map(decide).collect();
        for (txn, digest) in decided.iter().filter_map(|one| one.txn.as_ref()) {
            record::put(&mut self.log, txn, Some(*digest));
        }
        self.log.clear();
        let mut times = StageTimes::decided_since(taken);
        times.synced = Instant::now();
        Group {
            decided,
            tree: self.writer.head().clone(),
            bytes: self.writer.bytes(),
            times,
        }
    }
}

impl Client {
    pub(crate) fn request(&self, request: &ClientRequest) -> Request {
        let frame = request.encode(1);
        let header = RequestHeader::decode(&mut Reader::new(&frame[4..12])).unwrap();
        Request {
            peer: self.peer.clone(),
            xid: header.xid,
            op: Op::from_number(header.op),
            body: Bytes::copy_from_slice(&frame[12..]),
            ids: self.peer.ids(),
            received: Instant::now(),
        }
    }
}
