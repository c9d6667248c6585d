//! Readers that are not public, for fuzz targets. They may refuse what they read, and nothing worse.

use std::time::Duration;

use bellwether_wire::connect::ConnectReply;
use bellwether_wire::jute::Reader;
use bellwether_wire::op::Op;
use bytes::{Bytes, BytesMut};
use tokio::sync::oneshot;

use crate::clock::Moment;
use crate::core::session::Session;
use crate::core::watches::{Kind, Listener};
use crate::error::SessionEnd;
use crate::handle::reply::ReplyContext;
use crate::handle::{multi, ops};
use crate::options::session::Limits;

/// Frames of a server, which answer requests and report events. The first byte of each is its length.
pub fn session(bytes: &[u8]) {
    let now = Moment::from_nanos(1);
    let mut session = Session::new(
        now,
        Duration::from_secs(10),
        None,
        Vec::new(),
        Limits::default(),
    );
    let granted = ConnectReply {
        timeout_ms: 10_000,
        session_id: 7,
        password: [0; 16],
    };
    if session.connected(now, now, granted).is_err() {
        return;
    }
    let ops = [
        Op::Exists,
        Op::GetData,
        Op::Create2,
        Op::Multi,
        Op::GetChildren2,
    ];
    let mut answers = Vec::new();
    for op in ops {
        let (sender, receiver) = oneshot::channel();
        let watch = (op == Op::Exists).then_some((Kind::Data, "/a", Listener::OneShot(sender)));
        let body = |out: &mut BytesMut| out.extend_from_slice(&[1]);
        answers.push((session.request(now, op, watch, body), receiver));
    }
    let mut rest = bytes;
    while let Some((length, behind)) = rest.split_first() {
        let (frame, behind) = behind.split_at(behind.len().min(usize::from(*length)));
        let _ = session.frame(now, &Bytes::copy_from_slice(frame));
        rest = behind;
    }
    session.finish(SessionEnd::Closed);
    drop(session.take_deliveries());
}

/// The bodies of replies.
pub fn bodies(bytes: &[u8]) {
    let body = Bytes::copy_from_slice(bytes);
    let _ = ops::read_data_stat(&body, &mut Reader::new(&body));
    let _ = multi::written(Ok(body.clone()), ReplyContext::default());
    let _ = multi::read(Ok(body), ReplyContext::default());
}

/// The challenge and the last token of a server.
#[cfg(feature = "sasl")]
pub fn sasl(bytes: &[u8]) {
    let user = crate::sasl::DigestMd5::new("user".to_owned(), "password".to_owned());
    if let Ok(response) = user.respond(bytes, "cnonce") {
        let _ = response.check(bytes);
    }
}
