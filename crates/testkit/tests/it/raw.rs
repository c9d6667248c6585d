use bellwether_testkit::{
    Apache, Body, ConnectOptions, Create, Frame, MultiResult, RawClient, Request, WatchLists,
};
use bellwether_wire::acl::Acl;
use bellwether_wire::code::ErrorCode;
use bellwether_wire::event::EventKind;
use bellwether_wire::op::Op;

fn path(text: &str) -> String {
    text.into()
}

#[tokio::test]
async fn every_reply_decodes_to_its_last_byte() {
    let server = Apache::builder().extended_types().start().await.unwrap();
    let mut client = RawClient::connect(server.address()).await.unwrap();
    let open = vec![Acl::open()];

    let reply = client.call(Request::create("/a", "1")).await.unwrap();
    assert_eq!(reply.outcome, Ok(Body::Path("/a".into())));
    for request in [
        Request::create2("/b-", "", Create::EPHEMERAL_SEQUENTIAL),
        Request::create_container("/c"),
        Request::create_ttl("/t", 60_000),
    ] {
        let body = client.call(request).await.unwrap().ok().unwrap();
        assert!(matches!(body, Body::PathStat(..)), "{body:?}");
    }
    for (request, is_right) in [
        (
            Request::exists("/a"),
            (|b| matches!(b, Body::Stat(_))) as fn(&Body) -> bool,
        ),
        (
            Request::get_data("/a"),
            |b| matches!(b, Body::DataStat(Some(d), _) if d == b"1"),
        ),
        (
            Request::set_data("/a", "22"),
            |b| matches!(b, Body::Stat(s) if s.data_length == 2),
        ),
        (
            Request::GetAcl { path: path("/a") },
            |b| matches!(b, Body::AclStat(acl, _) if acl[..] == [Acl::open()]),
        ),
        (
            Request::SetAcl {
                path: path("/a"),
                acl: open,
                version: 0,
            },
            |b| matches!(b, Body::Stat(s) if s.aversion == 1),
        ),
        (
            Request::get_children("/"),
            |b| matches!(b, Body::Children(names) if names[..] == ["a", "b-0000000001", "c", "t", "zookeeper"]),
        ),
        (
            Request::GetChildren2 {
                path: path("/"),
                watch: false,
            },
            |b| matches!(b, Body::ChildrenStat(names, _) if names.len() == 5),
        ),
        (Request::GetAllChildrenNumber { path: path("/") }, |b| {
            *b == Body::Count(7)
        }),
        (
            Request::GetEphemerals { prefix: path("/b") },
            |b| matches!(b, Body::Ephemerals(paths) if paths[..] == ["/b-0000000001"]),
        ),
        (Request::Sync { path: path("/x") }, |b| {
            *b == Body::Path("/x".into())
        }),
        (Request::Ping, |b| *b == Body::None),
        (
            Request::WhoAmI,
            |b| matches!(b, Body::ClientInfos(infos) if infos[..] == [("ip".into(), "127.0.0.1".into())]),
        ),
        (
            Request::AddWatch {
                path: path("/w"),
                mode: 0,
            },
            |b| *b == Body::Code(0),
        ),
        (
            Request::CheckWatches {
                path: path("/w"),
                kind: 3,
            },
            |b| *b == Body::None,
        ),
        (
            Request::RemoveWatches {
                path: path("/w"),
                kind: 3,
            },
            |b| *b == Body::None,
        ),
        (Request::SetWatches(WatchLists::default()), |b| {
            *b == Body::None
        }),
        (Request::SetWatches2(WatchLists::default()), |b| {
            *b == Body::None
        }),
        (Request::auth_digest("user:secret"), |b| *b == Body::None),
        (
            Request::Sasl {
                token: Some(vec![1]),
            },
            |b| *b == Body::Token(None),
        ),
        (
            Request::MultiRead(vec![
                Request::get_data("/a"),
                Request::get_children("/none"),
            ]),
            |b| {
                matches!(b, Body::Multi(results) if matches!(
                    &results[..],
                    [MultiResult::Done(Op::GetData, Body::DataStat(..)), MultiResult::Failed(ErrorCode::NoNode)]
                ))
            },
        ),
        (
            Request::Multi(vec![
                Request::Check {
                    path: path("/a"),
                    version: 1,
                },
                Request::create("/m", ""),
                Request::create_container("/n"),
                Request::set_data("/m", "3"),
                Request::delete("/m"),
            ]),
            |b| {
                matches!(b, Body::Multi(results) if matches!(
                    &results[..],
                    [
                        MultiResult::Done(Op::Check, Body::None),
                        MultiResult::Done(Op::Create, Body::Path(_)),
                        MultiResult::Done(Op::Create2, Body::PathStat(..)),
                        MultiResult::Done(Op::SetData, Body::Stat(_)),
                        MultiResult::Done(Op::Delete, Body::None),
                    ]
                ))
            },
        ),
        (
            Request::Multi(vec![
                Request::create("/m", ""),
                Request::delete("/x"),
                Request::delete("/m"),
            ]),
            |b| {
                *b == Body::Multi(vec![
                    MultiResult::Undone,
                    MultiResult::Failed(ErrorCode::NoNode),
                    MultiResult::Failed(ErrorCode::RuntimeInconsistency),
                ])
            },
        ),
        (Request::delete("/a"), |b| *b == Body::None),
    ] {
        let body = client.call(request.clone()).await.unwrap().ok().unwrap();
        assert!(is_right(&body), "{request:?}: {body:?}");
    }
    for (request, code) in [
        (Request::delete("/a"), ErrorCode::NoNode),
        (Request::create("/c", ""), ErrorCode::NodeExists),
        (
            Request::Reconfig {
                joining: None,
                leaving: None,
                members: None,
                config_id: -1,
            },
            ErrorCode::ReconfigDisabled,
        ),
        (
            Request::Raw {
                op: Op::Create.number(),
                body: vec![],
            },
            ErrorCode::MarshallingError,
        ),
    ] {
        assert_eq!(client.call(request).await.unwrap().outcome, Err(code));
    }
    client
        .call(Request::CloseSession)
        .await
        .unwrap()
        .ok()
        .unwrap();
    client.closed().await.unwrap();
}

