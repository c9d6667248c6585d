//! Nodes: their counters, names, owners and lifetimes.

use bellwether_server::Config;
use bellwether_testkit::{Body, Create, MultiResult, Request, TestServer};
use bellwether_wire::acl::Acl;
use bellwether_wire::code::ErrorCode::{BadArguments, NoAuth, Unimplemented};
use bellwether_wire::event::EventKind::NodeDeleted;
use bellwether_wire::op::Op;
use bytes::BytesMut;

use crate::{children, client_of, created, event, ok, refusal, server_and_client, stat};

#[tokio::test]
async fn trap_04_cversion_counts_creates_twice_less_children() {
    let (_server, mut client) = server_and_client().await;
    assert_eq!(stat(&mut client, "/").await.cversion, -1);
    assert_eq!(stat(&mut client, "/zookeeper").await.cversion, -2);
    ok(&mut client, Request::create("/a", "")).await;
    for (request, cversion) in [
        (Request::create("/a/1", ""), 1),
        (Request::create("/a/2", ""), 2),
        (Request::delete("/a/1"), 3),
        (Request::set_data("/a/2", ""), 3),
        (Request::create("/a/1", ""), 4),
    ] {
        ok(&mut client, request).await;
        assert_eq!(stat(&mut client, "/a").await.cversion, cversion);
    }
}

#[tokio::test]
async fn trap_05_sequence_numbers_count_all_creates_and_nothing_else() {
    let (mut server, mut client) = server_and_client().await;
    ok(&mut client, Request::create("/d", "")).await;
    let next = |prefix: &str| Request::create_mode(format!("/d/{prefix}"), "", 2);
    assert_eq!(created(&mut client, next("a-")).await, "/d/a-0000000000");
    ok(&mut client, Request::create("/d/plain", "")).await;
    assert_eq!(created(&mut client, next("b-")).await, "/d/b-0000000002");
    ok(&mut client, Request::delete("/d/plain")).await;
    refusal(&mut client, Request::create("/d/a-0000000000", "")).await;
    assert_eq!(created(&mut client, next("")).await, "/d/0000000003");
    let failing = vec![next("c-"), Request::delete("/none")];
    ok(&mut client, Request::Multi(failing)).await;
    let body = ok(
        &mut client,
        Request::Multi(vec![next("c-"), next("c-"), next("c-")]),
    )
    .await;
    let paths =
        [4, 5, 6].map(|n| MultiResult::Done(Op::Create, Body::Path(format!("/d/c-{n:010}"))));
    assert_eq!(body, Body::Multi(paths.into()));
    server.restart().await.unwrap();
    let mut client = client.reattach(server.address()).await.unwrap();
    assert_eq!(created(&mut client, next("d-")).await, "/d/d-0000000007");
    server.set_child_counter("/d", i32::MAX).await.unwrap();
    assert_eq!(created(&mut client, next("e-")).await, "/d/e-2147483647");
}

#[tokio::test]
async fn trap_19_owners_that_are_no_sessions_are_not_shown() {
    let (_server, mut client) = server_and_client().await;
    ok(&mut client, Request::create_container("/container")).await;
    ok(&mut client, Request::create_ttl("/ttl", 60_000)).await;
    for path in ["/container", "/ttl"] {
        assert_eq!(stat(&mut client, path).await.ephemeral_owner, 0);
        ok(&mut client, Request::create(format!("{path}/child"), "")).await;
    }
}

