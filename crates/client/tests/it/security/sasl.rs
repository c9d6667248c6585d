//! SASL DIGEST-MD5 with Apache's server, and with servers that do not know it.

use std::fs;
use std::path::Path;
use std::time::Duration;

use bellwether_client::{
    Acl, Client, ConnectError, CreateMode, Error, Id, SessionEnd, TlsOptions, acl,
};
use bellwether_testkit::Apache;
use bellwether_wire::connect::ConnectReply;
use bellwether_wire::frame;
use bellwether_wire::jute::{Reader, Writer as _};
use bellwether_wire::reply;
use bytes::BytesMut;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::time::timeout;

use bellwether_testkit::certificates::{Authority, Files};

/// The time limit of every wait in these tests.
const LIMIT: Duration = Duration::from_secs(60);
const PASSWORD: &str = "sword, fish=%1";
/// Java hashes Latin-1 characters in another encoding than all others.
const OTHERS: [(&str, &str); 2] = [
    ("bj\u{f6}rn", "sv\u{e4}rd"),
    ("\u{436}", "\u{43c}\u{435}\u{447}"),
];

async fn start() -> Apache {
    let builder = Apache::builder().sasl_user("alice", PASSWORD);
    let builder = OTHERS.iter().fold(builder, |builder, (user, password)| {
        builder.sasl_user(*user, *password)
    });
    builder.start().await.unwrap()
}

/// All rights for this user only.
fn only(user: &str) -> Vec<Acl> {
    vec![Acl {
        perms: acl::ALL,
        id: Id::new("sasl", user),
    }]
}

