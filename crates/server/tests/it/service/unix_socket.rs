//! A server on a Unix socket.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use bellwether_client::{Acl, Client, CreateMode, CreateOptions, Error, Id, acl};
use bellwether_server::{Config, MemoryStore, Server, StartError, UnixPeers, WordList};
use bellwether_wire::code::ErrorCode;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

const INVALID_ACL: Error = Error::Refused(ErrorCode::InvalidAcl);

/// A user that is neither root nor the user of the tests.
const NOBODY: u32 = 65534;

struct Scene {
    folder: TempDir,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// Settings of a server that listens only on the socket.
    fn config(&self) -> Config {
        Config {
            listen: Vec::new(),
            listen_unix: Some(self.socket()),
            connections_per_address_max: 1,
            words: WordList::parse("*").unwrap(),
            ..Config::default()
        }
    }

    async fn client(&self) -> Client {
        let address = format!("unix:{}", self.socket().display());
        Client::connect(address).on_current_runtime().await.unwrap()
    }
}

async fn word(socket: &Path, word: &str) -> String {
    let mut stream = UnixStream::connect(socket).await.unwrap();
    stream.write_all(word.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn clients_are_served_there_and_no_limit_per_address_counts() {
    let scene = Scene::new();
    let server = Server::start(scene.config()).await.unwrap();
    assert_eq!(server.addresses(), []);
    let address = format!("unix:{}", scene.socket().display());
    assert_eq!(server.connect_string(), address);
    let (first, second) = (scene.client().await, scene.client().await);
    // More than a socket accepts at once.
    let large = vec![7; 900 << 10];
    let created = first.create("/a", &large, CreateMode::Persistent);
    created.await.unwrap();
    let (data, _) = second.get("/a").await.unwrap();
    assert!(data == large);
    first.close().await;
    second.close().await;
    server.shutdown().await;
    assert!(!scene.socket().exists());
}

#[tokio::test]
async fn clients_are_known_by_user_and_process() {
    let scene = Scene::new();
    let server = Server::start(scene.config()).await.unwrap();
    let client = scene.client().await;
    let user = rustix::process::geteuid().as_raw().to_string();
    let ids = client.who_am_i().await.unwrap();
    assert_eq!(ids, [("unix".to_owned(), user.clone())]);
    let cons = word(&scene.socket(), "cons").await;
    let here = format!(" /unix:{user}:{}[", std::process::id());
    let session = format!("sid=0x{:x}", client.session_id());
    let known = |line: &str| line.starts_with(&here) && line.contains(&session);
    assert!(cons.lines().any(known), "{cons}");
    assert!(
        word(&scene.socket(), "dump")
            .await
            .contains(&here[1..here.len() - 1])
    );
    server.shutdown().await;
}

#[tokio::test]
async fn no_address_in_an_access_list_matches_them() {
    let scene = Scene::new();
    let server = Server::start(scene.config()).await.unwrap();
    let client = scene.client().await;
    client
        .create("/a", b"", CreateMode::Persistent)
        .await
        .unwrap();
    let everywhere = Acl {
        perms: acl::READ,
        id: Id::new("ip", "0.0.0.0/0"),
    };
    client.set_acl("/a", &[everywhere], None).await.unwrap();
    assert_eq!(client.get("/a").await.err(), Some(Error::NO_AUTH));
    server.shutdown().await;
}

#[tokio::test]
async fn a_node_can_belong_to_a_user_of_the_host() {
    let scene = Scene::new();
    let config = Config {
        listen: Config::default().listen,
        ..scene.config()
    };
    let server = Server::start(config).await.unwrap();
    let client = scene.client().await;
    let user = rustix::process::geteuid().as_raw();
    let only = |user: &str| {
        [Acl {
            perms: acl::ALL,
            id: Id::new("unix", user),
        }]
    };
    let create = async |path: &str, acl: &[Acl]| {
        let options = CreateOptions::from(CreateMode::Persistent).acl(acl.to_vec());
        client.create(path, b"x", options).await.map(drop)
    };
    create("/mine", &only(&user.to_string())).await.unwrap();
    create("/theirs", &only(&(user + 1).to_string()))
        .await
        .unwrap();
    let me = [Acl {
        perms: acl::ALL,
        id: Id::new("auth", ""),
    }];
    create("/by-auth", &me).await.unwrap();
    for not_a_user in ["", "root", "01", "-1", "4294967296"] {
        let refused = create("/none", &only(not_a_user)).await;
        assert_eq!(refused.err(), Some(INVALID_ACL), "{not_a_user:?}");
    }
    let stranger = Client::connect(server.addresses()[0].to_string());
    let stranger = stranger.on_current_runtime().await.unwrap();
    for (path, is_mine) in [("/mine", true), ("/theirs", false), ("/by-auth", true)] {
        let expected = (!is_mine).then_some(Error::NO_AUTH);
        assert_eq!(client.get(path).await.err(), expected, "{path}");
        assert_eq!(
            stranger.get(path).await.err(),
            Some(Error::NO_AUTH),
            "{path}"
        );
    }
    let options = CreateOptions::from(CreateMode::Persistent).acl(me.to_vec());
    let refused = stranger.create("/none", b"", options).await.err();
    assert_eq!(refused, Some(INVALID_ACL), "an address owns nothing");
    server.shutdown().await;
}

#[tokio::test]
async fn other_users_are_refused_before_a_byte_is_read() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can be another user");
        return;
    }
    let scene = Scene::new();
    for (peers, answer) in [(UnixPeers::SameUser, ""), (UnixPeers::AllUsers, "imok")] {
        let config = Config {
            unix_peers: peers,
            ..scene.config()
        };
        let server = Server::start(config).await.unwrap();
        // Only the server itself can refuse.
        fs::set_permissions(scene.folder.path(), Permissions::from_mode(0o755)).unwrap();
        if peers == UnixPeers::SameUser {
            fs::set_permissions(scene.socket(), Permissions::from_mode(0o777)).unwrap();
        }
        let socket = scene.socket();
        let stranger = tokio::task::spawn_blocking(move || {
            let script = "import socket, sys\n\
                s = socket.socket(socket.AF_UNIX)\n\
                s.connect(sys.argv[1])\n\
                try:\n    s.sendall(b'ruok')\n    print(s.recv(100).decode())\n\
                except (BrokenPipeError, ConnectionResetError): print()";
            let mut stranger = Command::new("python3");
            stranger.args(["-c", script]).arg(socket).uid(NOBODY);
            stranger.current_dir("/").output().unwrap()
        });
        let output = stranger.await.unwrap();
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!(said.trim(), answer, "{peers:?}");
        // The user of the server is served.
        assert_eq!(word(&scene.socket(), "ruok").await, "imok");
        server.shutdown().await;
    }
}

