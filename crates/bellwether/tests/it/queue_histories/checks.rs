//! What a history of a queue must be like, as functions of it.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

/// Something that a producer or a consumer saw. Items are named by their payloads, which no two puts share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// About to put.
    Putting(String),
    /// It was put.
    Put(String),
    /// It was put or not.
    PutUnknown(String),
    /// It was not put.
    NotPut(String),
    /// About to take.
    Taking,
    /// Delivered: the item, the node that stands for it, the token of the claim, and the time by the clock.
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
    /// It was acknowledged or not.
    AckUnknown { item: String },
    /// It is a dead letter at the end.
    Dead { item: String },
}

/// Events in the order in which they were noted. What ends is noted after it has, what begins before it does.
#[derive(Clone, Debug, Default)]
pub(super) struct History(pub(super) Vec<Event>);

/// Something that must not happen, and did.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Violation(String);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn violation<T>(what: String) -> Result<T, Violation> {
    Err(Violation(what))
}

/// What is known of one item.
#[derive(Debug, Default)]
struct Fate {
    put: bool,
    not_put: bool,
    node: Option<String>,
    tokens: Vec<i64>,
    acked: Option<i64>,
    ack_unknown: bool,
    dead: bool,
}

impl History {
    /// Nothing is lost, doubled, delivered after its acknowledgement, or acknowledged by a claim that was not the last. The
    /// history is to end with an empty queue.
    pub(super) fn check_delivery(&self) -> Result<(), Violation> {
        let mut fates: HashMap<&str, Fate> = HashMap::new();
        for event in &self.0 {
            match event {
                Event::Put(item) => fates.entry(item).or_default().put = true,
                Event::NotPut(item) => fates.entry(item).or_default().not_put = true,
                Event::Delivered {
                    item, node, token, ..
                } => {
                    let fate = fates.entry(item).or_default();
                    if fate.node.as_ref().is_some_and(|known| known != node) {
                        return violation(format!("{item} was put twice"));
                    }
                    if fate.acked.is_some() {
                        return violation(format!(
                            "{item} was delivered after its acknowledgement"
                        ));
                    }
                    fate.node = Some(node.clone());
                    fate.tokens.push(*token);
                }
                Event::Acked { item, token } => {
                    let fate = fates.entry(item).or_default();
                    if fate.acked.replace(*token).is_some() {
                        return violation(format!("{item} was acknowledged twice"));
                    }
                    // Grants are noted late, so one that is not noted yet is no excuse either way.
                    if fate.tokens.iter().any(|other| other > token) {
                        return violation(format!("{item} was acknowledged by a stale claim"));
                    }
                }
                Event::AckUnknown { item } => fates.entry(item).or_default().ack_unknown = true,
                Event::Dead { item } => fates.entry(item).or_default().dead = true,
                Event::Putting(_) | Event::PutUnknown(_) | Event::Taking | Event::Acking { .. } => {
                }
            }
        }
        for (item, fate) in fates {
            let mut tokens = fate.tokens.clone();
            tokens.sort_unstable();
            tokens.dedup();
            if tokens.len() != fate.tokens.len() {
                return violation(format!("two claims of {item} have one token"));
            }
            if fate.not_put && !fate.tokens.is_empty() {
                return violation(format!("{item} was delivered, though it was not put"));
            }
            let ended = fate.acked.is_some() || fate.ack_unknown || fate.dead;
            if fate.put && !ended {
                return violation(format!("{item} was lost"));
            }
            if fate.acked.is_some() && fate.dead {
                return violation(format!("{item} was acknowledged, and is a dead letter"));
            }
        }
        Ok(())
    }

