//! Both tables of watches, and the events that a change means to each.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::BytesMut;

use super::watch_limits::WatchLimits;
use super::watch_table::{WatchMode, WatchTable};
use crate::peer::Peer;
use crate::proto::acl::{Acl, READ};
use crate::proto::code::ErrorCode;
use crate::proto::event::{self, EVENT_XID, EVENT_ZXID, EventKind};
use crate::proto::reply;
use crate::stats::WatchUse;
use crate::tree::{Change, ChangeKind, access, path};

/// What removeWatches and checkWatches may ask about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WatchType {
    Children,
    Data,
    Any,
    Persistent,
    Recursive,
}

impl WatchType {
    pub(super) fn from_number(number: i32) -> Option<Self> {
        match number {
            1 => Some(Self::Children),
            2 => Some(Self::Data),
            3 => Some(Self::Any),
            4 => Some(Self::Persistent),
            5 => Some(Self::Recursive),
            _ => None,
        }
    }
}

/// All watches of the server.
#[derive(Debug)]
pub(crate) struct Watches {
    /// Armed by exists and getData.
    data: WatchTable,
    /// Armed by the calls that list children.
    child: WatchTable,
    limits: WatchLimits,
}

impl Watches {
    pub(super) fn new(limits: WatchLimits) -> Self {
        Self {
            data: WatchTable::default(),
            child: WatchTable::default(),
            limits,
        }
    }

    pub(super) fn arm_data(&mut self, path: &str, peer: &Arc<Peer>) -> Result<(), ErrorCode> {
        self.arm(path, peer, Some(WatchMode::OneShot), None)
    }

    pub(super) fn arm_child(&mut self, path: &str, peer: &Arc<Peer>) -> Result<(), ErrorCode> {
        self.arm(path, peer, None, Some(WatchMode::OneShot))
    }

    pub(super) fn arm_persistent(&mut self, path: &str, peer: &Arc<Peer>) -> Result<(), ErrorCode> {
        let mode = Some(WatchMode::Persistent);
        self.arm(path, peer, mode, mode)
    }

    pub(super) fn arm_recursive(&mut self, path: &str, peer: &Arc<Peer>) -> Result<(), ErrorCode> {
        self.arm(path, peer, Some(WatchMode::Recursive), None)
    }

    /// Arms a watch in each table that a mode is given for, or none of them if that is too much.
    fn arm(
        &mut self,
        path: &str,
        peer: &Arc<Peer>,
        data: Option<WatchMode>,
        child: Option<WatchMode>,
    ) -> Result<(), ErrorCode> {
        // A connection that is ending takes its watches away only once, and perhaps already has.
        if !peer.outbox.is_open() {
            return Ok(());
        }
        let watches = usize::from(data.is_some()) + usize::from(child.is_some());
        let more = WatchUse {
            watches,
            bytes: watches * path.len(),
        };
        let fits = self.limits.allow(more, peer.watches.get(), self.used());
        // Another mode on a path that is watched takes no more room.
        let is_there = || {
            (data.is_none() || self.data.has(path, peer))
                && (child.is_none() || self.child.has(path, peer))
        };
        if !fits && !is_there() {
            return Err(ErrorCode::QuotaExceeded);
        }
        if let Some(mode) = data {
            self.data.arm(path, peer, mode);
        }
        if let Some(mode) = child {
            self.child.arm(path, peer, mode);
        }
        Ok(())
    }

    pub(super) fn contains(&self, path: &str, peer: &Peer, kind: WatchType) -> bool {
        use WatchMode::{OneShot, Persistent, Recursive};
        let data = |mode| self.data.contains(path, peer, mode);
        let child = |mode| self.child.contains(path, peer, mode);
        match kind {
            WatchType::Children => child(OneShot),
            WatchType::Data => data(OneShot),
            WatchType::Persistent => data(Persistent),
            WatchType::Recursive => data(Recursive),
            WatchType::Any => {
                child(OneShot) || data(OneShot) || data(Persistent) || data(Recursive)
            }
        }
    }

