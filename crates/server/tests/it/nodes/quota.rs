//! Quotas: what is counted, and what is refused.

use bellwether_server::Config;
use bellwether_testkit::{Body, MultiResult, RawClient, Request, TestServer};
use bellwether_wire::code::ErrorCode::QuotaExceeded;

use crate::{client_of, data, ok, refusal, server_and_client, stat};

/// Sets a quota on `path` as the command-line tool does.
async fn set_quota(client: &mut RawClient, path: &str, limits: &str) {
    let mut folder = "/zookeeper/quota".to_owned();
    for name in path.split('/').filter(|name| !name.is_empty()) {
        folder = format!("{folder}/{name}");
        // It may exist from a quota on an ancestor.
        client.call(Request::create(&folder, "")).await.unwrap();
    }
    ok(
        client,
        Request::create(format!("{folder}/zookeeper_limits"), limits),
    )
    .await;
    ok(
        client,
        Request::create(format!("{folder}/zookeeper_stats"), "count=0,bytes=0"),
    )
    .await;
}

async fn usage(client: &mut RawClient, path: &str) -> String {
    let stats = format!("/zookeeper/quota{path}/zookeeper_stats");
    String::from_utf8(data(client, &stats).await.unwrap()).unwrap()
}

async fn enforcing() -> (TestServer, RawClient) {
    let server = TestServer::with(Config {
        enforce_quota: true,
        ..TestServer::config()
    })
    .await
    .unwrap();
    let client = client_of(&server).await;
    (server, client)
}

/// Any client may write there; the numbers wrap around, as Apache's do.
#[tokio::test]
async fn statistics_at_the_end_of_their_range_stop_nobody() {
    let (_server, mut client) = enforcing().await;
    ok(&mut client, Request::create("/q", "")).await;
    set_quota(&mut client, "/q", "count=5,bytes=-1;countHardLimit=5").await;
    let stats = "/zookeeper/quota/q/zookeeper_stats";
    let most = format!("count={0},bytes={0}", i64::MAX);
    ok(&mut client, Request::set_data(stats, most)).await;
    ok(&mut client, Request::create("/q/a", "1")).await;
    let least = format!("count={0},bytes={0}", i64::MIN);
    assert_eq!(usage(&mut client, "/q").await, least);
}

#[tokio::test]
async fn nodes_and_bytes_below_a_quota_are_counted() {
    let (_server, mut client) = server_and_client().await;
    ok(&mut client, Request::create("/q", "1")).await;
    ok(&mut client, Request::create("/q/a", "123")).await;
    set_quota(&mut client, "/q", "count=5,bytes=-1").await;
    assert_eq!(usage(&mut client, "/q").await, "count=2,bytes=4");
    for (request, expected) in [
        (Request::create("/q/b", "123"), "count=3,bytes=7"),
        (Request::create("/q/b/c", ""), "count=4,bytes=7"),
        (Request::set_data("/q/a", "12345"), "count=4,bytes=9"),
        (Request::set_data("/q/a", ""), "count=4,bytes=4"),
        (Request::delete("/q/b/c"), "count=3,bytes=4"),
        (Request::create("/other", "123"), "count=3,bytes=4"),
        (Request::create("/qq", "123"), "count=3,bytes=4"),
    ] {
        ok(&mut client, request.clone()).await;
        assert_eq!(usage(&mut client, "/q").await, expected, "{request:?}");
    }
    let stats = stat(&mut client, "/zookeeper/quota/q/zookeeper_stats").await;
    assert_eq!(stats.version, 0, "it changes without a version");
    assert_eq!(stats.mzxid, stats.czxid);
}

