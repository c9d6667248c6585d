//! The order in which items are taken.

use std::cmp::Ordering;
use std::fmt;
use std::time::{Duration, SystemTime};

use crate::node::OperationId;
use crate::node::data::RecordedOrder;

/// The order in which the items of a queue are taken; see [`Fifo`], [`ByPriority`] and [`ByDueTime`]. There are no others.
pub trait Order: Rules + fmt::Debug + Send + Sync + 'static {}

/// Sealed: the supertrait cannot be named outside this crate.
pub trait Rules {
    #[doc(hidden)]
    const RULE: Rule;
}

/// First in, first out: the order of a [`Queue`](crate::Queue).
#[derive(Clone, Copy, Debug)]
pub struct Fifo;

/// The lowest number first, and among equals as they were put: the order of a [`PriorityQueue`](crate::PriorityQueue).
#[derive(Clone, Copy, Debug)]
pub struct ByPriority;

/// Order by due time, and no item before it is due: the order of a [`DelayQueue`](crate::DelayQueue).
#[derive(Clone, Copy, Debug)]
pub struct ByDueTime;

/// The properties of an order that the engine needs.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// True if an item that is put later may have to be taken earlier.
    pub(crate) overtakes: bool,
    /// True if the rank is a time before which the item must not be taken.
    pub(crate) delays: bool,
    /// True if the names are given by the user, and have no structure.
    pub(crate) named: bool,
    /// The order that the directory of a queue records.
    pub(crate) recorded: Option<RecordedOrder>,
}

impl Rule {
    pub(crate) const FIFO: Self = Self {
        overtakes: false,
        delays: false,
        named: false,
        recorded: Some(RecordedOrder::Arrival),
    };

    /// Returns whether an item of this rank may be taken ahead of `first`. Due times that have passed are equal.
    pub(crate) fn may_choose(self, first: Option<i64>, rank: i64) -> bool {
        self.delays || first == Some(rank)
    }

    /// Tasks have names, and no order to rely on.
    pub(crate) const TASKS: Self = Self {
        named: true,
        recorded: None,
        ..Self::FIFO
    };
}

impl Rules for Fifo {
    const RULE: Rule = Rule::FIFO;
}

impl Rules for ByPriority {
    const RULE: Rule = Rule {
        overtakes: true,
        recorded: Some(RecordedOrder::Priority),
        ..Rule::FIFO
    };
}

impl Rules for ByDueTime {
    const RULE: Rule = Rule {
        overtakes: true,
        delays: true,
        recorded: Some(RecordedOrder::Due),
        ..Rule::FIFO
    };
}

impl Order for Fifo {}
impl Order for ByPriority {}
impl Order for ByDueTime {}

/// Due times are at least this, some weeks after 1970, and so greater than all priorities.
pub(crate) const DUE_MIN: i64 = 1 << 32;

/// The rank of an item that is due at a time.
pub(crate) fn due_rank(due_ms: u64) -> i64 {
    i64::try_from(due_ms).unwrap_or(i64::MAX).max(DUE_MIN)
}

/// Stands before a rank below zero, because a minus would separate.
const NEGATIVE: char = 'n';

/// The sequence of an item that has none.
const UNNUMBERED: i32 = -1;

/// An item, by the name of its node: `<rank>-<id>-<sequence>`, where the rank of an ordinary item is the word `item`, and that of a
/// negative priority `n5` for -5.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    rank: i64,
    sequence: i32,
    name: String,
}

impl Item {
    /// Parses the name of a child; `None` for a name of another shape, which is ignored.
    pub(crate) fn parse(rule: Rule, name: String) -> Option<Self> {
        if rule.named {
            return Some(Self {
                rank: 0,
                sequence: UNNUMBERED,
                name,
            });
        }
        let mut parts = name.splitn(3, '-');
        let rank = match parts.next()? {
            "item" => 0,
            rank => match rank.strip_prefix(NEGATIVE) {
                Some(rank) => -i64::from(rank.parse::<u32>().ok()?),
                None => i64::try_from(rank.parse::<u64>().ok()?).ok()?,
            },
        };
        let id = parts.next()?;
        let sequence = parts.next().filter(|digits| digits.len() >= 10)?;
        let sequence = sequence.parse().ok()?;
        (id.len() == 16).then_some(())?;
        Some(Self {
            rank,
            sequence,
            name,
        })
    }

    /// The name up to the sequence, which the server adds.
    pub(crate) fn prefix(rule: Rule, rank: i64, id: &ItemId) -> String {
        match rule.overtakes {
            true if rank < 0 => format!("{NEGATIVE}{}-{id}-", rank.unsigned_abs()),
            true => format!("{rank}-{id}-"),
            false => format!("item-{id}-"),
        }
    }

    /// Does the same as [`prefix`](Self::prefix), with the rank of this item, which any handle can read, whatever its order.
    pub(crate) fn own_prefix(&self) -> &str {
        let end = self.name.match_indices('-').nth(1);
        end.map_or(&self.name, |(end, _)| &self.name[..=end])
    }

    /// Returns whether its name has a rank, so that it may have to be taken before items that were put earlier.
    pub(crate) fn is_ranked(&self) -> bool {
        self.sequence != UNNUMBERED && !self.name.starts_with("item-")
    }

