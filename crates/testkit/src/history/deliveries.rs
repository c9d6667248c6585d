//! Checks of queues and tasks: nothing is lost, doubled, early, or out of order.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::{Deserialize, Serialize};

/// A step of a producer or a consumer. An item is identified by its payload, which no two puts share.
///
/// Steps are recorded in order: the start of a call before it, its end after it. A process that dies in between leaves the result open, and
/// so does a call whose result is unknown: neither records an end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the fields are named in the lines above them")]
pub enum DeliveryStep {
    /// About to put an item.
    Putting { item: String },
    /// It was put.
    Put { item: String },
    /// It was not put.
    NotPut { item: String },
    /// About to take.
    Taking,
    /// Delivered: the item, its node, the token of the claim, and the time of day.
    Delivered {
        item: String,
        node: String,
        token: i64,
        at_ms: u64,
    },
    /// About to acknowledge.
    Acking { item: String, token: i64 },
    /// It was acknowledged.
    Acked { item: String, token: i64 },
    /// It was not acknowledged.
    NotAcked { item: String, token: i64 },
    /// It is a dead letter at the end.
    Dead { item: String },
}

impl DeliveryStep {
    /// The item, if it is about one.
    pub fn item(&self) -> Option<&str> {
        match self {
            Self::Putting { item }
            | Self::Put { item }
            | Self::NotPut { item }
            | Self::Delivered { item, .. }
            | Self::Acking { item, .. }
            | Self::Acked { item, .. }
            | Self::NotAcked { item, .. }
            | Self::Dead { item } => Some(item),
            Self::Taking => None,
        }
    }
}

/// What is known about one item.
#[derive(Debug, Default)]
struct Fate {
    put: bool,
    not_put: bool,
    node: Option<String>,
    tokens: Vec<i64>,
    acked: Option<i64>,
    /// Claims that may have acknowledged it.
    in_doubt: BTreeSet<i64>,
    dead: bool,
}

/// Checks that nothing is lost, doubled, delivered after its acknowledgement, or acknowledged by a claim that was not the last; returns the
/// violation as text. The history must end with an empty queue.
pub fn check_delivery<'a>(steps: impl IntoIterator<Item = &'a DeliveryStep>) -> Result<(), String> {
    let mut fates: HashMap<&str, Fate> = HashMap::new();
    for step in steps {
        let Some(item) = step.item() else { continue };
        let fate = fates.entry(item).or_default();
        match step {
            DeliveryStep::Put { .. } => fate.put = true,
            DeliveryStep::NotPut { .. } => fate.not_put = true,
            DeliveryStep::Delivered { node, token, .. } => {
                if fate.node.as_ref().is_some_and(|known| known != node) {
                    return Err(format!("{item} was put twice"));
                }
                // A delivery is recorded late, so the delivery of an earlier claim may follow.
                if fate.acked.is_some_and(|acked| acked < *token) {
                    return Err(format!("{item} was delivered after its acknowledgement"));
                }
                // So an earlier claim did not settle it.
                fate.in_doubt.retain(|doubt| doubt > token);
                fate.node = Some(node.clone());
                fate.tokens.push(*token);
            }
            DeliveryStep::Acking { token, .. } => {
                fate.in_doubt.insert(*token);
            }
            DeliveryStep::NotAcked { token, .. } => {
                fate.in_doubt.remove(token);
            }
            DeliveryStep::Acked { token, .. } => {
                fate.in_doubt.remove(token);
                if fate.acked.replace(*token).is_some() {
                    return Err(format!("{item} was acknowledged twice"));
                }
                if fate.tokens.iter().any(|other| other > token) {
                    return Err(format!("{item} was acknowledged by a stale claim"));
                }
            }
            DeliveryStep::Dead { .. } => fate.dead = true,
            DeliveryStep::Putting { .. } | DeliveryStep::Taking => {}
        }
    }
    for (item, fate) in fates {
        let mut tokens = fate.tokens.clone();
        tokens.sort_unstable();
        tokens.dedup();
        if tokens.len() != fate.tokens.len() {
            return Err(format!("two claims of {item} have one token"));
        }
        if fate.not_put && !fate.tokens.is_empty() {
            return Err(format!("{item} was delivered, though it was not put"));
        }
        let ended = fate.acked.is_some() || !fate.in_doubt.is_empty() || fate.dead;
        if fate.put && !ended {
            return Err(format!("{item} was lost"));
        }
        if fate.acked.is_some() && fate.dead {
            return Err(format!("{item} was acknowledged, and is a dead letter"));
        }
    }
    Ok(())
}

