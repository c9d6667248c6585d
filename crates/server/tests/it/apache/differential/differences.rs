//! All known differences between this server and Apache 3.8.0, with the reasons. The random plans and the tables leave out only these.
//!
//! | this server | Apache 3.8.0 |
//! |---|---|
//! | as 3.9: one connection may watch a path in several modes | the last mode replaces the others |
//! | as 3.9: types 1 and 2 of removeWatches mean one-shot watches | any watch in that table |
//! | as 3.9: checkWatches is about the caller's watches | about those of all clients; a path without a slash is an error |
//! | as 3.8.4: exists needs read permission | it needs none |
//! | setWatches on a node that the client may not read sends an event and arms nothing | it does as for other nodes |
//! | as 3.8.2: create2 in a multi is answered with a Stat | it becomes a create |
//! | a check that succeeds is answered | it is not, and the log becomes unreadable |
//! | a time to live without its mode is refused | a negative one stops the process for good |
//! | a limit on the root is ignored | it stops the process |
//! | a multi with a null path is answered with its zxid | with the previous zxid |
//! | a new access list applies to the next write | once it is applied, so not to a write right after it |
//! | a malformed multi leaves nothing behind | a write right after it still sees the operations before the malformed one |
//! | a container may have children at once | not while it is pending, if its mode was an ephemeral's |
//! | a hard limit applies to every write | not to a write right after another, or in the same multi |
//! | an unknown operation is answered in order | at once; earlier requests may stay unanswered |
//! | createSession is refused | it is answered with a second session |
//! | a watch on a null path ends with its connection | the connection does not end |
//! | characters of four bytes are returned as sent | as two surrogates of three bytes each |
//! | such surrogates, which Java's clients send too, are read as the character | as U+FFFD each |
//! | create with the mode of a container makes one | it makes a persistent node |
//! | a connection has at most a hundred ids and 64 KiB of them, one more is refused | no limit |
//! | access lists of a request longer than a frame, `auth` expanded, are refused with -114 | they are stored |
//! | a multiRead with more results than half of what may wait for a client is refused with -5 | it is answered |
//!
//! Debian's 3.8.0 sends no events to clients without read permission, like 3.8.4 and this server (CVE-2024-23944).
//!
//! Where Apache's behaviour is random, or ends its process, only this server is tested.

use bellwether_server::Config;
use bellwether_testkit::{
    Apache, Body, Create, MultiResult, RawClient, Request, TestServer, WatchLists,
};
use bellwether_wire::acl::{self, Acl, Id};
use bellwether_wire::code::ErrorCode;
use bellwether_wire::event::EventKind;
use bellwether_wire::op::Op;

type Outcome = Result<Body, ErrorCode>;

/// A client of each server; both send the same.
struct Both {
    embedded: RawClient,
    apache: RawClient,
    servers: (TestServer, Apache),
}

impl Both {
    async fn start() -> Self {
        let servers = (
            TestServer::start().await.unwrap(),
            Apache::start().await.unwrap(),
        );
        Self {
            embedded: RawClient::connect(servers.0.address()).await.unwrap(),
            apache: RawClient::connect(servers.1.address()).await.unwrap(),
            servers,
        }
    }

    /// Replies of this server and of Apache's.
    async fn answers(&mut self, request: Request) -> (Outcome, Outcome) {
        (
            self.embedded.call(request.clone()).await.unwrap().outcome,
            self.apache.call(request).await.unwrap().outcome,
        )
    }

    /// Sends requests that both must answer with success.
    async fn both(&mut self, requests: impl IntoIterator<Item = Request>) {
        for request in requests {
            let (embedded, apache) = self.answers(request).await;
            embedded.unwrap();
            apache.unwrap();
        }
    }

    /// Number of events from each since the last call.
    async fn events(&mut self) -> (usize, usize) {
        self.both([Request::Ping]).await;
        (
            self.embedded.take_events().len(),
            self.apache.take_events().len(),
        )
    }
}

async fn embedded() -> (TestServer, RawClient) {
    let server = TestServer::start().await.unwrap();
    let client = RawClient::connect(server.address()).await.unwrap();
    (server, client)
}

/// Sends requests in one segment and returns the replies.
async fn send_all(client: &mut RawClient, requests: &[Request]) -> Vec<Outcome> {
    client.send_all(requests).await.unwrap();
    let mut outcomes = Vec::new();
    for _ in requests {
        outcomes.push(client.receive_reply().await.unwrap().outcome);
    }
    outcomes
}

