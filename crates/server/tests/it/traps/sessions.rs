//! Sessions, and their state after a restart.

use bellwether_server::{Config, SessionPasswords};
use bellwether_testkit::{ConnectOptions, RawClient, Request, TestServer};

use crate::{client_of, exists, ok, server_and_client, stat};

#[tokio::test]
async fn trap_06_passwords_follow_from_session_ids_if_they_are_to_be_apaches() {
    let config = Config {
        session_passwords: SessionPasswords::Apache,
        ..TestServer::config()
    };
    let server = TestServer::with(config).await.unwrap();
    let client = client_of(&server).await;
    // java.util.Random.nextBytes
    let multiplier = 0x5_DEEC_E66D_u64;
    let mut state = (client.session_id().cast_unsigned() ^ 0xB341_5C00) ^ multiplier;
    let mut password = Vec::new();
    for _ in 0..4 {
        state = state.wrapping_mul(multiplier).wrapping_add(0xB) & 0xFFFF_FFFF_FFFF;
        let word = u32::try_from(state >> 16).unwrap();
        password.extend(word.to_le_bytes());
    }
    assert_eq!(client.password()[..], password);
}

#[tokio::test]
async fn trap_07_no_zxid_that_was_shown_is_lost_in_a_restart() {
    let (mut server, mut client) = server_and_client().await;
    let failed = client.call(Request::delete("/none")).await.unwrap();
    server.restart().await.unwrap();
    // It claims to have seen the zxid of the failed write.
    let mut client = client.reattach(server.address()).await.unwrap();
    let reply = client.call(Request::delete("/none")).await.unwrap();
    assert_eq!(reply.zxid, failed.zxid + 1);
}

#[tokio::test]
async fn trap_08_who_has_seen_more_than_the_server_is_not_told_that_it_expired() {
    let (server, mut client) = server_and_client().await;
    ok(&mut client, Request::create("/a", "")).await;
    let options = |last_zxid_seen| ConnectOptions {
        session_id: client.session_id(),
        password: client.password().to_vec(),
        last_zxid_seen,
        ..ConnectOptions::default()
    };
    let mut ahead = RawClient::open(server.address()).await.unwrap();
    let frame = options(client.last_zxid() + 1).encode();
    ahead.send_bytes(&frame).await.unwrap();
    ahead.closed().await.unwrap();
    let equal = options(client.last_zxid());
    let client = RawClient::connect_with(server.address(), &equal);
    assert!(!client.await.unwrap().is_refused());
}

#[tokio::test]
async fn trap_14_a_restart_keeps_sessions_and_their_nodes() {
    let (mut server, mut client) = server_and_client().await;
    ok(&mut client, Request::create_ephemeral("/a")).await;
    server.restart().await.unwrap();
    let mut client = client.reattach(server.address()).await.unwrap();
    assert_eq!(
        stat(&mut client, "/a").await.ephemeral_owner,
        client.session_id()
    );
    let zxid = client.last_zxid();
    ok(&mut client, Request::CloseSession).await;
    let mut other = client_of(&server).await;
    assert!(!exists(&mut other, "/a").await);
    assert!(other.last_zxid() > zxid);
}
