//! A request on its way through the server.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use crate::peer::Peer;
use crate::proto::acl::Id;
use crate::proto::op::Op;

/// What a client asked for. The body is decoded where it is carried out.
#[derive(Debug)]
pub(crate) struct Request {
    /// Where the reply goes.
    pub(crate) peer: Arc<Peer>,
    pub(crate) xid: i32,
    /// `None` for a number that means nothing.
    pub(crate) op: Option<Op>,
    pub(crate) body: Bytes,
    /// Who the client was when the request came.
    pub(crate) ids: Arc<[Id]>,
    pub(crate) received: Instant,
}