fn watch(path: &str, mode: i32) -> Request {
    let path = path.into();
    Request::AddWatch { path, mode }
}

fn with_acl(path: &str, acl: Vec<Acl>) -> Request {
    Request::Create(Create {
        op: Op::Create,
        path: path.into(),
        data: None,
        acl,
        flags: Create::PERSISTENT,
        ttl_ms: None,
    })
}

fn world(perms: i32) -> Vec<Acl> {
    let id = Id::new("world", "anyone");
    vec![Acl { perms, id }]
}

#[tokio::test]
async fn a_path_may_be_watched_in_more_than_one_way() {
    let mut servers = Both::start().await;
    servers
        .both([
            Request::create("/a", ""),
            watch("/a", 0),
            Request::get_data("/a").watching(),
            Request::set_data("/a", ""),
        ])
        .await;
    assert_eq!(servers.events().await, (1, 1));
    servers.both([Request::set_data("/a", "")]).await;
    assert_eq!(servers.events().await, (1, 0));
}

#[tokio::test]
async fn only_watches_that_fire_once_are_removed_by_table() {
    let mut servers = Both::start().await;
    servers.both([watch("/a", 0)]).await;
    let remove = Request::RemoveWatches {
        path: "/a".into(),
        kind: 2,
    };
    assert_eq!(
        servers.answers(remove).await,
        (Err(ErrorCode::NoWatcher), Ok(Body::None))
    );
}

#[tokio::test]
async fn a_client_is_told_of_its_own_watches_only() {
    let mut servers = Both::start().await;
    servers.both([watch("/a", 0)]).await;
    let check = |path: &str| Request::CheckWatches {
        path: path.into(),
        kind: 3,
    };
    servers.both([check("/a")]).await;
    let (embedded, apache) = &servers.servers;
    servers.embedded = RawClient::connect(embedded.address()).await.unwrap();
    let other = RawClient::connect(apache.address()).await.unwrap();
    let _watching = std::mem::replace(&mut servers.apache, other);
    assert_eq!(
        servers.answers(check("/a")).await,
        (Err(ErrorCode::NoWatcher), Ok(Body::None))
    );
    assert_eq!(
        servers.answers(check("a")).await,
        (Err(ErrorCode::NoWatcher), Err(ErrorCode::MarshallingError))
    );
}

#[tokio::test]
async fn exists_needs_the_right_to_read() {
    let mut servers = Both::start().await;
    servers.both([with_acl("/a", world(acl::WRITE))]).await;
    let (embedded, apache) = servers.answers(Request::exists("/a")).await;
    assert_eq!(embedded, Err(ErrorCode::NoAuth));
    apache.unwrap();
}

#[tokio::test]
async fn watches_are_restored_only_with_the_right_to_read() {
    let mut servers = Both::start().await;
    servers.both([with_acl("/a", world(acl::WRITE))]).await;
    let restore = |relative_zxid| {
        Request::SetWatches(WatchLists {
            relative_zxid,
            data: vec!["/a".into()],
            ..WatchLists::default()
        })
    };
    servers.both([restore(i64::MAX)]).await;
    assert_eq!(servers.events().await, (1, 0));
    servers.both([restore(0)]).await;
    assert_eq!(servers.events().await, (1, 1));
    servers.both([Request::set_data("/a", "")]).await;
    assert_eq!(servers.events().await, (0, 0));
}

#[tokio::test]
async fn create2_in_a_multi_keeps_its_stat() {
    let mut servers = Both::start().await;
    let create = Request::create2("/a", "", Create::PERSISTENT);
    let (embedded, apache) = servers.answers(Request::Multi(vec![create])).await;
    let Ok(Body::Multi(results)) = embedded else {
        panic!("{embedded:?}");
    };
    assert!(
        matches!(&results[..], [MultiResult::Done(Op::Create2, Body::PathStat(path, _))] if path == "/a")
    );
    let created = MultiResult::Done(Op::Create, Body::Path("/a".into()));
    assert_eq!(apache, Ok(Body::Multi(vec![created])));
}

#[tokio::test]
async fn a_check_that_succeeds_is_answered() {
    let (_server, mut client) = embedded().await;
    let check = Request::Check {
        path: "/".into(),
        version: 0,
    };
    assert_eq!(client.call(check).await.unwrap().outcome, Ok(Body::None));
}

