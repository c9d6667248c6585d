//! Clients that are broken, slow, greedy or no clients at all: the server handles each of them, and others are not affected.

mod greed;

use bellwether_testkit::{Apache, ConnectOptions, RawClient, Request, TestServer};
use bellwether_wire::code::ErrorCode::{SessionExpired, Unimplemented};
use bellwether_wire::jute::Reader;
use bellwether_wire::reply::ReplyHeader;
use bytes::BufMut;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::{client_of, exists, ok, server_and_client, until};

/// Memory of this process, including the server in it.
pub(crate) fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next());
    kibibytes.unwrap().parse::<usize>().unwrap() << 10
}

fn raw(op: i32, body: impl Into<Vec<u8>>) -> Request {
    let body = body.into();
    Request::Raw { op, body }
}

/// A frame around any bytes.
fn framed(body: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    frame.put_i32(i32::try_from(body.len()).unwrap());
    frame.put_slice(body);
    frame
}

// --- the same bytes to both -----------------------------------------------------------------------------

/// The replies: xid, error and body length of each, and whether the connection ended.
#[derive(Debug, PartialEq)]
struct Answers {
    replies: Vec<(i32, i32, usize)>,
    closed: bool,
}

/// The xid of the last ping, which no other request uses.
const PING: i32 = -2;

/// Sends bytes and then a ping on a session of their own, and reads up to the ping or the end.
async fn answers(address: &str, bytes: &[u8]) -> Answers {
    let mut client = RawClient::connect(address).await.unwrap();
    let ping = Request::Ping.encode(PING);
    // The server may have closed the connection already.
    let _ = client.send_bytes(&[bytes, &ping].concat()).await;
    let mut replies = Vec::new();
    loop {
        let Ok(frame) = client.receive_raw().await else {
            let closed = true;
            return Answers { replies, closed };
        };
        let reader = &mut Reader::new(&frame);
        let ReplyHeader { xid, err, .. } = ReplyHeader::decode(reader).unwrap();
        if xid == PING {
            let closed = false;
            return Answers { replies, closed };
        }
        replies.push((xid, err, reader.rest().len()));
        if err == Unimplemented.number() {
            // Apache closes the connection then, but sometimes the ping is faster.
            let closed = true;
            return Answers { replies, closed };
        }
    }
}

#[tokio::test]
async fn bad_frames_and_requests_are_answered_as_apache_answers_them() {
    let server = TestServer::start().await.unwrap();
    let apache = Apache::shared().await.unwrap();
    let apache = apache.connect_string();
    let mut cases: Vec<(String, Vec<u8>)> = Vec::new();
    let mut case = |name: &str, bytes: Vec<u8>| cases.push((name.into(), bytes));
    for length in [-1, i32::MIN, 0x10_0000, i32::MAX] {
        case(&format!("length {length}"), length.to_be_bytes().to_vec());
    }
    for length in 0..8 {
        case(
            &format!("frame of {length} bytes"),
            framed(&vec![0; length]),
        );
    }
    case(
        "second connect request",
        ConnectOptions::default().encode().to_vec(),
    );
    case("a word", b"ruok".to_vec());
    case("HTTP", b"GET / HTTP/1.1\r\n\r\n".to_vec());
    case(
        "TLS",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
    );
    // Every operation without a body, with a negative length, and with one beyond the frame. Not check and createSession: these would stop
    // Apache for good.
    let operations = (1..=9)
        .chain(14..=19)
        .chain([0, 10, 12, 20, 21, 22, 23, 99]);
    for op in operations.chain([100, 101, 102, 103, 104, 105, 106, 108, -1, -12]) {
        for body in [
            &b""[..],
            b"\0",
            b"\xff\xff\xff\xfe",
            b"\0\0\0\x09/a",
            b"\x7f\xff\xff\xff",
        ] {
            let bytes = raw(op, body).encode(1).to_vec();
            case(&format!("operation {op} with {body:?}"), bytes);
        }
    }
    let none = "/bellwether-abuse-none";
    for request in [
        Request::exists(none),
        Request::delete(none),
        Request::set_data(none, ""),
        Request::Sync { path: none.into() },
        Request::Multi(vec![]),
        Request::MultiRead(vec![Request::get_data(none)]),
        Request::AddWatch {
            path: none.into(),
            mode: 7,
        },
        Request::Ping,
        Request::Sasl {
            token: Some(vec![1]),
        },
        Request::Sasl { token: None },
    ] {
        let mut body = bytes::BytesMut::new();
        request.encode_body(&mut body);
        body.put_slice(b"more");
        let bytes = raw(request.number(), body).encode(1).to_vec();
        case(&format!("{request:?} and more"), bytes);
    }
    let end = b"\xff\xff\xff\xff\x01\xff\xff\xff\xff";
    let header = |kind: i32| [&kind.to_be_bytes()[..], b"\0\xff\xff\xff\xff"].concat();
    for kind in [7, 14, 16, 20, -11, -1, 99, 3, 4] {
        for op in [14, 22] {
            let body = [&header(kind)[..], b"\0\0\0\x02/a\0\0\0\0\0\0\0\0", end].concat();
            case(&format!("{kind} in {op}"), raw(op, body).encode(1).to_vec());
        }
    }
    let nested = header(14).repeat(10_000);
    case("nested multi", raw(14, nested).encode(1).to_vec());
    for count in [i32::MAX, -2, i32::MIN] {
        let body = [&[0; 8][..], &count.to_be_bytes(), &[0; 8]].concat();
        case(
            &format!("{count} watches"),
            raw(101, body).encode(1).to_vec(),
        );
    }
    for (name, bytes) in cases {
        let ours = answers(&server.connect_string(), &bytes).await;
        let theirs = answers(apache, &bytes).await;
        assert_eq!(ours, theirs, "{name}");
    }
}

