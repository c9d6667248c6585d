//! The traps that servers of this protocol fall into, by their numbers; those of files are elsewhere.

use bellwether_server::Config;
use bellwether_server::proto::acl::{ALL, Acl, CREATE, DELETE, Id, READ};
use bellwether_server::proto::code::ErrorCode::{
    self, BadArguments, BadVersion, InvalidAcl, MarshallingError, NoAuth, NoNode, NoWatcher,
    NodeExists, NotEmpty, RuntimeInconsistency, Unimplemented,
};
use bellwether_server::proto::event::EventKind::{
    NodeChildrenChanged, NodeCreated, NodeDataChanged, NodeDeleted,
};
use bellwether_server::proto::op::Op;
use bellwether_testkit::raw::four_letter_word;
use bellwether_testkit::{
    Body, ConnectOptions, Create, Frame, MultiResult, RawClient, Request, TestServer, WatchLists,
};
use bytes::{BufMut, BytesMut};

use crate::{
    children, client_of, created, data, event, events, exists, ok, refusal, server_and_client, stat,
};

#[tokio::test]
async fn trap_01_a_failed_multi_tells_so_in_its_results_only() {
    let (_server, mut client) = server_and_client().await;
    let multi = Request::Multi(vec![
        Request::create("/a", ""),
        Request::delete("/none"),
        Request::create("/no/parent", ""),
    ]);
    let reply = client.call(multi).await.unwrap();
    let expected = [
        &[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0][..],
        &[
            0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, 0xff, 0x9b, 0xff, 0xff, 0xff, 0x9b,
        ],
        &[
            0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, 0xff, 0xfe, 0xff, 0xff, 0xff, 0xfe,
        ],
        &[0xff, 0xff, 0xff, 0xff, 1, 0xff, 0xff, 0xff, 0xff],
    ]
    .concat();
    assert_eq!(reply.bytes, expected);
    assert_eq!(
        reply.outcome,
        Ok(Body::Multi(vec![
            MultiResult::Undone,
            MultiResult::Failed(NoNode),
            MultiResult::Failed(RuntimeInconsistency),
        ]))
    );
    assert!(!exists(&mut client, "/a").await);
}

#[tokio::test]
async fn trap_02_an_error_is_a_header_and_nothing_else() {
    let (_server, mut client) = server_and_client().await;
    let requests = [
        Request::create("/no/parent", ""),
        Request::create2("/no/parent", "", 0),
        Request::create_container("/no/parent"),
        Request::delete("/none"),
        Request::exists("/none"),
        Request::get_data("/none"),
        Request::set_data("/none", ""),
        Request::get_children("/none"),
        Request::GetChildren2 {
            path: "/none".into(),
            watch: false,
        },
        Request::GetAcl {
            path: "/none".into(),
        },
        Request::GetAllChildrenNumber {
            path: "/none".into(),
        },
        Request::RemoveWatches {
            path: "/none".into(),
            kind: 3,
        },
    ];
    for request in requests {
        client.send(&request).await.unwrap();
        let frame = client.receive_raw().await.unwrap();
        assert_eq!(frame.len(), 16, "{request:?}");
        assert_ne!(frame[12..], [0; 4], "{request:?}");
    }
}

