//! The paths that every request takes, each as one function whose instructions can be counted: see
//! `crates/bench/instructions`, which runs these tests one by one.
//!
//! No sockets, threads or disks, so that a count is the same in every run but for the random keys of
//! hash tables, which many different paths average out. What a function needs is made before it begins.

use std::hint::black_box;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Instant;

use bellwether_testkit::{Create, Request as ClientRequest};
use bytes::{Bytes, BytesMut};

use crate::clock::Clock;
use crate::config::Config;
use crate::outbox::{Outbox, Together};
use crate::peer::Peer;
use crate::peer_address::PeerAddress;
use crate::proto::jute::Reader;
use crate::proto::op::Op;
use crate::proto::request::{self, PathWatch, RequestHeader, SetData};
use crate::proto::txn::{Lifetime, Txn, TxnBody};
use crate::proto::{frame, reply};
use crate::publish::{Published, WatchLimits};
use crate::request::Request;
use crate::session::{Session, SessionTable};
use crate::storage::log_record;
use crate::tree::{Tree, access};
use crate::writer::{Group, Rules, Submission, Writer};

/// How often each path is taken.
const COUNT: usize = 5000;

/// How many writes become visible together.
const GROUP: usize = 10;

const NOW_MS: i64 = 1_700_000_000_000;
const TIMEOUT_MS: i32 = 30_000;

#[test]
fn codec() {
    let requests = |number| {
        [
            ClientRequest::get_data(path(number)),
            ClientRequest::set_data(path(number), data()),
            ClientRequest::create(path(number), data()),
        ]
    };
    let frames: Vec<_> = (0..COUNT).flat_map(requests).collect();
    let mut input = BytesMut::new();
    for request in &frames {
        input.extend_from_slice(&request.encode(1));
    }
    let stat = Tree::fresh().get("/").unwrap().stat();
    assert_eq!(counted::codec(input, stat), frames.len());
}

#[test]
fn tree() {
    let txns = |zxid: i64, body| Txn {
        session_id: 1,
        cxid: 1,
        zxid,
        time_ms: NOW_MS,
        body,
    };
    let mut all = Vec::new();
    for number in 0..COUNT {
        all.push(TxnBody::Create {
            path: path(number).into(),
            data: Some(data().into()),
            acl: access::open(),
            lifetime: Lifetime::Persistent,
            parent_cversion: i32::try_from(number).unwrap() + 1,
        });
    }
    for number in 0..COUNT {
        all.push(TxnBody::SetData {
            path: path(number).into(),
            data: Some(data().into()),
            version: 1,
        });
    }
    for number in 0..COUNT {
        all.push(TxnBody::Delete {
            path: path(number).into(),
        });
    }
    let all: Vec<_> = (1..)
        .zip(all)
        .map(|(zxid, body)| txns(zxid, body))
        .collect();
    assert_eq!(counted::tree(&all), 3 * COUNT);
}

#[test]
fn write() {
    let mut core = Core::new();
    let client = core.connect();
    let create = |number| ClientRequest::create_mode(path(number), data(), Create::PERSISTENT);
    let set = |number| ClientRequest::set_data(path(number), data());
    let requests: Vec<_> = (0..COUNT).map(create).chain((0..COUNT).map(set)).collect();
    let requests: Vec<_> = requests.iter().map(|one| client.request(one)).collect();
    counted::write(&mut core, &client, requests);
    let tree = core.published.tree();
    assert_eq!(tree.get(&path(COUNT - 1)).unwrap().version, 1);
}

#[test]
fn read() {
    let mut core = Core::new();
    let client = core.connect();
    core.fill(&client);
    let get = |number| client.request(&ClientRequest::get_data(path(number)));
    let requests: Vec<_> = (0..COUNT).map(get).collect();
    counted::read(&core, &client, requests);
    assert!(client.peer.outbox.len() > COUNT * 100);
}

/// Many paths that one watches, and one that many watch.
#[test]
fn watch() {
    let mut core = Core::new();
    let writer = core.connect();
    core.fill(&writer);
    let watchers: Vec<_> = (0..COUNT).map(|_| core.connect()).collect();
    let arm = |client: &Client, node| client.request(&ClientRequest::get_data(node).watching());
    let mut armed: Vec<_> = watchers
        .iter()
        .map(|client| (client, arm(client, path(0))))
        .collect();
    armed.extend((1..COUNT).map(|number| (&writer, arm(&writer, path(number)))));
    let set = |number| writer.request(&ClientRequest::set_data(path(number), data()));
    let sets = (0..COUNT).map(set).collect();
    counted::watch(&mut core, &writer, armed, sets);
    assert_eq!(core.published.watch_count(), 0);
}

/// What is counted: these functions and all that they call.
mod counted {
    use super::*;

