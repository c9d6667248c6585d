//! Names of contenders, in our own layout and in those of other libraries, and a line as a contender last listed it.

use std::cmp::Ordering;
use std::fmt;

use crate::node::OperationId;
use crate::node::data::NodeData;

/// The side or the permits that a contender wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Lock,
    Read,
    Write,
    /// A number of permits of a semaphore.
    Permit(u32),
    Candidate,
    Member,
    /// Waits for an item of a queue.
    Consumer,
}

impl Kind {
    /// Returns whether contenders of both kinds can be in one line: only those of one recipe can.
    pub(crate) fn goes_with(self, other: Self) -> bool {
        match (self, other) {
            (Self::Read | Self::Write, Self::Read | Self::Write)
            | (Self::Permit(_), Self::Permit(_)) => true,
            (kind, other) => kind == other,
        }
    }

    /// The recipe whose contenders are of this kind.
    pub(crate) fn recipe(self) -> &'static str {
        match self {
            Self::Lock => "a lock",
            Self::Read | Self::Write => "a read/write lock",
            Self::Permit(_) => "a semaphore",
            Self::Candidate => "an election",
            Self::Member => "a barrier",
            Self::Consumer => "a queue",
        }
    }

    fn parse(kind: &str) -> Option<Self> {
        match kind {
            "lock" => Some(Self::Lock),
            "read" => Some(Self::Read),
            "write" => Some(Self::Write),
            "candidate" => Some(Self::Candidate),
            "member" => Some(Self::Member),
            "consumer" => Some(Self::Consumer),
            _ => {
                let permits = kind.strip_prefix("permit")?.parse().ok()?;
                Some(Self::Permit(permits))
            }
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock => f.write_str("lock"),
            Self::Read => f.write_str("read"),
            Self::Write => f.write_str("write"),
            Self::Permit(permits) => write!(f, "permit{permits}"),
            Self::Candidate => f.write_str("candidate"),
            Self::Member => f.write_str("member"),
            Self::Consumer => f.write_str("consumer"),
        }
    }
}

/// The rules by which the nodes of a line are named: by our own rules, or by those of a library that shares the line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Layout {
    /// Our own: `<kind>-<session>-<acquisition>-<sequence>`.
    #[default]
    Bellwether,
    /// Apache Curator's: `InterProcessMutex` and `InterProcessReadWriteLock`.
    Curator,
    /// The layout of Python's kazoo: `Lock`, `ReadLock` and `WriteLock`.
    Kazoo,
}

impl Layout {
    pub(crate) const ALL: [Self; 3] = [Self::Bellwether, Self::Curator, Self::Kazoo];

    /// The name of a new contender without the sequence, which the server adds. No other acquisition has it.
    pub(crate) fn prefix(self, kind: Kind, session: i64, id: OperationId) -> String {
        let tag = self.tag(kind);
        match self {
            Self::Bellwether => format!("{kind}-{session:x}-{id}-"),
            // Both libraries expect a UUID there, and read only their own.
            Self::Curator => {
                let (session, id) = (format!("{session:016x}"), id.to_string());
                let [time, low, high] = [&session[..8], &session[8..12], &session[12..]];
                format!("_c_{time}-{low}-{high}-{}-{}-{tag}", &id[..4], &id[4..])
            }
            Self::Kazoo => format!("{session:016x}{id}{tag}"),
        }
    }

    /// Parses the name of a child; `None` for a name of another shape, which is ignored.
    pub(crate) fn parse(self, text: String) -> Option<Name> {
        let (kind, sequence) = self.read(&text)?;
        Some(Name {
            text,
            layout: self,
            kind,
            sequence,
        })
    }

    /// The kind and the sequence number in the name of a contender.
    fn read(self, text: &str) -> Option<(Kind, i32)> {
        let (kind, digits) = match self {
            Self::Bellwether => {
                let mut parts = text.splitn(4, '-');
                let kind = Kind::parse(parts.next()?)?;
                let _session = u64::from_str_radix(parts.next()?, 16).ok()?;
                let _id = u64::from_str_radix(parts.next()?, 16).ok()?;
                (kind, parts.next()?)
            }
            Self::Curator | Self::Kazoo => {
                let kinds = [
                    Kind::Lock,
                    Kind::Read,
                    Kind::Write,
                    Kind::Permit(1),
                    Kind::Candidate,
                ];
                let mut read = kinds.into_iter().filter_map(|kind| {
                    let (_, digits) = text.rsplit_once(self.tag(kind))?;
                    Some((kind, digits))
                });
                read.next()?
            }
        };
        // The server writes ten digits, after a minus sign once the counter has wrapped.
        if digits.len() < 10 {
            return None;
        }
        Some((kind, digits.parse().ok()?))
    }

