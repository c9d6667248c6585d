//! Sessions and the handshake: opening, ending, and what remains.

mod uncommitted;

use std::time::Duration;

use bellwether_testkit::{Body, ConnectOptions, Frame, RawClient, Request, TestServer};
use bellwether_wire::event::EventKind::{NodeChildrenChanged, NodeDeleted};

use crate::{
    client_of, client_with_timeout, event, events, exists, ok, refusal, server_and_client, until,
};

#[tokio::test]
async fn timeouts_are_kept_between_the_shortest_and_the_longest() {
    let server = TestServer::start().await.unwrap();
    let longest = Duration::from_millis(i32::MAX.unsigned_abs().into());
    for (asked, given) in [
        (Duration::ZERO, 400),
        (Duration::from_millis(1), 400),
        (Duration::from_millis(1234), 1234),
        (longest, 60_000),
    ] {
        let options = ConnectOptions {
            timeout: asked,
            ..ConnectOptions::default()
        };
        let client = RawClient::connect_with(server.address(), &options);
        assert_eq!(client.await.unwrap().timeout_ms(), given);
    }
    // A negative one: the third field of the request.
    let mut frame = ConnectOptions::default().encode();
    frame[16..20].copy_from_slice(&(-5_i32).to_be_bytes());
    let mut client = RawClient::open(server.address()).await.unwrap();
    client.send_bytes(&frame).await.unwrap();
    assert_eq!(
        client.receive_raw().await.unwrap()[4..8],
        400_i32.to_be_bytes()
    );
}

#[tokio::test]
async fn who_comes_back_negotiates_anew_and_lives_by_it() {
    let server = TestServer::start().await.unwrap();
    let long = client_of(&server).await;
    let options = ConnectOptions {
        timeout: Duration::from_millis(500),
        session_id: long.session_id(),
        password: long.password().to_vec(),
        ..ConnectOptions::default()
    };
    let mut short = RawClient::connect_with(server.address(), &options)
        .await
        .unwrap();
    assert_eq!(short.timeout_ms(), 500);
    short.closed().await.unwrap();
    until("its session has ended", || {
        server.session_count().unwrap() == 0
    })
    .await;
}

#[tokio::test]
async fn session_ids_rise_and_are_none_of_the_reserved_ones() {
    let server = TestServer::start().await.unwrap();
    let mut last = 0;
    for _ in 0..5 {
        let id = client_of(&server).await.session_id();
        assert!(id > last);
        assert_eq!(id >> 56, 0, "no server of Apache has this number");
        last = id;
    }
}

#[tokio::test]
async fn a_closed_session_takes_its_nodes_along_under_one_zxid() {
    let (server, mut owner) = server_and_client().await;
    let mut other = client_of(&server).await;
    ok(&mut other, Request::create("/d", "")).await;
    for path in ["/d/a", "/d/b"] {
        ok(&mut owner, Request::create_ephemeral(path)).await;
        ok(&mut other, Request::exists(path).watching()).await;
    }
    ok(&mut other, Request::get_children("/d").watching()).await;
    let before = owner.last_zxid();
    let reply = owner.call(Request::CloseSession).await.unwrap();
    assert_eq!(reply.zxid, before + 1);
    owner.closed().await.unwrap();
    let mut told = events(&mut other).await;
    told.sort_by_key(|(kind, path)| (*kind as i32, path.clone()));
    assert_eq!(
        told,
        [
            (NodeDeleted, "/d/a".into()),
            (NodeDeleted, "/d/b".into()),
            (NodeChildrenChanged, "/d".into())
        ]
    );
    let pzxid = crate::stat(&mut other, "/d").await.pzxid;
    assert_eq!(pzxid, reply.zxid);
    assert!(owner.reattach(server.address()).await.unwrap().is_refused());
}

#[tokio::test]
async fn a_lost_connection_ends_its_watches_and_not_its_session() {
    let (server, mut client) = server_and_client().await;
    ok(&mut client, Request::create_ephemeral("/a")).await;
    ok(&mut client, Request::exists("/a").watching()).await;
    assert_eq!(server.watch_count().unwrap(), 1);
    let mut other = client_of(&server).await;
    client.shut_down_sending().await.unwrap();
    client.closed().await.unwrap();
    until("it is gone", || server.connection_count().unwrap() == 1).await;
    assert_eq!(server.watch_count().unwrap(), 0);
    assert!(exists(&mut other, "/a").await);
    let mut back = client.reattach(server.address()).await.unwrap();
    assert_eq!(back.session_id(), client.session_id());
    ok(&mut other, Request::set_data("/a", "x")).await;
    assert_eq!(events(&mut back).await, []);
}

