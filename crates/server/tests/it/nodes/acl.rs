//! Access lists and client identity.

use bellwether_server::Config;
use bellwether_testkit::{Body, Create, MultiResult, RawClient, Request, TestServer};
use bellwether_wire::acl::{ADMIN, ALL, Acl, CREATE, DELETE, Id, READ, WRITE};
use bellwether_wire::code::ErrorCode::{
    AuthRequired, BadVersion, InvalidAcl, MarshallingError, NoAuth,
};
use bellwether_wire::op::Op;

use crate::{client_of, exists, ok, refusal, server_and_client};

/// The digest of `super:admin`.
const SUPER: &str = "super:xQJmxLMiHGwaqBvst5y6rkB6HQs=";

fn entry(perms: i32, scheme: &str, id: &str) -> Acl {
    Acl {
        perms,
        id: Id::new(scheme, id),
    }
}

fn create(path: &str, acl: Vec<Acl>) -> Request {
    Request::Create(Create {
        op: Op::Create,
        path: path.into(),
        data: Some(b"data".to_vec()),
        acl,
        flags: 0,
        ttl_ms: None,
    })
}

fn set_acl(path: &str, acl: Vec<Acl>, version: i32) -> Request {
    Request::SetAcl {
        path: path.into(),
        acl,
        version,
    }
}

async fn get_acl(client: &mut RawClient, path: &str) -> Vec<Acl> {
    match ok(client, Request::GetAcl { path: path.into() }).await {
        Body::AclStat(acl, _) => acl,
        body => panic!("not the reply to getACL: {body:?}"),
    }
}

#[tokio::test]
async fn each_operation_needs_its_permission() {
    let (_server, mut client) = server_and_client().await;
    let path = "/n".to_owned();
    let check = Request::Check {
        path: path.clone(),
        version: -1,
    };
    let operations = [
        (READ, Request::get_data("/n")),
        (READ, Request::exists("/n")),
        (READ, Request::get_children("/n")),
        (READ, Request::GetAllChildrenNumber { path: path.clone() }),
        (READ, check),
        (READ | ADMIN, Request::GetAcl { path: path.clone() }),
        (WRITE, Request::set_data("/n", "x")),
        (CREATE, Request::create("/n/c", "")),
        (DELETE, Request::delete("/n/c")),
    ];
    let world = |perms| vec![entry(perms, "world", "anyone")];
    ok(&mut client, create("/n", world(ALL))).await;
    for (needed, operation) in operations {
        for (perms, allowed) in [(needed | ADMIN, true), ((ALL & !needed) | ADMIN, false)] {
            if !allowed && needed & ADMIN != 0 {
                continue;
            }
            ok(&mut client, set_acl("/n", world(perms), -1)).await;
            let reply = client.call(operation.clone()).await.unwrap();
            assert_eq!(
                reply.outcome.err() != Some(NoAuth),
                allowed,
                "{operation:?} with {perms}"
            );
        }
    }
    ok(&mut client, set_acl("/n", world(ALL & !ADMIN), -1)).await;
    let again = set_acl("/n", world(ALL), -1);
    assert_eq!(refusal(&mut client, again).await, NoAuth);
    // These need no permission.
    for request in [
        Request::Sync { path: path.clone() },
        Request::AddWatch { path, mode: 0 },
        Request::GetEphemerals {
            prefix: "/n".into(),
        },
    ] {
        ok(&mut client, request).await;
    }
}

