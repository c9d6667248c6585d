//! A line as a contender last listed it, and which nodes in it block the contender.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::line::name::{Kind, Name};
use crate::node::node_data::NodeData;

/// Which of the nodes ahead block a contender.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    pub(crate) blocks: fn(Kind) -> bool,
    /// Whether the data of a blocking node says that it no longer blocks.
    pub(crate) gave_way: fn(&[u8]) -> bool,
}

impl Rule {
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

/// A line at one moment. The contenders of one session share it: a list of thousands is parsed once, not once for each of them.
#[derive(Debug)]
pub(crate) struct Sight {
    /// The contenders, sorted by sequence number.
    names: Vec<Name>,
    /// Whether the sequence numbers are in the order of the line: none has wrapped.
    is_plain: bool,
    /// How many nodes the directory had, contenders or not.
    nodes: usize,
}

impl Sight {
    pub(super) fn new(mut names: Vec<Name>, nodes: usize) -> Self {
        names.sort_unstable_by_key(Name::sequence);
        Self {
            is_plain: names.first().is_none_or(|first| first.sequence() >= 0),
            names,
            nodes,
        }
    }

    /// The other nodes of the acquisition with this prefix.
    pub(super) fn others_of<'a>(
        &'a self,
        own: &'a Name,
        prefix: &'a str,
    ) -> impl Iterator<Item = &'a Name> {
        let is_own = move |name: &&Name| name.as_str().starts_with(prefix) && *name != own;
        self.names.iter().filter(is_own)
    }

    fn shows(&self, name: &Name) -> bool {
        let first = self.below(name.sequence());
        let mut same = self.names[first..]
            .iter()
            .take_while(|other| other.sequence() == name.sequence());
        same.any(|other| other == name)
    }

    /// How many contenders have a lower number.
    fn below(&self, sequence: i32) -> usize {
        self.names
            .partition_point(|name| name.sequence() < sequence)
    }

    /// An upper bound of the nodes ahead of the node with this number: the listed nodes and those created since. Each created node
    /// takes one number.
    pub(crate) fn ahead_max(&self, sequence: i32) -> usize {
        let last = self.names.last().map_or(-1, Name::sequence);
        let since = usize::try_from(sequence.wrapping_sub(last)).unwrap_or(0);
        self.names.len() + since
    }
}

/// The line around one node, as last listed. The nodes ahead only become fewer.
#[derive(Debug)]
pub(super) struct Line {
    own: Name,
    sight: Arc<Sight>,
    /// Deliberate mistake: sorts by the whole name instead of the sequence number.
    by_text: bool,
    /// All nodes ahead of this one are known to be gone.
    floor: Option<i32>,
    /// The nodes ahead that no longer block.
    passed: Vec<Name>,
    /// Whether one of them may still exist.
    has_tolerated: bool,
}

impl Line {
    /// The line around the node `own`; `None` if it has no such node.
    pub(super) fn beside(own: &Name, sight: Arc<Sight>, by_text: bool) -> Option<Self> {
        sight.shows(own).then(|| Self {
            own: own.clone(),
            sight,
            by_text,
            floor: None,
            passed: Vec::new(),
            has_tolerated: false,
        })
    }

    /// Replaces the list with a later one. Returns `false` if the own node is gone.
    pub(super) fn renew(&mut self, sight: Arc<Sight>) -> bool {
        let is_there = sight.shows(&self.own);
        self.sight = sight;
        is_there
    }

    /// Records that all nodes ahead of the one with this sequence number are gone.
    pub(super) fn nothing_before(&mut self, sequence: i32) {
        self.floor = Some(sequence);
    }

    fn is_before(&self, name: &Name) -> bool {
        match self.by_text {
            true => name.as_str() < self.own.as_str(),
            false => name.is_before(&self.own),
        }
    }

    /// The nodes ahead, in no order.
    pub(super) fn lower(&self) -> impl Iterator<Item = &Name> {
        let is_left = |name: &&Name| match self.floor {
            Some(floor) => name.sequence().wrapping_sub(floor) >= 0,
            None => true,
        };
        let sight = &self.sight;
        // In a line of thousands, a contender whose neighbours were served first searches only the last part.
        let part = match sight.is_plain && !self.by_text {
            true => {
                let start = self.floor.map_or(0, |floor| sight.below(floor));
                let end = sight.below(self.own.sequence());
                start.min(end)..end
            }
            false => 0..sight.names.len(),
        };
        let names = sight.names[part].iter().filter(is_left);
        names.filter(|name| **name != self.own && self.is_before(name))
    }

