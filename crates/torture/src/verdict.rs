//! The verdict of a round: checks of each recipe on what its workers recorded.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bellwether_testkit::history::deliveries::{DeliveryStep, check_delivery, check_due};
use bellwether_testkit::history::gates::check_gate;
use bellwether_testkit::history::members::check_members;
use bellwether_testkit::history::registers::check_registers;
use bellwether_testkit::history::rounds::{check_rounds, stays};
use bellwether_testkit::history::sights::check_sights;
use bellwether_testkit::history::sums::check_sum;
use bellwether_testkit::history::transactions::{Deed, Note, check_ends, check_transactions};
use bellwether_testkit::history::{
    Event, What, check_crash_marks, check_fencing, check_holds, check_order,
};
use bellwether_testkit::{History, Terms};

use crate::recipe::Recipe;
use crate::record::{Did, Record};
use crate::workload::barriers::round_size;
use crate::workload::held::Held;
use crate::workload::shelf::Shelf;

/// How long a worker that did not run may still believe in its hold after it continues.
const GRACE: Duration = Duration::from_millis(250);

/// State of the servers after all workers have stopped.
#[derive(Debug, Clone, Default)]
pub struct Remains {
    /// The value of the counter.
    pub sum: i64,
    /// The number of items that are neither settled nor dead letters, by recipe.
    pub items: BTreeMap<Recipe, usize>,
    /// Dead letters, by recipe.
    pub dead: BTreeMap<Recipe, Vec<String>>,
    /// Votes and decisions of all transactions.
    pub notes: Vec<Note>,
    /// The ids of all transactions.
    pub transactions: Vec<String>,
    /// Workers without a success after the faults had ended, by recipe.
    pub missing: Vec<(Recipe, usize)>,
}

/// Parameters of a round that all checks need.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// The seed of the round.
    pub seed: u64,
    /// The number of workers.
    pub workers: usize,
    /// The session timeout that the servers granted.
    pub session_timeout: Duration,
}

impl Setting {
    fn terms(&self, capacity: u32) -> Terms {
        Terms {
            capacity,
            session_timeout: self.session_timeout,
            grace: GRACE,
        }
    }

    /// Checks one recipe in all records of a round, which are in the order of time. Returns the violation as text.
    ///
    /// # Errors
    ///
    /// If a guarantee was broken.
    pub fn check(
        &self,
        recipe: Recipe,
        records: &[Record],
        remains: &Remains,
    ) -> Result<(), String> {
        let own = records.iter().filter(|one| one.recipe == Some(recipe));
        match recipe {
            Recipe::Held(held) => self.check_held(held, records)?,
            Recipe::Shelf(shelf) => self.check_shelf(shelf, records, remains)?,
            Recipe::Counter => {
                let additions = own.filter_map(|one| match one.did {
                    Did::Count(addition) => Some(addition),
                    _ => None,
                });
                check_sum(additions, remains.sum)?;
            }
            Recipe::Barrier => check_gate(own.filter_map(|one| match one.did {
                Did::Pass(passage) => Some((one.at, one.who, passage)),
                _ => None,
            }))?,
            Recipe::DoubleBarrier => {
                let mut stays = stays(own.filter_map(|one| match one.did {
                    Did::Meet(step) => Some((one.at, one.who, step)),
                    _ => None,
                }));
                let faults = faults(records);
                for stay in &mut stays {
                    stay.excuse(&faults, self.session_timeout);
                }
                // A member that gave up while it was cut off counts until its session expires.
                check_rounds(&stays, round_size(self.workers), self.session_timeout * 4)?;
            }
            Recipe::TwoPhase => {
                let recorded = own.filter_map(|one| match &one.did {
                    Did::Transact { id, site, deed } => Some(Note {
                        at: one.at,
                        transaction: id.clone(),
                        site: *site,
                        deed: *deed,
                    }),
                    _ => None,
                });
                let notes: Vec<Note> = recorded.chain(remains.notes.iter().cloned()).collect();
                let sites = self.workers - 1;
                check_transactions(&notes, sites)?;
                let begun = remains.transactions.iter().map(String::as_str);
                check_ends(&notes, begun, sites)?;
            }
            Recipe::FencedWrites | Recipe::Config | Recipe::Group | Recipe::Cache => {
                check_state(own)?;
            }
        }
        let mut missing = remains.missing.iter().filter(|(late, _)| *late == recipe);
        match missing.next() {
            None => Ok(()),
            Some((_, who)) => Err(format!(
                "worker {who} made no progress after all faults had ended"
            )),
        }
    }

