//! Remembers the last seen state of watched nodes, to find changes that were missed.

use std::collections::BTreeMap;

use bellwether::zk::{EventKind, Stat};

/// What happened to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Happening {
    Created,
    Changed,
    Deleted,
    /// Children were created or deleted.
    Children,
}

impl Happening {
    pub(crate) fn of(event: EventKind) -> Self {
        match event {
            EventKind::NodeCreated => Self::Created,
            EventKind::NodeDataChanged => Self::Changed,
            EventKind::NodeDeleted => Self::Deleted,
            EventKind::NodeChildrenChanged => Self::Children,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Changed => "changed",
            Self::Deleted => "deleted",
            Self::Children => "children",
        }
    }
}

/// The zxids of the last change to the node itself, to its data and to its children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    czxid: i64,
    mzxid: i64,
    /// 0 where changes of children do not count.
    pzxid: i64,
}

/// The watched nodes that exist.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sighting {
    with_children: bool,
    nodes: BTreeMap<String, Seen>,
}

impl Sighting {
    /// Nothing seen yet. `with_children`: whether changes of children count.
    pub(crate) fn new(with_children: bool) -> Self {
        Self {
            with_children,
            nodes: BTreeMap::new(),
        }
    }

    /// Takes in the present state of a node, and returns whether it is new.
    pub(crate) fn see(&mut self, path: &str, stat: Option<&Stat>) -> bool {
        let Some(stat) = stat else {
            return self.nodes.remove(path).is_some();
        };
        let seen = Seen {
            czxid: stat.czxid,
            mzxid: stat.mzxid,
            pzxid: if self.with_children { stat.pzxid } else { 0 },
        };
        self.nodes.insert(path.to_owned(), seen) != Some(seen)
    }

    /// The changes between this sighting and a later one: deleted nodes, the deepest first, then created and changed nodes, parents
    /// first.
    pub(crate) fn until(&self, later: &Self) -> Vec<(Happening, String)> {
        let mut happenings = Vec::new();
        for (path, was) in self.nodes.iter().rev() {
            if later.nodes.get(path).is_none_or(|is| is.czxid != was.czxid) {
                happenings.push((Happening::Deleted, path.clone()));
            }
        }
        for (path, is) in &later.nodes {
            match self.nodes.get(path) {
                Some(was) if was.czxid == is.czxid => {
                    if was.mzxid != is.mzxid {
                        happenings.push((Happening::Changed, path.clone()));
                    }
                    if was.pzxid != is.pzxid {
                        happenings.push((Happening::Children, path.clone()));
                    }
                }
                _ => happenings.push((Happening::Created, path.clone())),
            }
        }
        happenings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(czxid: i64, mzxid: i64, pzxid: i64) -> Stat {
        Stat {
            czxid,
            mzxid,
            pzxid,
            ctime: 0,
            mtime: 0,
            version: 0,
            cversion: 0,
            aversion: 0,
            ephemeral_owner: 0,
            data_length: 0,
            num_children: 0,
        }
    }

    fn sighting(with_children: bool, nodes: &[(&str, [i64; 3])]) -> Sighting {
        let mut sighting = Sighting::new(with_children);
        for (path, [czxid, mzxid, pzxid]) in nodes {
            assert!(sighting.see(path, Some(&stat(*czxid, *mzxid, *pzxid))));
        }
        sighting
    }

    #[test]
    fn everything_that_happened_meanwhile_is_told_once() {
        let before = sighting(
            false,
            &[
                ("/a", [1, 1, 1]),
                ("/a/gone", [2, 2, 3]),
                ("/a/gone/too", [3, 3, 3]),
                ("/a/same", [4, 4, 4]),
                ("/a/set", [5, 5, 5]),
                ("/a/again", [6, 6, 6]),
            ],
        );
        let after = sighting(
            false,
            &[
                ("/a", [1, 1, 13]),
                ("/a/same", [4, 4, 4]),
                ("/a/set", [5, 9, 5]),
                ("/a/again", [11, 11, 11]),
                ("/a/new", [12, 12, 12]),
            ],
        );
        let told: Vec<_> = before
            .until(&after)
            .into_iter()
            .map(|(what, path)| format!("{} {path}", what.name()))
            .collect();
        assert_eq!(
            told,
            [
                "deleted /a/gone/too",
                "deleted /a/gone",
                "deleted /a/again",
                "created /a/again",
                "created /a/new",
                "changed /a/set",
            ]
        );
        assert!(after.until(&after).is_empty());
    }

    #[test]
    fn children_count_only_where_they_are_told_of() {
        for (with_children, expected) in [
            (true, vec![(Happening::Children, "/a".to_owned())]),
            (false, vec![]),
        ] {
            let before = sighting(with_children, &[("/a", [1, 1, 1])]);
            let after = sighting(with_children, &[("/a", [1, 1, 2])]);
            assert_eq!(before.until(&after), expected);
        }
    }

    #[test]
    fn what_is_known_is_no_news() {
        let mut sighting = sighting(false, &[("/a", [1, 1, 1])]);
        assert!(!sighting.see("/a", Some(&stat(1, 1, 2))));
        assert!(sighting.see("/a", Some(&stat(1, 2, 2))));
        assert!(sighting.see("/a", None));
        assert!(!sighting.see("/a", None));
    }
}
