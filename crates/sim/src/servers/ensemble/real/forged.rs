//! Histories that no ensemble may show: each differs from a correct one in one frame or one moment.

use bellwether_server::files::txn::{AclList, Lifetime, Txn, TxnBody};
use bellwether_testkit::{Body, Frame, Reply, Request, WatchEvent};
use bellwether_wire::acl::Acl;
use bellwether_wire::code::ErrorCode;
use bellwether_wire::event::{EVENT_ZXID, EventKind};
use bytes::Bytes;

use super::history::{Connection, Greeting, History, Micros, Received, Sent};
use super::replay::allows;
use crate::world::server_epoch_ms;

const LEADER: usize = 2;
const TIMEOUT_MS: i32 = 40_000;
const SHORT_MS: i32 = 1_600;

/// Sessions of the clients: a writer, a reader, and one that falls silent.
const WRITER: i64 = 10;
const READER: i64 = 20;
const SILENT: i64 = 30;

/// Connections of the history.
const WRITES: usize = 0;
const READS: usize = 1;
const MOVED: usize = 3;

fn zxid(count: i64) -> i64 {
    (1 << 32) | count
}

fn at(ms: u64) -> Micros {
    ms * 1_000
}

fn txn(count: i64, ms: i64, session_id: i64, cxid: i32, body: TxnBody) -> Txn {
    Txn {
        session_id,
        cxid,
        zxid: zxid(count),
        time_ms: server_epoch_ms(0) + ms,
        body,
    }
}

fn connection(client: usize, member: usize, ms: u64, granted: (i64, i32)) -> Connection {
    Connection {
        client,
        member,
        at: at(ms),
        seen: 0,
        session: 0,
        timeout_ms: granted.1,
        greeting: Some(Greeting {
            at: at(ms + 3),
            granted: Some(granted),
        }),
        requests: Vec::new(),
        received: Vec::new(),
    }
}

impl Connection {
    fn asks(&mut self, ms: u64, xid: i32, request: Request) {
        let at = at(ms);
        self.requests.push(Sent { at, xid, request });
    }

    fn gets(&mut self, ms: u64, xid: i32, count: i64, outcome: Result<Body, ErrorCode>) {
        let reply = Reply {
            xid,
            zxid: zxid(count),
            outcome,
            bytes: Bytes::new(),
        };
        let frame = Frame::Reply(reply);
        self.received.push(Received { at: at(ms), frame });
    }
}

fn names(names: &[&str]) -> Result<Body, ErrorCode> {
    let names = names.iter().map(|name| (*name).to_owned());
    Ok(Body::Children(names.collect()))
}

fn list() -> Request {
    Request::get_children("/")
}

/// A node is created on one member, watched on it by another client, and deleted through another member. A third session expires.
fn correct() -> History {
    let acl: AclList = vec![Acl::open()].into();
    let opens = |timeout_ms| TxnBody::CreateSession { timeout_ms };
    let create = TxnBody::Create {
        path: "/a".into(),
        data: Some(Vec::new().into()),
        acl,
        lifetime: Lifetime::Persistent,
        parent_cversion: 1,
    };
    let delete = TxnBody::Delete { path: "/a".into() };
    let ends = TxnBody::CloseSession { paths: Vec::new() };

    let mut writes = connection(0, 0, 1_000, (WRITER, TIMEOUT_MS));
    writes.asks(1_300, 1, Request::create("/a", ""));
    writes.gets(1_303, 1, 4, Ok(Body::Path("/a".into())));
    writes.asks(1_310, 2, list());
    writes.gets(1_311, 2, 4, names(&["a", "zookeeper"]));

    let mut reads = connection(1, 0, 1_010, (READER, TIMEOUT_MS));
    reads.asks(1_200, 1, Request::exists("/a").watching());
    reads.gets(1_201, 1, 3, Err(ErrorCode::NoNode));
    reads.received.push(Received {
        at: at(1_305),
        frame: Frame::Event(WatchEvent {
            kind: EventKind::NodeCreated,
            path: "/a".into(),
            zxid: EVENT_ZXID,
        }),
    });
    reads.asks(1_320, 2, list());
    reads.gets(1_321, 2, 4, names(&["a", "zookeeper"]));
    reads.asks(1_600, 3, Request::Sync { path: "/".into() });
    reads.gets(1_602, 3, 5, Ok(Body::Path("/".into())));

    let mut silent = connection(2, LEADER, 1_020, (SILENT, SHORT_MS));
    silent.asks(1_100, -2, Request::Ping);
    silent.gets(1_101, -2, 3, Ok(Body::None));

    let mut moved = connection(0, 1, 1_400, (WRITER, TIMEOUT_MS));
    moved.session = WRITER;
    moved.seen = zxid(4);
    moved.asks(1_410, 3, list());
    moved.gets(1_411, 3, 4, names(&["a", "zookeeper"]));
    moved.asks(1_500, 4, Request::delete("/a"));
    moved.gets(1_503, 4, 5, Ok(Body::None));

    History {
        txns: vec![
            txn(1, 1_001, WRITER, 0, opens(TIMEOUT_MS)),
            txn(2, 1_011, READER, 0, opens(TIMEOUT_MS)),
            txn(3, 1_021, SILENT, 0, opens(SHORT_MS)),
            txn(4, 1_301, WRITER, 1, create),
            txn(5, 1_501, WRITER, 4, delete),
            txn(6, 2_701, SILENT, 0, ends),
        ],
        connections: vec![writes, reads, silent, moved],
        leaders: vec![(1, LEADER)],
        faults: Vec::new(),
    }
}

