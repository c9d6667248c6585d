//! Which watches are armed, for which handles, and how to restore them after a reconnect.
//!
//! A server keeps one watch for each path, table and connection; any number of handles may share it.
//!
//! Servers before 3.9 also keep one *mode* for it, and the last mode wins: a one-shot watch at the path of a persistent
//! one would end it with the next event, and removing one would remove both. So where a persistent watch is armed, one-shot
//! handles use its events: their requests arm nothing, and the persistent watch stays until the last of them is gone.

use std::collections::BTreeMap;

use bellwether_wire::event::EventKind;
use tokio::sync::oneshot;

use crate::core::events::EventSender;

/// A change of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// The path of the node.
    pub path: String,
}

/// What a persistent watch reports.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PersistentEvent {
    /// A node changed.
    Node(Event),
    /// Events may have been missed: the connection was lost and established again, or too many events were unread
    /// ([`Limits::events_max`](crate::Limits::events_max)). Read again what must be current.
    Missed,
}

/// The kind of a watch: how it is armed, and what it reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// One-shot, by getData or exists.
    Data,
    /// One-shot, by getChildren.
    Child,
    /// Stays, for one path.
    Persistent,
    /// Stays, for a path and everything below it.
    Recursive,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Data, Self::Child, Self::Persistent, Self::Recursive];

    /// The type for removeWatches. Servers before 3.9 have no type for persistent watches except *any*.
    pub(crate) fn removal_type(self) -> i32 {
        match self {
            Self::Child => 1,
            Self::Data => 2,
            Self::Persistent | Self::Recursive => 3,
        }
    }
}

/// The receiver of an event.
#[derive(Debug)]
pub(crate) enum Listener {
    OneShot(oneshot::Sender<Event>),
    Stream(EventSender),
}

impl Listener {
    fn is_closed(&self) -> bool {
        match self {
            Self::OneShot(sender) => sender.is_closed(),
            Self::Stream(sender) => sender.is_closed(),
        }
    }
}

/// A watch that a request in flight arms.
#[derive(Debug)]
pub(crate) struct Arming {
    pub(crate) kind: Kind,
    pub(crate) path: String,
    pub(crate) id: u64,
    pub(crate) listener: Listener,
}

/// An event and the handle that receives it.
pub(crate) type Notice = (Listener, PersistentEvent);

/// A watch without handles, to be removed from the server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Removal {
    pub(crate) kind: Kind,
    pub(crate) path: String,
}

/// The paths to arm again, in the order of setWatches2: data, exist, child, persistent, recursive.
pub(crate) type WatchLists = [Vec<String>; 5];

#[derive(Debug)]
struct WatchHandle {
    id: u64,
    listener: Listener,
    /// Armed by exists on a missing node: after a reconnect the server must be asked for its creation.
    missing: bool,
}

/// The watch of one kind at one path.
#[derive(Debug, Default)]
struct Spot {
    handles: Vec<WatchHandle>,
    /// Requests in flight that arm the same watch. While there are any, removing it would remove theirs.
    arming: usize,
    /// A handle was dropped while a request was in flight.
    dropped: bool,
    /// Persistent watches: a request that arms it is on the connection.
    on_wire: bool,
}

/// The watches of a session.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    last_id: u64,
    data: BTreeMap<String, Spot>,
    child: BTreeMap<String, Spot>,
    persistent: BTreeMap<String, Spot>,
    recursive: BTreeMap<String, Spot>,
    /// Persistent watches without a handle, kept on the server for the one-shot handles at their paths.
    kept: BTreeMap<String, Kind>,
}

impl Watches {
    fn table(&mut self, kind: Kind) -> &mut BTreeMap<String, Spot> {
        match kind {
            Kind::Data => &mut self.data,
            Kind::Child => &mut self.child,
            Kind::Persistent => &mut self.persistent,
            Kind::Recursive => &mut self.recursive,
        }
    }

    fn has(&self, kind: Kind, path: &str) -> bool {
        match kind {
            Kind::Data => self.data.contains_key(path),
            Kind::Child => self.child.contains_key(path),
            Kind::Persistent => self.persistent.contains_key(path),
            Kind::Recursive => self.recursive.contains_key(path),
        }
    }

    fn has_one_shot(&self, path: &str) -> bool {
        self.has(Kind::Data, path) || self.has(Kind::Child, path)
    }

    /// Whether a persistent watch of the other mode is at this path: servers before 3.9 would keep one of the two.
    pub(crate) fn has_other_mode(&self, kind: Kind, path: &str) -> bool {
        let other = match kind {
            Kind::Persistent => Kind::Recursive,
            Kind::Recursive => Kind::Persistent,
            Kind::Data | Kind::Child => return false,
        };
        self.has(other, path) || self.kept.get(path) == Some(&other)
    }

