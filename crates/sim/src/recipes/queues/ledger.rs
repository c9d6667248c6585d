//! What is known about all items of a queue, or about all tasks: nothing is lost, doubled, early, or delivered after its end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bellwether::{Error, ErrorKind};
use bellwether_testkit::History;
use bellwether_testkit::history::{What, check_holds};

use super::delivery_order::{self, Placed, Sorted, Taken};
use crate::plan::Plan;
use crate::recipe::Round;
use crate::stage::Stage;
use crate::worker::Worker;
use crate::world::Ms;

/// Enough for all faults of a run.
pub(crate) const ATTEMPTS_MAX: u32 = 1_000_000;

/// How many items workers let stand before they put no more. Every snapshot of the embedded server has all items.
const OPEN_MAX: usize = 300;

/// What is known about all items.
#[derive(Debug)]
pub(crate) struct Ledger {
    sorted: Sorted,
    last: u64,
    items: BTreeMap<String, Fate>,
    /// How many items have been put and not ended.
    open: usize,
    /// Ids of items whose claims an operator may have deleted, or that were lost before their consumer got them.
    broken: BTreeSet<String>,
    wrong: Option<String>,
}

/// How a claim ends its item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ItemEnd {
    /// It was acknowledged, or the task is done.
    Acked,
    /// It is a dead letter.
    Rejected,
}

/// Whether an item was put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Put {
    /// Its producer does not know, or has not returned yet.
    Unknown,
    No,
    /// Since then.
    Yes(Ms),
}

#[derive(Debug)]
struct Fate {
    number: u64,
    /// Number of the first item of its put.
    batch: u64,
    rank: u64,
    begun: Ms,
    put: Put,
    is_open: bool,
    id: String,
    /// In the order in which consumers reported them.
    claims: Vec<Taken>,
    /// The claim that ended it, and how.
    ended: Option<(i64, ItemEnd)>,
    /// Claims that may have ended it, and how.
    doubts: BTreeMap<i64, ItemEnd>,
}

impl Ledger {
    pub(crate) fn new(sorted: Sorted) -> Self {
        Self {
            sorted,
            last: 0,
            items: BTreeMap::new(),
            open: 0,
            broken: BTreeSet::new(),
            wrong: None,
        }
    }

    /// Names new items, which are about to be put together.
    pub(crate) fn begin_put(&mut self, ranks: Vec<u64>) -> Vec<(u64, String)> {
        let batch = self.last + 1;
        let mut items = Vec::new();
        for rank in ranks {
            self.last += 1;
            let item = format!("item {}", self.last);
            let fate = Fate {
                number: self.last,
                batch,
                rank,
                begun: Stage::now(),
                put: Put::Unknown,
                is_open: false,
                id: String::new(),
                claims: Vec::new(),
                ended: None,
                doubts: BTreeMap::new(),
            };
            self.items.insert(item.clone(), fate);
            items.push((rank, item));
        }
        items
    }

    fn set_put(&mut self, item: &str, put: Put) {
        let Some(fate) = self.items.get_mut(item) else {
            return;
        };
        fate.put = put;
        if put != Put::No && fate.ended.is_none() && fate.doubts.is_empty() {
            self.set_open(item, true);
        }
    }

    fn set_open(&mut self, item: &str, is_open: bool) {
        if let Some(fate) = self.items.get_mut(item)
            && std::mem::replace(&mut fate.is_open, is_open) != is_open
        {
            match is_open {
                true => self.open += 1,
                false => self.open -= 1,
            }
        }
    }

    /// An item of this id was delivered. `clock` is the consumer's time of day, if the rank is the time at which the item is due.
    pub(crate) fn delivered(&mut self, item: &str, id: String, taken: Taken, clock: Option<u64>) {
        let is_broken = self.broken.contains(&id);
        let Some(fate) = self.items.get_mut(item) else {
            self.is_wrong(format!("{item} was delivered, but was never put"));
            return;
        };
        let token = taken.token;
        // If a claim was deleted, or was lost on the way, its consumer may learn of it when a later one has ended the item.
        let is_late = |end: i64| is_broken && token < end;
        let is_ended = fate.ended.is_some_and(|(end, _)| !is_late(end));
        let wrong = if is_ended {
            Some(format!("{item} was delivered after its end"))
        } else if fate.put == Put::No {
            Some(format!("{item} was delivered, though it was not put"))
        } else if !fate.id.is_empty() && fate.id != id {
            Some(format!("{item} was put twice"))
        } else if let Some(clock) = clock
            && clock < fate.rank
        {
            Some(format!(
                "{item} was delivered {} ms early",
                fate.rank - clock
            ))
        } else {
            None
        };
        // No earlier claim has ended the item, or will.
        fate.doubts.retain(|doubt, _| *doubt > token);
        let is_open = fate.ended.is_none() && fate.doubts.is_empty();
        fate.id = id;
        fate.claims.push(taken);
        self.set_open(item, is_open);
        if let Some(wrong) = wrong {
            self.is_wrong(wrong);
        }
    }

