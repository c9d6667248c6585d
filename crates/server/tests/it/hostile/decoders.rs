//! Everything that decodes foreign bytes: it may refuse them, but must not panic.

use bellwether_testkit::{ConnectOptions, Create, Request, WatchLists};
use bellwether_wire::acl::{Acl, Id, RawAcl};
use bellwether_wire::connect::{ConnectReply, ConnectRequest};
use bellwether_wire::event::{self, EventKind};
use bellwether_wire::frame;
use bellwether_wire::jute::{Malformed, Reader};
use bellwether_wire::multi::{Ops, ReadOp, WriteOp};
use bellwether_wire::op::Op;
use bellwether_wire::reply::{self, ReplyHeader};
use bellwether_wire::request as proto;
use bellwether_wire::stat::Stat;
use bytes::BytesMut;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

/// Decodes the body of a request with the server's decoders, back into the testkit's form.
fn decode(op: Op, body: &[u8]) -> Result<Request, Malformed> {
    let reader = &mut Reader::new(body);
    Ok(match op {
        Op::Create | Op::Create2 | Op::CreateContainer | Op::CreateTtl => {
            Request::Create(create(op, proto::Create::decode(op, reader)?))
        }
        Op::Delete => delete(proto::PathVersion::decode(reader)?),
        Op::Check => check(proto::PathVersion::decode(reader)?),
        Op::SetData => set_data(proto::SetData::decode(reader)?),
        Op::SetAcl => {
            let proto::SetAcl { path, acl, version } = proto::SetAcl::decode(reader)?;
            Request::SetAcl {
                path: text(path),
                acl: list(acl),
                version,
            }
        }
        Op::Exists => {
            let proto::PathWatch { path, watch } = proto::PathWatch::decode(reader)?;
            let path = text(path);
            Request::Exists { path, watch }
        }
        Op::GetData => get_data(proto::PathWatch::decode(reader)?),
        Op::GetChildren => get_children(proto::PathWatch::decode(reader)?),
        Op::AddWatch => {
            let proto::PathNumber { path, number: mode } = proto::PathNumber::decode(reader)?;
            let path = text(path);
            Request::AddWatch { path, mode }
        }
        Op::SetWatches => Request::SetWatches(watches(proto::SetWatches::decode(op, reader)?)),
        Op::SetWatches2 => Request::SetWatches2(watches(proto::SetWatches::decode(op, reader)?)),
        Op::Auth => {
            let proto::Auth { scheme, data } = proto::Auth::decode(reader)?;
            Request::Auth {
                scheme: text(scheme),
                data: data.map(<[u8]>::to_vec),
            }
        }
        Op::Multi => Request::Multi(multi(Ops::decode(reader)?)),
        Op::MultiRead => Request::MultiRead(multi(Ops::decode(reader)?)),
        op => unreachable!("{op:?} is not made here"),
    })
}

fn text(text: proto::Text<'_>) -> String {
    text.unwrap_or_default().into_owned()
}

fn list(list: Option<Vec<RawAcl>>) -> Vec<Acl> {
    let acl = |RawAcl { perms, scheme, id }| Acl {
        perms,
        id: Id::new(scheme.unwrap_or_default(), id.unwrap_or_default()),
    };
    list.unwrap_or_default().into_iter().map(acl).collect()
}

fn create(op: Op, create: proto::Create<'_>) -> Create {
    Create {
        op,
        path: text(create.path),
        data: create.data.map(<[u8]>::to_vec),
        acl: list(create.acl),
        flags: create.flags,
        ttl_ms: create.ttl_ms,
    }
}

fn delete(proto::PathVersion { path, version }: proto::PathVersion<'_>) -> Request {
    let path = text(path);
    Request::Delete { path, version }
}

fn check(proto::PathVersion { path, version }: proto::PathVersion<'_>) -> Request {
    let path = text(path);
    Request::Check { path, version }
}

fn set_data(body: proto::SetData<'_>) -> Request {
    Request::SetData {
        path: text(body.path),
        data: body.data.map(<[u8]>::to_vec),
        version: body.version,
    }
}