#[tokio::test]
async fn who_comes_back_takes_the_place_of_the_connection_before() {
    let (server, mut old) = server_and_client().await;
    ok(&mut old, Request::get_children("/").watching()).await;
    let mut new = old.reattach(server.address()).await.unwrap();
    old.closed().await.unwrap();
    assert_eq!(
        server.watch_count().unwrap(),
        0,
        "watches were the old one's"
    );
    ok(&mut new, Request::create("/a", "")).await;
    assert_eq!(server.session_count().unwrap(), 1);
}

#[tokio::test]
async fn a_guess_at_a_password_does_no_harm() {
    let (server, mut client) = server_and_client().await;
    for password in [vec![0; 16], vec![], client.password()[..15].to_vec()] {
        let options = ConnectOptions {
            session_id: client.session_id(),
            password,
            ..ConnectOptions::default()
        };
        let mut guess = RawClient::connect_with(server.address(), &options)
            .await
            .unwrap();
        assert!(guess.is_refused());
        guess.closed().await.unwrap();
    }
    ok(&mut client, Request::Ping).await;
}

#[tokio::test]
async fn what_comes_with_the_connect_request_is_answered_behind_it_in_order() {
    let server = TestServer::start().await.unwrap();
    for _ in 0..20 {
        let mut client = RawClient::open(server.address()).await.unwrap();
        let mut segment = ConnectOptions::default().encode();
        segment.unsplit(Request::auth_digest("user:password").encode(-4));
        segment.unsplit(
            Request::Sasl {
                token: Some(vec![]),
            }
            .encode(1),
        );
        segment.unsplit(Request::set_data("/", "x").encode(2));
        segment.unsplit(Request::WhoAmI.encode(3));
        client.send_bytes(&segment).await.unwrap();
        let reply = client.receive_raw().await.unwrap();
        assert_eq!(reply.len(), 37, "the connect reply comes first");
        let mut xids = Vec::new();
        for _ in 0..4 {
            match client.receive().await.unwrap() {
                Frame::Reply(reply) => xids.push(reply.xid),
                Frame::Event(event) => panic!("{event:?}"),
            }
        }
        assert_eq!(xids, [-4, 1, 2, 3]);
    }
}

#[tokio::test]
async fn a_bad_frame_behind_the_connect_request_costs_the_connection_only() {
    let server = TestServer::start().await.unwrap();
    let mut client = RawClient::open(server.address()).await.unwrap();
    let mut segment = ConnectOptions::default().encode();
    segment.extend_from_slice(&[0; 4]);
    client.send_bytes(&segment).await.unwrap();
    // Apache may or may not send its reply; the session exists in any case.
    client.receive_to_end().await.unwrap();
    assert_eq!(server.session_count().unwrap(), 1);
}

#[tokio::test]
async fn a_session_lists_its_own_ephemeral_nodes_by_prefix() {
    let (server, mut client) = server_and_client().await;
    let mut other = client_of(&server).await;
    ok(&mut other, Request::create_ephemeral("/a-other")).await;
    for path in ["/a-1", "/a-2", "/b"] {
        ok(&mut client, Request::create_ephemeral(path)).await;
    }
    ok(&mut client, Request::create("/a-kept", "")).await;
    let all: &[&str] = &["/a-1", "/a-2", "/b"];
    for (prefix, expected) in [
        ("/a", &all[..2]),
        ("/a-2", &all[1..2]),
        ("/", all),
        ("", all),
        (" / ", all),
        ("/none", &[]),
    ] {
        let prefix = prefix.into();
        let body = ok(&mut client, Request::GetEphemerals { prefix }).await;
        let expected = expected.iter().map(ToString::to_string).collect();
        assert_eq!(body, Body::Ephemerals(expected));
    }
}

#[tokio::test]
async fn an_ephemeral_node_belongs_to_its_session_and_has_no_children() {
    let (_server, mut client) = server_and_client().await;
    ok(&mut client, Request::create_ephemeral("/a")).await;
    let owner = crate::stat(&mut client, "/a").await.ephemeral_owner;
    assert_eq!(owner, client.session_id());
    let code = refusal(&mut client, Request::create("/a/b", "")).await;
    assert_eq!(code.number(), -108);
}

#[tokio::test]
async fn a_silent_session_is_told_of_to_those_who_wait_for_its_node() {
    let (server, mut waiting) = server_and_client().await;
    let mut holder = client_with_timeout(&server, 800).await;
    ok(&mut holder, Request::create_ephemeral("/lock")).await;
    ok(&mut waiting, Request::exists("/lock").watching()).await;
    assert_eq!(event(&mut waiting).await, (NodeDeleted, "/lock".into()));
    ok(&mut waiting, Request::create_ephemeral("/lock")).await;
}
