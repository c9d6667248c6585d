//! A line as a contender last listed it, and which nodes in it block the contender.

use std::cmp::Ordering;

use crate::line::name::{Kind, Name};
use crate::node::data::NodeData;

/// Which of the nodes ahead block a contender.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mode {
    pub(crate) blocks: fn(Kind) -> bool,
    /// Whether the data of a blocking node says that it no longer blocks.
    pub(crate) gave_way: fn(&[u8]) -> bool,
}

impl Mode {
    /// Every node ahead blocks.
    pub(crate) const EXCLUSIVE: Self = Self {
        blocks: |_| true,
        gave_way: |_| false,
    };

    /// No node blocks by itself: the sum of the permits counts.
    pub(crate) const COUNTED: Self = Self {
        blocks: |_| false,
        gave_way: |_| false,
    };

    /// Writers that have not downgraded block.
    pub(crate) const SHARED: Self = Self {
        blocks: |kind| kind != Kind::Read,
        gave_way: |data| NodeData::from_data(data).is_some_and(|data| data.downgraded),
    };
}

/// A directory as listed.
#[derive(Debug)]
pub(super) struct Children {
    /// All contenders, in no order.
    pub(super) names: Vec<Name>,
    /// Contenders in other layouts, by their names.
    pub(super) strangers: Vec<Name>,
}

/// The line around one node, as last listed. The nodes ahead only become fewer.
#[derive(Debug)]
pub(super) struct LineView {
    own: Name,
    listed: Children,
    /// The nodes ahead that no longer block.
    passed: Vec<Name>,
}

impl LineView {
    /// The line around the node `own`; `None` if it has no such node.
    pub(super) fn beside(own: &Name, listed: Children) -> Option<Self> {
        listed.names.contains(own).then(|| Self {
            own: own.clone(),
            listed,
            passed: Vec::new(),
        })
    }

    /// The other nodes of the acquisition with this prefix.
    pub(super) fn others_of<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a Name> {
        let is_own = move |name: &&Name| name.as_str().starts_with(prefix) && **name != self.own;
        self.listed.names.iter().filter(is_own)
    }

    /// Replaces the list with a later one. Returns `false` if the own node is gone.
    pub(super) fn renew(&mut self, listed: Children) -> bool {
        self.listed = listed;
        self.listed.names.contains(&self.own)
    }

    /// The nodes ahead, in no order.
    pub(super) fn lower(&self) -> impl Iterator<Item = &Name> {
        let names = self.listed.names.iter();
        names.filter(|name| **name != self.own && name.is_before(&self.own))
    }

    /// The contenders in other layouts whose nodes are older, by their names.
    pub(super) fn strangers(&self) -> impl Iterator<Item = &Name> {
        let strangers = self.listed.strangers.iter();
        strangers.filter(|name| name.is_before(&self.own))
    }

    /// Whether a contender was behind it.
    pub(super) fn is_followed(&self) -> bool {
        let mut names = self.listed.names.iter();
        names.any(|name| *name != self.own && !name.is_before(&self.own))
    }

    /// Ignores a node ahead, which is gone.
    pub(super) fn pass(&mut self, name: &Name) {
        self.passed.push(name.clone());
    }

    /// Ignores a node ahead, which may still exist.
    pub(super) fn tolerate(&mut self, name: &str) {
        let lower = self.lower().find(|lower| lower.as_str() == name).cloned();
        self.passed.extend(lower);
    }

    /// The nearest node ahead.
    pub(super) fn nearest(&self) -> Option<&Name> {
        let nearest = |one: &&Name, other: &&Name| match one.is_before(other) {
            true => Ordering::Less,
            false => Ordering::Greater,
        };
        self.lower().max_by(nearest)
    }

    /// The nearest node that blocks, and whether it is the only one. `None` when it is the contender's turn.
    pub(super) fn blocker(&self, mode: Mode) -> Option<(Name, bool)> {
        let mut blockers = self
            .lower()
            .filter(|name| (mode.blocks)(name.kind()) && !self.passed.contains(name));
        let mut nearest = blockers.next()?;
        let mut alone = true;
        for name in blockers {
            alone = false;
            if nearest.is_before(name) {
                nearest = name;
            }
        }
        Some((nearest.clone(), alone))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::name::Layout;

    fn name(sequence: i32) -> Name {
        let name = format!("lock-1-{:016x}-{sequence:010}", sequence.cast_unsigned());
        Layout::Bellwether.parse(name).unwrap()
    }

    fn listed(names: Vec<Name>) -> Children {
        Children {
            names,
            strangers: Vec::new(),
        }
    }

    fn line(own: i32, others: &[i32]) -> LineView {
        let names = others.iter().chain([&own]).copied().map(name).collect();
        LineView::beside(&name(own), listed(names)).unwrap()
    }

    fn blocker(line: &LineView) -> Option<(i32, bool)> {
        let blocker = line.blocker(Mode::EXCLUSIVE);
        blocker.map(|(name, alone)| (name.sequence(), alone))
    }

    #[test]
    fn other_nodes_of_one_acquisition_are_found() {
        let of = |acquisition: u32, sequence: i32| {
            let name = format!("lock-1-{acquisition:016x}-{sequence:010}");
            Layout::Bellwether.parse(name).unwrap()
        };
        let names = vec![of(1, 3), of(2, 4), of(1, 5), of(1, 6)];
        let line = LineView::beside(&of(1, 5), listed(names)).unwrap();
        let others: Vec<_> = line
            .others_of("lock-1-0000000000000001-")
            .map(Name::sequence)
            .collect();
        assert_eq!(others, [3, 6]);
    }

    #[test]
    fn nearest_lower_node_is_in_the_way() {
        let mut line = line(7, &[9, 3, 5, 8]);
        assert_eq!(blocker(&line), Some((5, false)));
        assert_eq!(line.lower().count(), 2);
        assert!(line.is_followed());
        line.pass(&name(5));
        assert_eq!(blocker(&line), Some((3, true)));
        line.tolerate(name(3).as_str());
        assert_eq!(blocker(&line), None);
    }

    #[test]
    fn later_list_replaces_the_earlier() {
        let mut line = line(7, &[9, 3, 5, 6]);
        assert!(line.renew(listed(vec![name(7), name(9)])));
        assert_eq!(blocker(&line), None);
        assert!(!line.renew(listed(vec![name(8)])));
    }

    #[test]
    fn order_holds_where_numbers_have_wrapped() {
        let line = line(i32::MIN + 1, &[i32::MAX, i32::MIN, i32::MIN + 2]);
        assert_eq!(blocker(&line), Some((i32::MIN, false)));
        assert_eq!(line.lower().count(), 2);
        assert!(line.is_followed());
    }
}