fn get_data(proto::PathWatch { path, watch }: proto::PathWatch<'_>) -> Request {
    let path = text(path);
    Request::GetData { path, watch }
}

fn get_children(proto::PathWatch { path, watch }: proto::PathWatch<'_>) -> Request {
    let path = text(path);
    Request::GetChildren { path, watch }
}

fn watches(body: proto::SetWatches<'_>) -> WatchLists {
    let list = |list: Option<Vec<proto::Text<'_>>>| {
        list.unwrap_or_default().into_iter().map(text).collect()
    };
    WatchLists {
        relative_zxid: body.relative_zxid,
        data: list(body.data),
        exist: list(body.exist),
        child: list(body.child),
        persistent: list(body.persistent),
        recursive: list(body.recursive),
    }
}

fn multi(ops: Ops<'_>) -> Vec<Request> {
    let write = |op| match op {
        WriteOp::Create(op, body) => Request::Create(create(op, body)),
        WriteOp::Delete(body) => delete(body),
        WriteOp::SetData(body) => set_data(body),
        WriteOp::Check(body) => check(body),
    };
    let read = |op| match op {
        ReadOp::GetData(body) => get_data(body),
        ReadOp::GetChildren(body) => get_children(body),
    };
    match ops {
        Ops::Writes(ops) => ops.into_iter().map(write).collect(),
        Ops::Reads(ops) => ops.into_iter().map(read).collect(),
        Ops::Empty => vec![],
    }
}

// --- what clients may send -----------------------------------------------------------------------------

fn any_text() -> impl Strategy<Value = String> {
    any::<String>()
}

fn any_data() -> impl Strategy<Value = Option<Vec<u8>>> {
    option::of(vec(any::<u8>(), 0..20))
}

fn any_acl() -> impl Strategy<Value = Vec<Acl>> {
    let entry = (any::<i32>(), any_text(), any_text());
    vec(
        entry.prop_map(|(perms, scheme, id)| Acl {
            perms,
            id: Id::new(scheme, id),
        }),
        0..3,
    )
}

fn any_create() -> impl Strategy<Value = Request> {
    let op = prop_oneof![
        Just(Op::Create),
        Just(Op::Create2),
        Just(Op::CreateContainer),
        Just(Op::CreateTtl)
    ];
    // TTL modes belong to createTTL inside a multi.
    (
        op,
        any_text(),
        any_data(),
        any_acl(),
        0..5_i32,
        any::<i64>(),
    )
        .prop_map(|(op, path, data, acl, flags, ttl_ms)| {
            Request::Create(Create {
                op,
                path,
                data,
                acl,
                flags,
                ttl_ms: (op == Op::CreateTtl).then_some(ttl_ms),
            })
        })
}

fn any_write() -> impl Strategy<Value = Request> {
    let versioned = || (any_text(), any::<i32>());
    prop_oneof![
        any_create(),
        versioned().prop_map(|(path, version)| Request::Delete { path, version }),
        versioned().prop_map(|(path, version)| Request::Check { path, version }),
        (any_data(), versioned()).prop_map(|(data, (path, version))| Request::SetData {
            path,
            data,
            version
        }),
    ]
}

fn any_read() -> impl Strategy<Value = Request> {
    let watched = || (any_text(), any::<bool>());
    prop_oneof![
        watched().prop_map(|(path, watch)| Request::GetData { path, watch }),
        watched().prop_map(|(path, watch)| Request::GetChildren { path, watch }),
    ]
}

fn any_watches(last: usize) -> impl Strategy<Value = WatchLists> {
    let paths = || vec(any_text(), 0..3);
    let lasting = move || vec(any_text(), 0..=last);
    (
        any::<i64>(),
        paths(),
        paths(),
        paths(),
        lasting(),
        lasting(),
    )
        .prop_map(
            |(relative_zxid, data, exist, child, persistent, recursive)| WatchLists {
                relative_zxid,
                data,
                exist,
                child,
                persistent,
                recursive,
            },
        )
}