    /// Takes watches away; false if there was none.
    pub(super) fn disarm(&mut self, path: &str, peer: &Peer, kind: WatchType) -> bool {
        use WatchMode::{OneShot, Persistent, Recursive};
        match kind {
            WatchType::Children => self.child.disarm(path, peer, OneShot),
            WatchType::Data => self.data.disarm(path, peer, OneShot),
            WatchType::Persistent => {
                self.child.disarm(path, peer, Persistent);
                self.data.disarm(path, peer, Persistent)
            }
            WatchType::Recursive => self.data.disarm(path, peer, Recursive),
            WatchType::Any => {
                use WatchType::{Children, Data};
                [Children, Data, WatchType::Persistent, WatchType::Recursive]
                    .map(|kind| self.disarm(path, peer, kind))
                    .contains(&true)
            }
        }
    }

    pub(super) fn remove_peer(&mut self, peer: &Peer) {
        self.data.remove_peer(peer);
        self.child.remove_peer(peer);
    }

    /// Tells everybody who watches of a change, in the order that clients rely on
    /// (`DataTree.createNode`, `deleteNode`, `setData`), and adds them to `told`.
    pub(super) fn fire(&mut self, change: &Change, skip_acl: bool, told: &mut Vec<Arc<Peer>>) {
        let Change {
            kind,
            path,
            acl,
            parent_acl,
        } = change;
        let mut tell = |peers: Vec<Arc<Peer>>, kind: EventKind, path: &str, acl: &[Acl]| {
            if peers.is_empty() {
                return;
            }
            let mut event = BytesMut::new();
            put_event(&mut event, kind, path);
            for peer in &peers {
                // Who may not read a node is not told that it changed (CVE-2024-23944).
                if skip_acl || access::allows(acl, READ, &peer.ids()) {
                    peer.outbox.push(|out| out.extend_from_slice(&event));
                }
            }
            told.extend(peers);
        };
        let watchers = self.data.fire(path, true);
        match kind {
            ChangeKind::Created => tell(watchers, EventKind::NodeCreated, path, acl),
            ChangeKind::DataChanged => tell(watchers, EventKind::NodeDataChanged, path, acl),
            ChangeKind::Deleted => {
                let numbers: HashSet<u64> = watchers.iter().map(|peer| peer.number).collect();
                tell(watchers, EventKind::NodeDeleted, path, acl);
                let mut others = self.child.fire(path, false);
                others.retain(|peer| !numbers.contains(&peer.number));
                tell(others, EventKind::NodeDeleted, path, acl);
            }
        }
        if let Some(acl) = parent_acl {
            let parent = match path::parent(path) {
                Some("") | None => path::ROOT,
                Some(parent) => parent,
            };
            let watchers = self.child.fire(parent, false);
            tell(watchers, EventKind::NodeChildrenChanged, parent, acl);
        }
    }

    /// The watches in both tables, and the bytes of their paths.
    pub(super) fn used(&self) -> WatchUse {
        let (data, child) = (self.data.used(), self.child.used());
        WatchUse {
            watches: data.watches + child.watches,
            bytes: data.bytes + child.bytes,
        }
    }

    /// The connections, paths and watches of the data table, which alone the four-letter words show.
    pub(super) fn summary(&self) -> (usize, usize, usize) {
        let connections = self.data.by_peer().count();
        (
            connections,
            self.data.path_count(),
            self.data.used().watches,
        )
    }

    /// The same, one by one.
    pub(super) fn report(&self) -> WatchReport {
        WatchReport {
            by_peer: self
                .data
                .by_peer()
                .map(|(number, paths)| (number, paths.iter().cloned().collect()))
                .collect(),
        }
    }
}

/// Who watches what, for inspection.
#[derive(Debug)]
pub(crate) struct WatchReport {
    /// The number of each watching connection, with the paths.
    pub(crate) by_peer: Vec<(u64, Vec<Arc<str>>)>,
}

/// Puts one event on its way.
pub(super) fn send(peer: &Peer, kind: EventKind, path: &str) {
    peer.outbox.push(|out| put_event(out, kind, path));
}

fn put_event(out: &mut BytesMut, kind: EventKind, path: &str) {
    reply::put(out, EVENT_XID, EVENT_ZXID, Ok(()), |out| {
        event::encode(kind, path, out)
    });
}