#[tokio::test]
async fn lists_that_make_no_sense_are_refused() {
    let (_server, mut client) = server_and_client().await;
    let bad = [
        ("world", "somebody"),
        ("nobody", "anyone"),
        ("super", ""),
        ("x509", "CN=a"),
        ("sasl", "a"),
        ("auth", ""),
        ("digest", ""),
        ("digest", ":"),
        ("digest", "nocolon"),
        ("digest", "user:"),
        ("digest", "a:b:c"),
        ("ip", "127.0.0"),
        ("ip", "127.0.0.256"),
        ("ip", "127.0.0.1/"),
        ("ip", "127.0.0.1/33"),
        ("ip", "::1"),
    ];
    for (scheme, id) in bad {
        let list = vec![Acl::open(), entry(ALL, scheme, id)];
        let code = refusal(&mut client, create("/a", list)).await;
        assert_eq!(code, InvalidAcl, "{scheme}:{id}");
    }
    assert_eq!(refusal(&mut client, create("/a", vec![])).await, InvalidAcl);
    let good = [
        ("digest", "a:b"),
        ("digest", ":b"),
        ("digest", "a:b:"),
        ("ip", "127.0.0.1"),
        ("ip", "10.0.0.0/8"),
        ("ip", "0.0.0.0/0"),
    ];
    let list: Vec<_> = good.map(|(scheme, id)| entry(ALL, scheme, id)).into();
    ok(&mut client, create("/a", list.clone())).await;
    assert_eq!(get_acl(&mut client, "/a").await, list);
}

#[tokio::test]
async fn duplicates_are_dropped_and_odd_permissions_kept() {
    let (_server, mut client) = server_and_client().await;
    let open = || entry(ALL, "world", "anyone");
    let list = vec![open(), entry(64, "world", "anyone"), open()];
    ok(&mut client, create("/a", list)).await;
    let kept = vec![open(), entry(64, "world", "anyone")];
    assert_eq!(get_acl(&mut client, "/a").await, kept);
    let odd = vec![entry(-1, "world", "anyone")];
    ok(&mut client, set_acl("/a", odd.clone(), 0)).await;
    assert_eq!(get_acl(&mut client, "/a").await, odd);
    let stale = set_acl("/a", vec![open()], 0);
    assert_eq!(refusal(&mut client, stale).await, BadVersion);
}

#[tokio::test]
async fn addresses_are_matched_by_their_leading_bits() {
    let (_server, mut client) = server_and_client().await;
    for (id, allowed) in [
        ("127.0.0.1", true),
        ("127.0.0.0/8", true),
        ("126.0.0.0/7", true),
        ("0.0.0.0/0", true),
        ("127.0.0.2", false),
        ("128.0.0.0/8", false),
    ] {
        let path = format!("/{}", id.replace('/', "-"));
        ok(&mut client, create(&path, vec![entry(READ, "ip", id)])).await;
        assert_eq!(exists(&mut client, &path).await, allowed, "{id}");
    }
}

#[tokio::test]
async fn a_client_is_all_that_it_has_proven() {
    let (_server, mut client) = server_and_client().await;
    for user in ["one:1", "two:2", "two:2", "nopassword"] {
        ok(&mut client, Request::auth_digest(user)).await;
    }
    let Body::ClientInfos(mut infos) = ok(&mut client, Request::WhoAmI).await else {
        panic!("nobody");
    };
    infos.sort();
    let info = |scheme: &str, user: &str| (scheme.to_owned(), user.to_owned());
    assert_eq!(
        infos,
        [
            info("digest", "nopassword"),
            info("digest", "one"),
            info("digest", "two"),
            info("ip", "127.0.0.1")
        ]
    );
    ok(&mut client, create("/a", vec![entry(ALL, "auth", "")])).await;
    let list = get_acl(&mut client, "/a").await;
    assert_eq!(list.len(), 3, "all but the address: {list:?}");
    ok(&mut client, Request::get_data("/a")).await;
}

#[tokio::test]
async fn hashes_are_shown_to_those_who_may_change_them() {
    let (server, mut owner) = server_and_client().await;
    ok(&mut owner, Request::auth_digest("user:password")).await;
    let list = vec![entry(ADMIN, "auth", ""), entry(READ, "world", "anyone")];
    ok(&mut owner, create("/a", list)).await;
    let shown = get_acl(&mut owner, "/a").await;
    assert_eq!(shown[0].id.id, "user:tpUq/4Pn5A64fVZyQ0gOJ8ZWqkY=");
    let mut other = client_of(&server).await;
    let shown = get_acl(&mut other, "/a").await;
    assert_eq!(shown[0].id.id, "user:x");
}

