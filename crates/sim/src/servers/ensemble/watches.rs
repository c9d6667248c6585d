//! The watches of the connections of one member.

use std::collections::{BTreeMap, BTreeSet};

use bellwether_wire::event::EventKind;

use super::tree::parent_of;
use crate::world::ConnId;

/// Watches by kind: on data and existence, on children, and persistent ones.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    tables: [BTreeMap<String, BTreeSet<ConnId>>; 4],
}

/// The kinds of watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Watch {
    Data,
    Child,
    Persistent,
    Recursive,
}

use Watch::{Child, Data, Persistent, Recursive};

impl Watches {
    pub(crate) fn arm(&mut self, watch: Watch, path: &str, conn: ConnId) {
        let table = &mut self.tables[watch as usize];
        table.entry(path.to_owned()).or_default().insert(conn);
    }

    /// Removes a watch. Returns false if there was none.
    pub(crate) fn disarm(&mut self, watch: Watch, path: &str, conn: ConnId) -> bool {
        let table = &mut self.tables[watch as usize];
        let Some(conns) = table.get_mut(path) else {
            return false;
        };
        let was_there = conns.remove(&conn);
        if conns.is_empty() {
            table.remove(path);
        }
        was_there
    }

    /// Forgets a connection.
    pub(crate) fn forget(&mut self, conn: ConnId) {
        for table in &mut self.tables {
            table.retain(|_, conns| {
                conns.remove(&conn);
                !conns.is_empty()
            });
        }
    }

    pub(crate) fn clear(&mut self) {
        self.tables = Default::default();
    }

    pub(crate) fn len(&self) -> usize {
        let tables = self.tables.iter();
        tables.flat_map(BTreeMap::values).map(BTreeSet::len).sum()
    }

    /// The connections that receive an event about a change, in order. One-shot watches are removed.
    pub(crate) fn fire(&mut self, kind: EventKind, path: &str) -> Vec<(ConnId, EventKind, String)> {
        let mut told = Vec::new();
        let own: &[Watch] = match kind {
            EventKind::NodeDeleted => &[Data, Child],
            _ => &[Data],
        };
        let mut conns = BTreeSet::new();
        for watch in own {
            conns.extend(
                self.tables[*watch as usize]
                    .remove(path)
                    .unwrap_or_default(),
            );
        }
        conns.extend(
            self.tables[Persistent as usize]
                .get(path)
                .into_iter()
                .flatten(),
        );
        if !self.tables[Recursive as usize].is_empty() {
            let mut above = path;
            loop {
                conns.extend(
                    self.tables[Recursive as usize]
                        .get(above)
                        .into_iter()
                        .flatten(),
                );
                if above == "/" {
                    break;
                }
                above = parent_of(above);
            }
        }
        told.extend(conns.into_iter().map(|conn| (conn, kind, path.to_owned())));
        if kind != EventKind::NodeDataChanged {
            let parent = parent_of(path);
            let mut conns = self.tables[Child as usize]
                .remove(parent)
                .unwrap_or_default();
            conns.extend(
                self.tables[Persistent as usize]
                    .get(parent)
                    .into_iter()
                    .flatten(),
            );
            let changed = EventKind::NodeChildrenChanged;
            told.extend(
                conns
                    .into_iter()
                    .map(|conn| (conn, changed, parent.to_owned())),
            );
        }
        told
    }
}
