//! The rules of order: what a client may rely on, whatever else happens at the same time.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bellwether_server::Config;
use bellwether_server::proto::event::EventKind::{self, NodeDeleted};
use bellwether_server::proto::stat::Stat;
use bellwether_testkit::raw::four_letter_word;
use bellwether_testkit::{Body, Create, Frame, RawClient, Reply, Request, TestServer};
use tokio::task::JoinSet;

use crate::{
    children, client_of, client_with_timeout, event, exists, ok, server_and_client, stat, until,
};

// --- 1: one zxid a write, and none runs backwards ---------------------------------------------------

#[tokio::test]
async fn every_write_takes_one_zxid_whatever_comes_of_it_and_no_read_does() {
    let (_server, mut client) = server_and_client().await;
    let raw = |op, body: &[u8]| Request::Raw {
        op,
        body: body.to_vec(),
    };
    let check = |version| Request::Check {
        path: "/a".into(),
        version,
    };
    let reconfig = Request::Reconfig {
        joining: None,
        leaving: None,
        members: None,
        config_id: -1,
    };
    let writes = [
        Request::create("/a", ""),
        Request::create("/a", "exists"),
        Request::create("/no/parent", ""),
        Request::delete("/none"),
        Request::set_data("/none", ""),
        check(0),
        check(7),
        Request::Multi(vec![]),
        Request::Multi(vec![Request::create("/b", ""), Request::delete("/none")]),
        Request::Multi(vec![Request::create("/c", ""), Request::create("/d", "")]),
        reconfig,
        raw(1, b""),
        raw(14, b"?"),
        raw(20, b"/a"),
    ];
    let mut last = ok_zxid(&mut client, Request::exists("/")).await;
    for write in writes {
        let reply = client.call(write.clone()).await.unwrap();
        assert_eq!(reply.zxid, last + 1, "{write:?}");
        last = reply.zxid;
    }
    let reads = [
        Request::get_data("/a").watching(),
        Request::get_data("/none"),
        Request::Sync { path: "/".into() },
        Request::Ping,
        Request::WhoAmI,
        Request::MultiRead(vec![Request::get_data("/a")]),
        raw(4, b""),
        raw(16, b""),
    ];
    for read in reads {
        let reply = client.call(read.clone()).await.unwrap();
        assert_eq!(reply.zxid, last, "{read:?}");
    }
}

async fn ok_zxid(client: &mut RawClient, request: Request) -> i64 {
    client.call(request).await.unwrap().zxid
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn zxids_of_replies_never_run_backwards_and_writes_share_none() {
    const CLIENTS: usize = 4;
    const ROUNDS: usize = 100;
    let (server, mut first) = server_and_client().await;
    ok(&mut first, Request::create("/a", "")).await;
    let before = first.last_zxid();
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let mut client = client_of(&server).await;
        clients.spawn(async move {
            let mut writes = Vec::new();
            let mut last = 0;
            for _ in 0..ROUNDS {
                let segment = [
                    Request::get_data("/a"),
                    Request::set_data("/a", "x"),
                    Request::get_data("/a"),
                    Request::delete("/none"),
                    Request::Ping,
                ];
                client.send_all(&segment).await.unwrap();
                for request in segment {
                    let reply = client.receive_reply().await.unwrap();
                    assert!(reply.zxid >= last, "{} behind {last}", reply.zxid);
                    last = reply.zxid;
                    if matches!(request, Request::SetData { .. } | Request::Delete { .. }) {
                        writes.push(reply.zxid);
                    }
                }
            }
            writes
        });
    }
    let zxids: BTreeSet<i64> = clients.join_all().await.concat().into_iter().collect();
    assert_eq!(zxids.len(), CLIENTS * ROUNDS * 2, "all different");
    let sessions = i64::try_from(CLIENTS).unwrap();
    let all = i64::try_from(zxids.len()).unwrap();
    assert_eq!(*zxids.last().unwrap(), before + sessions + all, "no gaps");
}

// --- 2 and 4: one session in its order ---------------------------------------------------------------

