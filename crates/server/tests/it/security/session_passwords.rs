//! Sessions that only their own clients can resume.

use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use bellwether_client::{Client, CreateMode, SessionKey};
use bellwether_server::{Config, MemoryStore, Server, SessionPasswords, UnixPeers};
use bellwether_testkit::{Apache, ConnectOptions, RawClient, Request};
use rustix::process::geteuid;

use crate::{ok, until};

/// A user that is neither root nor the user of the tests.
const STRANGER: u32 = 65534;

async fn start(folder: &Path, passwords: SessionPasswords) -> Server {
    let config = Config {
        data_dir: Some(folder.to_owned()),
        session_passwords: passwords,
        ..Config::default()
    };
    Server::start(config).await.unwrap()
}

/// The password that Apache's server gives the session `id`.
async fn computed(id: i64) -> [u8; 16] {
    let config = Config {
        session_passwords: SessionPasswords::Apache,
        ..Config::default()
    };
    let server = Server::start(config).await.unwrap();
    let password = server.hooks().session_password(id);
    server.shutdown().await;
    password
}

fn resuming(id: i64, password: [u8; 16]) -> ConnectOptions {
    ConnectOptions {
        session_id: id,
        password: password.to_vec(),
        ..ConnectOptions::default()
    }
}

/// Resumes a session with a password.
async fn reattach(server: &Server, id: i64, password: [u8; 16]) -> RawClient {
    let options = resuming(id, password);
    let client = RawClient::connect_with(server.addresses()[0], &options);
    client.await.unwrap()
}

#[tokio::test]
async fn t104_computed_password_resumes_no_session_before_or_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), Config::default().session_passwords).await;
    let mut owner = RawClient::connect(server.addresses()[0]).await.unwrap();
    ok(&mut owner, Request::create_ephemeral("/mine")).await;
    let id = owner.session_id();
    let thief = reattach(&server, id, computed(id).await).await;
    assert!(thief.is_refused(), "the session was stolen");
    // Its connection is not disturbed either.
    ok(&mut owner, Request::exists("/mine")).await;
    server.shutdown().await;

    let server = start(folder.path(), SessionPasswords::Secret).await;
    let thief = reattach(&server, id, computed(id).await).await;
    assert!(thief.is_refused(), "the session was stolen");
    let mut again = owner.reattach(server.addresses()[0]).await.unwrap();
    assert!(!again.is_refused(), "the password is another one");
    ok(&mut again, Request::exists("/mine")).await;
    server.shutdown().await;
}

/// What a client acquired after the backup is gone, and it must learn that: its session has expired.
#[tokio::test]
async fn t104_sessions_of_a_backup_are_resumed_by_nobody_and_end_by_their_timeout() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(&folder.path().join("data"), SessionPasswords::Secret).await;
    let mut owner = RawClient::connect(server.addresses()[0]).await.unwrap();
    ok(&mut owner, Request::create_ephemeral("/before")).await;
    let id = owner.session_id();
    let backup = folder.path().join("backup");
    server.backup(&backup).await.unwrap();
    ok(&mut owner, Request::create_ephemeral("/after")).await;
    server.shutdown().await;

    let restored = folder.path().join("restored");
    bellwether_server::restore(&backup, &restored).unwrap();
    let server = start(&restored, SessionPasswords::Secret).await;
    let address = server.addresses()[0];
    let thief = reattach(&server, id, computed(id).await).await;
    assert!(thief.is_refused(), "the session was stolen");
    let back = owner.reattach(address).await.unwrap();
    assert!(back.is_refused(), "its node /after is gone");
    let monitor = server.monitor();
    assert!(monitor.word("mntr").contains("zk_computable_sessions\t0\n"));
    // What it held is not free before its timeout.
    let mut other = RawClient::connect(address).await.unwrap();
    ok(&mut other, Request::exists("/before")).await;
    server.hooks().expire_session(id);
    until("it has ended", || !monitor.word("dump").contains("/before")).await;
    server.shutdown().await;
}

/// Connects to the socket as another user, sends a connect request, and returns the session of the reply: 0 if it is refused.
async fn as_stranger(socket: &Path, request: &[u8]) -> i64 {
    let script = "import socket, struct, sys\n\
        s = socket.socket(socket.AF_UNIX)\n\
        s.connect(sys.argv[1])\n\
        s.sendall(bytes.fromhex(sys.argv[2]))\n\
        reply = s.makefile('rb').read(20)\n\
        print(struct.unpack('>iiiq', reply)[3])";
    let mut hex = String::new();
    for byte in request {
        write!(hex, "{byte:02x}").unwrap();
    }
    let mut stranger = Command::new("python3");
    stranger.args(["-c", script]).arg(socket).arg(hex);
    stranger.uid(STRANGER).current_dir("/");
    let output = tokio::task::spawn_blocking(move || stranger.output().unwrap());
    let output = output.await.unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    said.trim().parse().unwrap()
}

