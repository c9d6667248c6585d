//! What a session keeps over its connections: identity, timeout, credentials, proof of life.

use std::time::Duration;

use bellwether_client::{
    Acl, Client, ConnectError, CreateMode, Credential, Error, Id, Moment, SessionEnd, SessionKey,
    acl,
};
use bellwether_testkit::{Cut, Op, TestServer};

use crate::support::place::{Place, soon, until_connections};

on_both_engines! {
    a_session_is_taken_over_by_its_key,
    a_session_that_is_gone_cannot_be_taken_over,
    credentials_are_proven_again_on_each_connection,
    refused_credentials_end_the_session,
    proof_of_life_is_dated_at_the_send,
    a_taken_over_session_proves_no_write,
}

async fn a_session_is_taken_over_by_its_key(place: Place) {
    let (proxy, first) = place.proxied(Duration::from_secs(40)).await;
    first
        .create("/e", b"", CreateMode::Ephemeral)
        .await
        .unwrap();
    let key = first.session_key();
    // The first one must not take it back.
    proxy.refuse(true);
    let second = place.connect().session(key).await.unwrap();
    assert_eq!(second.session_id(), first.session_id());
    assert_eq!(second.ephemerals("/").await.unwrap(), ["/e"]);
    let lost = first.exists("/");
    second.close().await;
    proxy.refuse(false);
    let lost = soon(lost).await.unwrap_err();
    let expired = Error::SessionEnded(SessionEnd::Expired);
    assert!(lost == Error::Unknown || lost == expired, "{lost:?}");
    soon(first.ended()).await;
    assert_eq!(first.exists("/").await, Err(expired));
}

async fn a_session_that_is_gone_cannot_be_taken_over(place: Place) {
    let client = place.client().await;
    let key = client.session_key();
    client.close().await;
    let wrong = SessionKey::new(place.client().await.session_id(), [7; 16]);
    for key in [key, wrong] {
        let error = soon(place.connect().session(key).into_future()).await;
        let error = error.unwrap_err();
        assert!(matches!(error, ConnectError::SessionExpired), "{error:?}");
    }
}

fn only_alice() -> Vec<Acl> {
    vec![Acl {
        perms: acl::ALL,
        id: Id::new("auth", ""),
    }]
}

async fn credentials_are_proven_again_on_each_connection(place: Place) {
    let proxy = place.proxy().await;
    let connect = place.connect_through(&proxy).auth("digest", "alice:secret");
    let client = connect
        .session_timeout(Duration::from_secs(40))
        .await
        .unwrap();
    let private = CreateMode::Persistent.with_acl(only_alice());
    client.create("/n", b"mine", private).await.unwrap();
    assert_eq!(client.auth("digest", b"bob:other").await, Ok(()));
    // Once more changes nothing, and is not sent twice.
    assert_eq!(client.auth("digest", b"bob:other").await, Ok(()));
    assert_eq!(place.client().await.get("/n").await, Err(Error::NO_AUTH));
    for round in 2..5 {
        proxy.reset_counts();
        proxy.cut(Cut::Reset).await;
        until_connections(&client, round).await;
        assert_eq!(&soon(client.get("/n")).await.unwrap().0[..], b"mine");
        assert_eq!(proxy.count(Op::Auth), 2);
    }
    let mut infos = client.who_am_i().await.unwrap();
    infos.sort();
    assert_eq!(infos.len(), 3, "{infos:?}");
    assert_eq!((infos[0].1.as_str(), infos[1].1.as_str()), ("alice", "bob"));
}

async fn refused_credentials_end_the_session(place: Place) {
    let error = place.connect().auth("no-such-scheme", "x").await;
    let error = error.unwrap_err();
    assert!(
        matches!(error, ConnectError::AuthFailed { .. }),
        "{error:?}"
    );
    let client = place.client().await;
    let failed = Error::SessionEnded(SessionEnd::AuthFailed);
    assert_eq!(soon(client.auth("no-such-scheme", b"x")).await, Err(failed));
    assert_eq!(client.exists("/").await, Err(failed));
}

