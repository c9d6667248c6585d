//! setWatches: the watches that a client restores after a reconnect.
//!
//! A request of one frame names up to 100,000 watches. They are armed in parts, and other readers and the publisher get the lock between two
//! parts. Each watch is checked and armed under one lock, so no change falls between check and watch. Events of watches that are armed already
//! can therefore precede the reply, as the missed events do.

use std::borrow::Cow;
use std::sync::Arc;
use std::vec;

use bellwether_wire::code::ErrorCode;
use bellwether_wire::event::EventKind;
use bellwether_wire::jute::Reader;
use bellwether_wire::op::Op;
use bellwether_wire::request::SetWatches;

use super::events::send;
use super::watches::{WatchSort, Watches};
use crate::client::{Peer, Request};
use crate::tree::{Node, Tree};

/// Length of a request above which it is armed in parts. Shorter ones take no longer than other reads.
const LONG_BYTES: usize = 16 << 10;

/// A setWatches, of which some watches may be armed already.
#[derive(Debug)]
pub(crate) struct Rearming<'a> {
    relative_zxid: i64,
    left: vec::IntoIter<(List, Cow<'a, str>)>,
    /// The outcome once nothing is left. A malformed list leaves the lists before it in force, as in Apache.
    outcome: Result<(), ErrorCode>,
}

/// The lists of the request.
#[derive(Debug, Clone, Copy)]
enum List {
    Data,
    Exist,
    Child,
    Persistent,
    Recursive,
}

impl<'a> Rearming<'a> {
    /// Whether `request` is one that is armed in parts.
    pub(crate) fn is_long(request: &Request) -> bool {
        matches!(request.op, Some(Op::SetWatches | Op::SetWatches2))
            && request.body.len() > LONG_BYTES
    }

    pub(crate) fn decode(request: &'a Request) -> Self {
        let mut watches = Vec::new();
        let op = request.op.expect("a known operation");
        let lists = SetWatches::decode(op, &mut Reader::new(&request.body));
        let (relative_zxid, outcome) = match lists {
            Err(malformed) => (0, Err(malformed.into())),
            Ok(lists) => (lists.relative_zxid, collect(lists, &mut watches)),
        };
        Self {
            relative_zxid,
            left: watches.into_iter(),
            outcome,
        }
    }

    /// Arms at most `count` watches, and sends the events that the client has missed. Returns the outcome of the request, or `None` if some are
    /// left. If a limit is reached, no watch of this part is armed, and no event of it sent.
    ///
    /// A watch of a node that the client may not read is not armed, and its event is sent at once: the client reads again, and is refused
    /// there. That does not tell whether the node has changed, keeps no watch of others from being armed, and no client that authenticates
    /// just now from an event that it has missed.
    pub(super) fn arm(
        &mut self,
        count: usize,
        tree: &Tree,
        may_read: impl Fn(&Node) -> bool,
        watches: &mut Watches,
        peer: &Arc<Peer>,
    ) -> Option<Result<(), ErrorCode>> {
        let part: Vec<_> = self.left.by_ref().take(count).collect();
        let (mut armed, mut missed) = (Vec::new(), Vec::new());
        for (list, path) in &part {
            let node = tree.get(path);
            let since = match node {
                Some(node) if !may_read(node) => i64::MIN,
                _ => self.relative_zxid,
            };
            match list.missed(node, since) {
                Some(event) => missed.push((event, path)),
                None => armed.push((&**path, list.sort())),
            }
        }
        if let Err(code) = watches.arm_all(&armed, peer) {
            return Some(Err(code));
        }
        for (kind, path) in missed {
            send(peer, kind, path);
        }
        self.left.as_slice().is_empty().then_some(self.outcome)
    }
}

impl List {
    /// The event that a client has missed since `relative_zxid`, if any.
    fn missed(self, node: Option<&Node>, relative_zxid: i64) -> Option<EventKind> {
        let changed = |zxid, kind| (zxid > relative_zxid).then_some(kind);
        match (self, node) {
            (Self::Data | Self::Child, None) => Some(EventKind::NodeDeleted),
            (Self::Data, Some(node)) => changed(node.mzxid, EventKind::NodeDataChanged),
            (Self::Child, Some(node)) => changed(node.pzxid, EventKind::NodeChildrenChanged),
            (Self::Exist, Some(_)) => Some(EventKind::NodeCreated),
            (Self::Exist, None) | (Self::Persistent | Self::Recursive, _) => None,
        }
    }

    fn sort(self) -> WatchSort {
        match self {
            Self::Data | Self::Exist => WatchSort::Data,
            Self::Child => WatchSort::Child,
            Self::Persistent => WatchSort::Persistent,
            Self::Recursive => WatchSort::Recursive,
        }
    }
}

/// Appends all watches in their order, up to the first malformed one.
fn collect<'a>(
    lists: SetWatches<'a>,
    watches: &mut Vec<(List, Cow<'a, str>)>,
) -> Result<(), ErrorCode> {
    for (list, paths) in [
        (List::Data, lists.data),
        (List::Exist, lists.exist),
        (List::Child, lists.child),
        (List::Persistent, lists.persistent),
        (List::Recursive, lists.recursive),
    ] {
        for path in paths.ok_or(ErrorCode::MarshallingError)? {
            watches.push((list, path.ok_or(ErrorCode::MarshallingError)?));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use bellwether_testkit::{Request as ClientRequest, WatchLists};

    use super::*;
    use crate::publish::watches::PART_WATCHES;
    use crate::server::core::{Client, Core};

    const WATCHES: usize = 2 * PART_WATCHES + 1;

    fn many(client: &Client) -> Request {
        client.request(&ClientRequest::SetWatches2(WatchLists {
            exist: (0..WATCHES).map(|number| format!("/{number}")).collect(),
            ..WatchLists::default()
        }))
    }

    #[test]
    fn a_long_request_is_armed_in_parts_and_answered_after_the_last() {
        let mut core = Core::new();
        let client = core.connect();
        let request = many(&client);
        let mut rearming = Rearming::decode(&request);
        let (published, unanswered) = (&core.published, client.peer.outbox.len());
        let mut armed = Vec::new();
        while !published.rearm(&client.session, &request, &mut rearming) {
            armed.push(published.watch_count());
            assert_eq!(client.peer.outbox.len(), unanswered);
        }
        assert_eq!(armed, [PART_WATCHES, 2 * PART_WATCHES]);
        assert_eq!(published.watch_count(), WATCHES);
        assert!(client.peer.outbox.len() > unanswered);
        client.peer.outbox.close();
        published.disconnect(&client.session, &client.peer);
        assert_eq!(published.watch_count(), 0);
    }

    #[test]
    fn nothing_more_is_armed_when_the_session_has_moved_to_another_connection() {
        let mut core = Core::new();
        let (client, other) = (core.connect(), core.connect());
        let request = many(&client);
        let mut rearming = Rearming::decode(&request);
        let published = &core.published;
        assert!(!published.rearm(&client.session, &request, &mut rearming));
        client.session.request_order().attach(other.peer.clone());
        let unanswered = client.peer.outbox.len();
        assert!(published.rearm(&client.session, &request, &mut rearming));
        assert_eq!(published.watch_count(), PART_WATCHES);
        assert_eq!(client.peer.outbox.len(), unanswered);
    }
}