    fn check_held(&self, held: Held, records: &[Record]) -> Result<(), String> {
        let terms = self.terms(held.capacity());
        let recipe = Recipe::Held(held);
        let own = records.iter().filter(|one| one.recipe == Some(recipe));
        let events = own.filter_map(Record::event).chain(faults(records));
        let history = History::new(self.seed, events.collect());
        let checked = check_holds(&history, &terms)
            .and_then(|()| check_order(&history, &terms))
            .and_then(|()| check_fencing(&history, &terms));
        let checked = match held {
            Held::MarkedLock => checked.and_then(|()| check_crash_marks(&history)),
            _ => checked,
        };
        checked.map_err(|violation| violation.to_string())
    }

    fn check_shelf(
        &self,
        shelf: Shelf,
        records: &[Record],
        remains: &Remains,
    ) -> Result<(), String> {
        let recipe = Recipe::Shelf(shelf);
        let own = || records.iter().filter(|one| one.recipe == Some(recipe));
        let recorded = own().filter_map(|one| match &one.did {
            Did::Item(step) => Some(step.clone()),
            _ => None,
        });
        let dead = remains.dead.get(&recipe).into_iter().flatten();
        let dead = dead.map(|item| DeliveryStep::Dead { item: item.clone() });
        let steps: Vec<DeliveryStep> = recorded.chain(dead).collect();
        // Before it is checked that none was lost, which an item that is still there was not.
        if let Some(left) = remains.items.get(&recipe).filter(|left| **left > 0) {
            return Err(format!("{left} items were not settled in the end"));
        }
        check_delivery(&steps)?;
        check_due(&steps, |item| shelf.due_ms(item))?;

        // No two consumers work on one item at the same time.
        let mut claims: BTreeMap<&str, BTreeSet<i64>> = BTreeMap::new();
        for step in &steps {
            if let DeliveryStep::Delivered { item, token, .. } = step {
                claims.entry(item).or_default().insert(*token);
            }
        }
        let several: BTreeMap<i64, &str> = claims
            .iter()
            .filter(|(_, tokens)| tokens.len() > 1)
            .flat_map(|(item, tokens)| tokens.iter().map(|token| (*token, *item)))
            .collect();
        let mut by_item: BTreeMap<&str, Vec<Event>> = BTreeMap::new();
        for event in own().filter_map(Record::event) {
            let (What::Granted { token, .. }
            | What::Lost { token }
            | What::Releasing { token }
            | What::Dropping { token }) = event.what
            else {
                continue;
            };
            if let Some(item) = several.get(&token) {
                by_item.entry(item).or_default().push(event);
            }
        }
        let faults = faults(records);
        for (item, events) in by_item {
            let history = History::new(self.seed, [events, faults.clone()].concat());
            check_holds(&history, &self.terms(1))
                .map_err(|violation| format!("{item}: {violation}"))?;
        }
        Ok(())
    }
}

/// Checks values that are read and changed, members, and live copies.
fn check_state<'a>(own: impl Iterator<Item = &'a Record> + Clone) -> Result<(), String> {
    check_registers(own.clone().filter_map(|one| match &one.did {
        Did::Register(step) => Some((one.at, one.who, step.clone())),
        _ => None,
    }))?;
    let steps = own.clone().filter_map(|one| match &one.did {
        Did::Member(step) => Some((one.at, one.who, step.clone())),
        _ => None,
    });
    check_members(&steps.collect::<Vec<_>>())?;
    check_sights(own.filter_map(|one| match &one.did {
        Did::See(sight) => Some((one.who, sight)),
        _ => None,
    }))
}

/// Events of whole processes.
pub(crate) fn faults(records: &[Record]) -> Vec<Event> {
    let faults = records.iter().filter(|one| one.recipe.is_none());
    faults.filter_map(Record::event).collect()
}

/// Votes and decision of a transaction, as stored on the servers.
pub(crate) fn standing(status: &bellwether::two_phase::Status, sites: &[String]) -> Vec<Note> {
    use bellwether::two_phase::{Decision, Vote};
    let mut notes = Vec::new();
    for (number, site) in sites.iter().enumerate() {
        if let Some(ballot) = status.sites.get(site).and_then(|site| site.ballot.as_ref()) {
            let stands = Deed::Stands(ballot.vote == Vote::Commit);
            notes.push(Note::now(&status.id, Some(number), stands));
        }
    }
    if let Some(decision) = status.decision {
        let told = Deed::Told(decision == Decision::Commit);
        notes.push(Note::now(&status.id, None, told));
    }
    notes
}