/// Checks that one consumer gets items by rank, and within a rank in the order of their puts. An item put during a take may be delivered or
/// not. `rank` extracts the rank of an item.
pub fn check_order(steps: &[DeliveryStep], rank: impl Fn(&str) -> u64) -> Result<(), String> {
    // By rank, then by the place of its put in the history.
    let mut waiting: BTreeMap<(u64, usize), &str> = BTreeMap::new();
    let mut delivered: Vec<&str> = Vec::new();
    // Items that were there when the take began.
    let mut seen = BTreeMap::new();
    for (place, step) in steps.iter().enumerate() {
        match step {
            DeliveryStep::Put { item } if !delivered.contains(&item.as_str()) => {
                waiting.insert((rank(item), place), item);
            }
            DeliveryStep::Taking => seen = waiting.clone(),
            DeliveryStep::Delivered { item, .. } if !delivered.contains(&item.as_str()) => {
                let own = waiting.iter().find(|(_, other)| **other == item);
                let own = own.map_or((rank(item), place), |(key, _)| *key);
                if let Some((_, first)) = seen.range(..own).next() {
                    return Err(format!("{item} was delivered before {first}"));
                }
                waiting.remove(&own);
                seen.remove(&own);
                delivered.push(item);
            }
            _ => {}
        }
    }
    Ok(())
}

