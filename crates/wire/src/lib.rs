//! ZooKeeper's wire protocol as plain records, without I/O.
//!
//! Every message is a [`frame`]: a length and `length` bytes. The first frame in either direction is the
//! handshake ([`connect`]). After it, a client sends requests ([`request`], [`multi`]) and a server answers with
//! replies ([`reply`]) and watch events ([`event`]). All fields are encoded with [`jute`].
//!
//! Both directions are here: a server decodes requests and encodes replies, a client does the opposite. This
//! crate makes no decisions, reads no clock and touches no socket.
//!
//! ```
//! use bellwether_wire::jute::Reader;
//! use bellwether_wire::op::Op;
//! use bellwether_wire::request::{self, PathWatch, RequestHeader};
//! use bytes::BytesMut;
//!
//! let mut out = BytesMut::new();
//! request::put(&mut out, 1, Op::GetData, |out| request::put_path_watch(out, "/jobs", true));
//!
//! let mut reader = Reader::new(&out[4..]);
//! assert_eq!(RequestHeader::decode(&mut reader)?.op, Op::GetData.number());
//! let body = PathWatch::decode(&mut reader)?;
//! assert_eq!((body.path.as_deref(), body.watch), (Some("/jobs"), true));
//! # Ok::<(), bellwether_wire::jute::Malformed>(())
//! ```

pub mod acl;
pub mod code;
pub mod connect;
#[cfg(feature = "sasl")]
pub mod digest_md5;
pub mod event;
pub mod frame;
pub mod jute;
pub mod multi;
pub mod op;
pub mod path;
pub mod reply;
pub mod request;
pub mod stat;
