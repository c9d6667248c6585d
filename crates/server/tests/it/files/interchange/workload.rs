//! Writes of every kind, by sessions that stay open and sessions that end.

use anyhow::Result;
use bellwether_testkit::{Body, Create, MultiResult, RawClient, Request};
use bellwether_wire::acl::{self, Acl, Id};
use bellwether_wire::code::ErrorCode;
use bellwether_wire::op::Op;
use std::net::SocketAddr;

/// A credential that some access lists name.
const ALICE: &str = "alice:secret";

/// The same as in access lists.
const ALICE_DIGEST: &str = "alice:aYXlLOpEooaV1cRAvUL1fp9Qt7E=";

/// Writes of every kind below `/<name>`. Sessions of `stay` get ephemeral nodes and live on.
pub(super) async fn write(address: SocketAddr, name: &str, stay: &mut [RawClient]) -> Result<()> {
    let [first, second, ..] = stay else {
        panic!("two sessions are needed");
    };
    let top = format!("/{name}");
    let at = |rest: &str| format!("{top}/{rest}");
    creates(first, second, &top).await?;
    changes(first, &top).await?;
    access_lists(first, &top).await?;
    multis(second, &top).await?;
    quota(first, name).await?;

    // A session that ends deletes its nodes.
    let mut third = RawClient::connect(address).await?;
    done(&mut third, Request::create_ephemeral(at("goes-1"))).await?;
    done(&mut third, Request::create_ephemeral(at("goes-2"))).await?;
    done(&mut third, Request::CloseSession).await?;
    // A session that never wrote.
    let mut fourth = RawClient::connect(address).await?;
    done(&mut fourth, Request::CloseSession).await?;
    done(second, Request::set_data(at("data"), "the last write")).await
}

/// Changes what an earlier round left: these nodes have old versions.
pub(super) async fn change_earlier(client: &mut RawClient, name: &str) -> Result<()> {
    let at = |rest: &str| format!("/{name}/{rest}");
    done(client, Request::set_data(at("data"), "changed later")).await?;
    done(client, Request::delete(at("empty"))).await?;
    done(
        client,
        Request::create_mode(at("job-"), "later", Create::PERSISTENT_SEQUENTIAL),
    )
    .await?;
    done(client, Request::create(at("container/later"), "")).await?;
    done(client, Request::set_data(at("ttl"), "longer")).await
}

async fn creates(first: &mut RawClient, second: &mut RawClient, top: &str) -> Result<()> {
    let at = |rest: &str| format!("{top}/{rest}");
    done(first, Request::create(top, "top")).await?;
    done(first, Request::create(at("data"), "some data")).await?;
    done(first, Request::create(at("empty"), "")).await?;
    done(
        first,
        create(Op::Create, at("null"), None, Create::PERSISTENT, None),
    )
    .await?;
    done(first, Request::create(at("big"), vec![0xA5; 100_000])).await?;
    done(
        first,
        Request::create(at("bytes"), (0..=255).collect::<Vec<u8>>()),
    )
    .await?;
    done(first, Request::create(at("käse-日本-\u{1F0}"), "ü")).await?;
    done(
        first,
        Request::create2(at("second"), "create2", Create::PERSISTENT),
    )
    .await?;
    for flags in [Create::PERSISTENT_SEQUENTIAL, Create::EPHEMERAL_SEQUENTIAL] {
        done(first, Request::create_mode(at("job-"), "a job", flags)).await?;
        done(second, Request::create2(at("job-"), "another", flags)).await?;
    }
    done(first, Request::create_ephemeral(at("ephemeral-1"))).await?;
    done(second, Request::create_ephemeral(at("ephemeral-2"))).await?;
    done(second, Request::create_ephemeral(at("ephemeral-3"))).await?;
    done(second, Request::delete(at("ephemeral-3"))).await?;
    done(first, Request::create_container(at("container"))).await?;
    done(first, Request::create(at("container/member"), "")).await?;
    done(first, Request::create_container(at("container-unused"))).await?;
    done(first, Request::create_ttl(at("ttl"), 3_600_000)).await?;
    let flags = Create::TTL_SEQUENTIAL;
    done(
        first,
        create(
            Op::CreateTtl,
            at("ttl-"),
            Some("x"),
            flags,
            Some(86_400_000),
        ),
    )
    .await?;
    failed(
        first,
        Request::create(at("data"), ""),
        ErrorCode::NodeExists,
    )
    .await?;
    failed(
        first,
        Request::create(at("none/child"), ""),
        ErrorCode::NoNode,
    )
    .await?;
    let below = Request::create(at("ephemeral-1/child"), "");
    failed(first, below, ErrorCode::NoChildrenForEphemerals).await
}