    /// Whether the events of a one-shot watch come from a persistent one at the same path.
    pub(crate) fn is_covered(&self, kind: Kind, path: &str) -> bool {
        let is_on_wire = |table: &BTreeMap<String, Spot>| {
            let spot = table.get(path);
            spot.is_some_and(|spot| spot.on_wire)
        };
        let kept = self.kept.get(path);
        match kind {
            Kind::Data => {
                is_on_wire(&self.persistent) || is_on_wire(&self.recursive) || kept.is_some()
            }
            // Recursive watches do not report changes of children lists.
            Kind::Child => is_on_wire(&self.persistent) || kept == Some(&Kind::Persistent),
            Kind::Persistent | Kind::Recursive => false,
        }
    }

    /// The request that arms a watch is on the connection.
    pub(crate) fn sent(&mut self, arming: &Arming) {
        if let Some(spot) = self.table(arming.kind).get_mut(&arming.path) {
            spot.on_wire = true;
        }
    }

    /// A request that removes all watches at a path is on the connection: later requests arm new watches.
    pub(crate) fn removing(&mut self, path: &str) {
        self.kept.remove(path);
        for table in [&mut self.persistent, &mut self.recursive] {
            if let Some(spot) = table.get_mut(path) {
                spot.on_wire = false;
            }
        }
    }

    /// The watches at a path are removed: dropping the senders tells their handles. Requests in flight arm theirs
    /// again.
    pub(crate) fn removed(&mut self, path: &str) {
        for kind in Kind::ALL {
            let table = self.table(kind);
            if let Some(spot) = table.get_mut(path) {
                spot.handles.clear();
                if spot.arming == 0 {
                    table.remove(path);
                }
            }
        }
    }

    /// The connection is lost, and with it all watches on the server.
    pub(crate) fn disconnected(&mut self) {
        self.kept.clear();
        for spot in self
            .persistent
            .values_mut()
            .chain(self.recursive.values_mut())
        {
            spot.on_wire = false;
        }
    }

    /// A request that arms a watch is made.
    pub(crate) fn begin(&mut self, kind: Kind, path: &str, listener: Listener) -> Arming {
        self.last_id += 1;
        let id = self.last_id;
        self.table(kind).entry(path.to_owned()).or_default().arming += 1;
        Arming {
            kind,
            path: path.to_owned(),
            id,
            listener,
        }
    }

    /// The request was answered, and the server has armed the watch. The handle may be gone already.
    pub(crate) fn armed(&mut self, arming: Arming, missing: bool) -> Option<Removal> {
        let Arming {
            kind,
            path,
            id,
            listener,
        } = arming;
        let spot = self.table(kind).entry(path.clone()).or_default();
        spot.arming = spot.arming.saturating_sub(1);
        match listener.is_closed() {
            true => spot.dropped = true,
            false => spot.handles.push(WatchHandle {
                id,
                listener,
                missing,
            }),
        }
        self.settle(kind, &path)
    }

    /// The request failed or was lost: its handle receives nothing.
    pub(crate) fn not_armed(&mut self, arming: &Arming) -> Option<Removal> {
        if let Some(spot) = self.table(arming.kind).get_mut(&arming.path) {
            spot.arming = spot.arming.saturating_sub(1);
        }
        self.settle(arming.kind, &arming.path)
    }

    /// A handle was dropped.
    pub(crate) fn dropped(&mut self, kind: Kind, path: &str, id: u64) -> Option<Removal> {
        let spot = self.table(kind).get_mut(path)?;
        let before = spot.handles.len();
        spot.handles.retain(|handle| handle.id != id);
        spot.dropped |= spot.handles.len() < before;
        self.settle(kind, path)
    }

    /// Removes an unused spot; returns the removal to send to the server, if any.
    fn settle(&mut self, kind: Kind, path: &str) -> Option<Removal> {
        let table = self.table(kind);
        let spot = table.get(path)?;
        if !spot.handles.is_empty() || spot.arming > 0 {
            return None;
        }
        let dropped = spot.dropped;
        table.remove(path);
        let removal = |kind| Removal {
            kind,
            path: path.to_owned(),
        };
        match kind {
            Kind::Persistent | Kind::Recursive if !dropped => None,
            Kind::Persistent | Kind::Recursive if self.has_one_shot(path) => {
                self.kept.insert(path.to_owned(), kind);
                None
            }
            Kind::Persistent | Kind::Recursive => {
                self.kept.remove(path);
                Some(removal(kind))
            }
            Kind::Data | Kind::Child if self.kept.contains_key(path) => self.let_go(path),
            Kind::Data | Kind::Child => {
                let is_shared = self.has(Kind::Persistent, path) || self.has(Kind::Recursive, path);
                (dropped && !is_shared).then(|| removal(kind))
            }
        }
    }