#[tokio::test]
async fn requests_of_one_segment_are_answered_in_order_and_events_come_first() {
    let server = Apache::start().await.unwrap();
    let mut client = RawClient::connect(server.address()).await.unwrap();
    let xids = client
        .send_all(&[
            Request::exists("/a").watching(),
            Request::create("/a", ""),
            Request::Ping,
            Request::delete("/a"),
        ])
        .await
        .unwrap();
    let mut order = Vec::new();
    while order.len() < 5 {
        order.push(match client.receive().await.unwrap() {
            Frame::Reply(reply) => reply.xid,
            Frame::Event(event) => {
                assert_eq!(
                    (event.kind, &event.path[..]),
                    (EventKind::NodeCreated, "/a")
                );
                -1
            }
        });
    }
    assert_eq!(order, [xids[0], -1, xids[1], -2, xids[3]]);
}

#[tokio::test]
async fn sessions_are_reattached_or_refused() {
    let server = Apache::start().await.unwrap();
    let mut client = RawClient::connect(server.address()).await.unwrap();
    client
        .call(Request::create_ephemeral("/e"))
        .await
        .unwrap()
        .ok()
        .unwrap();
    let mut again = client.reattach(server.address()).await.unwrap();
    assert_eq!(again.session_id(), client.session_id());
    client.closed().await.unwrap();
    let body = again
        .call(Request::exists("/e"))
        .await
        .unwrap()
        .ok()
        .unwrap();
    assert_eq!(body.stat().unwrap().ephemeral_owner, client.session_id());

    again
        .call(Request::CloseSession)
        .await
        .unwrap()
        .ok()
        .unwrap();
    let mut refused = again.reattach(server.address()).await.unwrap();
    assert!(refused.is_refused());
    refused.closed().await.unwrap();

    let old = ConnectOptions {
        read_only_byte: false,
        ..ConnectOptions::default()
    };
    assert!(
        !RawClient::connect_with(server.address(), &old)
            .await
            .unwrap()
            .is_refused()
    );
}
