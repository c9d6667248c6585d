//! Which watches are armed, for which handles, and what a server must be told of them after a reconnect.
//!
//! A server knows one watch for each path, table and connection; any number of handles may share it.

use std::collections::HashMap;

use bellwether_wire::event::EventKind;
use tokio::sync::{mpsc, oneshot};

/// A change of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// To which node.
    pub path: String,
}

/// What a persistent watch reports.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PersistentEvent {
    /// A node changed.
    Node(Event),
    /// The connection was lost and is back: events may have been missed. Read again what must be current.
    Missed,
}

/// Which table of the server a watch is in.
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

    /// The type that removeWatches takes. Servers before 3.9 have no number for persistent watches but *any*.
    pub(crate) fn removal_type(self) -> i32 {
        match self {
            Self::Child => 1,
            Self::Data => 2,
            Self::Persistent | Self::Recursive => 3,
        }
    }
}

/// Who hears of an event.
#[derive(Debug)]
pub(crate) enum Listener {
    OneShot(oneshot::Sender<Event>),
    Stream(mpsc::UnboundedSender<PersistentEvent>),
}

impl Listener {
    fn is_closed(&self) -> bool {
        match self {
            Self::OneShot(sender) => sender.is_closed(),
            Self::Stream(sender) => sender.is_closed(),
        }
    }
}

/// A watch that a request under way arms.
#[derive(Debug)]
pub(crate) struct Arming {
    pub(crate) kind: Kind,
    pub(crate) path: String,
    pub(crate) id: u64,
    pub(crate) listener: Listener,
}

/// An event and a handle that hears of it.
pub(crate) type Notice = (Listener, PersistentEvent);

/// A watch that nobody needs any more: tell the server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Removal {
    pub(crate) kind: Kind,
    pub(crate) path: String,
}

/// The paths to arm again, in the order of setWatches2: data, exist, child, persistent, recursive.
pub(crate) type WatchLists = [Vec<String>; 5];

#[derive(Debug)]
struct Handle {
    id: u64,
    listener: Listener,
    /// Armed by exists on a missing node: after a reconnect the server must be asked for its creation.
    missing: bool,
}

/// What is armed at one path in one table.
#[derive(Debug, Default)]
struct Spot {
    handles: Vec<Handle>,
    /// Requests under way that arm the same watch. While there are any, removing it would remove theirs.
    arming: usize,
    /// A handle was dropped while a request was under way.
    dropped: bool,
}

/// The watches of a session.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    last_id: u64,
    data: HashMap<String, Spot>,
    child: HashMap<String, Spot>,
    persistent: HashMap<String, Spot>,
    recursive: HashMap<String, Spot>,
}

