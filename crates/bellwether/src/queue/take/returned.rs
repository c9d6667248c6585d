//! The record of an item that was given back: the reason, and the earliest time of the next delivery.
//!
//! `returned/<due time in milliseconds>-<name of the item>`, persistent, with a line of JSON. If claims of the item do not count as
//! attempts, their number follows the due time: `<due time>+<number>-<name>`. A consumer that claims an item has read the names of these
//! nodes together with the item, and no other client changes the node of a claimed item.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::node::data::cut_reason;

/// The directory.
pub(crate) const RETURNED: &str = "returned";

/// The data of such a node.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Returned {
    version: u32,
    pub(crate) reason: String,
}

impl Returned {
    pub(crate) fn new(reason: &str) -> Self {
        Self {
            version: 1,
            reason: cut_reason(reason).to_owned(),
        }
    }

    pub(crate) fn to_data(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings and numbers are JSON")
    }

    /// `None` if another program wrote it.
    pub(crate) fn from_data(data: &[u8]) -> Option<Self> {
        serde_json::from_slice(data).ok()
    }
}

/// How long an item that is given back waits for its next delivery.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Backoff {
    pub(crate) first: Duration,
    pub(crate) longest: Duration,
}

impl Backoff {
    /// The delay after `attempts` attempts: it doubles with each attempt.
    pub(crate) fn after(self, attempts: u32) -> Duration {
        let doublings = attempts.saturating_sub(1).min(31);
        let delay = self.first.saturating_mul(1 << doublings);
        delay.min(self.longest)
    }
}

/// The name of such a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReturnedName<'a> {
    /// Before this time the item is not delivered again.
    pub(crate) due_ms: u64,
    /// How many claims of the item do not count as attempts.
    pub(crate) uncounted: u32,
    pub(crate) item: &'a str,
}

impl<'a> ReturnedName<'a> {
    /// `None` if it is the name of another node.
    pub(crate) fn parse(name: &'a str) -> Option<Self> {
        let (numbers, item) = name.split_once('-')?;
        let (due_ms, uncounted) = numbers.split_once('+').unwrap_or((numbers, "0"));
        Some(Self {
            due_ms: due_ms.parse().ok()?,
            uncounted: uncounted.parse().ok()?,
            item,
        })
    }
}

impl fmt::Display for ReturnedName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (due_ms, item) = (self.due_ms, self.item);
        match self.uncounted {
            0 => write!(f, "{due_ms}-{item}"),
            uncounted => write!(f, "{due_ms}+{uncounted}-{item}"),
        }
    }
}

/// How often an item was delivered, without the claims that do not count. Each claim writes the item once.
pub(crate) fn attempts(version: i32, uncounted: u32) -> u32 {
    version.cast_unsigned().saturating_sub(uncounted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_up_to_the_longest_delay() {
        let seconds = Duration::from_secs;
        let backoff = Backoff {
            first: seconds(1),
            longest: seconds(5),
        };
        let delays = [1, 2, 3, 4, u32::MAX].map(|attempts| backoff.after(attempts));
        assert_eq!(delays, [1, 2, 4, 5, 5].map(seconds));
        assert_eq!(Backoff::default().after(3), Duration::ZERO);
    }

    #[test]
    fn names_and_data_round_trip() {
        let item = "item-0123456789abcdef-0000000003";
        for (uncounted, text) in [(0, "17-"), (2, "17+2-")] {
            let name = ReturnedName {
                due_ms: 17,
                uncounted,
                item,
            };
            assert_eq!(name.to_string(), format!("{text}{item}"));
            assert_eq!(ReturnedName::parse(&name.to_string()), Some(name));
        }
        assert_eq!(ReturnedName::parse(item), None);
        let data = Returned::new("no \"disk\"").to_data();
        assert_eq!(Returned::from_data(&data).unwrap().reason, "no \"disk\"");
        assert!(Returned::from_data(b"foreign").is_none());
    }
}