#[tokio::test]
async fn the_deepest_quota_counts_and_one_on_the_root_does_not() {
    let (_server, mut client) = server_and_client().await;
    for path in ["/q", "/q/deep"] {
        ok(&mut client, Request::create(path, "")).await;
        set_quota(&mut client, path, "count=-1,bytes=-1").await;
    }
    ok(&mut client, Request::create("/q/deep/a", "x")).await;
    assert_eq!(usage(&mut client, "/q/deep").await, "count=2,bytes=1");
    assert_eq!(usage(&mut client, "/q").await, "count=2,bytes=0");
    let (_server, mut client) = enforcing().await;
    set_quota(&mut client, "/", "count=-1,bytes=-1=;countHardLimit=1").await;
    ok(&mut client, Request::create("/a", "")).await;
}

#[tokio::test]
async fn hard_limits_are_kept_where_they_are_enforced() {
    let (_server, mut client) = enforcing().await;
    ok(&mut client, Request::create("/q", "")).await;
    let limits = "count=-1,bytes=-1=;byteHardLimit=10;countHardLimit=3";
    set_quota(&mut client, "/q", limits).await;
    ok(&mut client, Request::create("/q/a", "12345")).await;
    let long = Request::create("/q/b", "123456");
    assert_eq!(refusal(&mut client, long).await, QuotaExceeded);
    let longer = Request::set_data("/q/a", "12345678901");
    assert_eq!(refusal(&mut client, longer).await, QuotaExceeded);
    ok(&mut client, Request::set_data("/q/a", "1234567890")).await;
    ok(&mut client, Request::create("/q/b", "")).await;
    let one_more = Request::create("/q/c", "");
    assert_eq!(refusal(&mut client, one_more.clone()).await, QuotaExceeded);
    let in_multi = Request::Multi(vec![one_more.clone()]);
    let failed = Body::Multi(vec![MultiResult::Failed(QuotaExceeded)]);
    assert_eq!(ok(&mut client, in_multi).await, failed);
    let swap = Request::Multi(vec![Request::delete("/q/b"), one_more]);
    ok(&mut client, swap).await;
    assert_eq!(usage(&mut client, "/q").await, "count=3,bytes=10");
}

#[tokio::test]
async fn soft_limits_and_limits_that_are_gone_stop_nobody() {
    let (_server, mut client) = enforcing().await;
    ok(&mut client, Request::create("/soft", "")).await;
    set_quota(&mut client, "/soft", "count=1,bytes=1").await;
    ok(&mut client, Request::create("/soft/a", "long")).await;
    ok(&mut client, Request::create("/hard", "")).await;
    let none_more = "count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=1";
    set_quota(&mut client, "/hard", none_more).await;
    let create = Request::create("/hard/a", "");
    assert_eq!(refusal(&mut client, create.clone()).await, QuotaExceeded);
    let limits = "/zookeeper/quota/hard/zookeeper_limits";
    ok(&mut client, Request::delete(limits)).await;
    ok(&mut client, create).await;
    assert_eq!(usage(&mut client, "/hard").await, "count=1,bytes=0");
}

#[tokio::test]
async fn hard_limits_stop_nobody_where_they_are_not_enforced() {
    let (_server, mut client) = server_and_client().await;
    ok(&mut client, Request::create("/q", "")).await;
    set_quota(&mut client, "/q", "count=-1,bytes=-1=;countHardLimit=1").await;
    ok(&mut client, Request::create("/q/a", "")).await;
    assert_eq!(usage(&mut client, "/q").await, "count=2,bytes=0");
}

#[tokio::test]
async fn quotas_outlive_a_restart() {
    let (mut server, mut client) = enforcing().await;
    ok(&mut client, Request::create("/q", "x")).await;
    set_quota(&mut client, "/q", "count=-1,bytes=-1=;countHardLimit=2").await;
    server.restart().await.unwrap();
    let mut client = client_of(&server).await;
    ok(&mut client, Request::create("/q/a", "x")).await;
    assert_eq!(usage(&mut client, "/q").await, "count=2,bytes=2");
    let one_more = Request::create("/q/b", "");
    assert_eq!(refusal(&mut client, one_more).await, QuotaExceeded);
}
