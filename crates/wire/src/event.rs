//! Watch events.

use crate::jute::{Malformed, Reader, Writer};

/// What happened to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(
    missing_docs,
    reason = "named as in ZooKeeper's Watcher.Event.EventType"
)]
pub enum EventKind {
    NodeCreated = 1,
    NodeDeleted = 2,
    NodeDataChanged = 3,
    NodeChildrenChanged = 4,
}

/// The xid of a frame that carries an event instead of a reply.
pub const EVENT_XID: i32 = -1;

/// The zxid in the header of an event, as Apache 3.8 sends it. From 3.9 on, Apache sends that of the transaction.
pub const EVENT_ZXID: i64 = -1;

/// The only state a server reports: connected.
const SYNC_CONNECTED: i32 = 3;

/// Appends the body of an event.
pub fn encode(kind: EventKind, path: &str, out: &mut impl Writer) {
    out.put_i32(kind as i32);
    out.put_i32(SYNC_CONNECTED);
    out.put_ustring(path);
}

/// Reads the body of an event.
pub fn decode(reader: &mut Reader<'_>) -> Result<(EventKind, String), Malformed> {
    let kind = match reader.int()? {
        1 => EventKind::NodeCreated,
        2 => EventKind::NodeDeleted,
        3 => EventKind::NodeDataChanged,
        4 => EventKind::NodeChildrenChanged,
        _ => return Err(Malformed),
    };
    reader.int()?;
    Ok((kind, reader.ustring()?.ok_or(Malformed)?.into_owned()))
}