#[tokio::test]
async fn a_time_to_live_needs_its_mode() {
    let (_server, mut client) = embedded().await;
    for flags in Create::PERSISTENT..=Create::CONTAINER {
        let create = Request::Create(Create {
            op: Op::CreateTtl,
            path: "/a".into(),
            data: None,
            acl: vec![Acl::open()],
            flags,
            ttl_ms: Some(-1),
        });
        let outcome = client.call(create).await.unwrap().outcome;
        assert_eq!(outcome, Err(ErrorCode::BadArguments));
    }
}

#[tokio::test]
async fn a_limit_for_the_root_is_ignored() {
    let config = Config {
        enforce_quota: true,
        ..TestServer::config()
    };
    let server = TestServer::with(config).await.unwrap();
    let mut client = RawClient::connect(server.address()).await.unwrap();
    let limit = "count=-1,bytes=-1=;byteHardLimit=1;countHardLimit=1";
    for request in [
        Request::create("/zookeeper/quota/zookeeper_limits", limit),
        Request::create("/zookeeper/quota/zookeeper_stats", "count=0,bytes=0"),
        Request::create("/a", "data"),
        Request::create("/b", "data"),
        Request::set_data("/a", "more data"),
    ] {
        client.call(request).await.unwrap().ok().unwrap();
    }
}

#[tokio::test]
async fn a_hard_limit_holds_for_every_write() {
    let config = Config {
        enforce_quota: true,
        ..TestServer::config()
    };
    let server = TestServer::with(config).await.unwrap();
    let mut client = RawClient::connect(server.address()).await.unwrap();
    let limit = "count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=2";
    let outcomes = send_all(
        &mut client,
        &[
            Request::create("/a", ""),
            Request::create("/zookeeper/quota/a", ""),
            Request::create("/zookeeper/quota/a/zookeeper_limits", limit),
            Request::create("/zookeeper/quota/a/zookeeper_stats", "count=0,bytes=0"),
            Request::Multi(vec![
                Request::create("/a/a", ""),
                Request::create("/a/b", ""),
            ]),
            Request::create("/a/a", ""),
            Request::create("/a/b", ""),
        ],
    )
    .await;
    let exceeded = MultiResult::Failed(ErrorCode::QuotaExceeded);
    assert_eq!(
        outcomes[4..],
        [
            Ok(Body::Multi(vec![MultiResult::Undone, exceeded])),
            Ok(Body::Path("/a/a".into())),
            Err(ErrorCode::QuotaExceeded),
        ]
    );
}

#[tokio::test]
async fn a_multi_with_a_null_path_has_its_zxid() {
    let mut servers = Both::start().await;
    let null_path = Request::Raw {
        op: Op::Delete.number(),
        body: vec![0xff; 8],
    };
    let multi = Request::Multi(vec![Request::delete("/none"), null_path]);
    for (client, zxids) in [(&mut servers.embedded, 1), (&mut servers.apache, 0)] {
        let before = client.call(Request::Ping).await.unwrap().zxid;
        let reply = client.call(multi.clone()).await.unwrap();
        assert_eq!(reply.outcome, Err(ErrorCode::MarshallingError));
        assert_eq!(
            Body::decode(Op::Multi, &reply.bytes).unwrap(),
            Body::Multi(vec![])
        );
        assert_eq!(reply.zxid, before + zxids);
        let next = client.call(Request::delete("/none")).await.unwrap();
        assert_eq!(next.zxid, before + 2);
    }
}

#[tokio::test]
async fn a_new_access_list_counts_for_the_next_write() {
    let (_server, mut client) = embedded().await;
    let outcomes = send_all(
        &mut client,
        &[
            Request::create("/a", ""),
            Request::SetAcl {
                path: "/a".into(),
                acl: world(acl::READ),
                version: -1,
            },
            Request::set_data("/a", ""),
        ],
    )
    .await;
    assert_eq!(outcomes[2], Err(ErrorCode::NoAuth));
}

#[tokio::test]
async fn nothing_is_left_of_a_spoiled_multi() {
    let (_server, mut client) = embedded().await;
    let sequential = Request::create_mode("/a", "", Create::PERSISTENT_SEQUENTIAL);
    let spoiler = Request::create_mode("/b", "", Create::TTL);
    let outcomes = send_all(
        &mut client,
        &[
            Request::Multi(vec![sequential.clone(), spoiler]),
            sequential,
        ],
    )
    .await;
    assert_eq!(
        outcomes,
        [
            Err(ErrorCode::MarshallingError),
            Ok(Body::Path("/a0000000000".into())),
        ]
    );
}

