//! How long sessions live, and what they leave.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bellwether_server::{Config, Server};
use bellwether_testkit::raw::four_letter_word;
use bellwether_testkit::{ConnectOptions, Create, HeldDisk, RawClient, Request, TestServer};
use bellwether_wire::event::EventKind::NodeDeleted;
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinSet;
use tokio::time::interval;

use crate::{
    children, client_of, client_with_timeout, data, event, exists, ok, server_and_client, until,
};

/// Returns when a session with this timeout, opened now and silent since, has expired on another server. By then any such session could
/// have expired.
async fn a_session_expires_elsewhere(timeout_ms: u64) {
    let server = TestServer::start().await.unwrap();
    let mut silent = client_with_timeout(&server, timeout_ms).await;
    ok(&mut silent, Request::create_ephemeral("/silent")).await;
    let mut other = client_of(&server).await;
    ok(&mut other, Request::exists("/silent").watching()).await;
    assert_eq!(event(&mut other).await, (NodeDeleted, "/silent".into()));
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

/// A connection to `server` that lets 128 KiB through every 50 ms, on the way to the client.
async fn slow_link(server: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (client, _) = listener.accept().await.unwrap();
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(64 << 10).unwrap();
        let (mut from_server, mut to_server) = socket.connect(server).await.unwrap().into_split();
        let (mut from_client, mut to_client) = client.into_split();
        let back = async {
            let mut pace = interval(Duration::from_millis(50));
            loop {
                pace.tick().await;
                let mut some = (&mut from_server).take(128 << 10);
                if tokio::io::copy(&mut some, &mut to_client).await? == 0 {
                    return std::io::Result::Ok(0);
                }
            }
        };
        // The test ends by dropping the client.
        let _ = tokio::try_join!(tokio::io::copy(&mut from_client, &mut to_server), back);
    });
    address
}

/// The server does not read the requests of a client for which too much waits, and so none of its pings.
#[tokio::test]
async fn a_client_that_reads_a_long_reply_slowly_keeps_its_session() {
    const NODES: usize = 12;
    let server = TestServer::start().await.unwrap();
    let mut writer = client_of(&server).await;
    ok(&mut writer, Request::create("/long", vec![b'x'; 1_000_000])).await;
    let options = ConnectOptions {
        timeout: Duration::from_millis(1_500),
        ..ConnectOptions::default()
    };
    let link = slow_link(server.address()).await;
    let mut slow = RawClient::connect_with(link, &options).await.unwrap();
    slow.set_deadline(Duration::from_secs(60));
    let reads = vec![Request::get_data("/long"); NODES];
    let began = Instant::now();
    let xid = slow.send(&Request::MultiRead(reads)).await.unwrap();
    let mut pings = interval(options.timeout / 3);
    loop {
        tokio::select! {
            biased;
            reply = slow.receive_reply() => {
                if reply.unwrap().xid == xid {
                    break;
                }
            }
            _ = pings.tick() => {
                slow.send(&Request::Ping).await.unwrap();
            }
        }
    }
    assert!(
        began.elapsed() > options.timeout * 2,
        "it was not slow enough"
    );
    let mut back = slow.reattach(server.address()).await.unwrap();
    ok(&mut back, Request::Ping).await;
}

// --- 6: sessions outlive the server --------------------------------------------------------------------

#[tokio::test]
async fn sessions_outlive_a_server_that_was_away_for_long_and_expire_anew() {
    let mut server = TestServer::start().await.unwrap();
    let mut owner = client_with_timeout(&server, 400).await;
    ok(&mut owner, Request::create_ephemeral("/a")).await;
    server.stop().await;
    a_session_expires_elsewhere(400).await;
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
    for _ in 0..2 {
        let mut silent = client_with_timeout(&server, 800).await;
        let heard = Instant::now();
        ok(&mut silent, Request::create_ephemeral("/a")).await;
        let watched = Request::exists("/a").watching();
        ok(&mut other, watched.clone()).await;
        silent.send(&watched).await.unwrap();
        silent.receive_reply().await.unwrap();
        assert_eq!(event(&mut other).await, (NodeDeleted, "/a".into()));
        assert!(
            heard.elapsed() >= Duration::from_millis(800),
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
    let mut client = client_with_timeout(&server, 1000).await;
    let mut often = tokio::time::interval(Duration::from_millis(100));
    for round in 0..16 {
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
        // The connection may be closed already.
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
                    0 => {
                        client.send(&Request::CloseSession).await.unwrap();
                        while client.receive().await.is_ok() {}
                    }
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
                // Some disconnect before the server has answered them.
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

#[tokio::test]
async fn a_session_is_not_ended_while_the_server_does_not_read_it() {
    let disk = HeldDisk::new();
    let config = Config {
        outstanding_max: 0,
        ..TestServer::config()
    };
    let held = Arc::new(disk.clone());
    let builder = Server::builder().config(config).disks(held.clone(), held);
    let server = builder.start().await.unwrap();
    let options = ConnectOptions {
        timeout: Duration::from_millis(400),
        ..ConnectOptions::default()
    };
    let waiting = RawClient::connect_with(server.addresses()[0], &options);
    let mut waiting = waiting.await.unwrap();
    disk.hold();
    // The second request stays in the socket until the first, which waits for the disk, is answered.
    let segment = [Request::delete("/none"), Request::get_data("/")];
    waiting.send_all(&segment).await.unwrap();
    a_session_expires_elsewhere(400).await;
    disk.release();
    for _ in segment {
        waiting.receive_reply().await.unwrap();
    }
    server.shutdown().await;
}

#[tokio::test]
async fn while_a_sync_hangs_reads_are_answered_and_sessions_live() {
    const TIMEOUT_MS: u64 = 3_000;
    let disk = HeldDisk::new();
    let held = Arc::new(disk.clone());
    let builder = Server::builder().config(TestServer::config());
    let server = builder.disks(held.clone(), held).start().await.unwrap();
    let options = ConnectOptions {
        timeout: Duration::from_millis(TIMEOUT_MS),
        ..ConnectOptions::default()
    };
    let address = server.addresses()[0];
    let mut writer = RawClient::connect_with(address, &options).await.unwrap();
    let mut reader = RawClient::connect_with(address, &options).await.unwrap();
    ok(&mut writer, Request::create_ephemeral("/writer")).await;
    ok(&mut reader, Request::create_ephemeral("/reader")).await;
    disk.hold();
    writer
        .send_all(&[Request::set_data("/writer", "late")])
        .await
        .unwrap();
    let elsewhere = tokio::spawn(a_session_expires_elsewhere(TIMEOUT_MS));
    // As clients ping, while they wait for an answer too.
    let mut pace = interval(Duration::from_millis(TIMEOUT_MS / 8));
    let mut reads = 0;
    while !elsewhere.is_finished() {
        pace.tick().await;
        writer.send_all(&[Request::Ping]).await.unwrap();
        ok(&mut reader, Request::Ping).await;
        // Not the write that is not on disk.
        assert_eq!(data(&mut reader, "/writer").await, Some(Vec::new()));
        reads += 1;
    }
    elsewhere.await.unwrap();
    assert!(reads > 1);
    disk.release();
    assert!(writer.receive_reply().await.unwrap().outcome.is_ok());
    for path in ["/writer", "/reader"] {
        assert!(exists(&mut reader, path).await, "{path} is gone");
    }
    assert_eq!(
        data(&mut reader, "/writer").await.as_deref(),
        Some(&b"late"[..])
    );
    server.shutdown().await;
}