    fn is_wrong(&mut self, wrong: String) {
        self.wrong.get_or_insert(wrong);
    }

    /// Whether another item may be put.
    pub(crate) fn has_room(&self) -> bool {
        self.open < OPEN_MAX
    }

    /// An operator may have deleted the claim of this name, which includes the id of its item.
    pub(crate) fn break_claim(&mut self, name: &str) {
        self.break_claim_of(name.split('-').nth(1).unwrap_or(name));
    }

    /// A claim of the item of this id is over, and its consumer learns of both only now.
    pub(crate) fn break_claim_of(&mut self, id: &str) {
        self.broken.insert(id.to_owned());
    }

    /// A claim is about to end its item: until the reply arrives, the result is unknown.
    pub(crate) fn doubt(&mut self, item: &str, token: i64, end: ItemEnd) {
        if let Some(fate) = self.items.get_mut(item) {
            fate.doubts.insert(token, end);
            self.set_open(item, false);
        }
    }

    /// A claim did not end its item.
    pub(crate) fn refused(&mut self, item: &str, token: i64) {
        if let Some(fate) = self.items.get_mut(item) {
            fate.doubts.remove(&token);
            let is_open = fate.ended.is_none() && fate.doubts.is_empty();
            self.set_open(item, is_open);
        }
    }

    /// A claim ended its item.
    pub(crate) fn ended(&mut self, item: &str, token: i64, end: ItemEnd) {
        let Some(fate) = self.items.get_mut(item) else {
            return;
        };
        fate.doubts.remove(&token);
        set_settled(fate, token, None);
        let wrong = if let Some((other, _)) = fate.ended.replace((token, end)) {
            Some(format!(
                "{item} has two ends, by the claims {other} and {token}"
            ))
        } else if fate.claims.iter().any(|other| other.token > token) {
            Some(format!("{item} was ended by a stale claim"))
        } else {
            None
        };
        self.set_open(item, false);
        if let Some(wrong) = wrong {
            self.is_wrong(wrong);
        }
    }

    /// A claim gave its item back.
    pub(crate) fn given_back(&mut self, item: &str, token: i64) {
        let Some(fate) = self.items.get_mut(item) else {
            return;
        };
        set_settled(fate, token, Some(Stage::now()));
        // A later claim may have ended it before this consumer got the reply.
        if fate.ended.is_some_and(|(end, _)| end <= token) {
            self.is_wrong(format!("{item} was given back after its end"));
        }
    }