/// A session is opened and writes within one millisecond, in which another client of its member does not see it yet.
fn hasty() -> History {
    let mut reads = connection(0, 0, 1_000, (READER, TIMEOUT_MS));
    reads.asks(1_100, 1, list());
    reads.gets(1_101, 1, 1, names(&["zookeeper"]));
    reads.requests[0].at += 500;

    let mut writes = connection(1, 0, 1_100, (WRITER, TIMEOUT_MS));
    writes.greeting = Some(Greeting {
        at: at(1_100) + 600,
        granted: Some((WRITER, TIMEOUT_MS)),
    });
    writes.asks(1_100, 1, Request::delete("/a"));
    writes.requests[0].at += 650;
    writes.gets(1_103, 1, 3, Err(ErrorCode::NoNode));

    let opens = || TxnBody::CreateSession {
        timeout_ms: TIMEOUT_MS,
    };
    let no_node = TxnBody::Error(ErrorCode::NoNode as i32);
    History {
        txns: vec![
            txn(1, 1_001, READER, 0, opens()),
            txn(2, 1_100, WRITER, 0, opens()),
            txn(3, 1_100, WRITER, 1, no_node),
        ],
        connections: vec![reads, writes],
        leaders: vec![(1, LEADER)],
        faults: Vec::new(),
    }
}

/// Replaces a frame by a list of children, as of this zxid.
fn list_shows(history: &mut History, number: usize, frame: usize, count: i64, shown: &[&str]) {
    let received = &mut history.connections[number].received[frame];
    let Frame::Reply(reply) = &mut received.frame else {
        panic!("not a reply: {received:?}");
    };
    reply.zxid = zxid(count);
    reply.outcome = names(shown);
}

/// The history is refused after a change.
fn refused(forge: impl FnOnce(&mut History)) -> String {
    let mut history = correct();
    forge(&mut history);
    allows(&history).unwrap_err()
}

fn assert_refused(forge: impl FnOnce(&mut History), why: &str) {
    let refusal = refused(forge);
    assert!(refusal.contains(why), "{refusal}");
}

#[test]
fn correct_history_is_allowed() {
    assert_eq!(allows(&correct()), Ok(()));
}

#[test]
fn write_in_the_millisecond_of_its_greeting_is_allowed() {
    assert_eq!(allows(&hasty()), Ok(()));
}

#[test]
fn reply_older_than_the_own_write_is_refused() {
    assert_refused(
        |history| list_shows(history, WRITES, 1, 3, &["zookeeper"]),
        "shows an older state",
    );
    // Under the right zxid.
    assert_refused(
        |history| list_shows(history, WRITES, 1, 4, &["zookeeper"]),
        "frame 1 is",
    );
}

#[test]
fn event_after_the_reply_that_shows_its_change_is_refused() {
    assert_refused(
        |history| history.connections[READS].received.swap(1, 2),
        "frame 1 is",
    );
}

#[test]
fn event_before_the_reply_that_armed_its_watch_is_refused() {
    assert_refused(
        |history| history.connections[READS].received.swap(0, 1),
        "frame 0 is",
    );
}

#[test]
fn missing_event_is_refused() {
    assert_refused(
        |history| drop(history.connections[READS].received.remove(1)),
        "the model sends Event",
    );
}

#[test]
fn view_that_goes_back_after_a_reconnect_is_refused() {
    assert_refused(
        |history| list_shows(history, MOVED, 0, 3, &["zookeeper"]),
        "shows an older state",
    );
}

#[test]
fn member_that_goes_back_is_refused() {
    // A client has seen the node there 9 ms before.
    assert_refused(
        |history| {
            let reads = &mut history.connections[READS];
            reads.received.remove(1);
            list_shows(history, READS, 1, 3, &["zookeeper"]);
        },
        "too early for the model",
    );
}

#[test]
fn sync_that_shows_less_than_what_was_written_before_is_refused() {
    assert_refused(
        |history| {
            let received = &mut history.connections[READS].received[3];
            if let Frame::Reply(reply) = &mut received.frame {
                reply.zxid = zxid(4);
            }
        },
        "too early for the model",
    );
}

#[test]
fn expiry_before_the_timeout_is_refused() {
    assert_refused(
        |history| history.txns[5].time_ms -= 2,
        "expired 1599 ms after",
    );
}

#[test]
fn answered_write_that_is_not_in_the_log_is_refused() {
    assert_refused(
        |history| history.txns[4].cxid = 9,
        "is answered, and not in the log",
    );
}

#[test]
fn session_that_lives_on_after_its_end_is_refused() {
    assert_refused(
        |history| {
            let ends = TxnBody::CloseSession { paths: Vec::new() };
            history.txns[4] = txn(5, 1_320, WRITER, 0, ends);
            let moved = &mut history.connections[MOVED];
            moved.at = at(1_600);
            moved.greeting = moved.greeting.map(|greeting| Greeting {
                at: at(1_603),
                ..greeting
            });
            moved.requests.clear();
            moved.received.clear();
        },
        "too early for the model",
    );
}