#[tokio::test]
async fn a_read_between_two_writes_of_one_segment_sees_the_first_only() {
    let (_server, mut client) = server_and_client().await;
    ok(&mut client, Request::create("/a", "0")).await;
    for _ in 0..100 {
        let segment = [
            Request::set_data("/a", "1"),
            Request::get_data("/a"),
            Request::set_data("/a", "2"),
            Request::get_data("/a"),
        ];
        let xids = client.send_all(&segment).await.unwrap();
        let mut seen = Vec::new();
        for xid in xids {
            let reply = client.receive_reply().await.unwrap();
            assert_eq!(reply.xid, xid, "replies come in the order of requests");
            if let Body::DataStat(data, _) = reply.ok().unwrap() {
                seen.push(data.unwrap());
            }
        }
        assert_eq!(seen, [b"1", b"2"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_comes_back_finds_all_its_writes_settled() {
    let (server, mut client) = server_and_client().await;
    let requests = vec![Request::create_mode("/n-", "", Create::PERSISTENT_SEQUENTIAL); 400];
    let mut before = 0;
    for _ in 0..20 {
        client.send_all(&requests).await.unwrap();
        let mut next = client.reattach(server.address()).await.unwrap();
        let settled = children(&mut next, "/").await.len();
        let mut answered = 0;
        while client.receive().await.is_ok() {
            answered += 1;
        }
        assert!(
            answered <= settled - before,
            "{answered} answered, {} done",
            settled - before
        );
        ok(&mut next, Request::create("/barrier", "")).await;
        ok(&mut next, Request::delete("/barrier")).await;
        assert_eq!(
            children(&mut next, "/").await.len(),
            settled,
            "a write of the old connection came late"
        );
        before = settled;
        client = next;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_that_fight_for_a_session_do_not_break_it() {
    let (server, first) = server_and_client().await;
    let (first, address) = (Arc::new(first), server.address());
    let mut fighters = JoinSet::new();
    for _ in 0..2 {
        let first = first.clone();
        fighters.spawn(async move {
            let mut written = 0;
            for _ in 0..100 {
                // The other one may take it away at any point.
                let Ok(mut client) = first.reattach(address).await else {
                    continue;
                };
                assert!(!client.is_refused());
                let segment = [Request::set_data("/", "x"), Request::get_data("/")];
                if client.send_all(&segment).await.is_ok() {
                    written += usize::from(client.receive().await.is_ok());
                }
            }
            written
        });
    }
    let written: usize = fighters.join_all().await.iter().sum();
    let mut last = first.reattach(address).await.unwrap();
    let version = stat(&mut last, "/").await.version;
    assert!(usize::try_from(version).unwrap() >= written);
    until("the others are gone", || {
        server.connection_count().unwrap() == 1
    })
    .await;
    assert_eq!(server.session_count().unwrap(), 1);
    let monitor = four_letter_word(address, "mntr").await.unwrap();
    assert!(
        monitor.contains("zk_outstanding_requests\t0\n"),
        "{monitor}"
    );
}

// --- 3: events and replies -----------------------------------------------------------------------------

/// Reads of one node, some of them armed, while others write it all the time. Every reply and every
/// event is checked against what the watch allows at that point.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_load_no_change_is_seen_before_its_event_and_no_event_before_its_watch() {
    let (server, mut first) = server_and_client().await;
    ok(&mut first, Request::create("/a", "")).await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = JoinSet::new();
    for number in 0..2 {
        let (mut client, stop) = (client_of(&server).await, stop.clone());
        let child = format!("/a/{number}");
        writers.spawn(async move {
            while !stop.load(Relaxed) {
                let segment = [
                    Request::set_data("/a", "x"),
                    Request::create(&child, ""),
                    Request::delete(&child),
                ];
                client.send_all(&segment).await.unwrap();
                for _ in segment {
                    client.receive_reply().await.unwrap().ok().unwrap();
                }
            }
        });
    }
    let path = "/a".to_owned();
    let list = Request::GetChildren2 { path, watch: false };
    let mut watchers = JoinSet::new();
    for (read, changed) in [
        (
            Request::get_data("/a"),
            (|stat| stat.mzxid) as fn(&Stat) -> i64,
        ),
        (Request::exists("/a"), |stat| stat.mzxid),
        (list, |stat| stat.pzxid),
    ] {
        watchers.spawn(watch_changes(client_of(&server).await, read, changed));
    }
    watchers.join_all().await;
    stop.store(true, Relaxed);
    writers.join_all().await;
}

async fn watch_changes(mut client: RawClient, read: Request, changed: fn(&Stat) -> i64) {
    let mut fired = 0;
    // The zxid of the last change when the watch was armed.
    let mut armed = None;
    while fired < 100 {
        let armed_first = [read.clone().watching(), read.clone(), read.clone()];
        let first = client.send_all(&armed_first).await.unwrap()[0];
        let mut replies = 0;
        while replies < armed_first.len() {
            match client.receive().await.unwrap() {
                Frame::Event(event) => {
                    assert!(armed.take().is_some(), "{event:?} before its watch");
                    fired += 1;
                }
                Frame::Reply(reply) => {
                    replies += 1;
                    let zxid = changed(reply.outcome.unwrap().stat().unwrap());
                    if let Some(at) = armed {
                        assert_eq!(zxid, at, "a change was seen before its event");
                    } else if reply.xid == first {
                        armed = Some(zxid);
                    }
                }
            }
        }
    }
}

#[tokio::test]
async fn who_hears_of_a_write_from_elsewhere_has_its_event_before_it_can_read_it() {
    let (server, mut writer) = server_and_client().await;
    let mut watcher = client_of(&server).await;
    ok(&mut writer, Request::create("/a", "")).await;
    for version in 1..100 {
        ok(&mut watcher, Request::get_data("/a").watching()).await;
        ok(&mut writer, Request::set_data("/a", "x")).await;
        let reply: Reply = watcher.call(Request::get_data("/a")).await.unwrap();
        assert_eq!(reply.ok().unwrap().stat().unwrap().version, version);
        let events = watcher.take_events();
        assert_eq!(events.len(), 1);
        assert_eq!(events[0].kind, EventKind::NodeDataChanged);
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_loses_its_connection_but_not_its_session() {
    let server = TestServer::with(Config {
        outbox_bytes_max: 64 << 10,
        ..TestServer::config()
    })
    .await
    .unwrap();
    let mut deaf = client_of(&server).await;
    let mut writer = client_of(&server).await;
    let path = format!("/{}", "long".repeat(50_000));
    ok(&mut writer, Request::create(&path, "")).await;
    let watch = Request::AddWatch {
        path: path.clone(),
        mode: 0,
    };
    ok(&mut deaf, watch).await;
    let mut events = 0;
    while server.connection_count().unwrap() == 2 {
        ok(&mut writer, Request::set_data(&path, "")).await;
        events += 1;
        assert!(events < 1000, "the connection is still there");
    }
    assert!(exists(&mut writer, &path).await, "others go on");
    let back = deaf.reattach(server.address()).await.unwrap();
    assert!(!back.is_refused());
}

// --- 6: sessions outlive the server --------------------------------------------------------------------

#[tokio::test]
async fn sessions_outlive_a_server_that_was_away_for_long_and_expire_anew() {
    let mut server = TestServer::start().await.unwrap();
    let mut owner = client_with_timeout(&server, 400).await;
    ok(&mut owner, Request::create_ephemeral("/a")).await;
    server.stop().await;
    #[expect(
        clippy::disallowed_methods,
        reason = "the server is away for longer than the timeout"
    )]
    tokio::time::sleep(Duration::from_millis(800)).await;
    server.restart().await.unwrap();
    let up = Instant::now();
    let mut other = client_of(&server).await;
    let body = ok(&mut other, Request::exists("/a").watching()).await;
    assert_eq!(body.stat().unwrap().ephemeral_owner, owner.session_id());
    assert_eq!(event(&mut other).await, (NodeDeleted, "/a".into()));
    assert!(
        up.elapsed() > Duration::from_millis(300),
        "no fresh timeout"
    );
    let back = owner.reattach(server.address()).await.unwrap();
    assert!(back.is_refused());
}

#[tokio::test]
async fn owners_of_ephemeral_nodes_are_live_sessions() {
    let mut server = TestServer::start().await.unwrap();
    let mut clients = Vec::new();
    for number in 0..12 {
        let mut client = client_of(&server).await;
        ok(&mut client, Request::create_ephemeral(format!("/{number}"))).await;
        clients.push(client);
    }
    for client in &mut clients[..4] {
        ok(client, Request::CloseSession).await;
    }
    for client in &mut clients[4..8] {
        server.expire_session(client.session_id()).unwrap();
        client.closed().await.unwrap();
    }
    for _ in 0..2 {
        let dump = four_letter_word(server.address(), "dump").await.unwrap();
        let (sessions, rest) = dump.split_once("ephemeral nodes dump:\n").unwrap();
        let (ephemerals, _) = rest.split_once("Connections dump:").unwrap();
        let owners: Vec<_> = ephemerals
            .lines()
            .filter_map(|line| line.strip_suffix(':'))
            .filter(|line| line.starts_with("0x"))
            .collect();
        assert_eq!(owners.len(), 4, "{dump}");
        for owner in owners {
            assert!(sessions.contains(&format!("\t{owner}\n")), "{dump}");
        }
        server.restart().await.unwrap();
    }
}

// --- 7: expiry -----------------------------------------------------------------------------------------

#[tokio::test]
async fn a_silent_session_ends_without_a_frame_and_never_early() {
    let (server, mut other) = server_and_client().await;
    for _ in 0..3 {
        let mut silent = client_with_timeout(&server, 400).await;
        let heard = Instant::now();
        ok(&mut silent, Request::create_ephemeral("/a")).await;
        let watched = Request::exists("/a").watching();
        ok(&mut other, watched.clone()).await;
        silent.send(&watched).await.unwrap();
        silent.receive_reply().await.unwrap();
        assert_eq!(event(&mut other).await, (NodeDeleted, "/a".into()));
        assert!(
            heard.elapsed() >= Duration::from_millis(400),
            "{:?}",
            heard.elapsed()
        );
        silent.closed().await.unwrap();
        let back = silent.reattach(server.address()).await.unwrap();
        assert!(back.is_refused());
    }
    assert_eq!(server.session_count().unwrap(), 1);
}

#[tokio::test]
async fn any_request_keeps_a_session() {
    let server = TestServer::start().await.unwrap();
    let mut client = client_with_timeout(&server, 400).await;
    let mut often = tokio::time::interval(Duration::from_millis(100));
    for round in 0..12 {
        often.tick().await;
        let request = match round % 3 {
            0 => Request::Ping,
            1 => Request::get_data("/none"),
            _ => Request::delete("/none"),
        };
        client.call(request).await.unwrap();
    }
}

#[tokio::test]
async fn nothing_is_answered_behind_an_expiry() {
    let (server, mut other) = server_and_client().await;
    for round in 0..50 {
        let mut client = client_of(&server).await;
        server.expire_session(client.session_id()).unwrap();
        let late = [
            Request::create(format!("/late-{round}"), ""),
            Request::get_data("/").watching(),
            Request::Ping,
        ];
        // The connection may be gone already.
        let _ = client.send_all(&late).await;
        client.closed().await.unwrap();
        let back = client.reattach(server.address()).await.unwrap();
        assert!(back.is_refused());
    }
    assert_eq!(children(&mut other, "/").await, ["zookeeper"]);
    assert_eq!(server.watch_count().unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_that_end_in_the_middle_of_their_work_leave_nothing_behind() {
    let server = Arc::new(TestServer::start().await.unwrap());
    let mut workers = JoinSet::new();
    for worker in 0..4 {
        let server = server.clone();
        workers.spawn(async move {
            for round in 0..40 {
                let mut client = client_of(&server).await;
                let segment = [
                    Request::create_mode("/e-", "", Create::EPHEMERAL_SEQUENTIAL),
                    Request::get_children("/").watching(),
                    Request::set_data("/", "x"),
                    Request::get_data("/").watching(),
                ];
                client.send_all(&segment).await.unwrap();
                client.send_all(&segment).await.unwrap();
                match (worker + round) % 4 {
                    0 => drop(client.send(&Request::CloseSession).await.unwrap()),
                    1 => server.expire_session(client.session_id()).unwrap(),
                    2 => {
                        client.receive().await.unwrap();
                        server.expire_session(client.session_id()).unwrap();
                    }
                    _ => {
                        let back = client.reattach(server.address()).await.unwrap();
                        server.expire_session(back.session_id()).unwrap();
                    }
                }
                // Some are gone before the server has done with them.
                if round % 2 == 0 {
                    while client.receive().await.is_ok() {}
                }
            }
        });
    }
    workers.join_all().await;
    until("all are gone", || {
        server.connection_count().unwrap() == 0 && server.session_count().unwrap() == 0
    })
    .await;
    assert_eq!(server.watch_count().unwrap(), 0);
    let mut other = client_of(&server).await;
    assert_eq!(children(&mut other, "/").await, ["zookeeper"]);
    let monitor = four_letter_word(server.address(), "mntr").await.unwrap();
    assert!(
        monitor.contains("zk_outstanding_requests\t0\n"),
        "{monitor}"
    );
    assert!(monitor.contains("zk_ephemerals_count\t0\n"), "{monitor}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_is_not_ended_while_the_server_does_not_read_it() {
    let server = TestServer::with(Config {
        tick: Duration::from_millis(100),
        outstanding_max: 0,
        ..TestServer::config()
    })
    .await
    .unwrap();
    let node = Request::create_mode("/n-", "", Create::PERSISTENT_SEQUENTIAL);
    let work = Request::Multi(vec![node; 15_000]);
    // More and more is asked for until the wait is longer than the session's timeout.
    for busy_clients in [2, 4, 8, 16, 32] {
        let mut busy = Vec::new();
        for _ in 0..busy_clients {
            busy.push(client_of(&server).await);
        }
        let mut waiting = client_with_timeout(&server, 200).await;
        waiting.set_deadline(Duration::from_secs(60));
        let asked = Instant::now();
        for client in &mut busy {
            client.send(&work).await.unwrap();
        }
        // The second request stays in the socket until the first, behind the work, is answered.
        let segment = [Request::delete("/none"), Request::get_data("/")];
        waiting.send_all(&segment).await.unwrap();
        for _ in segment {
            waiting.receive_reply().await.unwrap();
        }
        if asked.elapsed() > Duration::from_millis(600) {
            return;
        }
    }
    panic!("the server was never busy for long enough");
}

// --- 8: limits -----------------------------------------------------------------------------------------

#[tokio::test]
async fn one_connection_too_many_is_closed_at_once_and_makes_room_when_another_ends() {
    let server = TestServer::with(Config {
        connections_max: 2,
        ..TestServer::config()
    })
    .await
    .unwrap();
    let mut one = client_of(&server).await;
    let mut two = client_of(&server).await;
    let mut three = RawClient::open(server.address()).await.unwrap();
    three.closed().await.unwrap();
    ok(&mut one, Request::CloseSession).await;
    one.closed().await.unwrap();
    until("there is room", || server.connection_count().unwrap() == 1).await;
    ok(&mut client_of(&server).await, Request::Ping).await;
    ok(&mut two, Request::Ping).await;
}

#[tokio::test]
async fn connections_are_counted_by_address() {
    let six: SocketAddr = "[::1]:0".parse().unwrap();
    let four: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let config = Config {
        listen: vec![four, six],
        connections_per_address_max: 1,
        ..TestServer::config()
    };
    let server = bellwether_server::Server::start(config).await.unwrap();
    let [four, six] = server.addresses() else {
        panic!("two addresses")
    };
    let _first = RawClient::connect(four).await.unwrap();
    let mut second = RawClient::open(four).await.unwrap();
    second.closed().await.unwrap();
    let mut other = RawClient::connect(six).await.unwrap();
    ok(&mut other, Request::Ping).await;
    server.shutdown().await;
}

#[tokio::test]
async fn the_longest_frame_is_read_and_a_longer_one_is_not() {
    let (server, mut client) = server_and_client().await;
    // The largest create of facts that were measured: one byte of data more is one too many.
    let create = |bytes| Request::create("/0123456789", vec![b'x'; bytes]);
    assert_eq!(create(1_048_517).encode(1).len(), 4 + 0xF_FFFF);
    ok(&mut client, create(1_048_517)).await;
    let mut other = client_of(&server).await;
    // It is refused by its length, before the rest has come.
    let long = Request::set_data("/0123456789", vec![0; 1_048_576]).encode(1);
    other.send_bytes(&long[..8]).await.unwrap();
    other.closed().await.unwrap();
    server.lower_frame_limit(100).unwrap();
    client.send(&Request::create("/a", [0; 100])).await.unwrap();
    client.closed().await.unwrap();
}

#[tokio::test]
async fn more_requests_than_may_wait_are_all_answered_in_order() {
    let server = TestServer::with(Config {
        outstanding_max: 1,
        ..TestServer::config()
    })
    .await
    .unwrap();
    let mut client = client_of(&server).await;
    ok(&mut client, Request::create("/a", "")).await;
    let segment: Vec<_> = (0..500)
        .map(|number| match number % 3 {
            0 => Request::set_data("/a", "x"),
            1 => Request::get_data("/a"),
            _ => Request::exists("/none"),
        })
        .collect();
    for xid in client.send_all(&segment).await.unwrap() {
        assert_eq!(client.receive_reply().await.unwrap().xid, xid);
    }
    assert_eq!(stat(&mut client, "/a").await.version, 167);
}

#[tokio::test]
async fn who_says_nothing_or_half_a_thing_is_sent_away() {
    let server = TestServer::with(Config {
        handshake_timeout: Duration::from_millis(100),
        ..TestServer::config()
    })
    .await
    .unwrap();
    let mut established = client_of(&server).await;
    for beginning in [&b""[..], b"ru", b"\0\0\0\x2d\0", b"stmk\0\0"] {
        let mut client = RawClient::open(server.address()).await.unwrap();
        client.send_bytes(beginning).await.unwrap();
        client.closed().await.unwrap();
    }
    ok(&mut established, Request::Ping).await;
}
