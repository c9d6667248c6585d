//! A request on its way through the server.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use bellwether_wire::acl::Id;
use bellwether_wire::jute::Reader;
use bellwether_wire::op::Op;
use bytes::Bytes;

use crate::client::Peer;

/// A client's request. Its body is decoded where it is carried out.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// The connection that receives the reply.
    pub(crate) peer: Arc<Peer>,
    pub(crate) xid: i32,
    /// `None` for an unknown operation code.
    pub(crate) op: Option<Op>,
    pub(crate) body: Bytes,
    /// Ids of the connection when the request arrived.
    pub(crate) ids: Arc<[Id]>,
    pub(crate) received: Instant,
}

/// Bytes of a part of a multi before its request: operation, end mark and error.
const MULTI_HEADER_BYTES: usize = 9;

impl Request {
    /// The path that the request names; of a multi, that of its first part. `None` if there is none.
    pub(crate) fn path(&self) -> Option<String> {
        let body = match self.op? {
            Op::Multi | Op::MultiRead => self.body.get(MULTI_HEADER_BYTES..)?,
            Op::Ping
            | Op::Reconfig
            | Op::Auth
            | Op::SetWatches
            | Op::SetWatches2
            | Op::Sasl
            | Op::WhoAmI
            | Op::CreateSession
            | Op::CloseSession => return None,
            // All others begin with their path.
            _ => &self.body[..],
        };
        let path = Reader::new(body).ustring().ok().flatten();
        path.map(Cow::into_owned)
    }
}