    /// One consumer gets the items by rank, and within a rank as they were put. What was put while it was taking may come or
    /// not. `rank` reads the rank off an item.
    pub(super) fn check_order(&self, rank: impl Fn(&str) -> u64) -> Result<(), Violation> {
        // By rank, then by the place of its put in the history.
        let mut waiting: BTreeMap<(u64, usize), &str> = BTreeMap::new();
        let mut delivered: Vec<&str> = Vec::new();
        // What was there when the take began.
        let mut seen = BTreeMap::new();
        for (place, event) in self.0.iter().enumerate() {
            match event {
                Event::Put(item) if !delivered.contains(&item.as_str()) => {
                    waiting.insert((rank(item), place), item);
                }
                Event::Taking => seen = waiting.clone(),
                Event::Delivered { item, .. } if !delivered.contains(&item.as_str()) => {
                    let own = waiting.iter().find(|(_, other)| **other == item);
                    let own = own.map_or((rank(item), place), |(key, _)| *key);
                    if let Some((_, first)) = seen.range(..own).next() {
                        return violation(format!("{item} was delivered before {first}"));
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

    /// No item is delivered before it is due. `due` reads the time off an item. Deliveries are noted late, so what was
    /// early by less than that goes unseen.
    pub(super) fn check_due(&self, due: impl Fn(&str) -> u64) -> Result<(), Violation> {
        for event in &self.0 {
            if let Event::Delivered { item, at_ms, .. } = event
                && *at_ms < due(item)
            {
                return violation(format!("{item} was delivered early, at {at_ms}"));
            }
        }
        Ok(())
    }
}

mod tests {
    use super::*;

    fn put(item: &str) -> Event {
        Event::Put(item.to_owned())
    }

    fn delivered(item: &str, token: i64) -> Event {
        Event::Delivered {
            item: item.to_owned(),
            node: format!("node of {item}"),
            token,
            at_ms: 0,
        }
    }

    fn acked(item: &str, token: i64) -> Event {
        let item = item.to_owned();
        Event::Acked { item, token }
    }

    fn delivery(events: &[Event]) -> Result<(), String> {
        let verdict = History(events.to_vec()).check_delivery();
        verdict.map_err(|violation| violation.to_string())
    }

    #[test]
    fn what_is_right_passes() {
        let item = || "b".to_owned();
        assert_eq!(
            delivery(&[
                put("a"),
                put("b"),
                Event::PutUnknown("c".to_owned()),
                Event::NotPut("d".to_owned()),
                delivered("a", 1),
                delivered("b", 2),
                delivered("b", 3),
                acked("a", 1),
                Event::AckUnknown { item: item() },
            ]),
            Ok(())
        );
        assert_eq!(delivery(&[put("b"), Event::Dead { item: item() }]), Ok(()));
    }

    #[test]
    fn each_wrong_is_seen() {
        let other_node = Event::Delivered {
            item: "a".to_owned(),
            node: "another".to_owned(),
            token: 2,
            at_ms: 0,
        };
        let dead = Event::Dead {
            item: "a".to_owned(),
        };
        for (events, expected) in [
            (vec![put("a")], "a was lost"),
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
                    Event::NotPut("a".to_owned()),
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

    fn order(events: &[Event]) -> bool {
        // The rank is the length of the name.
        let rank = |item: &str| item.len() as u64;
        History(events.to_vec()).check_order(rank).is_ok()
    }

    #[test]
    fn order_is_by_rank_and_then_as_they_were_put() {
        let take = || Event::Taking;
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
            Event::Taking,
            put("a"),
            delivered("bb", 1),
        ]));
    }

    #[test]
    fn early_delivery_is_seen() {
        // The name is the time at which it is due.
        let due = |item: &str| item.parse().unwrap();
        let at = |at_ms| Event::Delivered {
            item: "5".to_owned(),
            node: "node".to_owned(),
            token: 1,
            at_ms,
        };
        assert_eq!(History(vec![put("5"), at(5), at(6)]).check_due(due), Ok(()));
        let early = History(vec![at(5), at(4)]).check_due(due);
        let early = early.map_err(|violation| violation.to_string());
        assert_eq!(early, Err("5 was delivered early, at 4".to_owned()));
    }

    #[test]
    fn second_delivery_says_nothing_about_order() {
        assert!(order(&[
            put("a"),
            put("b"),
            Event::Taking,
            delivered("a", 1),
            Event::Taking,
            delivered("b", 2),
            Event::Taking,
            delivered("a", 3),
        ]));
    }
}
