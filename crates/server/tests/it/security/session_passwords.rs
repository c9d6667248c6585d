//! Sessions that only their own clients can resume.

use bellwether_server::{Config, Server};
use bellwether_testkit::{ConnectOptions, RawClient, Request};

use crate::ok;

async fn start(folder: &std::path::Path, is_secret: bool) -> Server {
    let config = Config {
        data_dir: Some(folder.to_owned()),
        secret_session_passwords: is_secret,
        ..Config::default()
    };
    Server::start(config).await.unwrap()
}

/// Resumes a session with a password.
async fn reattach(server: &Server, id: i64, password: [u8; 16]) -> RawClient {
    let options = ConnectOptions {
        session_id: id,
        password: password.to_vec(),
        ..ConnectOptions::default()
    };
    let client = RawClient::connect_with(server.addresses()[0], &options);
    client.await.unwrap()
}

#[tokio::test]
async fn secret_passwords_outlive_the_server_and_cannot_be_computed() {
    let folder = tempfile::tempdir().unwrap();
    // Apache's password, from a server that uses those.
    let apaches = Server::start(Config::default()).await.unwrap();
    let server = start(folder.path(), true).await;
    let mut owner = RawClient::connect(server.addresses()[0]).await.unwrap();
    ok(&mut owner, Request::create_ephemeral("/mine")).await;
    let id = owner.session_id();
    let computed = apaches.hooks().session_password(id);
    assert_ne!(server.hooks().session_password(id), computed);

    let thief = reattach(&server, id, computed).await;
    assert!(thief.is_refused(), "the session was stolen");
    ok(&mut owner, Request::exists("/mine")).await;
    server.shutdown().await;

    let server = start(folder.path(), true).await;
    let mut again = owner.reattach(server.addresses()[0]).await.unwrap();
    assert!(!again.is_refused(), "the password is another one");
    ok(&mut again, Request::exists("/mine")).await;
    server.shutdown().await;
    apaches.shutdown().await;
}

#[tokio::test]
async fn without_the_option_passwords_are_those_of_apache() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), false).await;
    let owner = RawClient::connect(server.addresses()[0]).await.unwrap();
    let password = server.hooks().session_password(owner.session_id());
    let other = reattach(&server, owner.session_id(), password).await;
    assert!(!other.is_refused());
    assert!(!folder.path().join("session.key").exists());
    server.shutdown().await;
}