/// Whether there is a node. A request that meets the end of a connection is sent again.
async fn exists(client: &Client, path: &str) -> bool {
    for _ in 0..10 {
        match client.exists(path).await {
            Err(error) if error.is_transient() => {}
            other => return other.unwrap().is_some(),
        }
    }
    panic!("the client does not reconnect");
}

#[tokio::test]
async fn t104_another_user_of_the_socket_resumes_no_session_whatever_the_password() {
    if !geteuid().is_root() {
        eprintln!("skipped: only root can start a process of another user");
        return;
    }
    for passwords in [SessionPasswords::Secret, SessionPasswords::Apache] {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let socket = folder.path().join("socket");
        let store = MemoryStore::default();
        let config = Config {
            listen_unix: Some(socket.clone()),
            unix_peers: UnixPeers::AllUsers,
            session_passwords: passwords,
            ..Config::default()
        };
        let start = || {
            Server::builder()
                .config(config.clone())
                .memory(store.clone())
        };
        let server = start().start().await.unwrap();
        let owner = Client::connect(format!("unix:{}", socket.display()));
        let owner = owner.on_current_runtime().await.unwrap();
        let mine = owner.create("/mine", b"", CreateMode::Ephemeral);
        mine.await.unwrap();
        let key = owner.session_key();
        let id = owner.session_id();
        let stolen = [
            resuming(id, key.password()),
            resuming(id, computed(id).await),
        ];
        for request in &stolen {
            assert_eq!(as_stranger(&socket, &request.encode()).await, 0);
            // Nor does a client of the network, which may be any user.
            let thief = RawClient::connect_with(server.addresses()[0], request);
            assert!(thief.await.unwrap().is_refused(), "{passwords:?}");
        }
        assert!(owner.exists("/mine").await.unwrap().is_some());
        // A stranger gets sessions of its own.
        let own = as_stranger(&socket, &ConnectOptions::default().encode()).await;
        assert_ne!(own, 0);
        server.shutdown().await;
        // Nobody remembers the owner now.
        if passwords == SessionPasswords::Secret {
            let server = start().start().await.unwrap();
            for request in &stolen {
                assert_eq!(as_stranger(&socket, &request.encode()).await, 0);
            }
            assert!(exists(&owner, "/mine").await);
            assert_eq!(owner.session_id(), id);
            server.shutdown().await;
        }
    }
}

#[tokio::test]
async fn session_of_the_network_continues_on_the_socket() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let config = Config {
        listen_unix: Some(socket.clone()),
        ..Config::default()
    };
    let server = Server::start(config).await.unwrap();
    let network = RawClient::connect(server.addresses()[0]).await.unwrap();
    let key = SessionKey::new(network.session_id(), network.password());
    let socket = Client::connect(format!("unix:{}", socket.display())).session(key);
    let socket = socket.on_current_runtime().await.unwrap();
    assert_eq!(socket.session_id(), network.session_id());
    let back = network.reattach(server.addresses()[0]).await.unwrap();
    assert!(!back.is_refused());
    server.shutdown().await;
}

/// The way to Apache's server without an end of sessions: their clients change to its passwords first.
#[tokio::test]
async fn sessions_continue_on_apaches_server_and_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), SessionPasswords::Secret).await;
    let mut client = RawClient::connect(server.addresses()[0]).await.unwrap();
    ok(&mut client, Request::create_ephemeral("/mine")).await;
    assert_ne!(
        server.hooks().session_password(client.session_id()),
        computed(client.session_id()).await
    );
    server.shutdown().await;

    let server = start(folder.path(), SessionPasswords::Apache).await;
    let mut client = client.reattach(server.addresses()[0]).await.unwrap();
    assert!(!client.is_refused());
    ok(&mut client, Request::exists("/mine")).await;
    server.shutdown().await;

    let apache = Apache::builder().data_dir(folder.path());
    let mut apache = apache.start().await.unwrap();
    let mut client = client.reattach(apache.address()).await.unwrap();
    assert!(!client.is_refused());
    ok(&mut client, Request::exists("/mine")).await;
    let mut new = RawClient::connect(apache.address()).await.unwrap();
    ok(&mut new, Request::create_ephemeral("/new")).await;
    apache.stop().await.unwrap();

    let server = start(folder.path(), SessionPasswords::Secret).await;
    for (client, path) in [(client, "/mine"), (new, "/new")] {
        let mut client = client.reattach(server.addresses()[0]).await.unwrap();
        assert!(!client.is_refused());
        ok(&mut client, Request::exists(path)).await;
        // It has a secret password from now on.
        let client = client.reattach(server.addresses()[0]).await.unwrap();
        assert!(!client.is_refused());
    }
    let metrics = server.monitor().metrics();
    assert!(
        metrics.contains("bellwether_sessions_computable 2\n"),
        "{metrics}"
    );
    server.shutdown().await;
}
