//! A server with a secret, and one that retires.

use bellwether_server::proto::code::ErrorCode;
use bellwether_server::{Config, Secret, WordList};
use bellwether_testkit::raw::four_letter_word;
use bellwether_testkit::{ConnectOptions, RawClient, Request, TestServer};

async fn private() -> (TestServer, Secret) {
    let secret = Secret::new("5ec7e7");
    let config = Config {
        secret: Some(secret.clone()),
        words: WordList::none(),
        ..TestServer::config()
    };
    (TestServer::with(config).await.unwrap(), secret)
}

async fn friend(server: &TestServer, secret: &Secret) -> RawClient {
    let mut client = RawClient::connect(server.address()).await.unwrap();
    let auth = Request::auth_digest(&secret.credential());
    client.call(auth).await.unwrap().ok().unwrap();
    client
}

#[tokio::test]
async fn who_knows_the_secret_is_served() {
    let (server, secret) = private().await;
    let mut client = friend(&server, &secret).await;
    let created = client.call(Request::create("/a", "")).await.unwrap();
    created.ok().unwrap();
    let mut again = client.reattach(server.address()).await.unwrap();
    assert!(!again.is_refused());
    let auth = Request::auth_digest(&secret.credential());
    again.call(auth).await.unwrap().ok().unwrap();
    again
        .call(Request::get_data("/a"))
        .await
        .unwrap()
        .ok()
        .unwrap();
}

#[tokio::test]
async fn nobody_else_is_served_or_leaves_a_session() {
    let (server, secret) = private().await;
    let mut friend = friend(&server, &secret).await;
    for proof in [None, Some("bellwether:guess"), Some("super:admin")] {
        for request in [
            Request::get_data("/"),
            Request::create("/b", ""),
            Request::Ping,
            Request::CloseSession,
        ] {
            let mut stranger = RawClient::connect(server.address()).await.unwrap();
            if let Some(proof) = proof {
                let auth = Request::auth_digest(proof);
                stranger.call(auth).await.unwrap().ok().unwrap();
            }
            let reply = stranger.call(request).await.unwrap();
            assert_eq!(
                reply.outcome.err(),
                Some(ErrorCode::AuthRequired),
                "{proof:?}"
            );
            stranger.closed().await.unwrap();
        }
    }
    // Their ends are writes that were submitted before this one.
    friend
        .call(Request::create("/c", ""))
        .await
        .unwrap()
        .ok()
        .unwrap();
    assert_eq!(server.session_count().unwrap(), 1);
}

#[tokio::test]
async fn nobody_can_compute_the_password_of_a_session() {
    let (server, secret) = private().await;
    let mut friend = friend(&server, &secret).await;
    let open = TestServer::start().await.unwrap();
    // What an open server, or Apache's, gives to the session with this id is known to everybody.
    let known = RawClient::connect(open.address()).await.unwrap();
    assert_ne!(friend.password(), known.password());
    for password in [known.password().to_vec(), vec![0; 16], Vec::new()] {
        let options = ConnectOptions {
            session_id: friend.session_id(),
            password,
            ..ConnectOptions::default()
        };
        let thief = RawClient::connect_with(server.address(), &options).await;
        assert!(thief.unwrap().is_refused());
    }
    friend
        .call(Request::get_data("/"))
        .await
        .unwrap()
        .ok()
        .unwrap();
}

#[tokio::test]
async fn no_word_is_answered() {
    let (server, _) = private().await;
    let answer = four_letter_word(server.address(), "srvr").await.unwrap();
    assert!(answer.contains("not executed"), "{answer}");
}

#[tokio::test]
async fn server_in_use_does_not_retire_and_an_unused_one_takes_nobody_in() {
    let server = bellwether_server::Server::builder().start().await.unwrap();
    let address = server.addresses()[0];
    let mut client = RawClient::connect(address).await.unwrap();
    assert!(!server.retire());
    client
        .call(Request::CloseSession)
        .await
        .unwrap()
        .ok()
        .unwrap();
    client.closed().await.unwrap();
    // The connection is taken off the list when its socket is closed, which is a moment later.
    while !server.retire() {
        tokio::task::yield_now().await;
    }
    assert!(RawClient::connect(address).await.is_err());
    server.shutdown().await;
}
