//! A request on its way through the server.

use std::sync::Arc;
use std::time::Instant;

use bellwether_wire::acl::Id;
use bellwether_wire::op::Op;
use bytes::Bytes;

use crate::client::Peer;

/// A client's request. Its body is decoded where it is carried out.
#[derive(Debug)]
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