#[tokio::test]
async fn trap_22_some_characters_and_names_are_refused_in_paths() {
    let (_server, mut client) = server_and_client().await;
    for good in [
        "\u{20}", "\u{7e}", "\u{a0}", "\u{d7ff}", "\u{f900}", "\u{ffef}", "...", "..a", "a..", ".a",
    ] {
        ok(&mut client, Request::create(format!("/{good}"), "")).await;
    }
    for bad in [
        "\0", "\u{1}", "\u{1f}", "\u{7f}", "\u{9f}", "\u{e000}", "\u{f8ff}", "\u{fff0}",
        "\u{ffff}", "\u{fffd}", "😀", ".", "..", "/",
    ] {
        let code = refusal(&mut client, Request::create(format!("/{bad}"), "")).await;
        assert_eq!(code, BadArguments, "{bad:?}");
    }
    // Invalid UTF-8 becomes a character that is refused.
    let mut body = BytesMut::new();
    Request::create("/xx", "").encode_body(&mut body);
    body[5] = 0xC0;
    let raw = Request::Raw {
        op: 1,
        body: body.to_vec(),
    };
    assert_eq!(refusal(&mut client, raw).await, BadArguments);
    // With a sequence number after it, a trailing slash is not at the end.
    let numbered = Request::create_mode("/zookeeper/", "", 2);
    assert_eq!(
        created(&mut client, numbered).await,
        "/zookeeper/0000000000"
    );
}

#[tokio::test]
async fn trap_23_the_config_node_is_there_and_empty_and_not_to_be_changed() {
    let (_server, mut client) = server_and_client().await;
    let read = Request::get_data("/zookeeper/config").watching();
    let Body::DataStat(data, stat) = ok(&mut client, read).await else {
        panic!("no data");
    };
    assert_eq!(data, Some(vec![]));
    assert_eq!((stat.version, stat.aversion, stat.mzxid), (0, -1, 0));
    for request in [
        Request::set_data("/zookeeper/config", ""),
        Request::create("/zookeeper/config/a", ""),
    ] {
        assert_eq!(refusal(&mut client, request).await, NoAuth);
    }
    for path in ["/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"] {
        assert_eq!(
            refusal(&mut client, Request::delete(path)).await,
            BadArguments
        );
    }
    let path = "/".into();
    let count = ok(&mut client, Request::GetAllChildrenNumber { path }).await;
    assert_eq!(count, Body::Count(3));
}

#[tokio::test]
async fn trap_28_containers_go_when_they_are_empty_again() {
    let (server, mut client) = server_and_client().await;
    for path in ["/used", "/unused"] {
        ok(&mut client, Request::create_container(path)).await;
    }
    ok(&mut client, Request::create("/used/child", "")).await;
    ok(&mut client, Request::delete("/used/child")).await;
    ok(&mut client, Request::exists("/used").watching()).await;
    server.reap_now().unwrap();
    assert_eq!(event(&mut client).await, (NodeDeleted, "/used".into()));
    assert_eq!(children(&mut client, "/").await, ["unused", "zookeeper"]);
}

#[tokio::test]
async fn trap_32_times_to_live_and_modes_must_fit() {
    let (_server, mut client) = server_and_client().await;
    let create = |flags, ttl_ms| {
        Request::Create(Create {
            op: Op::CreateTtl,
            path: "/a".into(),
            data: None,
            acl: vec![Acl::open()],
            flags,
            ttl_ms: Some(ttl_ms),
        })
    };
    for (flags, ttl_ms) in [
        (0, 0),
        (0, -1),
        (1, -1),
        (4, 1),
        (4, -7),
        (5, 0),
        (5, -1),
        (6, i64::MIN),
        (5, 0x100_0000_0000),
    ] {
        let code = refusal(&mut client, create(flags, ttl_ms)).await;
        assert_eq!(code, BadArguments, "{flags} {ttl_ms}");
    }
    ok(&mut client, create(5, 0xFF_FFFF_FFFF)).await;
    // Not without the setting.
    let plain = TestServer::with(Config {
        extended_types: false,
        ..TestServer::config()
    })
    .await
    .unwrap();
    let mut client = client_of(&plain).await;
    for (flags, ttl_ms) in [(5, 1), (6, -1)] {
        let code = refusal(&mut client, create(flags, ttl_ms)).await;
        assert_eq!(code, Unimplemented);
    }
}