fn any_request() -> impl Strategy<Value = Request> {
    prop_oneof![
        any_write(),
        any_read(),
        (any_text(), any::<bool>()).prop_map(|(path, watch)| Request::Exists { path, watch }),
        (any_text(), any_acl(), any::<i32>()).prop_map(|(path, acl, version)| Request::SetAcl {
            path,
            acl,
            version
        }),
        (any_text(), any::<i32>()).prop_map(|(path, mode)| Request::AddWatch { path, mode }),
        (any_text(), any_data()).prop_map(|(scheme, data)| Request::Auth { scheme, data }),
        any_watches(0).prop_map(Request::SetWatches),
        any_watches(2).prop_map(Request::SetWatches2),
        vec(any_write(), 0..4).prop_map(Request::Multi),
        vec(any_read(), 0..4).prop_map(Request::MultiRead),
    ]
}

fn body_of(request: &Request) -> (Op, BytesMut) {
    let mut body = BytesMut::new();
    request.encode_body(&mut body);
    (request.op().unwrap(), body)
}

/// Every operation that [`decode`] reads.
const OPS: [Op; 17] = [
    Op::Create,
    Op::Create2,
    Op::CreateContainer,
    Op::CreateTtl,
    Op::Delete,
    Op::Check,
    Op::SetData,
    Op::SetAcl,
    Op::Exists,
    Op::GetData,
    Op::GetChildren,
    Op::AddWatch,
    Op::SetWatches,
    Op::SetWatches2,
    Op::Auth,
    Op::Multi,
    Op::MultiRead,
];

