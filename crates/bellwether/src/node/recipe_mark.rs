//! The lasting mark of a directory: which recipe it belongs to, as its data, and the order of a queue.
//!
//! Servers delete empty containers, so directories inside a recipe may be missing, and the remaining ones may not identify the recipe. The
//! mark lives as long as the recipe's own directory.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Which recipe a directory belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RecipeMark {
    Queue,
    Tasks,
}

/// The order of the items of a queue, as its directory records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum RecordedOrder {
    /// First in, first out: a [`Queue`](crate::Queue).
    Arrival,
    /// By priority: a [`PriorityQueue`](crate::PriorityQueue).
    Priority,
    /// By due time: a [`DelayQueue`](crate::DelayQueue).
    Due,
}

impl fmt::Display for RecordedOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Arrival => "arrival",
            Self::Priority => "priority",
            Self::Due => "due time",
        })
    }
}

#[derive(Serialize, Deserialize)]
struct Data {
    version: u32,
    recipe: RecipeMark,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    order: Option<RecordedOrder>,
}

impl RecipeMark {
    pub(crate) fn to_data(self, order: Option<RecordedOrder>) -> Vec<u8> {
        let data = Data {
            version: 1,
            recipe: self,
            order,
        };
        serde_json::to_vec(&data).expect("strings and numbers are JSON")
    }

    /// The order that the data of a directory records.
    pub(crate) fn order_of(data: &[u8]) -> Option<RecordedOrder> {
        let data: Data = serde_json::from_slice(data).ok()?;
        data.order
    }

    /// Reads the data of a directory; `None` if it is no mark.
    pub(crate) fn from_data(data: &[u8]) -> Option<Self> {
        let data: Data = serde_json::from_slice(data).ok()?;
        Some(data.recipe)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mark_is_read_as_it_was_written_and_nothing_else_is_a_mark() {
        assert_eq!(
            RecipeMark::Queue.to_data(None),
            br#"{"version":1,"recipe":"queue"}"#
        );
        assert_eq!(
            RecipeMark::Queue.to_data(Some(RecordedOrder::Due)),
            br#"{"version":1,"recipe":"queue","order":"due"}"#
        );
        for mark in [RecipeMark::Queue, RecipeMark::Tasks] {
            for order in [None, Some(RecordedOrder::Priority)] {
                let data = mark.to_data(order);
                assert_eq!(RecipeMark::from_data(&data), Some(mark));
                assert_eq!(RecipeMark::order_of(&data), order);
            }
        }
        for data in [&b""[..], b"5", br#"{"version":1}"#, br#"{"recipe":"stew"}"#] {
            assert_eq!(RecipeMark::from_data(data), None);
        }
    }
}