    /// The order that it was put for, if its name has a rank. One without a rank is first in any order.
    pub(crate) fn order(&self) -> Option<RecordedOrder> {
        let order = match self.rank {
            DUE_MIN.. => RecordedOrder::Due,
            _ => RecordedOrder::Priority,
        };
        self.is_ranked().then_some(order)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn rank(&self) -> i64 {
        self.rank
    }

    /// Returns the number of the item among those of its directory, in the order in which they were put.
    pub(crate) fn sequence(&self) -> i32 {
        self.sequence
    }

    pub(crate) fn id(&self) -> ItemId {
        let id = match self.sequence {
            UNNUMBERED => None,
            _ => self.name.split('-').nth(1),
        };
        ItemId(id.unwrap_or(&self.name).to_owned())
    }

    /// Returns the time until the item may be taken; `None` if it may be now.
    pub(crate) fn wait(&self, rule: Rule, now_ms: u64) -> Option<Duration> {
        let due_ms = u64::try_from(self.rank).unwrap_or(0);
        match due_ms.checked_sub(now_ms) {
            Some(left @ 1..) if rule.delays => Some(Duration::from_millis(left)),
            _ => None,
        }
    }
}

impl Ord for Item {
    fn cmp(&self, other: &Self) -> Ordering {
        // Puts are refused before the counter of a directory can wrap.
        let key = |item: &Self| (item.rank, item.sequence);
        key(self)
            .cmp(&key(other))
            .then_with(|| self.name.cmp(&other.name))
    }
}

impl PartialOrd for Item {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A unique id of an item, across all queues. It is part of the name of the node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ItemId(String);

impl ItemId {
    pub(crate) fn new() -> Self {
        Self(OperationId::new().to_string())
    }
}

impl fmt::Display for ItemId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A time as names hold it.
pub(crate) fn to_ms(time: SystemTime) -> u64 {
    let since = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(rule: Rule, name: &str) -> Option<Item> {
        Item::parse(rule, name.to_owned())
    }

    #[test]
    fn names_round_trip() {
        for (rule, rank) in [
            (Fifo::RULE, 0),
            (ByPriority::RULE, 7),
            (ByPriority::RULE, -7),
            (ByDueTime::RULE, DUE_MIN),
        ] {
            let id = ItemId::new();
            let name = format!("{}0000000012", Item::prefix(rule, rank, &id));
            let item = item(rule, &name).unwrap();
            assert_eq!(item.id(), id);
            assert_eq!(item.rank(), rank);
            assert_eq!(item.sequence, 12);
            // Also where the handle has another order.
            let read = self::item(Fifo::RULE, &name).unwrap();
            assert_eq!(read.own_prefix(), Item::prefix(rule, rank, &id));
            assert_eq!(read.is_ranked(), rule.overtakes);
        }
    }

    #[test]
    fn order_is_in_the_name_of_a_ranked_item() {
        let order = |rule: Rule, rank| {
            let name = format!("{}0000000012", Item::prefix(rule, rank, &ItemId::new()));
            item(Fifo::RULE, &name).unwrap().order()
        };
        assert_eq!(order(Fifo::RULE, 0), None);
        for (rule, rank) in [
            (ByPriority::RULE, u32::MAX.into()),
            (ByPriority::RULE, i32::MIN.into()),
            (ByDueTime::RULE, DUE_MIN),
        ] {
            assert_eq!(order(rule, rank), rule.recorded);
        }
    }

    #[test]
    fn foreign_names_are_ignored() {
        for foreign in [
            "",
            "item",
            "item-0000000001",
            "item-0123456789abcdef-1",
            "-1-0123456789abcdef-0000000001",
            "x-0123456789abcdef-0000000001",
            "n-0123456789abcdef-0000000001",
        ] {
            assert!(item(ByPriority::RULE, foreign).is_none(), "{foreign}");
        }
    }

    #[test]
    fn rank_goes_before_sequence_and_both_are_numbers() {
        let name = |rank: i64, sequence: u32| {
            let id = ItemId::new();
            let name = format!(
                "{}{sequence:010}",
                Item::prefix(ByPriority::RULE, rank, &id)
            );
            item(ByPriority::RULE, &name).unwrap()
        };
        let mut items = [
            name(10, 1),
            name(-2, 4),
            name(9, 3),
            name(9, 2),
            name(100, 0),
            name(-10, 5),
        ];
        items.sort();
        let order = items.map(|item| (item.rank, item.sequence));
        assert_eq!(
            order,
            [(-10, 5), (-2, 4), (9, 2), (9, 3), (10, 1), (100, 0)]
        );
    }

    #[test]
    fn only_a_due_time_makes_an_item_wait() {
        let name = "5000-0123456789abcdef-0000000001";
        let wait = |rule, now| item(rule, name).unwrap().wait(rule, now);
        assert_eq!(
            wait(ByDueTime::RULE, 4000),
            Some(Duration::from_millis(1000))
        );
        assert_eq!(wait(ByDueTime::RULE, 5000), None);
        assert_eq!(wait(ByDueTime::RULE, 6000), None);
        assert_eq!(wait(ByPriority::RULE, 4000), None);
    }
}