/// Root and the user of the server may send words that reveal addresses and paths. Other users may, if the words are listed.
#[tokio::test]
async fn user_of_the_server_needs_no_list_of_words_and_other_users_do() {
    let scene = Scene::new();
    fs::set_permissions(scene.folder.path(), Permissions::from_mode(0o755)).unwrap();
    let config = Config {
        unix_peers: UnixPeers::AllUsers,
        words: WordList::default(),
        ..scene.config()
    };
    let server = Server::start(config).await.unwrap();
    let own = word(&scene.socket(), "mntr").await;
    assert!(own.contains("zk_uptime\t"), "{own}");
    if rustix::process::geteuid().is_root() {
        let script = "import socket, sys\n\
            s = socket.socket(socket.AF_UNIX)\n\
            s.connect(sys.argv[1])\n\
            s.sendall(b'mntr')\n\
            print(s.makefile().read())";
        let mut other = Command::new("python3");
        other.args(["-c", script]).arg(scene.socket());
        other.uid(NOBODY).current_dir("/");
        let output = tokio::task::spawn_blocking(move || other.output().unwrap());
        let output = output.await.unwrap();
        let told = String::from_utf8(output.stdout).unwrap();
        assert!(told.contains("mntr is not executed"), "{told}");
    }
    server.shutdown().await;
}

#[tokio::test]
async fn socket_of_a_killed_server_is_replaced_and_that_of_a_live_one_is_not() {
    let scene = Scene::new();
    // Dropping a listener leaves its file, as a kill does.
    drop(std::os::unix::net::UnixListener::bind(scene.socket()).unwrap());
    assert!(scene.socket().exists());
    let store = MemoryStore::default();
    let first = Server::builder()
        .config(scene.config())
        .memory(store.clone());
    let first = first.start().await.unwrap();
    let second = Server::start(scene.config()).await.err();
    assert!(
        matches!(second, Some(StartError::ListenUnix { .. })),
        "{second:?}"
    );
    let client = scene.client().await;
    client
        .create("/a", b"", CreateMode::Persistent)
        .await
        .unwrap();
    // The session continues on the next server there.
    first.shutdown().await;
    let next = Server::builder().config(scene.config()).memory(store);
    let next = next.start().await.unwrap();
    let states = client.exists("/a").await;
    assert!(states.unwrap().is_some());
    next.shutdown().await;
}

#[tokio::test]
async fn file_that_is_no_socket_is_left_alone() {
    let scene = Scene::new();
    fs::write(scene.socket(), "precious").unwrap();
    let error = Server::start(scene.config()).await.err();
    assert!(
        matches!(error, Some(StartError::ListenUnix { .. })),
        "{error:?}"
    );
    assert_eq!(fs::read(scene.socket()).unwrap(), b"precious");
}
