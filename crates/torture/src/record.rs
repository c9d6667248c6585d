//! One line of a history: what a worker did in a recipe, or what was done to it.

use bellwether_testkit::history::deliveries;
use bellwether_testkit::history::gates::Passage;
use bellwether_testkit::history::sights::Sight;
use bellwether_testkit::history::sums::Addition;
use bellwether_testkit::history::transactions::Deed;
use bellwether_testkit::history::{Event, Moment, What};
use bellwether_testkit::history::{members, registers, rounds};
use serde::{Deserialize, Serialize};

use crate::recipe::Recipe;

/// An event: time, worker, recipe, and what happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The time.
    pub at: Moment,
    /// The number of the worker.
    pub who: usize,
    /// The recipe; `None` for an event of a whole process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recipe: Option<Recipe>,
    /// The event.
    #[serde(flatten)]
    pub did: Did,
}

/// An event of one of the recipes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Did {
    /// An event of a hold or a process.
    Hold(What),
    /// An event of a queue.
    Item(deliveries::DeliveryStep),
    /// An event of a counter.
    Count(Addition),
    /// An event of a barrier.
    Pass(Passage),
    /// An event of a double barrier.
    Meet(rounds::RoundStep),
    /// An event of a transaction.
    #[expect(missing_docs, reason = "as in `transactions::Note`")]
    Transact {
        id: String,
        site: Option<usize>,
        deed: Deed,
    },
    /// Of a value that is read and changed.
    Register(registers::RegisterStep),
    /// Of a group.
    Member(members::MemberStep),
    /// Of a live copy.
    See(Sight),
}

impl Record {
    /// The event, if it is one of a hold or a process.
    pub fn event(&self) -> Option<Event> {
        match &self.did {
            Did::Hold(what) => Some(Event {
                at: self.at,
                who: self.who,
                what: what.clone(),
            }),
            _ => None,
        }
    }

    /// Whether it says that a call succeeded, which counts as progress of the worker.
    pub fn is_success(&self) -> bool {
        matches!(
            self.did,
            Did::Hold(What::Granted { .. })
                | Did::Item(deliveries::DeliveryStep::Acked { .. })
                | Did::Count(Addition::Added)
                | Did::Pass(Passage::Shut | Passage::Passed)
                | Did::Meet(rounds::RoundStep::Left)
                | Did::Transact {
                    deed: Deed::Told(_),
                    ..
                }
                | Did::Register(registers::RegisterStep::Changed { .. })
                | Did::Member(members::MemberStep::Found)
                | Did::See(Sight::CaughtUp)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_record_survives_as_a_line() {
        let item = || "0 1.0.7".to_owned();
        for did in [
            Did::Hold(What::Granted {
                token: i64::MAX,
                weight: 2,
            }),
            Did::Hold(What::Paused),
            Did::Item(deliveries::DeliveryStep::Taking),
            Did::Item(deliveries::DeliveryStep::Delivered {
                item: item(),
                node: "item-1".into(),
                token: 1 << 40,
                at_ms: 5,
            }),
            Did::Count(Addition::Adding),
            Did::Pass(Passage::Shut),
            Did::Meet(rounds::RoundStep::Entered { round: 3 }),
            Did::Transact {
                id: "t".into(),
                site: None,
                deed: Deed::Told(true),
            },
            Did::Register(registers::RegisterStep::Changing {
                key: "k".into(),
                from: None,
                to: item(),
            }),
            Did::Register(registers::RegisterStep::Read {
                key: "k".into(),
                value: Some(item()),
            }),
            Did::Member(members::MemberStep::Looked {
                entries: vec![item()],
            }),
            Did::Member(members::MemberStep::Found),
            Did::See(Sight::Shown {
                what: "/a".into(),
                version: 1 << 40,
            }),
            Did::See(Sight::CaughtUp),
        ] {
            for recipe in [None, Some(Recipe::Counter)] {
                let record = Record {
                    at: Moment::now(),
                    who: 1,
                    recipe,
                    did: did.clone(),
                };
                let line = serde_json::to_string(&record).unwrap();
                assert_eq!(serde_json::from_str::<Record>(&line).unwrap(), record);
            }
        }
    }
}
