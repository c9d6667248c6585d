//! Clients that ask for too much: they get no more than their share, and other clients are not affected.

use std::time::{Duration, Instant};

use bellwether_server::Config;
use bellwether_testkit::raw::four_letter_word;
use bellwether_testkit::{Body, Create, RawClient, Request, TestServer};
use bellwether_wire::acl::{Acl, Id};
use bellwether_wire::code::ErrorCode::{AuthFailed, InvalidAcl, MarshallingError};
use bellwether_wire::op::Op;
use rustix::process::{Resource, getrlimit, setrlimit};

use super::resident_bytes;
use crate::{children, client_of, ok, refusal, server_and_client, until};

const MEBIBYTE: usize = 1 << 20;

/// A server with small buffers for clients that do not read.
async fn frugal_server() -> TestServer {
    let config = Config {
        outbox_bytes_max: 8 * MEBIBYTE,
        ..TestServer::config()
    };
    TestServer::with(config).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_asks_and_does_not_read_costs_little_and_gets_all_in_the_end() {
    let server = frugal_server().await;
    let mut other = client_of(&server).await;
    let mut greedy = client_of(&server).await;
    ok(&mut other, Request::create("/big", vec![b'x'; 1_000_000])).await;
    let before = resident_bytes();
    let asked = vec![Request::get_data("/big"); 200];
    greedy.send_all(&asked).await.unwrap();
    // Until the server stops reading it, and for some time after that.
    for _ in 0..200 {
        ok(&mut other, Request::set_data("/", "x")).await;
    }
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 64 * MEBIBYTE, "{grown} bytes more");
    for _ in asked {
        let reply = greedy.receive_reply().await.unwrap();
        assert_eq!(reply.bytes.len(), 4 + 1_000_000 + 68);
    }
}

/// Not even as much as fits into its outbox is computed for a client that does not read, and its socket takes little.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_read_is_not_read_either() {
    const GREEDY: usize = 10;
    const OTHERS: usize = 200;
    let server = TestServer::start().await.unwrap();
    let mut other = client_of(&server).await;
    ok(&mut other, Request::create("/big", vec![b'x'; 500_000])).await;
    let mut greedy = Vec::new();
    for _ in 0..GREEDY {
        greedy.push(client_of(&server).await);
    }
    let value = async |key: &str| -> usize {
        let monitor = four_letter_word(server.address(), "mntr").await.unwrap();
        let line = monitor.lines().find_map(|line| line.strip_prefix(key));
        line.unwrap().trim().parse().unwrap()
    };
    let before = value("zk_packets_sent").await;
    for client in &mut greedy {
        client
            .send_all(&vec![Request::get_data("/big"); 100])
            .await
            .unwrap();
    }
    // Long enough for all replies, if they were computed.
    for _ in 0..OTHERS {
        ok(&mut other, Request::set_data("/", "x")).await;
    }
    let waiting = value("zk_outbox_bytes").await;
    assert!(waiting <= GREEDY * MEBIBYTE, "{waiting} bytes wait");
    // The kernel would take some megabytes for each of them.
    let replies = value("zk_packets_sent").await - before - OTHERS;
    assert!(replies <= GREEDY * 4, "{replies} replies were computed");
    for mut client in greedy {
        for _ in 0..100 {
            client.receive_reply().await.unwrap().outcome.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_that_waited_for_a_write_are_limited_too() {
    let server = frugal_server().await;
    let mut other = client_of(&server).await;
    let greedy: Vec<_> = {
        ok(&mut other, Request::create("/big", vec![b'x'; 1_000_000])).await;
        let mut clients = Vec::new();
        for _ in 0..3 {
            clients.push(client_of(&server).await);
        }
        clients
    };
    let before = resident_bytes();
    let mut segment = vec![Request::set_data("/", "x")];
    segment.extend(vec![Request::get_data("/big"); 100]);
    let mut held = Vec::new();
    for mut client in greedy {
        client.send_all(&segment).await.unwrap();
        held.push(client);
    }
    for _ in 0..200 {
        ok(&mut other, Request::set_data("/", "x")).await;
    }
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 128 * MEBIBYTE, "{grown} bytes more");
    for client in &held {
        let back = client.reattach(server.address()).await.unwrap();
        assert!(!back.is_refused(), "the session lives on in any case");
    }
}

/// Each of them is shorter than a request may be, and none is ever complete.
#[tokio::test]
async fn beginnings_of_long_requests_are_limited_together() {
    const BEGUN: usize = 400_000;
    // Room for one whole request beside the beginning of another.
    const TOGETHER: usize = 3 * BEGUN + 1000;
    let config = Config {
        input_bytes_max: TOGETHER,
        ..TestServer::config()
    };
    let server = TestServer::with(config).await.unwrap();
    let mut other = client_of(&server).await;
    let long = Request::create("/long", vec![b'x'; 2 * BEGUN]).encode(1);
    let mut begun = Vec::new();
    for _ in 0..2 {
        let mut client = client_of(&server).await;
        client.send_bytes(&long[..BEGUN]).await.unwrap();
        begun.push(client);
    }
    // Also those that have no session yet.
    begun.push(RawClient::open(server.address()).await.unwrap());
    let mut first = i32::try_from(2 * BEGUN).unwrap().to_be_bytes().to_vec();
    first.resize(BEGUN + BEGUN / 2, 0);
    // The server may close it before everything is sent.
    let _ = begun[2].send_bytes(&first).await;
    begun[2].closed().await.unwrap();
    let value = async |key: &str| -> usize {
        let monitor = four_letter_word(server.address(), "mntr").await.unwrap();
        let line = monitor.lines().find_map(|line| line.strip_prefix(key));
        line.unwrap().trim().parse().unwrap()
    };
    assert!(value("zk_input_bytes").await <= TOGETHER);
    assert_eq!(value("zk_limits_reached").await, 1);
    // Those within the limit can go on, and short requests are never affected.
    ok(&mut other, Request::create("/short", "x")).await;
    begun[0].send_bytes(&long[BEGUN..]).await.unwrap();
    begun[0].receive_reply().await.unwrap().outcome.unwrap();
    drop(begun);
    until("no request is incomplete", || {
        server.connection_count().unwrap() == 1
    })
    .await;
    assert_eq!(value("zk_input_bytes").await, 0);
    ok(&mut other, Request::set_data("/long", vec![b'y'; 900_000])).await;
}

/// Each result costs a few bytes of the request, and all results are of the same node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_request_for_any_number_of_results_is_limited_too() {
    let server = frugal_server().await;
    let mut other = client_of(&server).await;
    let mut greedy = client_of(&server).await;
    ok(&mut other, Request::create("/big", vec![b'x'; 1_000_000])).await;
    let before = resident_bytes();
    let asked = |count| Request::MultiRead(vec![Request::get_data("/big"); count]);
    greedy.send(&asked(1000)).await.unwrap();
    ok(&mut other, Request::set_data("/", "x")).await;
    ok(&mut other, Request::get_data("/")).await;
    let refused = greedy.receive_reply().await.unwrap();
    let grown = resident_bytes().saturating_sub(before);
    assert_eq!(refused.outcome, Err(MarshallingError));
    assert!(grown < 64 * MEBIBYTE, "{grown} bytes more");
    ok(&mut greedy, asked(4)).await;
}