#[tokio::test]
async fn a_container_has_children_at_once() {
    let (_server, mut client) = embedded().await;
    let Request::Create(container) = Request::create_container("/a") else {
        unreachable!("it is a create");
    };
    let flags = Create::EPHEMERAL;
    let container = Request::Create(Create { flags, ..container });
    let outcomes = send_all(&mut client, &[container, Request::create("/a/b", "")]).await;
    assert_eq!(outcomes[1], Ok(Body::Path("/a/b".into())));
}

#[tokio::test]
async fn an_unknown_operation_is_answered_in_its_turn() {
    let (_server, mut client) = embedded().await;
    let unknown = Request::Raw {
        op: 99,
        body: Vec::new(),
    };
    let outcomes = send_all(&mut client, &[Request::create("/a", ""), unknown]).await;
    assert_eq!(
        outcomes,
        [Ok(Body::Path("/a".into())), Err(ErrorCode::Unimplemented)]
    );
    client.closed().await.unwrap();
}

#[tokio::test]
async fn a_client_cannot_create_a_session_by_a_request() {
    let (_server, mut client) = embedded().await;
    let create = Request::Raw {
        op: Op::CreateSession.number(),
        body: vec![0; 4],
    };
    let outcome = client.call(create).await.unwrap().outcome;
    assert_eq!(outcome, Err(ErrorCode::MarshallingError));
}

#[tokio::test]
async fn a_watch_on_no_path_ends_with_its_connection() {
    let (_server, mut client) = embedded().await;
    let null_path = Request::Raw {
        op: Op::AddWatch.number(),
        body: vec![0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0],
    };
    send_all(&mut client, &[null_path, Request::CloseSession]).await;
    client.closed().await.unwrap();
}

/// As Java encodes 😀.
const SURROGATES: &[u8] = b"\xed\xa0\xbd\xed\xb8\x80";

/// The bytes of a text, prefixed by their length.
fn ustring(text: &[u8]) -> Vec<u8> {
    let length = u32::try_from(text.len()).unwrap();
    [&length.to_be_bytes(), text].concat()
}

/// A sync: its reply contains the path as decoded.
fn sync_of(path: &[u8]) -> Request {
    Request::Raw {
        op: Op::Sync.number(),
        body: ustring(path),
    }
}

#[tokio::test]
async fn a_long_character_comes_back_as_it_was_sent() {
    let mut servers = Both::start().await;
    let path = "/\u{1f600}".as_bytes();
    let (embedded, apache) = servers.answers(sync_of(path)).await;
    assert_eq!(embedded, Ok(Body::Raw(ustring(path).into())));
    let apaches = [b"/", SURROGATES].concat();
    assert_eq!(apache, Ok(Body::Raw(ustring(&apaches).into())));
}

/// Sets the access list of `/a`: all clients, and a user by the bytes of the id.
fn set_acl_with_id(id: &[u8]) -> Request {
    let acl = |scheme: &[u8], id: &[u8]| {
        let perms = acl::ALL.to_be_bytes();
        [&perms[..], &ustring(scheme), &ustring(id)].concat()
    };
    let (count, version) = (2i32.to_be_bytes(), (-1i32).to_be_bytes());
    let (world, digest) = (acl(b"world", b"anyone"), acl(b"digest", id));
    Request::Raw {
        op: Op::SetAcl.number(),
        body: [&ustring(b"/a")[..], &count, &world, &digest, &version].concat(),
    }
}

#[tokio::test]
async fn a_long_character_is_read_as_java_writes_it() {
    let mut servers = Both::start().await;
    let set_acl = set_acl_with_id(&[SURROGATES, b":hash"].concat());
    servers.both([Request::create("/a", ""), set_acl]).await;
    let get_acl = Request::GetAcl { path: "/a".into() };
    let (embedded, apache) = servers.answers(get_acl).await;
    let id = |outcome| match outcome {
        Ok(Body::AclStat(list, _)) => list[1].id.id.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(id(embedded), "\u{1f600}:hash");
    assert_eq!(id(apache), "\u{fffd}\u{fffd}:hash");
}

#[tokio::test]
async fn create_with_the_mode_of_a_container_makes_one() {
    let (server, mut client) = embedded().await;
    for request in [
        Request::create_mode("/a", "", Create::CONTAINER),
        Request::create("/a/b", ""),
        Request::delete("/a/b"),
        Request::exists("/a").watching(),
    ] {
        client.call(request).await.unwrap().ok().unwrap();
    }
    server.reap_now().unwrap();
    let event = client.receive_event().await.unwrap();
    assert_eq!((event.kind, &*event.path), (EventKind::NodeDeleted, "/a"));
}
