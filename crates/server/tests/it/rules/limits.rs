//! Limits, and what happens beyond them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bellwether_server::{Config, Monitor, Server};
use bellwether_testkit::raw::four_letter_word;
use bellwether_testkit::{Body, HeldDisk, MultiResult, RawClient, Request, TestServer, WatchLists};
use bellwether_wire::code::ErrorCode::QuotaExceeded;
use bellwether_wire::event::EventKind::NodeDeleted;

use crate::{client_of, events, ok, refusal, server_and_client, stat, until};

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
async fn connections_without_a_session_are_limited_and_sessions_go_on() {
    let server = TestServer::with(Config {
        handshakes_max: 2,
        ..TestServer::config()
    })
    .await
    .unwrap();
    let mut settled = client_of(&server).await;
    let handshakes = || server.handshake_count().unwrap();
    until("the session is open", || handshakes() == 0).await;
    let mut silent = Vec::new();
    for open in 1..=2 {
        silent.push(RawClient::open(server.address()).await.unwrap());
        until("it is taken in", || handshakes() == open).await;
    }
    let mut refused = RawClient::open(server.address()).await.unwrap();
    refused.closed().await.unwrap();
    ok(&mut settled, Request::Ping).await;
    drop(silent.pop());
    until("there is room", || handshakes() == 1).await;
    ok(&mut client_of(&server).await, Request::Ping).await;
}