    /// Whether a contender was behind it.
    pub(super) fn is_followed(&self) -> bool {
        let mut names = self.sight.names.iter();
        names.any(|name| *name != self.own && !self.is_before(name))
    }

    /// How many other nodes the directory had, contenders or not.
    pub(super) fn siblings(&self) -> usize {
        self.sight.nodes.saturating_sub(1)
    }

    /// Ignores a node ahead, which is gone.
    pub(super) fn pass(&mut self, name: &Name) {
        self.passed.push(name.clone());
    }

    /// Ignores a node ahead, which may still exist.
    pub(super) fn tolerate(&mut self, name: &str) {
        let lower = self.lower().find(|lower| lower.as_str() == name).cloned();
        self.has_tolerated |= lower.is_some();
        self.passed.extend(lower);
    }

    /// Whether an ignored node may still exist.
    pub(super) fn has_tolerated(&self) -> bool {
        self.has_tolerated
    }

    /// Deliberate mistake: ignores all nodes ahead.
    pub(super) fn pass_all(&mut self) {
        let lower: Vec<Name> = self.lower().cloned().collect();
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
    pub(super) fn blocker(&self, rule: Rule) -> Option<(Name, bool)> {
        let mut blockers = self
            .lower()
            .filter(|name| (rule.blocks)(name.kind()) && !self.passed.contains(name));
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

    fn line(own: i32, others: &[i32]) -> Line {
        let names = others.iter().chain([&own]).copied().map(name).collect();
        let sight = Arc::new(Sight::new(names, others.len() + 1));
        Line::beside(&name(own), sight, false).unwrap()
    }

    fn blocker(line: &Line) -> Option<(i32, bool)> {
        let blocker = line.blocker(Rule::EXCLUSIVE);
        blocker.map(|(name, alone)| (name.sequence(), alone))
    }

    #[test]
    fn other_nodes_of_one_acquisition_are_found() {
        let of = |acquisition: u32, sequence: i32| {
            let name = format!("lock-1-{acquisition:016x}-{sequence:010}");
            Layout::Bellwether.parse(name).unwrap()
        };
        let names = vec![of(1, 3), of(2, 4), of(1, 5), of(1, 6)];
        let sight = Sight::new(names, 4);
        let others: Vec<_> = sight
            .others_of(&of(1, 5), "lock-1-0000000000000001-")
            .map(Name::sequence)
            .collect();
        assert_eq!(others, [3, 6]);
    }

    #[test]
    fn nearest_lower_node_is_in_the_way() {
        let mut line = line(7, &[9, 3, 5, 8]);
        assert_eq!(blocker(&line), Some((5, false)));
        assert_eq!((line.lower().count(), line.siblings()), (2, 4));
        assert!(line.is_followed() && !line.has_tolerated());
        line.pass(&name(5));
        assert_eq!(blocker(&line), Some((3, true)));
        line.tolerate(name(3).as_str());
        assert_eq!(blocker(&line), None);
        assert!(line.has_tolerated());
    }

    #[test]
    fn what_is_known_to_be_gone_is_not_in_the_way() {
        let mut line = line(7, &[9, 3, 5, 6]);
        line.nothing_before(5);
        assert_eq!(blocker(&line), Some((6, false)));
        line.nothing_before(6);
        assert_eq!(blocker(&line), Some((6, true)));
        assert!(line.renew(Arc::new(Sight::new(vec![name(7)], 1))));
        assert_eq!(blocker(&line), None);
        assert!(!line.renew(Arc::new(Sight::new(vec![name(8)], 1))));
    }

    #[test]
    fn order_holds_where_numbers_have_wrapped() {
        let line = line(i32::MIN + 1, &[i32::MAX, i32::MIN, i32::MIN + 2]);
        assert_eq!(blocker(&line), Some((i32::MIN, false)));
        assert_eq!(line.lower().count(), 2);
        assert!(line.is_followed());
    }

    #[test]
    fn sight_bounds_how_many_can_stand_before_a_later_node() {
        let sight = Sight::new(vec![name(10), name(4)], 3);
        assert_eq!(sight.ahead_max(11), 3);
        assert_eq!(sight.ahead_max(30), 22);
        assert_eq!(Sight::new(Vec::new(), 0).ahead_max(5), 6);
    }
}