impl Watches {
    fn table(&mut self, kind: Kind) -> &mut HashMap<String, Spot> {
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

    /// Whether a persistent watch of the other mode is at this path: servers before 3.9 would keep one of the two.
    pub(crate) fn has_other_mode(&self, kind: Kind, path: &str) -> bool {
        match kind {
            Kind::Persistent => self.has(Kind::Recursive, path),
            Kind::Recursive => self.has(Kind::Persistent, path),
            Kind::Data | Kind::Child => false,
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
            false => spot.handles.push(Handle {
                id,
                listener,
                missing,
            }),
        }
        self.settle(kind, &path)
    }

    /// The request failed or was lost, and its handle hears nothing.
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

    /// Forgets a spot that nobody uses; tells whether the server has to be told.
    fn settle(&mut self, kind: Kind, path: &str) -> Option<Removal> {
        let table = self.table(kind);
        let spot = table.get(path)?;
        if !spot.handles.is_empty() || spot.arming > 0 {
            return None;
        }
        let dropped = spot.dropped;
        table.remove(path);
        // Servers before 3.9 have one watch per path and table: to remove one kind would remove the others.
        let is_shared = match kind {
            Kind::Data | Kind::Child => {
                self.has(Kind::Persistent, path) || self.has(Kind::Recursive, path)
            }
            Kind::Persistent | Kind::Recursive => Kind::ALL
                .into_iter()
                .any(|other| other != kind && self.has(other, path)),
        };
        (dropped && !is_shared).then(|| Removal {
            kind,
            path: path.to_owned(),
        })
    }

    /// An event came: who hears of it. One-shot watches are used up.
    ///
    /// The second result is the persistent watches that the server may have dropped with a one-shot watch at the same path,
    /// as servers before 3.9 do, and that must be armed again.
    pub(crate) fn fire(&mut self, event: &Event) -> (Vec<Notice>, Vec<Removal>) {
        let mut notices = Vec::new();
        let mut used_up = false;
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
                    used_up = true;
                }
                if spot.arming == 0 {
                    table.remove(&event.path);
                }
            }
        }
        let mut again = Vec::new();
        for kind in [Kind::Persistent, Kind::Recursive] {
            if used_up && self.has(kind, &event.path) {
                again.push(Removal {
                    kind,
                    path: event.path.clone(),
                });
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
        (notices, again)
    }

    /// The connection is back: what to arm again, and the persistent handles, which may have missed events.
    pub(crate) fn rearm(&self) -> (WatchLists, Vec<Notice>) {
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
        child.extend(self.child.keys().cloned());
        persistent.extend(self.persistent.keys().cloned());
        recursive.extend(self.recursive.keys().cloned());
        let mut notices = Vec::new();
        for spot in self.persistent.values().chain(self.recursive.values()) {
            spot.tell(&PersistentEvent::Missed, &mut notices);
        }
        (lists, notices)
    }

    /// The session is over: every handle hears of it, because its sender is dropped.
    pub(crate) fn clear(&mut self) {
        for kind in Kind::ALL {
            self.table(kind).clear();
        }
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
mod tests {
    use super::*;

    fn one_shot() -> (Listener, oneshot::Receiver<Event>) {
        let (sender, receiver) = oneshot::channel();
        (Listener::OneShot(sender), receiver)
    }

    fn stream() -> (Listener, mpsc::UnboundedReceiver<PersistentEvent>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Listener::Stream(sender), receiver)
    }

    fn event(kind: EventKind, path: &str) -> Event {
        Event {
            kind,
            path: path.to_owned(),
        }
    }

    fn arm(watches: &mut Watches, kind: Kind, path: &str, listener: Listener) -> u64 {
        let arming = watches.begin(kind, path, listener);
        let id = arming.id;
        assert_eq!(watches.armed(arming, false), None);
        id
    }

    #[test]
    fn the_last_dropped_handle_removes_the_watch() {
        let mut watches = Watches::default();
        let (first, _first) = one_shot();
        let (second, _second) = one_shot();
        let first = arm(&mut watches, Kind::Data, "/a", first);
        let second = arm(&mut watches, Kind::Data, "/a", second);
        assert_eq!(watches.dropped(Kind::Data, "/a", first), None);
        let removal = watches.dropped(Kind::Data, "/a", second).unwrap();
        assert_eq!((removal.kind, removal.path.as_str()), (Kind::Data, "/a"));
    }

    #[test]
    fn a_request_under_way_keeps_the_watch_that_it_arms() {
        let mut watches = Watches::default();
        let (first, _first) = one_shot();
        let first = arm(&mut watches, Kind::Child, "/a", first);
        let (second, second_end) = one_shot();
        let arming = watches.begin(Kind::Child, "/a", second);
        assert_eq!(watches.dropped(Kind::Child, "/a", first), None);
        // Its caller has given up as well, so the answer finds nobody.
        drop(second_end);
        assert!(watches.armed(arming, false).is_some());
    }

    #[test]
    fn an_event_uses_up_one_shot_watches_and_no_persistent_ones() {
        let mut watches = Watches::default();
        let (data, mut data_end) = one_shot();
        let (child, mut child_end) = one_shot();
        let (recursive, mut recursive_end) = stream();
        arm(&mut watches, Kind::Data, "/a/b", data);
        arm(&mut watches, Kind::Child, "/a/b", child);
        arm(&mut watches, Kind::Recursive, "/a", recursive);
        for (listener, event) in watches.fire(&event(EventKind::NodeDeleted, "/a/b")).0 {
            deliver(listener, event);
        }
        assert!(data_end.try_recv().is_ok() && child_end.try_recv().is_ok());
        assert!(recursive_end.try_recv().is_ok());
        let (lists, _) = watches.rearm();
        assert_eq!(
            lists,
            [vec![], vec![], vec![], vec![], vec!["/a".to_owned()]]
        );
    }

    #[test]
    fn a_persistent_watch_that_shared_its_path_is_armed_again() {
        let mut watches = Watches::default();
        let (persistent, _persistent) = stream();
        let (data, _data) = one_shot();
        arm(&mut watches, Kind::Persistent, "/a", persistent);
        let id = arm(&mut watches, Kind::Data, "/a", data);
        let (_, again) = watches.fire(&event(EventKind::NodeDataChanged, "/a"));
        assert_eq!(again.len(), 1);
        // And a dropped one-shot handle does not take it along.
        assert_eq!(watches.dropped(Kind::Data, "/a", id), None);
    }

    #[test]
    fn exists_on_a_missing_node_is_armed_again_for_its_creation() {
        let mut watches = Watches::default();
        let (listener, _end) = one_shot();
        let arming = watches.begin(Kind::Data, "/a", listener);
        watches.armed(arming, true);
        assert_eq!(watches.rearm().0[1], ["/a"]);
    }

    #[test]
    fn lists_are_split_by_the_bytes_of_their_paths() {
        let path = |n: usize| format!("/{n:095}");
        let lists = [
            (0..10).map(path).collect(),
            vec![],
            (10..15).map(path).collect(),
            vec![],
            vec![path(15)],
        ];
        let parts = in_parts(lists.clone(), 350);
        assert!(parts.iter().all(|part| {
            let paths: Vec<_> = part.iter().flatten().collect();
            !paths.is_empty() && paths.len() <= 3
        }));
        for index in 0..5 {
            let joined: Vec<_> = parts.iter().flat_map(|part| part[index].clone()).collect();
            assert_eq!(joined, lists[index]);
        }
    }

    fn deliver(listener: Listener, event: PersistentEvent) {
        match (listener, event) {
            (Listener::OneShot(sender), PersistentEvent::Node(event)) => {
                sender.send(event).unwrap();
            }
            (Listener::OneShot(_), PersistentEvent::Missed) => unreachable!(),
            (Listener::Stream(sender), event) => sender.send(event).unwrap(),
        }
    }
}