async fn proof_of_life_is_dated_at_the_send(place: Place) {
    let (proxy, client) = place.proxied(Duration::from_secs(40)).await;
    let opened = client.life();
    assert_eq!(opened.timeout, Duration::from_secs(40));
    let before = Moment::now();
    client.exists("/").await.unwrap();
    let read = client.life();
    assert!(read.any >= before && read.any <= Moment::now());
    assert_eq!(read.write, opened.write);
    let before = Moment::now();
    let refused = client.delete("/none", None);
    let sent = Moment::now();
    assert_eq!(refused.await, Err(Error::NO_NODE));
    let write = client.life();
    assert!(write.write >= before && write.write <= sent);
    assert_eq!(write.any, write.write);
    // Without an answer it proves nothing.
    let lost = proxy.swallow_reply(Op::SetData);
    assert_eq!(soon(client.set("/", b"", None)).await, Err(Error::Unknown));
    lost.happened().await.unwrap();
    assert_eq!(client.life().write, write.write);
    // A reattach proves that the session lives, but it is not a write.
    until_connections(&client, 2).await;
    let back = client.life();
    assert_eq!(back.write, write.write);
    assert!(back.any > write.any);
}

async fn a_taken_over_session_proves_no_write(place: Place) {
    let (proxy, first) = place.proxied(Duration::from_secs(40)).await;
    proxy.refuse(true);
    let connect = place.connect().session(first.session_key());
    let began = Moment::now();
    let second = connect.await.unwrap();
    let life = second.life();
    assert!(life.any >= began);
    assert!(life.write < began, "nothing was written");
}

#[tokio::test]
async fn the_timeout_is_negotiated_again_at_a_reattach() {
    let limited = |seconds: u64| Some(Duration::from_secs(seconds));
    let mut server = TestServer::with(bellwether_server::Config {
        session_timeout_max: limited(20),
        ..TestServer::config()
    })
    .await
    .unwrap();
    let connect = Client::connect(server.connect_string());
    let client = connect
        .session_timeout(Duration::from_secs(30))
        .await
        .unwrap();
    assert_eq!(client.session_timeout(), Duration::from_secs(20));
    let id = client.session_id();
    let lower = |config: &mut bellwether_server::Config| config.session_timeout_max = limited(6);
    server.restart_with(lower).await.unwrap();
    until_connections(&client, 2).await;
    assert_eq!(client.session_id(), id);
    assert_eq!(client.session_timeout(), Duration::from_secs(6));
    assert_eq!(client.life().timeout, Duration::from_secs(6));
    // Now it is granted all that it asks for. But the log has only the timeout of the opening, and a restarted server uses
    // that until the client reconnects.
    let higher = |config: &mut bellwether_server::Config| config.session_timeout_max = limited(60);
    server.restart_with(higher).await.unwrap();
    until_connections(&client, 3).await;
    assert_eq!(client.life().timeout, Duration::from_secs(20));
    client.close().await;
}

#[tokio::test]
async fn secrets_are_in_no_debug_output() {
    let server = TestServer::start().await.unwrap();
    let connect = Client::connect(server.connect_string())
        .auth("digest", "alice:swordfish")
        .session(SessionKey::new(1, *b"swordfishswordfi"));
    let mut shown = format!("{connect:?}");
    let connect = Client::connect(server.connect_string()).auth("digest", "alice:swordfish");
    let client = connect.await.unwrap();
    let reply = client.auth("digest", b"bob:swordfish");
    shown += &format!("{client:?} {reply:?} {:?}", client.session_key());
    reply.await.unwrap();
    let (_, watch) = client.exists_watched("/n").await.unwrap();
    shown += &format!("{watch:?} {:?}", Credential::new("digest", "swordfish"));
    let refused = Client::connect(server.connect_string()).auth("nope", "swordfish");
    shown += &format!("{:?}", refused.await.unwrap_err());
    let password = client.session_key().password();
    for secret in [
        "swordfish",
        &format!("{:?}", b"swordfish"),
        &format!("{password:?}"),
    ] {
        assert!(!shown.contains(secret.trim_matches(['[', ']'])), "{shown}");
    }
}

#[tokio::test]
async fn pings_come_as_often_as_asked_for() {
    let place = Place::embedded().await;
    let (proxy, client) = place.proxied(Duration::from_secs(60)).await;
    proxy.reset_counts();
    client.set_pings_per_timeout(3_000);
    soon(async {
        while proxy.count(Op::Ping) < 5 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(client.life().any > client.life().write);
}

/// Rare pings do not lose the session.
#[tokio::test]
async fn a_session_lives_however_seldom_it_is_to_ping() {
    let place = Place::embedded().await;
    let (proxy, client) = place.proxied(Duration::from_secs(1)).await;
    client.set_pings_per_timeout(0);
    soon(async {
        while proxy.count(Op::Ping) < 12 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(client.connections(), 1);
    client.exists("/").await.unwrap();
}
