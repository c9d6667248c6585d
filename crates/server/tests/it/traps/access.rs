//! Access control.

use bellwether_testkit::{Body, Create, Request};
use bellwether_wire::acl::{ALL, Acl, CREATE, DELETE, Id, READ};
use bellwether_wire::code::ErrorCode::{
    self, BadArguments, BadVersion, InvalidAcl, NoAuth, NoNode, NodeExists, NotEmpty,
};
use bellwether_wire::op::Op;

use crate::{client_of, ok, refusal, server_and_client};

/// A create with an access list of one entry.
fn guarded(path: &str, perms: i32, id: Id) -> Request {
    Request::Create(Create {
        op: Op::Create,
        path: path.into(),
        data: Some(vec![]),
        acl: vec![Acl { perms, id }],
        flags: 0,
        ttl_ms: None,
    })
}

fn world() -> Id {
    Id::new("world", "anyone")
}

#[tokio::test]
async fn trap_20_creates_and_deletes_ask_the_parent() {
    let (_server, mut client) = server_and_client().await;
    ok(&mut client, guarded("/no-create", ALL & !CREATE, world())).await;
    ok(&mut client, guarded("/no-delete", ALL & !DELETE, world())).await;
    ok(&mut client, guarded("/nothing", 0, world())).await;
    ok(&mut client, Request::create("/no-delete/a", "")).await;
    for (request, code) in [
        (Request::create("/no-create/a", ""), NoAuth),
        (Request::delete("/no-delete/a"), NoAuth),
        (Request::delete("/no-delete/none"), NoAuth),
        (Request::exists("/nothing"), NoAuth),
        (Request::get_data("/nothing"), NoAuth),
        (Request::set_data("/nothing", ""), NoAuth),
    ] {
        assert_eq!(
            refusal(&mut client, request.clone()).await,
            code,
            "{request:?}"
        );
    }
    ok(&mut client, Request::delete("/nothing")).await;
    let id = Id::new("digest", "user:hash");
    let both = Request::Create(Create {
        op: Op::Create,
        path: "/digest".into(),
        data: None,
        acl: vec![
            Acl {
                perms: ALL,
                id: id.clone(),
            },
            Acl {
                perms: READ,
                id: world(),
            },
        ],
        flags: 0,
        ttl_ms: None,
    });
    ok(&mut client, both).await;
    let path = "/digest".into();
    let Body::AclStat(acl, _) = ok(&mut client, Request::GetAcl { path }).await else {
        panic!("no list");
    };
    assert_eq!(acl[0].id, Id::new("digest", "user:x"), "the hash is hidden");
}

#[tokio::test]
async fn trap_21_the_first_check_that_fails_is_what_is_told() {
    let (_server, mut client) = server_and_client().await;
    ok(&mut client, Request::create("/a", "")).await;
    ok(&mut client, Request::create("/a/b", "")).await;
    let delete = |path: &str, version| Request::Delete {
        path: path.into(),
        version,
    };
    let bad_acl = |path: &str| guarded(path, ALL, Id::new("nobody", ""));
    for (request, code) in [
        (delete("/a", 7), BadVersion),
        (delete("/a", -2), BadVersion),
        (delete("/a", 0), NotEmpty),
        (delete("/zookeeper", 7), BadArguments),
        (delete("//", -1), NoNode),
        (Request::create("foo", ""), BadArguments),
        (Request::create("foo/bar", ""), NoNode),
        (Request::create("/a//b", ""), NoNode),
        (Request::create("/a/", ""), BadArguments),
        (Request::create_mode("/none/a", "", 9), BadArguments),
        (bad_acl("/none/a"), InvalidAcl),
        (bad_acl("/a"), InvalidAcl),
        (Request::create("/", ""), NodeExists),
    ] {
        assert_eq!(
            refusal(&mut client, request.clone()).await,
            code,
            "{request:?}"
        );
    }
}

#[tokio::test]
async fn trap_24_credentials_belong_to_the_connection() {
    let (server, mut client) = server_and_client().await;
    let auth = |scheme: &str, data: Option<&str>| Request::Auth {
        scheme: scheme.into(),
        data: data.map(Into::into),
    };
    let own = guarded("/own", ALL, Id::new("auth", "ignored"));
    assert_eq!(refusal(&mut client, own.clone()).await, InvalidAcl);
    // The reply has the xid of the request, whatever that is, and no zxid.
    client
        .send_with_xid(77, &auth("digest", Some("user:password")))
        .await
        .unwrap();
    let reply = client.receive_reply().await.unwrap();
    assert_eq!((reply.xid, reply.zxid), (77, 0));
    ok(&mut client, auth("ip", None)).await;
    ok(&mut client, own).await;
    let path = "/own".into();
    let Body::AclStat(acl, _) = ok(&mut client, Request::GetAcl { path }).await else {
        panic!("no list");
    };
    assert_eq!(
        acl,
        [Acl {
            perms: ALL,
            id: Id::new("digest", "user:tpUq/4Pn5A64fVZyQ0gOJ8ZWqkY=")
        }]
    );
    let mut back = client.reattach(server.address()).await.unwrap();
    assert_eq!(refusal(&mut back, Request::get_data("/own")).await, NoAuth);
    ok(&mut back, auth("digest", Some("user:password"))).await;
    ok(&mut back, Request::get_data("/own")).await;

    for bad in [
        auth("nobody", Some("")),
        auth("world", Some("anyone")),
        auth("super", Some("")),
        auth("", Some("")),
        auth("digest", None),
    ] {
        let mut client = client_of(&server).await;
        let reply = client.call(bad).await.unwrap();
        assert_eq!((reply.outcome, reply.zxid), (Err(ErrorCode::AuthFailed), 0));
        client.closed().await.unwrap();
        assert!(
            !client
                .reattach(server.address())
                .await
                .unwrap()
                .is_refused()
        );
    }
    for malformed in [&b""[..], b"\0\0\0\0\0\0\0\x09digest"] {
        let mut client = client_of(&server).await;
        let body = malformed.to_vec();
        client.send(&Request::Raw { op: 100, body }).await.unwrap();
        client.closed().await.unwrap();
    }
}