async fn changes(client: &mut RawClient, top: &str) -> Result<()> {
    let at = |rest: &str| format!("{top}/{rest}");
    let set = |path, data: Option<&str>, version| Request::SetData {
        path,
        data: data.map(Into::into),
        version,
    };
    done(client, set(at("second"), None, 0)).await?;
    done(client, set(at("null"), Some(""), -1)).await?;
    done(client, set(at("data"), Some("new"), 0)).await?;
    failed(
        client,
        set(at("data"), Some("never"), 0),
        ErrorCode::BadVersion,
    )
    .await?;
    failed(client, set(at("nowhere"), None, -1), ErrorCode::NoNode).await?;
    done(client, Request::create(at("short-lived"), "")).await?;
    done(client, Request::create(at("short-lived/child"), "")).await?;
    failed(
        client,
        Request::delete(at("short-lived")),
        ErrorCode::NotEmpty,
    )
    .await?;
    done(client, Request::delete(at("short-lived/child"))).await?;
    done(client, Request::delete(at("short-lived"))).await
}

async fn access_lists(client: &mut RawClient, top: &str) -> Result<()> {
    let list = |perms, scheme: &str, id: &str| Acl {
        perms,
        id: Id::new(scheme, id),
    };
    let of_alice = list(acl::ALL, "digest", ALICE_DIGEST);
    let of_host = list(acl::READ | acl::WRITE, "ip", "127.0.0.1");
    let of_network = list(acl::READ, "ip", "10.0.0.0/8");
    client.call(Request::auth_digest(ALICE)).await?.ok()?;
    let path = format!("{top}/guarded");
    done(client, Request::create(&path, "")).await?;
    let set = |acl: Vec<Acl>, version| Request::SetAcl {
        path: path.clone(),
        acl,
        version,
    };
    done(client, set(vec![of_alice.clone(), of_host, of_network], 0)).await?;
    failed(client, set(vec![of_alice], 0), ErrorCode::BadVersion).await?;
    failed(client, set(vec![], -1), ErrorCode::InvalidAcl).await?;
    let Request::Create(mut expanded) = Request::create(format!("{top}/authenticated"), "") else {
        unreachable!("a create is one");
    };
    expanded.acl = vec![
        list(acl::ALL, "auth", ""),
        list(acl::READ, "world", "anyone"),
    ];
    done(client, Request::Create(expanded)).await
}

async fn multis(client: &mut RawClient, top: &str) -> Result<()> {
    let at = |rest: &str| format!("{top}/{rest}");
    let check = |path, version| Request::Check { path, version };
    let all = Request::Multi(vec![
        Request::create(at("multi"), "created together"),
        Request::create2(at("multi/a"), "a", Create::PERSISTENT),
        Request::create_mode(at("multi/s-"), "s", Create::PERSISTENT_SEQUENTIAL),
        Request::create_ephemeral(at("multi/e")),
        Request::create_container(at("multi/c")),
        Request::create_ttl(at("multi/t"), 3_600_000),
        Request::set_data(at("multi/a"), "changed together"),
        check(at("multi/a"), 1),
        Request::create(at("multi/gone"), ""),
        Request::delete(at("multi/gone")),
    ]);
    let Body::Multi(results) = client.call(all).await?.ok()? else {
        panic!("a multi is answered as one");
    };
    let is_done = |result: &MultiResult| matches!(result, MultiResult::Done(..));
    assert!(results.iter().all(is_done), "{results:?}");
    let none = Request::Multi(vec![
        Request::create(at("multi/never"), ""),
        check(at("multi/a"), 7),
        Request::set_data(at("multi/a"), "never"),
    ]);
    let Body::Multi(results) = client.call(none).await?.ok()? else {
        panic!("a multi is answered as one");
    };
    assert!(!results.iter().any(is_done), "{results:?}");
    done(client, Request::Multi(Vec::new())).await
}

async fn quota(client: &mut RawClient, name: &str) -> Result<()> {
    let at = |rest: &str| format!("/zookeeper/quota/{name}{rest}");
    done(client, Request::create(at(""), "")).await?;
    let limits = "count=1000,bytes=1000000";
    done(client, Request::create(at("/zookeeper_limits"), limits)).await?;
    let stats = "count=0,bytes=0";
    done(client, Request::create(at("/zookeeper_stats"), stats)).await?;
    done(
        client,
        Request::create(format!("/{name}/counted"), "counted"),
    )
    .await
}

fn create(op: Op, path: String, data: Option<&str>, flags: i32, ttl_ms: Option<i64>) -> Request {
    Request::Create(Create {
        op,
        path,
        data: data.map(Into::into),
        acl: vec![Acl::open()],
        flags,
        ttl_ms,
    })
}

async fn done(client: &mut RawClient, request: Request) -> Result<()> {
    client.call(request).await?.ok().map(drop)
}

async fn failed(client: &mut RawClient, request: Request, code: ErrorCode) -> Result<()> {
    let reply = client.call(request.clone()).await?;
    assert_eq!(reply.outcome, Err(code), "{request:?}");
    Ok(())
}