#[tokio::test]
async fn flipped_bits_are_answered_as_apache_answers_them() {
    let server = TestServer::start().await.unwrap();
    let apache = Apache::shared().await.unwrap();
    let apache = apache.connect_string();
    // Long enough that no flipped bit leads to the root, whose nodes differ between both.
    let path = || "/bellwether-no-node".to_owned();
    assert_eq!(path().len(), 0b1_0011);
    for request in [
        Request::exists(path()),
        Request::GetChildren2 {
            path: path(),
            watch: false,
        },
        Request::set_data(path(), "data"),
        Request::Delete {
            path: path(),
            version: 12_345,
        },
        Request::RemoveWatches {
            path: path(),
            kind: 3,
        },
        Request::MultiRead(vec![Request::get_data(path())]),
    ] {
        let whole = request.encode(1).to_vec();
        let mut segment = Vec::new();
        // After the length, the xid and the operation.
        for bit in 12 * 8..whole.len() * 8 {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            segment.extend(flipped);
        }
        let ours = answers(&server.connect_string(), &segment).await;
        let theirs = answers(apache, &segment).await;
        assert_eq!(ours, theirs, "{request:?}");
    }
}

/// Reply to a first frame: its length, or `None` if the connection just ends.
async fn greeting(address: &str, bytes: &[u8]) -> Option<usize> {
    let mut client = RawClient::open(address).await.unwrap();
    client.send_bytes(bytes).await.unwrap();
    client.receive_raw().await.ok().map(|frame| frame.len())
}

#[tokio::test]
async fn bad_connect_requests_are_answered_as_apache_answers_them() {
    let server = TestServer::start().await.unwrap();
    let apache = Apache::shared().await.unwrap();
    let apache = apache.connect_string();
    let good = ConnectOptions::default().encode().to_vec();
    let with = |place: usize, bytes: &[u8]| {
        let mut frame = good.clone();
        frame[place..place + bytes.len()].copy_from_slice(bytes);
        frame
    };
    let mut cases = vec![
        framed(b""),
        (-1_i32).to_be_bytes().to_vec(),
        0x10_0000_i32.to_be_bytes().to_vec(),
        framed(&[&good[4..], b"and more"].concat()),
        with(4, &[0xff; 4]),
        with(8, &[0xff; 8]),
        with(8, &[0x7f; 8]),
        with(16, &[0xff; 4]),
        with(20, &[0x7f; 8]),
        with(28, &(-1_i32).to_be_bytes()),
        with(28, &(-2_i32).to_be_bytes()),
        with(28, &17_i32.to_be_bytes()),
        with(28, &i32::MAX.to_be_bytes()),
        with(28, &0_i32.to_be_bytes()),
        with(48, &[7]),
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
    ];
    cases.extend((0..good.len() - 4).map(|length| framed(&good[4..4 + length])));
    for bytes in cases {
        let ours = greeting(&server.connect_string(), &bytes).await;
        let theirs = greeting(apache, &bytes).await;
        assert_eq!(ours, theirs, "{bytes:?}");
    }
}

