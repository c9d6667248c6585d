//! Containers and TTL nodes, and when the server deletes them by itself.

use std::time::Duration;

use bellwether_server::Config;
use bellwether_testkit::{Create, RawClient, Request, TestServer};
use bellwether_wire::event::EventKind::{NodeChildrenChanged, NodeDeleted};
use bellwether_wire::op::Op;

use crate::{children, client_of, event, exists, ok, server_and_client, stat};

/// A server that deletes such nodes all the time.
async fn eager(config: Config) -> (TestServer, RawClient) {
    let server = TestServer::with(Config {
        container_check_interval: Duration::from_millis(20),
        ..config
    })
    .await
    .unwrap();
    let client = client_of(&server).await;
    (server, client)
}

async fn use_up(client: &mut RawClient, container: &str) {
    ok(client, Request::create(format!("{container}/child"), "")).await;
    ok(client, Request::delete(format!("{container}/child"))).await;
}

/// Waits until the server has searched once: whatever was due before `path` is gone as well.
async fn until_reaped(client: &mut RawClient, path: &str) {
    if client
        .call(Request::exists(path).watching())
        .await
        .unwrap()
        .outcome
        .is_ok()
    {
        assert_eq!(event(client).await, (NodeDeleted, path.into()));
    }
}

#[tokio::test]
async fn a_deletion_by_the_server_is_a_write_like_any_other() {
    let (server, mut client) = server_and_client().await;
    ok(&mut client, Request::create_container("/c")).await;
    use_up(&mut client, "/c").await;
    ok(&mut client, Request::get_children("/").watching()).await;
    ok(&mut client, Request::get_data("/c").watching()).await;
    let zxid = client.last_zxid();
    server.reap_now().unwrap();
    assert_eq!(event(&mut client).await, (NodeDeleted, "/c".into()));
    assert_eq!(event(&mut client).await, (NodeChildrenChanged, "/".into()));
    assert_eq!(stat(&mut client, "/").await.pzxid, zxid + 1);
    server.reap_now().unwrap();
    ok(&mut client, Request::Ping).await;
    assert_eq!(client.last_zxid(), zxid + 1, "nothing is deleted twice");
}

#[tokio::test]
async fn containers_with_children_and_unused_ones_stay() {
    let (_server, mut client) = eager(TestServer::config()).await;
    for path in ["/full", "/unused", "/z-used"] {
        ok(&mut client, Request::create_container(path)).await;
    }
    use_up(&mut client, "/full").await;
    ok(&mut client, Request::create("/full/child", "")).await;
    use_up(&mut client, "/z-used").await;
    until_reaped(&mut client, "/z-used").await;
    assert_eq!(
        children(&mut client, "/").await,
        ["full", "unused", "zookeeper"]
    );
    ok(&mut client, Request::delete("/full/child")).await;
    until_reaped(&mut client, "/full").await;
}

#[tokio::test]
async fn containers_in_containers_go_from_below() {
    let (_server, mut client) = eager(TestServer::config()).await;
    for path in ["/a", "/a/b", "/a/b/c"] {
        ok(&mut client, Request::create_container(path)).await;
    }
    use_up(&mut client, "/a/b/c").await;
    until_reaped(&mut client, "/a").await;
    assert_eq!(children(&mut client, "/").await, ["zookeeper"]);
}

#[tokio::test]
async fn unused_containers_go_where_that_is_set() {
    let config = Config {
        container_never_used_max: Duration::from_millis(100),
        ..TestServer::config()
    };
    let (_server, mut client) = eager(config).await;
    ok(&mut client, Request::create_container("/unused")).await;
    until_reaped(&mut client, "/unused").await;
}

#[tokio::test]
async fn containers_are_made_by_operation_or_flag() {
    let (server, mut client) = server_and_client().await;
    ok(
        &mut client,
        Request::create_mode("/flag", "", Create::CONTAINER),
    )
    .await;
    let in_multi = Request::create_mode("/multi", "", Create::CONTAINER);
    ok(&mut client, Request::Multi(vec![in_multi])).await;
    let by_operation = Request::Create(Create {
        op: Op::CreateContainer,
        path: "/op-".into(),
        data: None,
        acl: vec![bellwether_wire::acl::Acl::open()],
        flags: Create::EPHEMERAL_SEQUENTIAL,
        ttl_ms: None,
    });
    let numbered = crate::created(&mut client, by_operation).await;
    assert_eq!(numbered, "/op-0000000002");
    for path in ["/flag", "/multi", &numbered] {
        use_up(&mut client, path).await;
        ok(&mut client, Request::exists(path).watching()).await;
    }
    server.reap_now().unwrap();
    for _ in 0..3 {
        assert_eq!(event(&mut client).await.0, NodeDeleted);
    }
}

#[tokio::test]
async fn a_time_to_live_counts_from_the_last_change_of_data() {
    let (_server, mut client) = eager(TestServer::config()).await;
    ok(&mut client, Request::create_ttl("/kept", 1000)).await;
    ok(&mut client, Request::create_ttl("/full", 50)).await;
    ok(&mut client, Request::create("/full/child", "")).await;
    let mut often = tokio::time::interval(Duration::from_millis(100));
    for _ in 0..14 {
        often.tick().await;
        ok(&mut client, Request::set_data("/kept", "")).await;
    }
    assert!(exists(&mut client, "/full").await, "it has a child");
    ok(&mut client, Request::delete("/full/child")).await;
    until_reaped(&mut client, "/full").await;
    let changed = stat(&mut client, "/kept").await.mtime;
    until_reaped(&mut client, "/kept").await;
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    let lived = i64::try_from(now.as_millis()).unwrap() - changed;
    assert!(lived > 1000, "{lived} ms");
}

#[tokio::test]
async fn no_minute_sees_more_deletions_than_are_allowed() {
    // One search per minute, with at most two deletes.
    let server = TestServer::with(Config {
        container_deletions_per_minute_max: 2,
        ..TestServer::config()
    })
    .await
    .unwrap();
    let mut client = client_of(&server).await;
    for path in ["/a", "/b", "/c"] {
        ok(&mut client, Request::create_container(path)).await;
        use_up(&mut client, path).await;
        ok(&mut client, Request::exists(path).watching()).await;
    }
    server.reap_now().unwrap();
    event(&mut client).await;
    event(&mut client).await;
    // A write is decided after the deletes of that search.
    ok(&mut client, Request::set_data("/", "")).await;
    assert_eq!(children(&mut client, "/").await.len(), 2);
    server.reap_now().unwrap();
    event(&mut client).await;
}
