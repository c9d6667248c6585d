//! Names of contenders: `<kind>-<session>-<id of the acquisition>-<sequence>`.

use std::cmp::Ordering;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::atomic::{self, AtomicU64};

/// What a contender wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Lock,
    Candidate,
    Member,
    /// Waits for an item of a queue.
    Consumer,
}

impl Kind {
    fn parse(kind: &str) -> Option<Self> {
        match kind {
            "lock" => Some(Self::Lock),
            "candidate" => Some(Self::Candidate),
            "member" => Some(Self::Member),
            "consumer" => Some(Self::Consumer),
            _ => None,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock => f.write_str("lock"),
            Self::Candidate => f.write_str("candidate"),
            Self::Member => f.write_str("member"),
            Self::Consumer => f.write_str("consumer"),
        }
    }
}

/// Tells one acquisition from all others. The session alone would not: two tasks may share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AcquisitionId(u64);

impl AcquisitionId {
    /// An id that no other acquisition has, in this process or another.
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        // The hasher's keys are random in each process, which is all the randomness this needs.
        let count = COUNT.fetch_add(1, atomic::Ordering::Relaxed);
        Self(RandomState::new().hash_one((count, std::process::id())))
    }
}

impl fmt::Display for AcquisitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The name of a contender's node.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    text: String,
    kind: Kind,
    id: AcquisitionId,
    sequence: i32,
}

impl Name {
    /// Reads the name of a child; `None` for a name of another shape, which is none of our business.
    pub(crate) fn parse(text: String) -> Option<Self> {
        let mut parts = text.splitn(4, '-');
        let kind = Kind::parse(parts.next()?)?;
        let _session = u64::from_str_radix(parts.next()?, 16).ok()?;
        let id = AcquisitionId(u64::from_str_radix(parts.next()?, 16).ok()?);
        // The server writes ten digits, after a minus sign once the counter has wrapped.
        let sequence = parts.next().filter(|digits| digits.len() >= 10)?;
        let sequence = sequence.parse().ok()?;
        Some(Self {
            text,
            kind,
            id,
            sequence,
        })
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    pub(crate) fn id(&self) -> AcquisitionId {
        self.id
    }

    pub(crate) fn sequence(&self) -> i32 {
        self.sequence
    }

    /// The older one is less: for sorting.
    pub(crate) fn cmp_age(&self, other: &Self) -> Ordering {
        self.sequence.wrapping_sub(other.sequence).cmp(&0)
    }

    /// Whether this one was created before the other. The counter may wrap, so the difference decides, and no other
    /// part of the name: that would put one holder beside another (ZOOKEEPER-2931).
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

/// A name without the sequence, which the server adds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prefix {
    pub(crate) kind: Kind,
    pub(crate) session: i64,
    pub(crate) id: AcquisitionId,
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, session, id } = self;
        write!(f, "{kind}-{session:x}-{id}-")
    }
}

/// The contenders among the children of a directory, in no order.
pub(crate) fn contenders(children: Vec<String>) -> impl Iterator<Item = Name> {
    children.into_iter().filter_map(Name::parse)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::parse(text.to_owned()).unwrap()
    }

    #[test]
    fn names_round_trip() {
        let prefix = Prefix {
            kind: Kind::Lock,
            session: -0x0123_4567_89ab_cdef,
            id: AcquisitionId(u64::MAX),
        };
        for sequence in [0, 7, i32::MAX, i32::MIN, -5] {
            let name = name(&format!("{prefix}{sequence:010}"));
            assert_eq!(
                (name.kind, name.id, name.sequence),
                (Kind::Lock, prefix.id, sequence)
            );
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
        ] {
            assert!(Name::parse(foreign.to_owned()).is_none(), "{foreign}");
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
}