    /// The dead letters at the end.
    pub(crate) fn check_dead(&mut self, letters: &[String]) -> Result<(), String> {
        let dead: BTreeSet<&str> = letters.iter().map(String::as_str).collect();
        if dead.len() != letters.len() {
            return Err("there are two dead letters of one item".to_owned());
        }
        for (item, fate) in &mut self.items {
            let is_dead = dead.contains(item.as_str());
            match fate.ended {
                Some((_, ItemEnd::Rejected)) if !is_dead => {
                    return Err(format!("{item} was rejected, and is no dead letter"));
                }
                Some((_, ItemEnd::Acked)) if is_dead => {
                    return Err(format!("{item} was acknowledged, and is a dead letter"));
                }
                None if is_dead => {
                    let doubt = fate
                        .doubts
                        .iter()
                        .find(|(_, end)| **end == ItemEnd::Rejected);
                    let Some((token, end)) = doubt else {
                        return Err(format!("{item} is a dead letter, and was not rejected"));
                    };
                    fate.ended = Some((*token, *end));
                }
                // So no claim has rejected it.
                None => fate.doubts.retain(|_, end| *end != ItemEnd::Rejected),
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// The tasks that are known to be done, each with the claim that did it, and how many others may be done.
    pub(crate) fn done(&self) -> (Vec<(String, i64)>, usize) {
        let mut done = Vec::new();
        let mut doubts = 0;
        for (item, fate) in &self.items {
            match fate.ended {
                Some((token, ItemEnd::Acked)) => done.push((item.clone(), token)),
                Some((_, ItemEnd::Rejected)) => {}
                None => doubts += usize::from(!fate.doubts.is_empty()),
            }
        }
        (done, doubts)
    }

    /// Checks, when all items have ended, that nothing was lost, and the order of all deliveries.
    pub(crate) fn check_end(&mut self) -> Result<(), String> {
        let mut batches: BTreeMap<u64, (usize, usize)> = BTreeMap::new();
        for (item, fate) in &mut self.items {
            let is_put = matches!(fate.put, Put::Yes(_)) || !fate.claims.is_empty();
            if is_put && fate.ended.is_none() && fate.doubts.is_empty() {
                return Err(format!("{item} was lost"));
            }
            let (all, put) = batches.entry(fate.batch).or_default();
            *all += 1;
            *put += usize::from(is_put);
            fate.claims.sort_unstable_by_key(|claim| claim.token);
            let mut pairs = fate.claims.windows(2);
            if pairs.any(|pair| pair[0].attempts >= pair[1].attempts) {
                return Err(format!("{item}: attempts were not counted"));
            }
        }
        if let Some((first, _)) = batches.iter().find(|(_, (all, put))| *put > 0 && put < all) {
            return Err(format!("item {first} and others were put in part"));
        }
        let placed: Vec<Placed<'_>> = self
            .items
            .iter()
            .map(|(name, fate)| Placed {
                name,
                number: fate.number,
                batch: fate.batch,
                rank: fate.rank,
                begun: fate.begun,
                put: match fate.put {
                    Put::Yes(at) => Some(at),
                    Put::Unknown | Put::No => None,
                },
                claims: &fate.claims,
            })
            .collect();
        delivery_order::check(self.sorted, &placed)
    }
}

fn set_settled(fate: &mut Fate, token: i64, returned: Option<Ms>) {
    let mut claims = fate.claims.iter_mut();
    if let Some(claim) = claims.find(|claim| claim.token == token) {
        claim.is_settled = true;
        claim.returned = returned;
    }
}

pub(crate) fn lock(ledger: &Mutex<Ledger>) -> MutexGuard<'_, Ledger> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes the result of a put.
pub(crate) fn note_put(
    worker: &Worker,
    ledger: &Mutex<Ledger>,
    items: &[(u64, String)],
    put: Result<(), Error>,
) -> Round {
    let (put, ended) = match put {
        Ok(()) => (Put::Yes(Stage::now()), Round::Done),
        Err(error) => {
            worker.failed(&error);
            match error.kind {
                ErrorKind::OutcomeUnknown(_) => (Put::Unknown, Round::Failed),
                _ => (Put::No, Round::Failed),
            }
        }
    };
    for (_, item) in items {
        lock(ledger).set_put(item, put);
    }
    ended
}

/// Notes the result of an end that was in doubt.
pub(crate) fn note_end(
    worker: &Worker,
    ledger: &Mutex<Ledger>,
    item: &str,
    (token, end): (i64, ItemEnd),
    ended: Result<(), Error>,
) {
    match ended {
        Ok(()) => lock(ledger).ended(item, token, end),
        Err(Error {
            kind: ErrorKind::NotHeld,
            ..
        }) => lock(ledger).refused(item, token),
        Err(error) => worker.failed(&error),
    }
}

/// Checks the ledger, and that no item was held by two consumers at once.
pub(crate) fn check(plan: &Plan, history: &History, ledger: &Mutex<Ledger>) -> Result<(), String> {
    let ledger = lock(ledger);
    if let Some(wrong) = &ledger.wrong {
        return Err(wrong.clone());
    }
    for (item, fate) in ledger
        .items
        .iter()
        .filter(|(_, fate)| fate.claims.len() > 1 && !ledger.broken.contains(&fate.id))
    {
        let events = history.events().iter();
        let is_own = |token: i64| fate.claims.iter().any(|claim| claim.token == token);
        let own = events.filter(|event| match event.what {
            What::Granted { token, .. }
            | What::Lost { token }
            | What::Releasing { token }
            | What::Dropping { token } => is_own(token),
            _ => true,
        });
        let own = History::new(plan.seed, own.cloned().collect());
        check_holds(&own, &plan.hold_terms(1)).map_err(|wrong| format!("{item}: {wrong}"))?;
    }
    Ok(())
}
