//! How a session is opened, and the errors when it cannot be.

use std::future::pending;
use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use bellwether_client::{
    Client, ConnectError, CreateMode, Dial, Dialing, Endpoint, Resolving, Sockets,
};
use bellwether_server::Server;
use bellwether_testkit::{Cut, Direction, FaultProxy, Op, Port, TestServer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::time::timeout;

use crate::support::handshake::{REQUEST_BYTES, granted};
use crate::support::place::{Place, soon};

/// Each server with its reason.
fn reasons(error: &ConnectError) -> Vec<(String, String)> {
    let ConnectError::Unreachable { attempts, .. } = error else {
        panic!("{error:?}");
    };
    let pairs = attempts.iter();
    pairs
        .map(|(host, reason)| (host.to_owned(), reason.to_owned()))
        .collect()
}

/// A port whose listener sends `answer` and nothing else.
async fn impostor(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let mut open = Vec::new();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(answer).await.unwrap();
            open.push(stream);
        }
    });
    address
}

#[tokio::test]
async fn fail_fast_names_a_reason_for_each_host() {
    let closed = Port::reserve().unwrap();
    let refused = format!("127.0.0.1:{}", closed.number());
    let web = impostor(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
    let silent = impostor(b"").await;
    let nowhere = "no-such-host.invalid:2181";
    let servers = format!("{refused},{web},{silent},{nowhere}");
    let connect = Client::connect(servers).fail_fast();
    let error = soon(
        connect
            .session_timeout(Duration::from_secs(4))
            .into_future(),
    )
    .await;
    let error = error.unwrap_err();
    let reasons = reasons(&error);
    assert_eq!(reasons.len(), 4, "{reasons:?}");
    for (host, part) in [
        (refused.as_str(), "connection refused"),
        (&web, "not a ZooKeeper server"),
        (&silent, "timed out"),
        (nowhere, "no such host"),
    ] {
        let reason = &reasons.iter().find(|(known, _)| known == host).unwrap().1;
        assert!(reason.contains(part), "{host}: {reason}");
        assert!(error.to_string().contains(reason), "{error}");
    }
}

#[tokio::test]
async fn fail_fast_does_not_wait_for_the_limit() {
    let closed = Port::reserve().unwrap();
    let connect = Client::connect(format!("127.0.0.1:{}", closed.number()));
    let began = Instant::now();
    let limit = Duration::from_secs(600);
    let error = connect.connect_timeout(limit).fail_fast().await;
    assert_eq!(reasons(&error.unwrap_err())[0].1, "connection refused");
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn connect_timeout_holds_for_a_server_that_does_not_answer() {
    let silent = impostor(b"").await;
    let began = Instant::now();
    let connect = Client::connect(&silent).session_timeout(Duration::from_secs(600));
    let error = connect.connect_timeout(Duration::from_millis(300)).await;
    assert_eq!(
        reasons(&error.unwrap_err()),
        [(silent, "timed out".to_owned())]
    );
    assert!(began.elapsed() >= Duration::from_millis(300));
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test]
async fn connect_timeout_ends_attempts_that_are_refused() {
    let closed = Port::reserve().unwrap();
    let connect = Client::connect(format!("127.0.0.1:{}", closed.number()));
    let began = Instant::now();
    let error = connect.connect_timeout(Duration::from_millis(300)).await;
    assert_eq!(reasons(&error.unwrap_err())[0].1, "connection refused");
    assert!(began.elapsed() >= Duration::from_millis(300));
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn connecting_waits_for_a_server_that_is_yet_to_come() {
    let port = Port::reserve().unwrap();
    let address = format!("127.0.0.1:{}", port.number());
    let connect = Client::connect(&address).connect_timeout(Duration::from_secs(30));
    let opening = tokio::spawn(connect.into_future());
    // The first round is over when this attempt is: both were refused.
    assert!(Client::connect(&address).fail_fast().await.is_err());
    let server = Server::builder().listen(address.parse().unwrap()).start();
    let server = server.await.unwrap();
    let client = soon(opening).await.unwrap().unwrap();
    client.close().await;
    server.shutdown().await;
}

#[tokio::test]
async fn a_server_that_hangs_does_not_keep_a_session_from_the_others() {
    let server = TestServer::start().await.unwrap();
    let (first, second) = (impostor(b"").await, impostor(b"").await);
    let good = FaultProxy::start(server.address()).await.unwrap();
    let servers = format!("{first},{second},{}", good.address());
    let connect = Client::connect(servers).session_timeout(Duration::from_secs(6));
    let client = soon(connect.into_future()).await.unwrap();
    for round in 0..3 {
        good.cut(Cut::Reset).await;
        soon(client.exists("/")).await.ok();
        soon(async { while client.exists("/").await.is_err() {} }).await;
        assert!(!client.state().is_ended(), "round {round}");
    }
}

/// A network in which names are looked up slowly, and machines named `dead` do not answer.
#[derive(Debug)]
struct Network {
    server: Endpoint,
    look_up: Duration,
}

impl Dial for Network {
    fn resolve(&self, endpoint: &Endpoint) -> Resolving {
        let (endpoint, look_up) = (endpoint.clone(), self.look_up);
        let looked_up = timeout(look_up, pending::<()>());
        Box::pin(async move {
            looked_up.await.unwrap_err();
            Ok(vec![endpoint])
        })
    }

    fn dial(&self, endpoint: &Endpoint) -> Dialing {
        match matches!(endpoint, Endpoint::Tcp(host, _) if host == "dead") {
            true => Box::pin(pending()),
            false => Sockets.dial(&self.server),
        }
    }
}

impl Network {
    fn of(server: &TestServer, look_up: Duration) -> Self {
        let address = server.address();
        Self {
            server: Endpoint::Tcp(address.ip().to_string(), address.port()),
            look_up,
        }
    }
}

#[tokio::test]
async fn machines_that_do_not_answer_are_tried_side_by_side_with_the_others() {
    let server = TestServer::start().await.unwrap();
    // An attempt may take most of a minute.
    let limit = Duration::from_secs(600);
    let servers = "dead:1,dead:2,dead:3,dead:4,dead:5,good:1";
    let connect = Client::connect(servers).session_timeout(limit);
    let network = Network::of(&server, Duration::ZERO);
    soon(connect.dial(network).into_future()).await.unwrap();
}

#[tokio::test]
async fn look_up_of_a_name_may_take_longer_than_an_attempt() {
    let server = TestServer::start().await.unwrap();
    // An attempt with a server takes half a second at most.
    let connect = Client::connect("good").session_timeout(Duration::from_secs(1));
    let network = Network::of(&server, Duration::from_millis(1_500));
    let connect = connect.connect_timeout(Duration::from_secs(15));
    soon(connect.dial(network).into_future()).await.unwrap();
}

#[tokio::test]
async fn a_bad_connect_string_is_told_at_once() {
    for text in ["", "host:0", "host:1/a//b", "unix:relative"] {
        let error = Client::connect(text).await.unwrap_err();
        assert!(matches!(error, ConnectError::BadAddress { .. }), "{text}");
    }
}

#[tokio::test]
async fn a_dropped_attempt_leaves_no_session() {
    let server = TestServer::start().await.unwrap();
    let proxy = FaultProxy::start(server.address()).await.unwrap();
    proxy.hold(Direction::ToClient);
    let mut opening = Client::connect(proxy.connect_string()).into_future();
    soon(async {
        while server.session_count().unwrap() == 0 {
            let turn = Duration::from_millis(10);
            assert!(tokio::time::timeout(turn, &mut opening).await.is_err());
        }
    })
    .await;
    drop(opening);
    proxy.resume(Direction::ToClient);
    soon(async {
        while server.session_count().unwrap() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(proxy.count(Op::CloseSession), 1);
}

#[tokio::test]
async fn servers_are_reached_by_ipv6() {
    let listener = std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let server = Server::builder().listen(address).start().await.unwrap();
    let client = Client::connect(address.to_string()).await.unwrap();
    let infos = client.who_am_i().await.unwrap();
    assert!(infos[0].1.contains(':'), "{infos:?}");
    client.close().await;
    server.shutdown().await;
}

#[tokio::test]
async fn servers_are_reached_by_unix_sockets() {
    let server = TestServer::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let upstream = server.address();
    let relay = tokio::spawn(async move {
        loop {
            let (mut near, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut far = TcpStream::connect(upstream).await.unwrap();
                // Either kind of end will do.
                let _ = copy_bidirectional(&mut near, &mut far).await;
            });
        }
    });
    let root = Client::connect(format!("unix:{}", path.display()))
        .await
        .unwrap();
    root.create("/team", b"", CreateMode::Persistent)
        .await
        .unwrap();
    let connect = Client::connect(format!("unix:{}:/team", path.display()));
    let team = connect.await.unwrap();
    team.create("/n", b"", CreateMode::Ephemeral).await.unwrap();
    assert_eq!(root.children("/team").await.unwrap(), ["n"]);
    team.close().await;
    assert_eq!(root.children("/team").await.unwrap().len(), 0);
    relay.abort();
    let missing = format!("unix:{}", folder.path().join("none").display());
    let error = Client::connect(missing).fail_fast().await.unwrap_err();
    assert!(reasons(&error)[0].1.contains("No such file"), "{error}");
}

/// Answers handshakes as a read-only server does, and holds the connection open.
async fn read_only_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let mut open = Vec::new();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; REQUEST_BYTES];
            stream.read_exact(&mut request).await.unwrap();
            let reply = granted(4_000, true);
            stream.write_all(&reply).await.unwrap();
            open.push(stream);
        }
    });
    address
}

#[tokio::test]
async fn a_read_only_server_is_refused_unless_it_is_allowed() {
    let address = read_only_server().await;
    let error = Client::connect(&address).fail_fast().await.unwrap_err();
    assert_eq!(
        reasons(&error),
        [(address.clone(), "the server is read-only".to_owned())]
    );
    let client = Client::connect(&address).allow_read_only().await.unwrap();
    assert_eq!(client.session_id(), 7);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_host_of_a_connect_string_is_used() {
    let place = Place::embedded().await;
    let (one, two) = (place.proxy().await, place.proxy().await);
    let servers = format!("{},{}", one.address(), two.address());
    let mut clients = Vec::new();
    while one.connections() == 0 || two.connections() == 0 {
        assert!(clients.len() < 100, "one in 2^100");
        clients.push(Client::connect(&servers).await.unwrap());
    }
}
