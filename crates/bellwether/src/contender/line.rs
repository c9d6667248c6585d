//! A line as a contender last saw it, and who in it stands in the way.

use std::cmp::Ordering;

use crate::name::{Kind, Name};
use crate::node_data::NodeData;

/// Which of the nodes before a contender stand in its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    pub(crate) blocks: fn(Kind) -> bool,
    /// Whether a node that blocks by its kind has given way, by its data.
    pub(crate) gave_way: fn(&[u8]) -> bool,
}

impl Rule {
    /// Whoever stands before.
    pub(crate) const EXCLUSIVE: Self = Self {
        blocks: |_| true,
        gave_way: |_| false,
    };

    /// Nobody by what they are: what counts is how much they want together.
    pub(crate) const COUNTED: Self = Self {
        blocks: |_| false,
        gave_way: |_| false,
    };

    /// Writers that write still.
    pub(crate) const SHARED: Self = Self {
        blocks: |kind| kind != Kind::Read,
        gave_way: |data| NodeData::from_data(data).is_some_and(|data| data.downgraded),
    };
}

/// What stood beside a node when it was last looked at.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// What stood before it. It only becomes less.
    pub(super) lower: Vec<Name>,
    /// Whether anybody stood behind it.
    pub(super) is_followed: bool,
    /// How many other nodes there were in the directory, contenders or not.
    pub(super) siblings: usize,
    /// Those of the lower ones that have given way since.
    passed: Vec<Name>,
}

impl Line {
    /// Notes what stands beside the node `own` among so many siblings; false if that is not there.
    pub(super) fn look(
        &mut self,
        own: &Name,
        siblings: usize,
        contenders: impl Iterator<Item = Name>,
        is_before: impl Fn(&Name, &Name) -> bool,
    ) -> bool {
        let mut seen = false;
        self.lower.clear();
        self.is_followed = false;
        self.siblings = siblings;
        for name in contenders {
            if name == *own {
                seen = true;
            } else if is_before(&name, own) {
                self.lower.push(name);
            } else {
                self.is_followed = true;
            }
        }
        seen
    }

    /// Lets a node before this one pass for nobody.
    pub(super) fn pass(&mut self, name: &str) {
        let lower = self.lower.iter().filter(|lower| lower.as_str() == name);
        self.passed.extend(lower.cloned());
    }

    /// The last one before the node.
    pub(super) fn nearest(&self) -> Option<&Name> {
        let nearest = |one: &&Name, other: &&Name| match one.is_before(other) {
            true => Ordering::Less,
            false => Ordering::Greater,
        };
        self.lower.iter().max_by(nearest)
    }

    /// The nearest lower node that stands in the way, and whether it is the only one; `None` when it is our turn.
    pub(super) fn blocker(&self, rule: Rule) -> Option<(Name, bool)> {
        let mut blockers = self
            .lower
            .iter()
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