    /// Removes a persistent watch that was kept for one-shot handles, when the last of them is gone.
    fn let_go(&mut self, path: &str) -> Option<Removal> {
        if self.has_one_shot(path)
            || self.has(Kind::Persistent, path)
            || self.has(Kind::Recursive, path)
        {
            return None;
        }
        let (path, kind) = self.kept.remove_entry(path)?;
        Some(Removal { kind, path })
    }

    /// Returns the receivers of an event. One-shot watches are used up, and persistent watches kept for them are released.
    pub(crate) fn fire(&mut self, event: &Event) -> (Vec<Notice>, Option<Removal>) {
        let mut notices = Vec::new();
        let one_shot: &[Kind] = match event.kind {
            EventKind::NodeCreated | EventKind::NodeDataChanged => &[Kind::Data],
            EventKind::NodeChildrenChanged => &[Kind::Child],
            EventKind::NodeDeleted => &[Kind::Data, Kind::Child],
        };
        for kind in one_shot {
            let table = self.table(*kind);
            if let Some(spot) = table.get_mut(&event.path) {
                for handle in spot.handles.drain(..) {
                    notices.push((handle.listener, PersistentEvent::Node(event.clone())));
                }
                if spot.arming == 0 {
                    table.remove(&event.path);
                }
            }
        }
        if let Some(spot) = self.persistent.get(&event.path) {
            spot.tell(&PersistentEvent::Node(event.clone()), &mut notices);
        }
        if event.kind != EventKind::NodeChildrenChanged && !self.recursive.is_empty() {
            for path in ancestors(&event.path) {
                if let Some(spot) = self.recursive.get(path) {
                    spot.tell(&PersistentEvent::Node(event.clone()), &mut notices);
                }
            }
        }
        let removal = self.let_go(&event.path);
        (notices, removal)
    }

    /// After a reconnect: the watches to arm again, and the persistent handles, which may have missed events. Waiting requests arm
    /// their watches themselves.
    pub(crate) fn rearm(&mut self) -> (WatchLists, Vec<Notice>) {
        let mut lists = WatchLists::default();
        let [data, exist, child, persistent, recursive] = &mut lists;
        for (path, spot) in &self.data {
            if spot.handles.iter().any(|handle| !handle.missing) {
                data.push(path.clone());
            }
            if spot.handles.iter().any(|handle| handle.missing) {
                exist.push(path.clone());
            }
        }
        for (path, spot) in &self.child {
            if !spot.handles.is_empty() {
                child.push(path.clone());
            }
        }
        let mut notices = Vec::new();
        for (list, table) in [
            (persistent, &mut self.persistent),
            (recursive, &mut self.recursive),
        ] {
            for (path, spot) in table {
                if !spot.handles.is_empty() {
                    list.push(path.clone());
                    spot.on_wire = true;
                    spot.tell(&PersistentEvent::Missed, &mut notices);
                }
            }
        }
        (lists, notices)
    }

    /// The session has ended: dropping the senders tells every handle.
    pub(crate) fn clear(&mut self) {
        for kind in Kind::ALL {
            self.table(kind).clear();
        }
        self.kept.clear();
    }
}

impl Spot {
    fn tell(&self, event: &PersistentEvent, notices: &mut Vec<Notice>) {
        for handle in &self.handles {
            if let Listener::Stream(sender) = &handle.listener {
                notices.push((Listener::Stream(sender.clone()), event.clone()));
            }
        }
    }
}

/// The path itself and everything above it, the root last.
fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| match path.rfind('/')? {
        _ if *path == "/" => None,
        0 => Some("/"),
        slash => Some(&path[..slash]),
    })
}

/// Splits the lists so that no part has more than `bytes_max` of paths, unless one path alone has.
pub(crate) fn in_parts(lists: WatchLists, bytes_max: usize) -> Vec<WatchLists> {
    let mut parts = Vec::new();
    let mut part = WatchLists::default();
    let mut bytes = 0;
    for (index, list) in lists.into_iter().enumerate() {
        for path in list {
            let more = path.len() + 4;
            if bytes > 0 && bytes + more > bytes_max {
                parts.push(std::mem::take(&mut part));
                bytes = 0;
            }
            bytes += more;
            part[index].push(path);
        }
    }
    if bytes > 0 {
        parts.push(part);
    }
    parts
}

#[cfg(test)]
mod tests;