/// Decodes `bytes` as every type; only a panic is wrong.
fn decode_as_anything(bytes: &[u8]) {
    for op in OPS {
        let _ = decode(op, bytes);
    }
    let _ = ConnectRequest::decode(bytes);
    let _ = ConnectReply::decode(bytes);
    let _ = proto::RequestHeader::decode(&mut Reader::new(bytes));
    let _ = proto::skip_reconfig(&mut Reader::new(bytes));
    let _ = ReplyHeader::decode(&mut Reader::new(bytes));
    let _ = event::decode(&mut Reader::new(bytes));
    let _ = Stat::decode(&mut Reader::new(bytes));
    let _ = frame::take(&mut BytesMut::from(bytes), 100);
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..200)) {
        decode_as_anything(&bytes);
    }

    #[test]
    fn a_request_is_read_as_it_was_written(request in any_request()) {
        let (op, mut body) = body_of(&request);
        prop_assert_eq!(&decode(op, &body), &Ok(request.clone()));
        body.extend_from_slice(b"bytes behind a record mean nothing");
        prop_assert_eq!(decode(op, &body), Ok(request));
    }

    #[test]
    fn a_request_that_is_cut_anywhere_is_refused(request in any_request()) {
        let (op, body) = body_of(&request);
        for length in 0..body.len() {
            prop_assert_eq!(decode(op, &body[..length]), Err(Malformed));
        }
    }

    #[test]
    fn a_flipped_bit_does_no_harm(request in any_request(), place in any::<prop::sample::Index>(), bit in 0..8) {
        let (op, mut body) = body_of(&request);
        let place = place.index(body.len());
        body[place] ^= 1_u8 << bit;
        let _ = decode(op, &body);
        decode_as_anything(&body);
    }

    #[test]
    fn a_connect_request_is_read_with_and_without_its_last_byte(
        session_id: i64,
        last_zxid_seen: i64,
        timeout_ms in 0..i32::MAX,
        password in vec(any::<u8>(), 0..20),
        read_only_byte: bool,
    ) {
        let options = ConnectOptions {
            timeout: std::time::Duration::from_millis(timeout_ms.unsigned_abs().into()),
            session_id,
            password: password.clone(),
            last_zxid_seen,
            read_only_byte,
        };
        let bytes = options.encode();
        let expected = ConnectRequest {
            last_zxid_seen,
            timeout_ms,
            session_id,
            password,
            has_read_only: read_only_byte,
        };
        prop_assert_eq!(ConnectRequest::decode(&bytes[4..]), Ok(expected));
        let fixed = bytes.len() - usize::from(read_only_byte);
        for length in 4..fixed {
            prop_assert!(ConnectRequest::decode(&bytes[4..length]).is_err());
        }
    }

    #[test]
    fn a_connect_reply_comes_back_as_it_was(session_id: i64, timeout_ms: i32, password: [u8; 16]) {
        let reply = ConnectReply { timeout_ms, session_id, password };
        let mut bytes = Vec::new();
        reply.encode(true, &mut bytes);
        prop_assert_eq!(ConnectReply::decode(&bytes), Ok(reply));
        for length in 0..36 {
            prop_assert!(ConnectReply::decode(&bytes[..length]).is_err());
        }
    }

    #[test]
    fn a_stat_comes_back_as_it_was(longs: [i64; 6], ints: [i32; 5]) {
        let stat = Stat {
            czxid: longs[0],
            mzxid: longs[1],
            ctime: longs[2],
            mtime: longs[3],
            version: ints[0],
            cversion: ints[1],
            aversion: ints[2],
            ephemeral_owner: longs[4],
            data_length: ints[3],
            num_children: ints[4],
            pzxid: longs[5],
        };
        let mut bytes = Vec::new();
        stat.encode(&mut bytes);
        prop_assert_eq!(bytes.len(), 68);
        prop_assert_eq!(Stat::decode(&mut Reader::new(&bytes)), Ok(stat));
        prop_assert!(Stat::decode(&mut Reader::new(&bytes[..67])).is_err());
    }

    #[test]
    fn an_event_comes_back_as_it_was(kind in 0..4_usize, path: String) {
        let kind = [
            EventKind::NodeCreated,
            EventKind::NodeDeleted,
            EventKind::NodeDataChanged,
            EventKind::NodeChildrenChanged,
        ][kind];
        let mut bytes = Vec::new();
        event::encode(kind, &path, &mut bytes);
        for length in 0..bytes.len() {
            prop_assert!(event::decode(&mut Reader::new(&bytes[..length])).is_err());
        }
        prop_assert_eq!(event::decode(&mut Reader::new(&bytes)), Ok((kind, path)));
    }

    #[test]
    fn frames_come_out_as_they_went_in_however_they_are_cut(
        bodies in vec(vec(any::<u8>(), 0..40), 0..5),
        piece in 1..20_usize,
    ) {
        let mut wire = BytesMut::new();
        for body in &bodies {
            frame::put(&mut wire, |out| out.extend_from_slice(body));
        }
        let mut input = BytesMut::new();
        let mut frames = Vec::new();
        for piece in wire.chunks(piece) {
            input.extend_from_slice(piece);
            while let Some(frame) = frame::take(&mut input, 40).unwrap() {
                frames.push(frame.to_vec());
            }
        }
        prop_assert_eq!(frames, bodies);
        prop_assert!(input.is_empty());
    }

    #[test]
    fn a_reply_is_a_header_and_a_body(xid: i32, zxid: i64, body in vec(any::<u8>(), 0..20)) {
        let mut bytes = BytesMut::new();
        reply::put(&mut bytes, xid, zxid, Ok(()), |out| out.extend_from_slice(&body));
        let frame = frame::take(&mut bytes, 100).unwrap().unwrap();
        let reader = &mut Reader::new(&frame);
        let err = 0;
        prop_assert_eq!(ReplyHeader::decode(reader), Ok(ReplyHeader { xid, zxid, err }));
        prop_assert_eq!(reader.rest(), &body[..]);
    }
}

#[test]
fn counts_and_lengths_that_cannot_be_cost_nothing() {
    let before = crate::hostile::abuse::resident_bytes();
    for number in [i32::MAX, i32::MAX - 1, 1 << 30, i32::MIN, -2] {
        let number = number.to_be_bytes();
        // As the length of a path, as the count of an access list, and as that of the watches.
        for prefix in [&b""[..], b"\0\0\0\x02/a\xff\xff\xff\xff", &[0; 8], &[0; 12]] {
            let bytes = [prefix, &number, &[0; 32]].concat();
            decode_as_anything(&bytes);
        }
    }
    let grown = crate::hostile::abuse::resident_bytes().saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes");
}