#[tokio::test]
async fn trap_03_the_read_only_byte_goes_to_those_who_sent_theirs() {
    let server = TestServer::start().await.unwrap();
    for read_only_byte in [true, false] {
        for session_id in [0, 0x1234] {
            let options = ConnectOptions {
                read_only_byte,
                session_id,
                ..ConnectOptions::default()
            };
            // The client checks for 37 or 36 bytes.
            let client = RawClient::connect_with(server.address(), &options);
            assert_eq!(client.await.unwrap().is_refused(), session_id != 0);
        }
    }
}

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
async fn trap_06_passwords_follow_from_session_ids() {
    let (_server, client) = server_and_client().await;
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
async fn trap_09_a_refusal_is_all_zeros_and_then_the_end() {
    let (server, client) = server_and_client().await;
    for (session_id, password) in [
        (client.session_id(), vec![7; 16]),
        (client.session_id() + 1, client.password().to_vec()),
    ] {
        let options = ConnectOptions {
            session_id,
            password,
            ..ConnectOptions::default()
        };
        let mut refused = RawClient::open(server.address()).await.unwrap();
        refused.send_bytes(&options.encode()).await.unwrap();
        let mut expected = vec![0; 37];
        expected[19] = 16;
        assert_eq!(refused.receive_raw().await.unwrap(), expected);
        refused.closed().await.unwrap();
    }
}

#[tokio::test]
async fn trap_10_an_event_precedes_the_reply_of_the_write_that_caused_it() {
    let (_server, mut client) = server_and_client().await;
    ok(&mut client, Request::exists("/").watching()).await;
    let xid = client.send(&Request::set_data("/", "x")).await.unwrap();
    assert_eq!(event(&mut client).await, (NodeDataChanged, "/".into()));
    let Frame::Reply(reply) = client.receive().await.unwrap() else {
        panic!("a second event");
    };
    assert_eq!(reply.xid, xid);
}

#[tokio::test]
async fn trap_11_a_delete_is_told_once_and_uses_up_both_watches() {
    let (server, mut client) = server_and_client().await;
    ok(&mut client, Request::create("/a", "")).await;
    ok(&mut client, Request::get_data("/a").watching()).await;
    ok(&mut client, Request::get_children("/a").watching()).await;
    ok(&mut client, Request::get_children("/").watching()).await;
    ok(&mut client, Request::delete("/a")).await;
    assert_eq!(
        events(&mut client).await,
        [
            (NodeDeleted, "/a".into()),
            (NodeChildrenChanged, "/".into())
        ]
    );
    assert_eq!(server.watch_count().unwrap(), 0);
}

#[tokio::test]
async fn trap_12_lasting_watches_stay_and_recursive_ones_know_no_children_changed() {
    let (_server, mut client) = server_and_client().await;
    ok(&mut client, Request::create("/p", "")).await;
    ok(&mut client, Request::create("/r", "")).await;
    let add = |path: &str, mode| Request::AddWatch {
        path: path.into(),
        mode,
    };
    ok(&mut client, add("/p", 0)).await;
    ok(&mut client, add("/r", 1)).await;
    // One-shot watches on the same paths do not replace them.
    ok(&mut client, Request::get_data("/p").watching()).await;
    ok(&mut client, Request::get_data("/r").watching()).await;
    for path in ["/p", "/r"] {
        for request in [
            Request::set_data(path, "x"),
            Request::set_data(path, "y"),
            Request::create(format!("{path}/c"), ""),
            Request::delete(format!("{path}/c")),
        ] {
            ok(&mut client, request).await;
        }
    }
    assert_eq!(
        events(&mut client).await,
        [
            (NodeDataChanged, "/p".into()),
            (NodeDataChanged, "/p".into()),
            (NodeChildrenChanged, "/p".into()),
            (NodeChildrenChanged, "/p".into()),
            (NodeDataChanged, "/r".into()),
            (NodeDataChanged, "/r".into()),
            (NodeCreated, "/r/c".into()),
            (NodeDeleted, "/r/c".into()),
        ]
    );
}

#[tokio::test]
async fn trap_13_watches_set_again_make_up_for_what_was_missed() {
    let (server, mut client) = server_and_client().await;
    for path in ["/same", "/changed", "/parent", "/exists"] {
        ok(&mut client, Request::create(path, "")).await;
    }
    let relative_zxid = client.last_zxid();
    ok(&mut client, Request::set_data("/changed", "x")).await;
    ok(&mut client, Request::create("/parent/child", "")).await;
    let paths = |paths: &[&str]| paths.iter().map(ToString::to_string).collect();
    let lists = WatchLists {
        relative_zxid,
        data: paths(&["/same", "/changed", "/gone"]),
        exist: paths(&["/exists", "/absent"]),
        child: paths(&["/same", "/parent", "/gone-too"]),
        persistent: paths(&["/changed"]),
        recursive: paths(&["/changed"]),
    };
    let mut back = client_of(&server).await;
    let xid = back.send(&Request::SetWatches2(lists)).await.unwrap();
    let mut missed = Vec::new();
    for _ in 0..5 {
        missed.push(event(&mut back).await);
    }
    assert_eq!(
        missed,
        [
            (NodeDataChanged, "/changed".into()),
            (NodeDeleted, "/gone".into()),
            (NodeCreated, "/exists".into()),
            (NodeChildrenChanged, "/parent".into()),
            (NodeDeleted, "/gone-too".into()),
        ]
    );
    assert_eq!(back.receive_reply().await.unwrap().xid, xid);
    for request in [
        Request::set_data("/same", "x"),
        Request::create("/same/child", ""),
        Request::create("/absent", ""),
        Request::set_data("/exists", "not armed"),
        Request::create("/parent/2", "not armed"),
    ] {
        ok(&mut client, request).await;
    }
    assert_eq!(
        events(&mut back).await,
        [
            (NodeDataChanged, "/same".into()),
            (NodeChildrenChanged, "/same".into()),
            (NodeCreated, "/absent".into()),
        ]
    );
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
    assert_eq!(acl[0].id, Id::new("digest", "user:x"), "no hash is told");
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
    // What is no UTF-8 becomes a refused character.
    let mut body = BytesMut::new();
    Request::create("/xx", "").encode_body(&mut body);
    body[5] = 0xC0;
    let raw = Request::Raw {
        op: 1,
        body: body.to_vec(),
    };
    assert_eq!(refusal(&mut client, raw).await, BadArguments);
    // With a number behind it, a slash at the end is none.
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

#[tokio::test]
async fn trap_25_unknown_operations_end_the_connection_and_sasl_does_not() {
    let (server, mut client) = server_and_client().await;
    for token in [vec![], b"anything".to_vec()] {
        let token = Some(token);
        let reply = client.call(Request::Sasl { token }).await.unwrap();
        assert_eq!((reply.zxid, reply.ok().unwrap()), (0, Body::Token(None)));
    }
    client.send(&Request::Sasl { token: None }).await.unwrap();
    client.closed().await.unwrap();
    for op in [0, -1, 10, 23, 99, 108, i32::MAX] {
        let mut client = client_of(&server).await;
        let body = vec![];
        let reply = client.call(Request::Raw { op, body }).await.unwrap();
        assert_eq!((reply.outcome, reply.zxid), (Err(Unimplemented), -1));
        client.closed().await.unwrap();
        assert!(
            !client
                .reattach(server.address())
                .await
                .unwrap()
                .is_refused()
        );
    }
}

#[tokio::test]
async fn trap_26_null_data_is_not_empty_data() {
    let (_server, mut client) = server_and_client().await;
    ok(&mut client, Request::create("/a", "")).await;
    assert_eq!(data(&mut client, "/a").await, Some(vec![]));
    let null = Request::SetData {
        path: "/a".into(),
        data: None,
        version: 0,
    };
    let body = ok(&mut client, null).await;
    assert_eq!(body.stat().unwrap().data_length, 0);
    assert_eq!(data(&mut client, "/a").await, None);
}

#[tokio::test]
async fn trap_27_words_need_to_be_listed() {
    let server = TestServer::with(Config {
        words: Default::default(),
        ..TestServer::config()
    })
    .await
    .unwrap();
    let answer = four_letter_word(server.address(), "ruok").await.unwrap();
    assert_eq!(
        answer,
        "ruok is not executed because it is not in the whitelist.\n"
    );
    let answer = four_letter_word(server.address(), "srvr").await.unwrap();
    assert!(answer.starts_with("Zookeeper version: "));
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
async fn trap_30_pings_are_answered_with_their_own_xid_and_all_else_with_that_of_the_request() {
    let (_server, mut client) = server_and_client().await;
    for xid in [0, 5, -1, -4, -8, i32::MIN] {
        client.send_with_xid(xid, &Request::Ping).await.unwrap();
        let frame = client.receive_raw().await.unwrap();
        assert_eq!(frame[..4], (-2_i32).to_be_bytes());
        client
            .send_with_xid(xid, &Request::get_data("/"))
            .await
            .unwrap();
        let frame = client.receive_raw().await.unwrap();
        assert_eq!(frame[..4], xid.to_be_bytes());
    }
}

#[tokio::test]
async fn trap_31_null_is_not_empty() {
    let (_server, mut client) = server_and_client().await;
    let with_path = |op: i32, length: i32, rest: &[u8]| {
        let mut body = length.to_be_bytes().to_vec();
        body.extend(rest);
        Request::Raw { op, body }
    };
    let mut create_rest = Vec::new();
    create_rest.put_i32(-1);
    create_rest.put_i32(1);
    create_rest.put_i32(ALL);
    create_rest.put_slice(b"\0\0\0\x05world\0\0\0\x06anyone");
    create_rest.put_i32(0);
    let watch = &[0][..];
    let number = &[0, 0, 0, 1][..];
    let ok = Ok(());
    for (op, rest, null, empty) in [
        (
            1,
            &create_rest[..],
            Err(MarshallingError),
            Err(BadArguments),
        ),
        (2, number, Err(MarshallingError), Err(BadArguments)),
        (3, watch, Err(MarshallingError), ok),
        (4, watch, Err(MarshallingError), ok),
        (6, &[], Err(MarshallingError), ok),
        (8, watch, Err(MarshallingError), ok),
        (12, watch, Err(MarshallingError), ok),
        (104, &[], Err(MarshallingError), ok),
        (
            5,
            &[0, 0, 0, 0, 0, 0, 0, 0],
            Err(BadArguments),
            Err(BadArguments),
        ),
        (13, number, Err(BadArguments), Err(BadArguments)),
        (9, &[], ok, ok),
        (103, &[], ok, ok),
        (106, number, ok, ok),
        (17, number, Err(MarshallingError), Err(NoWatcher)),
        (18, number, Err(NoWatcher), Err(NoWatcher)),
    ] {
        for (length, expected) in [(-1, null), (0, empty)] {
            let request = with_path(op, length, rest);
            let reply = client.call(request).await.unwrap();
            let outcome = reply.outcome.map(drop);
            assert_eq!(outcome, expected, "operation {op}, length {length}");
        }
    }
    // Access lists: none, an empty one, and an entry without an id.
    for (list, code) in [
        (&(-1_i32).to_be_bytes()[..], InvalidAcl),
        (&[0; 4], InvalidAcl),
        (
            b"\0\0\0\x01\0\0\0\x1f\0\0\0\x05world\xff\xff\xff\xff",
            MarshallingError,
        ),
        (
            b"\0\0\0\x01\0\0\0\x1f\xff\xff\xff\xff\0\0\0\x06anyone",
            InvalidAcl,
        ),
    ] {
        let mut body = b"\0\0\0\x02/a\xff\xff\xff\xff".to_vec();
        body.extend(list);
        body.put_i32(0);
        let reply = client.call(Request::Raw { op: 1, body }).await.unwrap();
        assert_eq!(reply.outcome.unwrap_err(), code, "{list:?}");
    }
    // Watch lists: a null one is malformed, empty ones are not.
    for (count, expected) in [(-1_i32, Err(MarshallingError)), (0, Ok(()))] {
        let mut body = vec![0; 8];
        (0..3).for_each(|_| body.put_i32(count));
        let reply = client.call(Request::Raw { op: 101, body }).await.unwrap();
        assert_eq!(reply.outcome.map(drop), expected);
    }
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