    #[inline(never)]
    pub(super) fn codec(mut input: BytesMut, stat: crate::proto::stat::Stat) -> usize {
        let mut out = BytesMut::new();
        let mut count = 0;
        while let Some(frame) = frame::take(&mut input, usize::MAX).unwrap() {
            let mut reader = Reader::new(&frame);
            let header = RequestHeader::decode(&mut reader).unwrap();
            match Op::from_number(header.op).unwrap() {
                Op::GetData => drop(black_box(PathWatch::decode(&mut reader))),
                Op::SetData => drop(black_box(SetData::decode(&mut reader))),
                op => drop(black_box(request::Create::decode(op, &mut reader))),
            }
            reply::put(&mut out, header.xid, 1, Ok(()), |out| stat.encode(out));
            count += 1;
        }
        black_box(out);
        count
    }

    #[inline(never)]
    pub(super) fn tree(txns: &[Txn]) -> usize {
        let mut tree = Tree::fresh();
        let mut changes = 0;
        for group in txns.chunks(GROUP) {
            // Somebody reads it: the next change must leave it as it is.
            let _seen = tree.clone();
            for txn in group {
                changes += tree.apply(txn).len();
            }
        }
        changes
    }

    #[inline(never)]
    pub(super) fn write(core: &mut Core, client: &Client, requests: Vec<Request>) {
        core.write(client, requests);
    }

    #[inline(never)]
    pub(super) fn read(core: &Core, client: &Client, requests: Vec<Request>) {
        for request in requests {
            assert!(core.published.read(&client.session, request));
        }
    }

    #[inline(never)]
    pub(super) fn watch(
        core: &mut Core,
        writer: &Client,
        armed: Vec<(&Client, Request)>,
        sets: Vec<Request>,
    ) {
        for (client, request) in armed {
            assert!(core.published.read(&client.session, request));
        }
        core.write(writer, sets);
    }
}

/// A server without anything around it.
struct Core {
    sessions: Arc<SessionTable>,
    published: Published,
    writer: Writer,
    log: BytesMut,
    connections: u64,
    outboxes: Arc<Together>,
}

/// A connection without a socket.
struct Client {
    session: Arc<Session>,
    peer: Arc<Peer>,
}

impl Core {
    fn new() -> Self {
        let sessions = SessionTable::new(Clock::start(), 2000, NOW_MS, std::iter::empty());
        let sessions = Arc::new(sessions);
        let tree = Tree::fresh();
        let rules = Rules {
            extended_types: true,
            skip_acl: false,
            enforce_quota: false,
            reconfig_enabled: false,
            acl_bytes_max: usize::MAX,
        };
        Self {
            published: Published::new(
                tree.clone(),
                sessions.clone(),
                Arc::default(),
                false,
                WatchLimits::of(&Config::default()),
            ),
            sessions,
            writer: Writer::new(tree, rules),
            log: BytesMut::new(),
            connections: 0,
            outboxes: Arc::new(Together::new(usize::MAX)),
        }
    }

    fn connect(&mut self) -> Client {
        self.connections += 1;
        let address = PeerAddress::Tcp((Ipv4Addr::LOCALHOST, 2181).into());
        let outbox = Outbox::new(usize::MAX, self.outboxes.clone());
        let peer = Arc::new(Peer::new(self.connections, address, outbox));
        let session = self.sessions.open(TIMEOUT_MS);
        let mut lane = session.lane();
        lane.attach(peer.clone());
        lane.accept_write();
        drop(lane);
        peer.request_waits();
        self.commit(vec![Submission::OpenSession {
            session: session.clone(),
            peer: peer.clone(),
            timeout_ms: TIMEOUT_MS,
            has_read_only: false,
        }]);
        Client { session, peer }
    }

    /// Makes all nodes.
    fn fill(&mut self, client: &Client) {
        let create = |number| client.request(&ClientRequest::create(path(number), data()));
        self.write(client, (0..COUNT).map(create).collect());
    }

    /// What connections, the writer, the log and publishing do with writes.
    fn write(&mut self, client: &Client, requests: Vec<Request>) {
        let mut requests = requests.into_iter().peekable();
        while requests.peek().is_some() {
            let submissions = requests.by_ref().take(GROUP).map(|request| {
                self.published.wait(&request);
                Submission::Request {
                    behind_reads: client.session.lane().accept_write(),
                    session: client.session.clone(),
                    request,
                }
            });
            let submissions = submissions.collect();
            self.commit(submissions);
        }
    }

    fn commit(&mut self, submissions: Vec<Submission>) {
        let decide = |submission| self.writer.decide(submission, NOW_MS).unwrap();
        let decided: Vec<_> = submissions.into_iter().map(decide).collect();
        for (txn, digest) in decided.iter().filter_map(|one| one.txn.as_ref()) {
            log_record::put(&mut self.log, txn, Some(*digest));
        }
        self.log.clear();
        let tree = self.writer.head().clone();
        self.published.publish(Group { decided, tree });
    }
}

impl Client {
    fn request(&self, request: &ClientRequest) -> Request {
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

fn path(number: usize) -> String {
    format!("/node-{number:05}")
}

fn data() -> Vec<u8> {
    vec![b'x'; 100]
}
