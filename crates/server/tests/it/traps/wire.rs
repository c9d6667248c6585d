//! The wire format: replies, refusals, four-letter words, and null values.

use bellwether_server::Config;
use bellwether_testkit::raw::four_letter_word;
use bellwether_testkit::{Body, ConnectOptions, MultiResult, RawClient, Request, TestServer};
use bellwether_wire::acl::ALL;
use bellwether_wire::code::ErrorCode::{
    BadArguments, InvalidAcl, MarshallingError, NoNode, NoWatcher, RuntimeInconsistency,
    Unimplemented,
};
use bytes::BufMut as _;

use crate::{client_of, data, exists, ok, server_and_client};

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