    /// The contenders among the children of a directory, in no order.
    pub(crate) fn contenders(self, children: Vec<String>) -> impl Iterator<Item = Name> {
        children
            .into_iter()
            .filter_map(move |child| self.parse(child))
    }

    /// The contenders among the children of a directory, and those of the other layouts, both in no order.
    pub(crate) fn sort_out(self, children: Vec<String>) -> (Vec<Name>, Vec<Name>) {
        let (mut names, mut strangers) = (Vec::with_capacity(children.len()), Vec::new());
        for child in children {
            match self.read(&child) {
                Some((kind, sequence)) => names.push(Name {
                    text: child,
                    layout: self,
                    kind,
                    sequence,
                }),
                None => strangers.extend(Name::parse(&child)),
            }
        }
        (names, strangers)
    }

    /// The library whose layout it is.
    pub(crate) fn library(self) -> &'static str {
        match self {
            Self::Bellwether => "bellwether",
            Self::Curator => "Curator",
            Self::Kazoo => "kazoo",
        }
    }

    /// Returns whether the nodes before a contender can only become fewer when this node is deleted. A holder of Curator's write lock that
    /// asks for the read side creates a node at its own place, before all waiters (CURATOR-621).
    pub(crate) fn only_shrinks(self, gone: &Name) -> bool {
        !(self == Self::Curator && gone.kind == Kind::Write)
    }

    /// The prefix before the sequence that shows the kind, in the layouts of other libraries.
    fn tag(self, kind: Kind) -> &'static str {
        match (self, kind) {
            (Self::Curator, Kind::Read) => "__READ__",
            (Self::Curator, Kind::Write) => "__WRIT__",
            // Only read, in `InterProcessSemaphoreV2`.
            (Self::Curator, Kind::Permit(_)) => "lease-",
            // `LeaderLatch`; its other election, `LeaderSelector`, is a lock.
            (Self::Curator, Kind::Candidate) => "latch-",
            (Self::Curator, _) => "lock-",
            (Self::Kazoo, Kind::Read) => "__rlock__",
            (Self::Kazoo, _) => "__lock__",
            (Self::Bellwether, _) => "",
        }
    }
}

/// The name of a contender's node.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    text: String,
    layout: Layout,
    kind: Kind,
    sequence: i32,
}