/// The error of a failed connect; it must not contain the password.
async fn refusal(address: &str, user: &str, password: &str) -> String {
    let connect = Client::connect(address).sasl_digest_md5(user, password);
    assert!(!format!("{connect:?}").contains(password));
    match connect.fail_fast().await {
        Err(error @ ConnectError::AuthFailed { .. }) => {
            let text = format!("{error} {error:?}");
            assert!(!text.contains(password), "{text}");
            error.to_string()
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_right_password_opens_what_is_for_its_user() {
    let server = start().await;
    let address = server.connect_string();
    let alice = Client::connect(&*address).sasl_digest_md5("alice", PASSWORD);
    let alice = alice.await.unwrap();
    let ids = alice.who_am_i().await.unwrap();
    assert!(
        ids.contains(&("sasl".to_owned(), "alice".to_owned())),
        "{ids:?}"
    );
    let mode = CreateMode::Persistent.with_acl(only("alice"));
    alice.create("/hers", b"secret", mode).await.unwrap();

    let mut others = vec![Client::connect(&*address).await.unwrap()];
    for (user, password) in OTHERS {
        let client = Client::connect(&*address).sasl_digest_md5(user, password);
        let client = client.await.unwrap();
        let ids = client.who_am_i().await.unwrap();
        let me = ("sasl".to_owned(), user.to_owned());
        assert!(ids.contains(&me), "{ids:?}");
        others.push(client);
    }
    for client in others {
        assert_eq!(client.get("/hers").await.unwrap_err(), Error::NO_AUTH);
        client.close().await;
    }
    assert_eq!(&alice.get("/hers").await.unwrap().0[..], b"secret");
    alice.close().await;
}

#[tokio::test]
async fn wrong_passwords_and_unknown_users_are_refused() {
    let server = start().await;
    let address = server.connect_string();
    for (user, password) in [
        ("alice", "guess"),
        ("alice", OTHERS[0].1),
        // A password of no user: Apache 3.8 takes an unknown user for the last known one under another name.
        ("mallory", "nobody's"),
    ] {
        let reason = refusal(&address, user, password).await;
        assert_eq!(
            reason,
            "authentication failed: SASL: the server refused the user or the password"
        );
    }
}

#[tokio::test]
async fn servers_without_sasl_are_named_as_such() {
    let apache = Apache::start().await.unwrap();
    let embedded = bellwether_server::Server::builder().start().await.unwrap();
    for address in [apache.connect_string(), embedded.connect_string()] {
        let reason = refusal(&address, "alice", PASSWORD).await;
        assert_eq!(
            reason,
            "authentication failed: SASL: the server is not configured for SASL"
        );
    }
    embedded.shutdown().await;
}

#[tokio::test]
async fn a_reconnect_authenticates_first_and_a_changed_password_ends_the_session() {
    let mut server = start().await;
    let client = Client::connect(server.connect_string())
        .session_timeout(LIMIT)
        .sasl_digest_md5("alice", PASSWORD)
        .await
        .unwrap();
    let mode = CreateMode::Ephemeral.with_acl(only("alice"));
    client.create("/hers", b"secret", mode).await.unwrap();

    let mut states = client.states();
    server.kill();
    let down = states.wait_for(|state| *state == bellwether_client::SessionState::Disconnected);
    timeout(LIMIT, down).await.unwrap().unwrap();
    // This waits for the connection, and for the server to know its sender.
    let read = client.get("/hers");
    server.restart().await.unwrap();
    let (data, _) = timeout(LIMIT, read).await.unwrap().unwrap();
    assert_eq!(&data[..], b"secret");

    server.kill();
    let users = server.data_dir().join("jaas.conf");
    let changed = fs::read_to_string(&users).unwrap().replace(PASSWORD, "new");
    fs::write(&users, changed).unwrap();
    server.restart().await.unwrap();
    timeout(LIMIT, client.ended()).await.unwrap();
    let ended = Error::SessionEnded(SessionEnd::AuthFailed);
    assert_eq!(client.get("/hers").await.unwrap_err(), ended);
}

#[tokio::test]
async fn kazoo_is_the_same_user_by_the_same_password() {
    let server = start().await;
    let client = Client::connect(server.connect_string()).sasl_digest_md5("alice", PASSWORD);
    let client = client.await.unwrap();
    let mode = CreateMode::Persistent.with_acl(only("alice"));
    client.create("/ours", b"from rust", mode).await.unwrap();

    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut kazoo = Command::new(here.join("../../.venv/bin/python"));
    kazoo.arg(here.join("tests/clients/kazoo_sasl.py"));
    kazoo.args([&*server.connect_string(), "alice", "/ours"]);
    kazoo.env("PASSWORD", PASSWORD).kill_on_drop(true);
    let output = timeout(LIMIT, kazoo.output()).await.unwrap().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "from rust");
    assert_eq!(&client.get("/ours").await.unwrap().0[..], b"from kazoo");
    let (acl, _) = client.acl("/ours").await.unwrap();
    assert_eq!(acl, only("alice"));
    client.close().await;
}

#[tokio::test]
async fn a_user_is_authenticated_within_tls() {
    let authority = Authority::new("authority");
    let files = Files::new();
    let ca = files.put("ca.pem", &authority.pem);
    let store = authority.issue("server", &["127.0.0.1"]).store();
    let server = Apache::builder()
        .tls(files.put("server.pem", &store), &ca)
        .setting("ssl.clientAuth", "none")
        .sasl_user("alice", PASSWORD);
    let server = server.start().await.unwrap();
    let client = Client::connect(server.tls_address().unwrap().to_string())
        .tls(TlsOptions::new().ca_file(ca))
        .sasl_digest_md5("alice", PASSWORD);
    let client = client.await.unwrap();
    let ids = client.who_am_i().await.unwrap();
    let me = ("sasl".to_owned(), "alice".to_owned());
    assert!(ids.contains(&me), "{ids:?}");
    client.close().await;
}

/// A server that accepts every user, and so does not prove that it knows the password.
#[tokio::test]
async fn a_server_that_cannot_prove_to_know_the_password_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let impostor = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut input = BytesMut::new();
        read_frame(&mut stream, &mut input).await;
        let session = ConnectReply {
            timeout_ms: 10_000,
            session_id: 7,
            password: [0; 16],
        };
        let mut out = BytesMut::new();
        frame::put(&mut out, |out| session.encode(true, out));
        stream.write_all(&out).await.unwrap();
        let challenge = "realm=\"zk-sasl-md5\",nonce=\"n\",charset=utf-8,algorithm=md5-sess";
        for token in [challenge, "rspauth=00000000000000000000000000000000"] {
            let request = read_frame(&mut stream, &mut input).await;
            let xid = Reader::new(&request).int().unwrap();
            let mut out = BytesMut::new();
            reply::put(&mut out, xid, 0, Ok(()), |out| {
                out.put_buffer(Some(token.as_bytes()));
            });
            stream.write_all(&out).await.unwrap();
        }
        // Only the end of the connection may follow.
        let rest = stream.read_buf(&mut input).await.unwrap_or(0);
        assert_eq!(rest, 0);
    });
    let reason = refusal(&address, "alice", PASSWORD).await;
    assert_eq!(
        reason,
        "authentication failed: SASL: the server does not know the password"
    );
    timeout(LIMIT, impostor).await.unwrap().unwrap();
}

async fn read_frame(stream: &mut TcpStream, input: &mut BytesMut) -> Vec<u8> {
    loop {
        if let Some(frame) = frame::take(input, 4096).unwrap() {
            return frame.to_vec();
        }
        assert_ne!(stream.read_buf(input).await.unwrap(), 0);
    }
}
