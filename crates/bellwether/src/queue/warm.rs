//! What a handle knows of the items on the servers, so that it does not have to list them for each take.

use std::collections::hash_map::RandomState;
use std::collections::{HashSet, VecDeque};
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use zookeeper_client as zk;

use crate::queue::order::{Item, Rule, to_ms};
use crate::queue::shelf::Tally;

/// How many items are read ahead while nobody else takes any.
const READ_AHEAD: usize = 16;

/// The warm list of a place. Whatever is wrong in it is noticed when an item is claimed.
#[derive(Debug, Default)]
pub(crate) struct Warm(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// What can be claimed as of the last list, in its order.
    names: VecDeque<Item>,
    /// The first of them, with what is in them.
    ready: VecDeque<Ready>,
    tally: Tally,
    /// Whether something came back that the list does not show.
    stale: bool,
    /// What takes and claims of this very handle are about.
    busy: HashSet<String>,
    /// How many claims of others there were at the last look.
    others: usize,
}

/// An item that was read, to be claimed next.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) pick: Pick,
    pub(crate) data: Vec<u8>,
    pub(crate) stat: zk::Stat,
}

/// An item that one take, or one claim, of this handle is about; no other take picks it. Dropped, it can be picked again as
/// soon as a list shows it.
#[derive(Debug)]
pub(crate) struct Pick {
    item: Item,
    warm: Arc<Warm>,
    /// Whether the list has to be made anew for it to be seen again.
    comes_back: bool,
}

impl Pick {
    pub(crate) fn item(&self) -> &Item {
        &self.item
    }

    /// It is gone, or somebody else's.
    pub(crate) fn gone(mut self) {
        self.comes_back = false;
    }
}

impl Drop for Pick {
    fn drop(&mut self) {
        let mut state = self.warm.state();
        state.busy.remove(self.item.name());
        state.stale |= self.comes_back;
    }
}

impl Warm {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whatever comes back from now on is not in the list that is about to be made.
    pub(crate) fn begin_refill(&self) {
        self.state().stale = false;
    }

    /// Takes note of lists of items, and last of the claims.
    pub(crate) fn stock(&self, rule: Rule, mut lists: Vec<Option<(Vec<String>, zk::Stat)>>) {
        let stats: Vec<_> = lists
            .iter()
            .map(|list| list.as_ref().map(|(_, stat)| *stat))
            .collect();
        let claims = lists.pop().flatten().map(|(names, _)| names);
        self.unready();
        let mut state = self.state();
        state.tally = Tally::of(&stats);
        let claims = state.note_claims(claims.unwrap_or_default());
        let mut names = Vec::new();
        for (shard, list) in lists.into_iter().enumerate() {
            for name in list.into_iter().flat_map(|(names, _)| names) {
                if !claims.contains(&name) && !state.busy.contains(&name) {
                    names.extend(Item::parse(rule, name, shard));
                }
            }
        }
        names.sort_unstable();
        state.names = names.into();
    }

    /// Takes note of what was read ahead: the items that were picked, in order, and the claims there were then.
    pub(crate) fn add_ready(
        &self,
        picks: Vec<Pick>,
        reads: Vec<zk::MultiReadResult>,
        claims: Vec<String>,
    ) {
        let claims = self.state().note_claims(claims);
        for (pick, read) in picks.into_iter().zip(reads) {
            match read {
                zk::MultiReadResult::Data { data, stat } if !claims.contains(pick.item.name()) => {
                    self.state().ready.push_back(Ready { pick, data, stat });
                }
                _ => pick.gone(),
            }
        }
    }

    /// The next item to claim, if one was read ahead.
    pub(crate) fn pop_ready(&self) -> Option<Ready> {
        self.state().ready.pop_front()
    }

    /// Forgets what was read ahead: others are at the same items.
    pub(crate) fn unready(&self) {
        let ready = std::mem::take(&mut self.state().ready);
        for Ready { pick, .. } in ready.into_iter().rev() {
            let item = pick.item.clone();
            pick.gone();
            self.state().names.push_front(item);
        }
    }

    /// Chooses what to read next. One consumer takes the first ones; where several are at work, each chooses among as many
    /// as the others are about to take, so that they do not all try for the same one.
    pub(crate) fn pick(self: &Arc<Self>, rule: Rule) -> Vec<Pick> {
        let mut state = self.state();
        if !state.ready.is_empty() {
            return Vec::new();
        }
        let now_ms = to_ms(SystemTime::now());
        let Some(first) = state.names.front() else {
            return Vec::new();
        };
        let rank = first.rank();
        let due = |item: &&Item| item.wait(rule, now_ms).is_none();
        let equal = |item: &&Item| rule.delays || item.rank() == rank;
        let choice = state.names.iter().take(2 * state.others + 1);
        let choice = choice.take_while(equal).take_while(due).count();
        if choice == 0 {
            return Vec::new();
        }
        let from = match state.others {
            0 => 0,
            _ => random_below(choice),
        };
        let count = READ_AHEAD / (1 + state.others);
        let rest = state.names.iter().skip(from).take(count.max(1));
        let to = from + rest.take_while(due).count();
        let picked: Vec<Item> = state.names.drain(from..to).collect();
        for item in &picked {
            state.busy.insert(item.name().to_owned());
        }
        drop(state);
        let pick = |item| Pick {
            item,
            warm: Arc::clone(self),
            comes_back: true,
        };
        picked.into_iter().map(pick).collect()
    }

    /// Whether the list has to be made anew, as far as is known here.
    pub(crate) fn is_stale(&self) -> bool {
        self.state().stale
    }

    /// How many items there were at the last list, claimed or not.
    pub(crate) fn depth(&self) -> usize {
        self.state().tally.depth
    }

    pub(crate) fn is_empty(&self) -> bool {
        let state = self.state();
        state.names.is_empty() && state.ready.is_empty()
    }

    /// Whether the last list shows everything that another look has found.
    pub(crate) fn is_current(&self, tally: &Tally) -> bool {
        let known = self.state().tally;
        (known.puts, known.returns) == (tally.puts, tally.returns)
    }

    /// Notes that claims have ended without their items since the last list.
    pub(crate) fn note_returns(&self, tally: &Tally) {
        let mut state = self.state();
        state.stale |= tally.returns != state.tally.returns;
    }

    /// How long until the first item is due; `None` if there is none.
    pub(crate) fn first_due(&self, rule: Rule) -> Option<Duration> {
        let now_ms = to_ms(SystemTime::now());
        self.state().names.front()?.wait(rule, now_ms)
    }
}

impl State {
    fn note_claims(&mut self, claims: Vec<String>) -> HashSet<String> {
        let claims: HashSet<String> = claims.into_iter().collect();
        self.others = claims.difference(&self.busy).count();
        claims
    }
}

/// A number from 0 to just below this one.
fn random_below(limit: usize) -> usize {
    let limit = u64::try_from(limit).unwrap_or(u64::MAX);
    // The hasher's keys are new each time, which is all the randomness this needs.
    let random = RandomState::new().hash_one(limit) % limit;
    usize::try_from(random).unwrap_or(0)
}
