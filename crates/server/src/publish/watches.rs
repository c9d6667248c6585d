//! Both watch tables, and the events that a change triggers in each.

use std::sync::Arc;

use bellwether_wire::code::ErrorCode;
use bellwether_wire::event::EventKind;

use super::events::Events;
use super::watch_limits::WatchLimits;
use super::watch_table::{WatchMode, WatchTable};
use crate::client::Peer;
use crate::metrics::Limit;
use crate::stats::WatchUse;
use crate::tree::{Change, ChangeKind, path};

/// Maximum number of watches that are armed or removed under one lock, where there may be many.
pub(super) const PART_WATCHES: usize = 500;

/// Watch types of removeWatches and checkWatches.
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

/// Kinds of watches that requests arm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WatchSort {
    Data,
    Child,
    Persistent,
    Recursive,
}

impl WatchSort {
    /// The mode in the data table, and the mode in the child table.
    fn modes(self) -> (Option<WatchMode>, Option<WatchMode>) {
        match self {
            Self::Data => (Some(WatchMode::OneShot), None),
            Self::Child => (None, Some(WatchMode::OneShot)),
            Self::Persistent => (Some(WatchMode::Persistent), Some(WatchMode::Persistent)),
            Self::Recursive => (Some(WatchMode::Recursive), None),
        }
    }
}

/// All watches of the server.
#[derive(Debug)]
pub(crate) struct Watches {
    /// One-shot watches of exists and getData, and all persistent and recursive ones.
    data: WatchTable,
    /// One-shot watches of requests that list children, and all persistent ones.
    child: WatchTable,
    limits: WatchLimits,
}

impl Watches {
    pub(super) fn set_limits(&mut self, limits: WatchLimits) {
        self.limits = limits;
    }

    pub(super) fn new(limits: WatchLimits) -> Self {
        Self {
            data: WatchTable::default(),
            child: WatchTable::default(),
            limits,
        }
    }

    /// Arms a watch, or refuses it if a limit is reached.
    pub(super) fn arm(
        &mut self,
        path: &str,
        peer: &Arc<Peer>,
        sort: WatchSort,
    ) -> Result<(), ErrorCode> {
        self.arm_all(&[(path, sort)], peer)
    }

    /// Arms all these watches, or none of them if a limit is reached.
    pub(super) fn arm_all(
        &mut self,
        wanted: &[(&str, WatchSort)],
        peer: &Arc<Peer>,
    ) -> Result<(), ErrorCode> {
        // An ending connection removes its watches only once, and may have done so already.
        if !peer.outbox.is_open() {
            return Ok(());
        }
        // A further mode on a path already watched takes no more room, but that is looked up only near the limit.
        let fits = |is_new: &dyn Fn(&WatchTable, &str) -> bool| {
            let more = wanted
                .iter()
                .fold(WatchUse::default(), |more, (path, sort)| {
                    let (data, child) = sort.modes();
                    let tables = [(data, &self.data), (child, &self.child)];
                    let tables = tables
                        .iter()
                        .filter(|(mode, table)| mode.is_some() && is_new(table, path));
                    let watches = tables.count();
                    WatchUse {
                        watches: more.watches + watches,
                        bytes: more.bytes + watches * path.len(),
                    }
                });
            self.limits.allow(more, peer.watches.get(), self.used())
        };
        if !fits(&|_, _| true) && !fits(&|table, path| !table.has(path, peer)) {
            peer.reach(Limit::Watches);
            return Err(ErrorCode::QuotaExceeded);
        }
        for (path, sort) in wanted {
            let (data, child) = sort.modes();
            if let Some(mode) = data {
                self.data.arm(path, peer, mode);
            }
            if let Some(mode) = child {
                self.child.arm(path, peer, mode);
            }
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

    /// Removes watches; false if there was none.
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

    /// Removes some watches of a connection. Returns whether it may have more.
    pub(super) fn remove_some(&mut self, peer: &Peer) -> bool {
        self.data.remove_some(peer, PART_WATCHES) || self.child.remove_some(peer, PART_WATCHES)
    }

    /// Adds the events of a change for all watchers, in the order that clients rely on (`DataTree.createNode`, `deleteNode`, `setData`).
    pub(super) fn fire(&mut self, change: &Change, events: &mut Events) {
        if self.data.is_empty() && self.child.is_empty() || events.repeat(change) {
            return;
        }
        let Change {
            kind,
            path,
            acl,
            parent_acl,
        } = change;
        let event_kind = match kind {
            ChangeKind::Created => EventKind::NodeCreated,
            ChangeKind::DataChanged => EventKind::NodeDataChanged,
            ChangeKind::Deleted => EventKind::NodeDeleted,
        };
        let mut event = events.begin(event_kind, path, acl);
        let has_removed = self.data.fire(path, |peer| event.tell(peer));
        self.data.fire_above(path, |peer| event.tell(peer));
        match kind {
            ChangeKind::Created => {}
            ChangeKind::Deleted => {
                self.child.fire(path, |peer| event.tell(peer));
            }
            ChangeKind::DataChanged if has_removed => {}
            ChangeKind::DataChanged => events.begin_run(change),
        }
        if let Some(acl) = parent_acl {
            let parent = match path::parent(path) {
                Some("") | None => path::ROOT,
                Some(parent) => parent,
            };
            let mut event = events.begin(EventKind::NodeChildrenChanged, parent, acl);
            self.child.fire(parent, |peer| event.tell(peer));
        }
    }

    /// Watches in both tables, and the bytes of their paths.
    pub(super) fn used(&self) -> WatchUse {
        let (data, child) = (self.data.used(), self.child.used());
        WatchUse {
            watches: data.watches + child.watches,
            bytes: data.bytes + child.bytes,
        }
    }

    /// Number of connections, paths and watches in the data table, the only one that four-letter words show.
    pub(super) fn summary(&self) -> (usize, usize, usize) {
        let connections = self.data.by_peer().count();
        (
            connections,
            self.data.path_count(),
            self.data.used().watches,
        )
    }

    /// The paths in the data table, by connection.
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

/// Watched paths by connection, for four-letter words.
#[derive(Debug)]
pub(crate) struct WatchReport {
    /// Number of each watching connection, with its paths.
    pub(crate) by_peer: Vec<(u64, Vec<Arc<str>>)>,
}
