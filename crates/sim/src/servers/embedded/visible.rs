//! What clients could see before the server ended, and whether it is there after recovery.

use std::collections::{BTreeMap, BTreeSet};

use bellwether_server::simulation::SimulatedServer;
use bellwether_wire::stat::Stat;

use crate::world::Trace;

/// The state that clients could see.
#[derive(Debug)]
pub(super) struct Visible {
    /// The last write.
    zxid: i64,
    /// Stat and checksum of the data of each node.
    nodes: BTreeMap<String, (Stat, u64)>,
    sessions: BTreeSet<i64>,
}

impl Visible {
    pub(super) fn of(server: &SimulatedServer) -> Self {
        let mut nodes = BTreeMap::new();
        server.walk(|path, data, stat| {
            nodes.insert(path.to_owned(), (*stat, Trace::value(&data)));
        });
        Self {
            zxid: server.last_zxid(),
            nodes,
            sessions: server.session_ids().into_iter().collect(),
        }
    }

    /// What a server that has recovered lacks of this state.
    ///
    /// Writes that were in the log and not visible yet may be there too, so whatever has a later zxid may differ.
    pub(super) fn lost_in(&self, after: &Self) -> Option<String> {
        if after.zxid < self.zxid {
            let (found, visible) = (after.zxid, self.zxid);
            return Some(format!("zxid {found:#x}, but {visible:#x} was visible"));
        }
        let mut before = self.nodes.iter();
        let wrong = before.find(|(path, node)| match after.nodes.get(*path) {
            Some(found) => !self.is_kept(node, found),
            None => !self.is_deleted(path, after),
        });
        if let Some((path, node)) = wrong {
            let found = after.nodes.get(path);
            return Some(format!("{path} as {found:?}, but {node:?} was visible"));
        }
        let mut added = after.nodes.iter();
        let is_new =
            |path: &str, stat: &Stat| self.nodes.contains_key(path) || stat.czxid > self.zxid;
        if let Some((path, _)) = added.find(|(path, (stat, _))| !is_new(path, stat)) {
            return Some(format!("{path}, but that was deleted"));
        }
        // Nothing tells when a session was opened or closed.
        let is_same = after.zxid > self.zxid || after.sessions == self.sessions;
        let (found, visible) = (&after.sessions, &self.sessions);
        (!is_same).then(|| format!("sessions {found:x?}, but {visible:x?} were open"))
    }

    /// Whether a node is as it was, but for later writes.
    fn is_kept(&self, (before, data): &(Stat, u64), (found, found_data): &(Stat, u64)) -> bool {
        let is_later = |zxid: i64| zxid > self.zxid;
        let identity = |stat: &Stat| (stat.czxid, stat.ctime, stat.ephemeral_owner);
        let content = |stat: &Stat| (stat.mzxid, stat.mtime, stat.version, stat.data_length);
        let children = |stat: &Stat| (stat.pzxid, stat.cversion, stat.num_children);
        (identity(before) == identity(found) || is_later(found.czxid))
            && ((content(before), data) == (content(found), found_data) || is_later(found.mzxid))
            && (children(before) == children(found) || is_later(found.pzxid))
    }

    /// Whether a later write has deleted a node: its parent shows that, or was deleted too.
    fn is_deleted(&self, path: &str, after: &Self) -> bool {
        let parent = match path.rsplit_once('/') {
            Some(("", name)) if !name.is_empty() => "/",
            Some((parent, _)) => parent,
            None => return false,
        };
        let parent = after.nodes.get(parent);
        parent.is_none_or(|(stat, _)| stat.pzxid > self.zxid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: i64 = 7;

    /// A state after the write `zxid`, with these nodes: path, zxid of creation, of the last change, and of the last child.
    fn state(zxid: i64, nodes: &[(&str, i64, i64, i64)]) -> Visible {
        let node = |&(path, czxid, mzxid, pzxid): &(&str, i64, i64, i64)| {
            let stat = Stat {
                czxid,
                mzxid,
                pzxid,
                ..Stat::default()
            };
            (path.to_owned(), (stat, Trace::value(&mzxid)))
        };
        Visible {
            zxid,
            nodes: nodes.iter().map(node).collect(),
            sessions: BTreeSet::from([SESSION]),
        }
    }

    const BEFORE: [(&str, i64, i64, i64); 4] = [
        ("/", 0, 0, 3),
        ("/a", 1, 5, 4),
        ("/a/b", 4, 4, 4),
        ("/c", 3, 3, 3),
    ];

    fn before() -> Visible {
        state(5, &BEFORE)
    }

    #[test]
    fn recovered_state_has_all_that_was_visible() {
        assert_eq!(before().lost_in(&before()), None);
        // A later write has changed /c, one has deleted /a/b and then /a, and one has created /d.
        let later = state(9, &[("/", 0, 0, 9), ("/c", 3, 6, 3), ("/d", 9, 9, 9)]);
        assert_eq!(before().lost_in(&later), None);
        // /a/b was deleted and created again.
        let again = state(
            7,
            &[
                ("/", 0, 0, 3),
                ("/a", 1, 5, 7),
                ("/a/b", 7, 7, 7),
                ("/c", 3, 3, 3),
            ],
        );
        assert_eq!(before().lost_in(&again), None);
    }

    #[test]
    fn whatever_is_lost_is_found() {
        let lost = |after: &Visible, text: &str| {
            let lost = before().lost_in(after).unwrap_or_default();
            assert!(lost.contains(text), "{lost}");
        };
        lost(&state(4, &[]), "zxid");
        // The last write to /a, also behind a later write elsewhere.
        for zxid in [5, 6] {
            let old = [
                ("/", 0, 0, 3),
                ("/a", 1, 1, 4),
                ("/a/b", 4, 4, 4),
                ("/c", 3, 3, 3),
            ];
            lost(&state(zxid, &old), "/a as");
        }
        // Nodes.
        let gone = [("/", 0, 0, 3), ("/a", 1, 5, 4), ("/c", 3, 3, 3)];
        lost(&state(9, &gone), "/a/b as None");
        let back = [&BEFORE[..], &[("/e", 2, 2, 2)]].concat();
        lost(&state(9, &back), "/e, but that was deleted");
        // Data that no zxid tells of.
        let mut torn = before();
        torn.nodes.get_mut("/c").unwrap().1 = 0;
        lost(&torn, "/c as");
        // The session, and the owner of a node.
        let mut closed = before();
        closed.sessions.clear();
        lost(&closed, "sessions");
        let mut owned = before();
        owned.nodes.get_mut("/c").unwrap().0.ephemeral_owner = SESSION;
        lost(&owned, "/c as");
    }
}