// --- what ends a connection ----------------------------------------------------------------------------

#[tokio::test]
async fn nothing_behind_an_unknown_operation_is_carried_out() {
    let (server, mut other) = server_and_client().await;
    let late = Request::create("/late", "");
    for before in [vec![], vec![Request::delete("/none")]] {
        let mut client = client_of(&server).await;
        let unknown = raw(99, "");
        let segment = [before.clone(), vec![unknown, late.clone()]].concat();
        client.send_all(&segment).await.unwrap();
        for _ in before {
            client.receive_reply().await.unwrap();
        }
        let reply = client.receive_reply().await.unwrap();
        assert_eq!(reply.outcome, Err(Unimplemented));
        client.closed().await.unwrap();
    }
    assert!(!exists(&mut other, "/late").await);
}

#[tokio::test]
async fn nothing_behind_a_close_is_carried_out() {
    let (server, mut other) = server_and_client().await;
    let mut client = client_of(&server).await;
    let segment = [Request::CloseSession, Request::create("/late", "")];
    client.send_all(&segment).await.unwrap();
    client.receive_reply().await.unwrap().ok().unwrap();
    if let Ok(reply) = client.receive_reply().await {
        assert_eq!(reply.outcome, Err(SessionExpired));
    }
    assert!(!exists(&mut other, "/late").await);
}

#[tokio::test]
async fn peers_that_vanish_in_the_middle_leave_nothing_behind() {
    let (server, mut other) = server_and_client().await;
    let connect = ConnectOptions::default().encode();
    let create = Request::create("/a", "data").encode(1);
    let whole = [&connect[..], &create].concat();
    for length in (0..whole.len()).step_by(3) {
        let mut half = RawClient::open(server.address()).await.unwrap();
        half.send_bytes(&whole[..length]).await.unwrap();
        if length % 2 == 0 {
            half.shut_down_sending().await.unwrap();
            half.receive_to_end().await.unwrap();
        }
    }
    // This one resets the connection.
    let mut socket = TcpStream::connect(server.address()).await.unwrap();
    socket.set_zero_linger().unwrap();
    socket.write_all(&whole).await.unwrap();
    drop(socket);
    until("they are gone", || server.connection_count().unwrap() == 1).await;
    ok(&mut other, Request::Ping).await;
}

#[tokio::test]
async fn frames_may_come_byte_by_byte() {
    let server = TestServer::start().await.unwrap();
    let mut client = RawClient::open(server.address()).await.unwrap();
    for byte in ConnectOptions::default().encode() {
        client.send_bytes(&[byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    assert_eq!(client.receive_raw().await.unwrap().len(), 37);
    for byte in Request::create("/a", "data").encode(7) {
        client.send_bytes(&[byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    let reply = client.receive_reply().await.unwrap();
    assert_eq!((reply.xid, reply.outcome.is_ok()), (7, true));
}

#[tokio::test]
async fn noise_of_all_kinds_disturbs_nobody() {
    let seed = u64::from(std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos());
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let (server, mut other) = server_and_client().await;
    for round in 0..300 {
        let mut noise = vec![0; random.random_range(1..200)];
        random.fill(&mut noise[..]);
        let mut client = if round % 2 == 0 {
            RawClient::open(server.address()).await.unwrap()
        } else {
            client_of(&server).await
        };
        if round % 3 == 0 {
            noise = framed(&noise);
        }
        client.send_bytes(&noise).await.unwrap();
        if round % 10 == 0 {
            ok(&mut other, Request::set_data("/", "x")).await;
        }
    }
    until("all are gone", || server.connection_count().unwrap() == 1).await;
    ok(&mut other, Request::get_data("/")).await;
}