impl Name {
    /// Parses the name of a child by the rules of any known library; `None` if it is no contender's name.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut layouts = Layout::ALL.into_iter();
        layouts.find_map(|layout| layout.parse(text.to_owned()))
    }

    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the number of permits of a semaphore that it wants.
    pub(crate) fn permits(&self) -> u32 {
        match self.kind {
            Kind::Permit(permits) => permits,
            _ => 0,
        }
    }

    pub(crate) fn sequence(&self) -> i32 {
        self.sequence
    }

    /// The older one is less: for sorting.
    pub(crate) fn cmp_age(&self, other: &Self) -> Ordering {
        self.sequence.wrapping_sub(other.sequence).cmp(&0)
    }

    /// Returns whether this node was created before the other. The counter may wrap, so the difference decides. No other part of the name
    /// may decide: that would allow two holders (ZOOKEEPER-2931).
    pub(crate) fn is_before(&self, other: &Self) -> bool {
        self.cmp_age(other).is_lt()
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The choice of nodes ahead that block a contender.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mode {
    pub(crate) blocks: fn(Kind) -> bool,
    /// Returns whether the data of a blocking node says that it no longer blocks.
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

    /// Returns whether a contender was behind it.
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

/// The limit in the data of a semaphore's directory.
pub(crate) fn read_limit(data: &[u8]) -> Option<u64> {
    std::str::from_utf8(data).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Layout::Bellwether.parse(text.to_owned()).unwrap()
    }

    #[test]
    fn names_round_trip() {
        let kinds = [Kind::Lock, Kind::Read, Kind::Write];
        for layout in Layout::ALL {
            for kind in kinds {
                let id = OperationId::new();
                let prefix = layout.prefix(kind, -0x0123_4567_89ab_cdef, id);
                for sequence in [0, 7, i32::MAX, i32::MIN, -5] {
                    let name = layout.parse(format!("{prefix}{sequence:010}")).unwrap();
                    assert_eq!(name.sequence, sequence, "{name}");
                    // kazoo's WriteLock and its Lock have one name.
                    if (layout, kind) != (Layout::Kazoo, Kind::Write) {
                        assert_eq!(name.kind, kind, "{name}");
                    }
                }
            }
        }
        let permit = name("permit17-1-2-0000000003");
        assert_eq!(permit.kind, Kind::Permit(17));
    }

    #[test]
    fn names_of_other_libraries_are_read() {
        let uuid = "3f0c5d1e-7a43-4f55-9b6e-0d4f8a1b2c3d";
        for (layout, text, kind) in [
            (
                Layout::Curator,
                format!("_c_{uuid}-lock-0000000007"),
                Kind::Lock,
            ),
            (
                Layout::Curator,
                format!("_c_{uuid}-__READ__0000000007"),
                Kind::Read,
            ),
            (
                Layout::Curator,
                format!("_c_{uuid}-__WRIT__0000000007"),
                Kind::Write,
            ),
            (
                Layout::Curator,
                format!("_c_{uuid}-latch-0000000007"),
                Kind::Candidate,
            ),
            (
                Layout::Curator,
                format!("_c_{uuid}-lease-0000000007"),
                Kind::Permit(1),
            ),
            (
                Layout::Kazoo,
                "5d1e__lock__0000000007".to_owned(),
                Kind::Lock,
            ),
            (
                Layout::Kazoo,
                "5d1e__rlock__0000000007".to_owned(),
                Kind::Read,
            ),
        ] {
            let name = layout.parse(text).unwrap();
            assert_eq!((name.kind, name.sequence), (kind, 7), "{name}");
        }
    }

    #[test]
    fn foreign_names_are_ignored() {
        for foreign in [
            "held",
            "lock-",
            "lock-1-2",
            "lock-1-2-3",
            "_c_4f-lock-0000000001",
            "lock-x-2-0000000003",
            "block-1-2-0000000003",
            "permit-1-2-0000000003",
        ] {
            assert!(
                Layout::Bellwether.parse(foreign.to_owned()).is_none(),
                "{foreign}"
            );
        }
        for foreign in ["held", "lock-1-2-0000000003", "lock-3", "5d1e__lock__"] {
            assert!(
                Layout::Kazoo.parse(foreign.to_owned()).is_none(),
                "{foreign}"
            );
        }
    }

    #[test]
    fn order_is_by_sequence_and_not_by_name() {
        assert!(name("lock-9-9-0000000001").is_before(&name("lock-1-1-0000000002")));
        assert!(!name("lock-1-1-0000000002").is_before(&name("lock-9-9-0000000001")));
    }

    #[test]
    fn order_holds_where_the_counter_wraps() {
        assert!(name("lock-1-1-2147483647").is_before(&name("lock-2-2--2147483648")));
        assert!(!name("lock-2-2--2147483648").is_before(&name("lock-1-1-2147483647")));
    }

    fn numbered(sequence: i32) -> Name {
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
        let names = others.iter().chain([&own]).copied().map(numbered).collect();
        LineView::beside(&numbered(own), listed(names)).unwrap()
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
        line.pass(&numbered(5));
        assert_eq!(blocker(&line), Some((3, true)));
        line.tolerate(numbered(3).as_str());
        assert_eq!(blocker(&line), None);
    }

    #[test]
    fn later_list_replaces_the_earlier() {
        let mut line = line(7, &[9, 3, 5, 6]);
        assert!(line.renew(listed(vec![numbered(7), numbered(9)])));
        assert_eq!(blocker(&line), None);
        assert!(!line.renew(listed(vec![numbered(8)])));
    }

    #[test]
    fn order_holds_where_numbers_have_wrapped() {
        let line = line(i32::MIN + 1, &[i32::MAX, i32::MIN, i32::MIN + 2]);
        assert_eq!(blocker(&line), Some((i32::MIN, false)));
        assert_eq!(line.lower().count(), 2);
        assert!(line.is_followed());
    }
}