/// Checks that no item is delivered before it is due. `due` extracts the time of an item. Deliveries are recorded late, so a delivery that
/// was early by less than that delay is not found.
pub fn check_due<'a>(
    steps: impl IntoIterator<Item = &'a DeliveryStep>,
    due: impl Fn(&str) -> u64,
) -> Result<(), String> {
    for step in steps {
        if let DeliveryStep::Delivered { item, at_ms, .. } = step
            && *at_ms < due(item)
        {
            return Err(format!("{item} was delivered early, at {at_ms}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(item: &str) -> DeliveryStep {
        DeliveryStep::Put {
            item: item.to_owned(),
        }
    }

    fn delivered(item: &str, token: i64) -> DeliveryStep {
        DeliveryStep::Delivered {
            item: item.to_owned(),
            node: format!("node of {item}"),
            token,
            at_ms: 0,
        }
    }

    fn acked(item: &str, token: i64) -> DeliveryStep {
        let item = item.to_owned();
        DeliveryStep::Acked { item, token }
    }

    fn acking(item: &str, token: i64) -> DeliveryStep {
        let item = item.to_owned();
        DeliveryStep::Acking { item, token }
    }

    fn delivery(steps: &[DeliveryStep]) -> Result<(), String> {
        check_delivery(steps)
    }

    #[test]
    fn what_is_right_passes() {
        let item = |name: &str| name.to_owned();
        assert_eq!(
            delivery(&[
                put("a"),
                put("b"),
                DeliveryStep::Putting { item: item("c") },
                DeliveryStep::NotPut { item: item("d") },
                delivered("a", 1),
                delivered("b", 2),
                delivered("b", 3),
                acked("a", 1),
                DeliveryStep::Acking {
                    item: item("b"),
                    token: 3,
                },
            ]),
            Ok(())
        );
        assert_eq!(
            delivery(&[put("b"), DeliveryStep::Dead { item: item("b") }]),
            Ok(())
        );
    }

    /// A consumer may be paused between its take and the record of it.
    #[test]
    fn delivery_of_an_earlier_claim_may_be_recorded_late() {
        let late = [
            put("a"),
            delivered("a", 2),
            acked("a", 2),
            delivered("a", 1),
        ];
        assert_eq!(delivery(&late), Ok(()));
    }

    #[test]
    fn each_wrong_is_seen() {
        let other_node = DeliveryStep::Delivered {
            item: "a".to_owned(),
            node: "another".to_owned(),
            token: 2,
            at_ms: 0,
        };
        let dead = DeliveryStep::Dead {
            item: "a".to_owned(),
        };
        for (events, expected) in [
            (vec![put("a")], "a was lost"),
            (
                vec![
                    put("a"),
                    delivered("a", 1),
                    acking("a", 1),
                    delivered("a", 2),
                ],
                "a was lost",
            ),
            (vec![put("a"), delivered("a", 1)], "a was lost"),
            (
                vec![
                    put("a"),
                    delivered("a", 1),
                    acked("a", 1),
                    delivered("a", 2),
                ],
                "a was delivered after its acknowledgement",
            ),
            (
                vec![put("a"), delivered("a", 1), other_node],
                "a was put twice",
            ),
            (
                vec![put("a"), delivered("a", 1), acked("a", 1), acked("a", 1)],
                "a was acknowledged twice",
            ),
            (
                vec![
                    put("a"),
                    delivered("a", 1),
                    delivered("a", 2),
                    acked("a", 1),
                ],
                "a was acknowledged by a stale claim",
            ),
            (
                vec![
                    put("a"),
                    delivered("a", 1),
                    delivered("a", 1),
                    acked("a", 1),
                ],
                "two claims of a have one token",
            ),
            (
                vec![
                    DeliveryStep::NotPut {
                        item: "a".to_owned(),
                    },
                    delivered("a", 1),
                    acked("a", 1),
                ],
                "a was delivered, though it was not put",
            ),
            (
                vec![put("a"), delivered("a", 1), acked("a", 1), dead],
                "a was acknowledged, and is a dead letter",
            ),
        ] {
            assert_eq!(delivery(&events), Err(expected.to_owned()));
        }
    }

    fn order(steps: &[DeliveryStep]) -> bool {
        // The rank is the length of the name.
        let rank = |item: &str| item.len() as u64;
        check_order(steps, rank).is_ok()
    }

    #[test]
    fn order_is_by_rank_and_then_as_they_were_put() {
        let take = || DeliveryStep::Taking;
        assert!(order(&[
            put("bb"),
            put("a"),
            put("c"),
            take(),
            delivered("a", 1),
            take(),
            delivered("c", 2),
            take(),
            delivered("bb", 3),
        ]));
        assert!(!order(&[put("a"), put("c"), take(), delivered("c", 1)]));
        assert!(!order(&[put("bb"), put("c"), take(), delivered("bb", 1)]));
    }

    #[test]
    fn what_is_put_meanwhile_may_wait() {
        assert!(order(&[
            put("bb"),
            DeliveryStep::Taking,
            put("a"),
            delivered("bb", 1),
        ]));
    }

    #[test]
    fn early_delivery_is_seen() {
        // The name is the time at which it is due.
        let due = |item: &str| item.parse().unwrap();
        let at = |at_ms| DeliveryStep::Delivered {
            item: "5".to_owned(),
            node: "node".to_owned(),
            token: 1,
            at_ms,
        };
        assert_eq!(check_due(&[put("5"), at(5), at(6)], due), Ok(()));
        let early = check_due(&[at(5), at(4)], due);
        assert_eq!(early, Err("5 was delivered early, at 4".to_owned()));
    }

    #[test]
    fn second_delivery_says_nothing_about_order() {
        assert!(order(&[
            put("a"),
            put("b"),
            DeliveryStep::Taking,
            delivered("a", 1),
            DeliveryStep::Taking,
            delivered("b", 2),
            DeliveryStep::Taking,
            delivered("a", 3),
        ]));
    }
}