#[tokio::test]
async fn a_reply_may_be_longer_than_any_request() {
    let (_server, mut client) = server_and_client().await;
    let name = format!("/{}-", "n".repeat(100));
    let node = Request::create_mode(name, "", Create::PERSISTENT_SEQUENTIAL);
    for _ in 0..2 {
        ok(&mut client, Request::Multi(vec![node.clone(); 6000])).await;
    }
    client.send(&Request::get_children("/")).await.unwrap();
    let frame = client.receive_raw().await.unwrap();
    assert!(frame.len() > 0xF_FFFF, "{} bytes", frame.len());
}

#[tokio::test]
async fn thousands_of_levels_are_no_trouble() {
    const LEVELS: usize = 1000;
    let (_server, mut client) = server_and_client().await;
    let levels: Vec<_> = (1..=LEVELS).map(|level| "/a".repeat(level)).collect();
    for some in levels.chunks(200) {
        let creates = some.iter().map(|path| Request::create(path, "")).collect();
        ok(&mut client, Request::Multi(creates)).await;
    }
    let path = "/a".into();
    let below = ok(&mut client, Request::GetAllChildrenNumber { path }).await;
    assert_eq!(below, Body::Count(i32::try_from(LEVELS).unwrap() - 1));
    for path in levels.iter().rev() {
        ok(&mut client, Request::delete(path)).await;
    }
}

