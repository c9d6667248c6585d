//! SASL DIGEST-MD5 with our own client; those of other projects are in `clients`.

use std::net::SocketAddr;

use bellwether_client::{Acl, Client, ConnectError, CreateMode, CreateOptions, Error, Id, acl};
use bellwether_server::{Config, Server, StartError};
use bellwether_testkit::{RawClient, Request, TestServer};
use bellwether_wire::code::ErrorCode::{AuthFailed, AuthRequired};
use bellwether_wire::jute::Writer as _;
use bellwether_wire::op::Op;
use bytes::BytesMut;
use tempfile::NamedTempFile;

use crate::refusal;

/// Latin-1 characters are hashed in another encoding than all others.
const USERS: [(&str, &str); 3] = [
    ("alice", "sword, fish=%1"),
    ("bj\u{f6}rn", "sv\u{e4}rd"),
    ("\u{436}", "\u{43c}\u{435}\u{447}:x"),
];

fn users_file() -> NamedTempFile {
    let file = NamedTempFile::new().unwrap();
    let lines = USERS.map(|(user, password)| format!("{user}:{password}\n"));
    std::fs::write(file.path(), lines.concat()).unwrap();
    file
}

async fn start(file: &NamedTempFile) -> Server {
    let config = Config {
        sasl_users: Some(file.path().to_owned()),
        sasl_super_user: Some("bj\u{f6}rn".to_owned()),
        ..TestServer::config()
    };
    Server::start(config).await.unwrap()
}

async fn connect(address: SocketAddr, user: &str, password: &str) -> Result<Client, ConnectError> {
    let connect = Client::connect(address.to_string()).sasl_digest_md5(user, password);
    connect.fail_fast().await
}

#[tokio::test]
async fn users_who_know_their_passwords_own_nodes() {
    let file = users_file();
    let server = start(&file).await;
    let address = server.addresses()[0];
    let mut clients = Vec::new();
    for (user, password) in USERS {
        let client = connect(address, user, password).await.unwrap();
        let ids = client.who_am_i().await.unwrap();
        assert!(
            ids.contains(&("sasl".to_owned(), user.to_owned())),
            "{ids:?}"
        );
        clients.push(client);
    }
    let [alice, super_user, other] = &clients[..] else {
        panic!("three users");
    };
    let id = Id::new("sasl", "alice");
    let only_alice = CreateOptions::from(CreateMode::Persistent).acl([Acl {
        perms: acl::ALL,
        id,
    }]);
    alice.create("/mine", b"x", only_alice).await.unwrap();
    assert!(alice.get("/mine").await.is_ok());
    assert!(super_user.get("/mine").await.is_ok());
    assert_eq!(other.get("/mine").await.err(), Some(Error::NO_AUTH));
    for client in clients {
        client.close().await;
    }
    server.shutdown().await;
}

#[tokio::test]
async fn a_wrong_password_and_an_unknown_user_get_the_same_answer_and_no_session() {
    let file = users_file();
    let server = start(&file).await;
    let mut texts = Vec::new();
    for (user, password) in [("alice", "wrong"), ("nobody", "wrong"), ("alice", "")] {
        match connect(server.addresses()[0], user, password).await {
            Err(error @ ConnectError::AuthFailed { .. }) => texts.push(error.to_string()),
            other => panic!("{other:?}"),
        }
    }
    texts.dedup();
    assert_eq!(texts.len(), 1, "{texts:?}");
    // Apache's error code, and the end of the connection.
    let mut raw = RawClient::connect(server.addresses()[0]).await.unwrap();
    let mut token = BytesMut::new();
    token.put_buffer(Some(b"no answer to any challenge"));
    let sasl = Request::Raw {
        op: Op::Sasl.number(),
        body: token.to_vec(),
    };
    assert_eq!(refusal(&mut raw, sasl).await, AuthFailed);
    raw.closed().await.unwrap();
    server.shutdown().await;
}

#[tokio::test]
async fn where_it_is_enforced_nothing_is_done_without_it() {
    let file = users_file();
    let config = Config {
        sasl_users: Some(file.path().to_owned()),
        enforce_auth_schemes: vec!["sasl".to_owned()],
        ..TestServer::config()
    };
    let server = Server::start(config).await.unwrap();
    let mut anonymous = RawClient::connect(server.addresses()[0]).await.unwrap();
    let code = refusal(&mut anonymous, Request::get_children("/")).await;
    assert_eq!(code, AuthRequired);
    anonymous.closed().await.unwrap();
    let (user, password) = USERS[0];
    let client = connect(server.addresses()[0], user, password)
        .await
        .unwrap();
    assert!(client.exists("/").await.unwrap().is_some());
    client.close().await;
    server.shutdown().await;
}

#[tokio::test]
async fn a_file_that_cannot_be_read_stops_the_start_and_shows_no_password() {
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "alice:x\nonly-a-password\n").unwrap();
    let config = Config {
        sasl_users: Some(file.path().to_owned()),
        ..TestServer::config()
    };
    match Server::start(config).await {
        Err(StartError::SaslUsers { source, .. }) => {
            let text = format!("{source} {source:?}");
            assert!(
                text.contains("line 2") && !text.contains("only-a"),
                "{text}"
            );
        }
        other => panic!("{other:?}"),
    }
}