#[tokio::test]
async fn arrivals_are_limited_for_each_second() {
    let server = TestServer::with(Config {
        handshakes_per_second_max: 2,
        ..TestServer::config()
    })
    .await
    .unwrap();
    let (mut taken, mut refused) = (Vec::new(), 0);
    let begin = Instant::now();
    // Two in the first second, two in the next one.
    while taken.len() < 3 {
        assert!(
            begin.elapsed() < Duration::from_secs(30),
            "no connection is accepted"
        );
        match RawClient::connect(server.address()).await {
            Ok(client) => taken.push(client),
            Err(_) => refused += 1,
        }
    }
    assert!(begin.elapsed() >= Duration::from_millis(900), "{refused}");
    assert!(refused > 0);
    for client in &mut taken {
        ok(client, Request::Ping).await;
    }
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
    // The largest create, as measured: one more byte of data is too much.
    let create = |bytes| Request::create("/0123456789", vec![b'x'; bytes]);
    assert_eq!(create(1_048_517).encode(1).len(), 4 + 0xF_FFFF);
    ok(&mut client, create(1_048_517)).await;
    let mut other = client_of(&server).await;
    // It is refused by its length, before the rest has arrived.
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

#[tokio::test]
async fn requests_of_too_many_bytes_wait_in_their_socket_and_are_all_answered() {
    let disk = HeldDisk::new();
    let held = Arc::new(disk.clone());
    let config = Config {
        outstanding_bytes_max: 1000,
        ..TestServer::config()
    };
    let builder = Server::builder().config(config).disks(held.clone(), held);
    let server = builder.start().await.unwrap();
    let [mut client, mut other] = [
        RawClient::connect(server.addresses()[0]).await.unwrap(),
        RawClient::connect(server.addresses()[0]).await.unwrap(),
    ];
    disk.hold();
    let sets = vec![Request::set_data("/", vec![b'x'; 2000]); 5];
    let xids = client.send_all(&sets).await.unwrap();
    let hooks = server.hooks();
    until("the first waits", || hooks.outstanding() == 1).await;
    for _ in 0..20 {
        ok(&mut other, Request::Ping).await;
    }
    assert_eq!(hooks.outstanding(), 1, "more than the limit was read");
    disk.release();
    for xid in xids {
        assert_eq!(client.receive_reply().await.unwrap().xid, xid);
    }
    server.shutdown().await;
}

#[tokio::test]
async fn a_watch_too_many_is_refused_and_has_its_place_when_another_is_gone() {
    let watching = |path: &str| Request::exists(path).watching();
    for (config, [first, second, third]) in [
        (
            Config {
                watches_per_session_max: 2,
                ..TestServer::config()
            },
            ["/", "/zookeeper", "/zookeeper/quota"],
        ),
        (
            Config {
                watch_bytes_per_session_max: 12,
                ..TestServer::config()
            },
            ["/", "/zookeeper", "/zookeeper"],
        ),
        (
            Config {
                watches_max: 3,
                ..TestServer::config()
            },
            ["/", "/zookeeper", "/zookeeper/quota"],
        ),
        (
            Config {
                watch_bytes_max: 13,
                ..TestServer::config()
            },
            ["/", "/zookeeper", "/zookeeper/quota"],
        ),
    ] {
        let server = TestServer::with(config).await.unwrap();
        let mut client = client_of(&server).await;
        let mut other = client_of(&server).await;
        ok(&mut other, Request::get_children("/").watching()).await;
        ok(&mut client, watching(first)).await;
        ok(&mut client, watching(second)).await;
        ok(&mut client, watching(second)).await;
        let persistent = Request::AddWatch {
            path: second.into(),
            mode: 0,
        };
        let too_much = [persistent, Request::get_children(third).watching()];
        for request in too_much {
            assert_eq!(refusal(&mut client, request).await, QuotaExceeded);
        }
        assert_eq!(server.watch_count().unwrap(), 3, "nothing was armed");
        ok(&mut other, Request::set_data("/", "x")).await;
        ok(&mut client, watching(first)).await;
        let gone = Request::RemoveWatches {
            path: second.into(),
            kind: 2,
        };
        ok(&mut client, gone).await;
        ok(&mut client, Request::get_children("/").watching()).await;
    }
}

/// A client that re-arms its watches ignores the result: it must not assume that refused watches are armed.
#[tokio::test]
async fn watches_beyond_the_limit_are_armed_again_all_or_none_and_the_connection_ends() {
    let server = TestServer::with(Config {
        watches_per_session_max: 2,
        ..TestServer::config()
    })
    .await
    .unwrap();
    let lists = |exist: &[&str]| WatchLists {
        relative_zxid: 0,
        data: vec!["/gone".into()],
        exist: exist.iter().map(|path| (*path).to_owned()).collect(),
        ..WatchLists::default()
    };
    let mut client = client_of(&server).await;
    let too_many = Request::SetWatches2(lists(&["/a", "/b", "/c"]));
    assert_eq!(refusal(&mut client, too_many).await, QuotaExceeded);
    client.closed().await.unwrap();
    assert_eq!(client.take_events(), [], "no event of what was not armed");
    assert_eq!(server.watch_count().unwrap(), 0);

    let mut again = client.reattach(server.address()).await.unwrap();
    ok(&mut again, Request::SetWatches2(lists(&["/a", "/b"]))).await;
    assert_eq!(server.watch_count().unwrap(), 2);
    let missed = (NodeDeleted, "/gone".to_owned());
    assert_eq!(events(&mut again).await, [missed]);
}

#[tokio::test]
async fn one_session_too_many_is_not_opened_and_those_there_go_on() {
    let server = TestServer::with(Config {
        sessions_max: 2,
        ..TestServer::config()
    })
    .await
    .unwrap();
    let (mut first, second) = (client_of(&server).await, client_of(&server).await);
    for _ in 0..3 {
        // Closed without a reply: the client may retry.
        assert!(RawClient::connect(server.address()).await.is_err());
    }
    let monitor = four_letter_word(server.address(), "mntr").await.unwrap();
    assert!(monitor.contains("zk_sessions_rejected\t3\n"), "{monitor}");
    ok(&mut first, Request::Ping).await;
    // An existing session may be resumed, and one that ends makes room.
    let mut second = second.reattach(server.address()).await.unwrap();
    assert!(!second.is_refused());
    ok(&mut second, Request::CloseSession).await;
    client_of(&server).await;
}

/// The end of a session is one transaction that lists its ephemeral nodes. One of 2 GiB would stop the server, and one of two frames cannot be
/// read by Apache's.
#[tokio::test]
async fn paths_of_ephemeral_nodes_fit_into_one_transaction() {
    let server = TestServer::with(Config {
        frame_bytes_max: 10_000,
        ..TestServer::config()
    })
    .await
    .unwrap();
    let (mut client, mut other) = (client_of(&server).await, client_of(&server).await);
    let long = |number| format!("/{number}{}", "x".repeat(8_000));
    for number in 0..2 {
        ok(&mut client, Request::create_ephemeral(long(number))).await;
    }
    let one_more = Request::create_ephemeral(long(2));
    assert_eq!(refusal(&mut client, one_more.clone()).await, QuotaExceeded);
    ok(&mut client, Request::create_ephemeral("/short")).await;
    ok(&mut other, one_more.clone()).await;
    ok(&mut other, Request::delete(long(2))).await;
    ok(&mut client, Request::delete(long(0))).await;
    ok(&mut client, one_more).await;
}

#[tokio::test]
async fn one_ephemeral_node_too_many_is_refused_also_in_a_transaction() {
    let server = TestServer::with(Config {
        ephemerals_per_session_max: 2,
        ..TestServer::config()
    })
    .await
    .unwrap();
    let (mut client, mut other) = (client_of(&server).await, client_of(&server).await);
    ok(&mut client, Request::create_ephemeral("/a")).await;
    let two = ["/b", "/c"].map(Request::create_ephemeral).to_vec();
    let Body::Multi(results) = ok(&mut client, Request::Multi(two)).await else {
        panic!("not the reply to a multi");
    };
    assert_eq!(results[1], MultiResult::Failed(QuotaExceeded));
    ok(&mut client, Request::create_ephemeral("/b")).await;
    let one_more = Request::create_ephemeral("/c");
    assert_eq!(refusal(&mut client, one_more.clone()).await, QuotaExceeded);
    ok(&mut client, Request::create("/c", "")).await;
    ok(&mut other, Request::create_ephemeral("/d")).await;
    ok(&mut client, Request::delete("/a")).await;
    ok(&mut client, Request::create_ephemeral("/e")).await;
}

/// A crowd of new clients waits, so that the writes of others do not wait for it.
#[tokio::test]
async fn new_sessions_wait_for_their_turn_and_resumed_ones_do_not() {
    let disk = HeldDisk::new();
    let held = Arc::new(disk.clone());
    let config = Config {
        session_openings_max: 1,
        ..TestServer::config()
    };
    let builder = Server::builder().config(config).disks(held.clone(), held);
    let server = builder.start().await.unwrap();
    let address = server.addresses()[0];
    let settled = RawClient::connect(address).await.unwrap();
    disk.hold();
    let opening = [(); 3].map(|()| tokio::spawn(RawClient::connect(address)));
    let monitor = server.monitor();
    until("two wait for their turn", || {
        reached(&monitor, "session_openings") == 2
    })
    .await;
    assert_eq!(server.sessions(), 2, "one is being opened");
    let mut resumed = settled.reattach(address).await.unwrap();
    ok(&mut resumed, Request::Ping).await;
    disk.release();
    for one in opening {
        ok(&mut one.await.unwrap().unwrap(), Request::Ping).await;
    }
    assert_eq!(server.sessions(), 4);
    server.shutdown().await;
}

/// How often clients have reached a limit.
fn reached(monitor: &Monitor, limit: &str) -> u64 {
    let name = format!("bellwether_limits_reached_total{{limit=\"{limit}\"}} ");
    let text = monitor.metrics();
    let value = text.lines().find_map(|line| line.strip_prefix(&name));
    value.unwrap().parse().unwrap()
}

#[tokio::test]
async fn limits_that_are_reached_are_counted() {
    let config = Config {
        ephemerals_per_session_max: 1,
        watches_per_session_max: 1,
        sessions_max: 2,
        outstanding_max: 1,
        ..TestServer::config()
    };
    let server = Server::start(config).await.unwrap();
    let address = server.addresses()[0];
    let monitor = server.monitor();
    let reached = |limit: &str| reached(&monitor, limit);
    let mut client = RawClient::connect(address).await.unwrap();
    ok(&mut client, Request::create_ephemeral("/a")).await;
    for two in [
        Request::create_ephemeral("/b"),
        Request::Multi(vec![Request::create_ephemeral("/b")]),
    ] {
        client.call(two).await.unwrap();
    }
    assert_eq!(reached("quota"), 2);
    ok(&mut client, Request::exists("/a").watching()).await;
    refusal(&mut client, Request::exists("/b").watching()).await;
    assert_eq!(reached("watches"), 1);
    let writes = vec![Request::set_data("/a", "x"); 100];
    for _ in client.send_all(&writes).await.unwrap() {
        client.receive_reply().await.unwrap();
    }
    assert!(reached("outstanding") > 0);
    let mut other = RawClient::connect(address).await.unwrap();
    assert!(RawClient::connect(address).await.is_err());
    assert_eq!(reached("sessions"), 1);
    other.send_bytes(&i32::MAX.to_be_bytes()).await.unwrap();
    other.closed().await.unwrap();
    assert_eq!(reached("frame_bytes"), 1);
    let all = monitor.word("mntr");
    let line = all
        .lines()
        .find(|line| line.starts_with("zk_limits_reached"));
    assert!(line.unwrap() > "zk_limits_reached\t0", "{line:?}");
    server.shutdown().await;
}