#[tokio::test]
async fn a_multi_asks_for_the_permissions_of_each_of_its_operations() {
    let (_server, mut client) = server_and_client().await;
    ok(
        &mut client,
        create("/a", vec![entry(READ, "world", "anyone")]),
    )
    .await;
    let check = Request::Check {
        path: "/a".into(),
        version: 0,
    };
    let multi = Request::Multi(vec![check, Request::set_data("/a", "")]);
    let expected = vec![MultiResult::Undone, MultiResult::Failed(NoAuth)];
    assert_eq!(ok(&mut client, multi).await, Body::Multi(expected));
    // A null id makes the whole request malformed.
    let mut body = b"\0\0\0\x01\0\xff\xff\xff\xff\0\0\0\x02/b\0\0\0\0\0\0\0\x01\0\0\0\x1f".to_vec();
    body.extend(b"\0\0\0\x05world\xff\xff\xff\xff\0\0\0\0\xff\xff\xff\xff\x01\xff\xff\xff\xff");
    let reply = client.call(Request::Raw { op: 14, body }).await.unwrap();
    assert_eq!(reply.outcome, Err(MarshallingError));
    assert!(reply.bytes.is_empty());
}

#[tokio::test]
async fn the_super_user_may_do_everything_and_owns_nothing_more() {
    let server = TestServer::with(Config {
        super_digest: Some(SUPER.into()),
        ..TestServer::config()
    })
    .await
    .unwrap();
    let mut client = client_of(&server).await;
    let mut root = client_of(&server).await;
    ok(&mut client, create("/a", vec![entry(0, "world", "anyone")])).await;
    ok(&mut root, Request::auth_digest("super:wrong")).await;
    assert_eq!(refusal(&mut root, Request::get_data("/a")).await, NoAuth);
    ok(&mut root, Request::auth_digest("super:admin")).await;
    ok(&mut root, Request::set_data("/a", "x")).await;
    ok(&mut root, Request::set_data("/zookeeper/config", "")).await;
    let Body::ClientInfos(infos) = ok(&mut root, Request::WhoAmI).await else {
        panic!("nobody");
    };
    assert!(
        infos.contains(&("super".into(), String::new())),
        "{infos:?}"
    );
    ok(&mut root, create("/b", vec![entry(ALL, "auth", "")])).await;
    let ids: Vec<_> = get_acl(&mut root, "/b").await;
    assert!(ids.iter().all(|acl| acl.id.scheme == "digest"), "{ids:?}");
}

#[tokio::test]
async fn lists_can_be_ignored_altogether() {
    let server = TestServer::with(Config {
        skip_acl: true,
        ..TestServer::config()
    })
    .await
    .unwrap();
    let mut client = client_of(&server).await;
    ok(&mut client, create("/a", vec![entry(0, "world", "anyone")])).await;
    ok(&mut client, Request::get_data("/a")).await;
    ok(&mut client, Request::create("/a/b", "")).await;
    ok(&mut client, Request::set_data("/zookeeper/config", "")).await;
}

#[tokio::test]
async fn where_authentication_is_required_nothing_goes_without() {
    let server = TestServer::with(Config {
        enforce_auth_schemes: vec!["digest".into()],
        ..TestServer::config()
    })
    .await
    .unwrap();
    let mut proven = client_of(&server).await;
    ok(&mut proven, Request::auth_digest("user:password")).await;
    ok(&mut proven, Request::create("/a", "")).await;
    for request in [
        Request::get_data("/a"),
        Request::create("/b", ""),
        Request::Ping,
    ] {
        let mut stranger = client_of(&server).await;
        let segment = [request, Request::create("/late", "")];
        stranger.send_all(&segment).await.unwrap();
        let reply = stranger.receive_reply().await.unwrap();
        assert_eq!((reply.outcome, reply.zxid), (Err(AuthRequired), 0));
        stranger.closed().await.unwrap();
    }
    assert!(!exists(&mut proven, "/late").await);
    assert!(!exists(&mut proven, "/b").await);
}