/// Lists as long as a frame, and lists that expand, delay no other client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_access_lists_keep_nobody_waiting() {
    let (server, mut other) = server_and_client().await;
    let mut client = client_of(&server).await;
    for number in 0..90 {
        let user = format!("{}{number}:", "u".repeat(500));
        ok(&mut client, Request::auth_digest(&user)).await;
    }
    let with_acl = |path: &str, acl| {
        Request::Create(Create {
            op: Op::Create,
            path: path.into(),
            data: None,
            acl,
            flags: Create::PERSISTENT_SEQUENTIAL,
            ttl_ms: None,
        })
    };
    let many = |count, scheme: &str, id: &str| -> Vec<Acl> {
        let id = Id::new(scheme, id);
        let entry = |perms| Acl {
            perms,
            id: id.clone(),
        };
        (0..count).map(entry).collect()
    };
    let long = many(40_000, "world", "anyone");
    let short = vec![long[0].clone(); 40_000];
    let longer = many(40_000, "auth", "");
    let each = with_acl("/each", many(1, "auth", ""));
    let asked = Instant::now();
    let requests = [
        (with_acl("/long", long), Ok(())),
        (with_acl("/short", short), Ok(())),
        (with_acl("/longer", longer), Err(InvalidAcl)),
        // The results contain the refusal.
        (Request::Multi(vec![each; 10_000]), Ok(())),
    ];
    for (request, _) in &requests {
        client.send(request).await.unwrap();
    }
    for _ in 0..20 {
        ok(&mut other, Request::set_data("/", "x")).await;
    }
    let took = asked.elapsed();
    assert!(took < Duration::from_secs(5), "20 writes took {took:?}");
    for (_, expected) in requests {
        let reply = client.receive_reply().await.unwrap();
        assert_eq!(reply.outcome.map(drop), expected);
    }
    let made = ["long0000000000", "short0000000001", "zookeeper"];
    assert_eq!(children(&mut other, "/").await, made);
}

#[tokio::test]
async fn a_client_can_be_only_so_many_people() {
    let (server, mut other) = server_and_client().await;
    let mut client = client_of(&server).await;
    for number in 0..50 {
        ok(&mut client, Request::auth_digest(&format!("user{number}:"))).await;
    }
    let many: Vec<_> = (0..2000)
        .map(|number| Request::auth_digest(&format!("more{number}:")))
        .collect();
    client.send_all(&many).await.unwrap();
    let refused = loop {
        if let Err(code) = client.receive_reply().await.unwrap().outcome {
            break code;
        }
    };
    assert_eq!(refused, AuthFailed);
    client.receive_to_end().await.unwrap();
    ok(&mut other, Request::Ping).await;
}

#[tokio::test]
async fn a_client_can_be_only_somebody_of_so_many_bytes() {
    let (server, mut other) = server_and_client().await;
    let mut client = client_of(&server).await;
    let long = |first: &str| Request::auth_digest(&format!("{first}{}:", "u".repeat(40_000)));
    ok(&mut client, long("a")).await;
    assert_eq!(refusal(&mut client, long("b")).await, AuthFailed);
    client.receive_to_end().await.unwrap();
    ok(&mut other, Request::Ping).await;
}

#[tokio::test]
async fn two_thousand_idle_connections_are_no_trouble() {
    const IDLE: usize = 2000;
    // Both ends of each connection are in this process.
    let mut files = getrlimit(Resource::Nofile);
    files.current = files.maximum;
    setrlimit(Resource::Nofile, files).unwrap();
    let server = TestServer::with(Config {
        handshake_timeout: Duration::from_secs(60),
        ..TestServer::config()
    })
    .await
    .unwrap();
    let mut other = client_of(&server).await;
    let mut idle = Vec::new();
    for number in 0..IDLE {
        idle.push(if number % 2 == 0 {
            client_of(&server).await
        } else {
            RawClient::open(server.address()).await.unwrap()
        });
    }
    until("all are in", || {
        server.connection_count().unwrap() == IDLE + 1
    })
    .await;
    assert_eq!(server.session_count().unwrap(), IDLE / 2 + 1);
    let asked = Instant::now();
    for _ in 0..100 {
        ok(&mut other, Request::set_data("/", "x")).await;
    }
    let took = asked.elapsed();
    assert!(took < Duration::from_secs(5), "100 writes took {took:?}");
    drop(idle);
    until("all are gone", || server.connection_count().unwrap() == 1).await;
    ok(&mut other, Request::Ping).await;
}

/// The clients themselves hold little: each drops what it has read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_goes_back_when_a_thousand_clients_have_read_a_megabyte_each() {
    const CLIENTS: usize = 1000;
    let mut files = getrlimit(Resource::Nofile);
    files.current = files.maximum;
    setrlimit(Resource::Nofile, files).unwrap();
    let (server, mut other) = server_and_client().await;
    ok(
        &mut other,
        Request::create("/big", vec![b'x'; MEBIBYTE - 100]),
    )
    .await;
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(client_of(&server).await);
    }
    let before = resident_bytes();
    for client in &mut clients {
        client.send(&Request::get_data("/big")).await.unwrap();
        let frame = client.receive_raw().await.unwrap();
        assert!(frame.len() > MEBIBYTE - 100);
        client.forget_input();
        ok(client, Request::Ping).await;
    }
    let grown = resident_bytes().saturating_sub(before);
    println!("{} KiB more for each connection", grown / CLIENTS / 1024);
    assert!(grown < 256 * MEBIBYTE, "{grown} bytes more");
    assert_eq!(server.connection_count().unwrap(), CLIENTS + 1);
}
