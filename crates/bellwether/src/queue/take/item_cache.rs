//! What a handle knows of the items on the servers, so that it does not have to list them for each take.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bellwether_client as zk;
use bellwether_client::environment;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::node::data::RecordedOrder;
use crate::queue::core::Counts;
use crate::queue::order::{Item, Rule, to_ms};
use crate::queue::take::returned;

/// How many items are read ahead by a consumer without rivals.
const READ_AHEAD: usize = 16;

/// How many items are chosen at random after a lost race. The larger it is, the fewer conflicts there are among rivals, and the later the
/// order is kept again when they are gone.
const SPREAD: usize = 32;

/// By how many items the choice grows for each other consumer. The larger it is, the fewer conflicts there are, and the less the order is
/// kept.
const CHOICE_PER_OTHER: usize = 8;

/// The largest choice.
const CHOICE_MAX: usize = 64;

/// From how many looks at the claims the number of other consumers is estimated.
const LOOKS: usize = 8;

/// How many bytes are read at once, judging by the largest item of the last read.
const READ_BYTES: usize = 256 << 10;

/// The cached list of a place. A stale entry is noticed when its item is claimed.
#[derive(Debug, Default)]
pub(crate) struct ItemCache {
    state: Mutex<CacheState>,
    came_back: Notify,
    /// A picked item was read or put back.
    was_read: Notify,
}

#[derive(Debug, Default)]
struct CacheState {
    /// The items that can be claimed as of the last list, in order.
    names: VecDeque<Item>,
    /// The first of them, with their payloads.
    ready: VecDeque<Ready>,
    counts: Counts,
    /// The version of the list: later puts change it, in queues where that matters.
    version: i32,
    /// Whether an item was given back that the list does not show.
    stale: bool,
    /// The items that takes and claims of this handle have picked.
    busy: HashSet<String>,
    /// The ranks of those that are being read, each with their number.
    unread: BTreeMap<u64, usize>,
    /// How many takes wait for them.
    waiting: usize,
    /// How many items are still to be chosen at random, since another consumer has claimed an item at the same moment.
    spread: usize,
    /// How many claims of other consumers there were at the last looks. A single look may fall between two claims of a consumer.
    others: [usize; LOOKS],
    looks: usize,
    /// The largest item that was read the last time.
    item_bytes: usize,
    /// Items that were given back for later: when they are due, and their names. The list leaves them out until then.
    later: BTreeSet<(u64, String)>,
}

/// An item that was read, to be claimed next.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) pick: Pick,
    pub(crate) data: Vec<u8>,
    pub(crate) stat: zk::Stat,
    /// The name of the node with the reason of an earlier give-back, if there is one.
    pub(crate) returned: Option<String>,
    /// How many of its claims do not count as attempts.
    pub(crate) uncounted: u32,
}

impl Ready {
    /// How often it was delivered, as far as that counts.
    pub(crate) fn attempts(&self) -> u32 {
        returned::attempts(self.stat.version, self.uncounted)
    }
}

/// An item that one take or claim of this handle has picked; no other take of the handle picks it. When it is dropped, the item can be
/// picked again as soon as a list shows it.
#[derive(Debug)]
pub(crate) struct Pick {
    item: Item,
    /// Items that were read ahead are in there, and must not keep it alive.
    cache: Weak<ItemCache>,
    list_version: i32,
    /// Whether the item may still be there when this is dropped: then the list is stale, because it does not show the item.
    comes_back: bool,
    is_read: bool,
}

/// What a take does next.
#[derive(Debug)]
pub(crate) enum Next<'a> {
    /// Claims this.
    Claim(Ready),
    /// Reads these.
    Read(Vec<Pick>),
    /// Waits until other takes of this handle have read the items they picked: they may leave some.
    Wait(WaitForRead<'a>),
    /// No item may be taken now.
    Nothing,
}

/// A take that waits until another take has read items. The take that reads chooses an item for each that waits.
#[derive(Debug)]
pub(crate) struct WaitForRead<'a> {
    cache: &'a ItemCache,
    was_read: Pin<Box<Notified<'a>>>,
}

impl Future for WaitForRead<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.was_read.as_mut().poll(cx)
    }
}

impl Drop for WaitForRead<'_> {
    fn drop(&mut self) {
        self.cache.state().waiting -= 1;
    }
}

impl Pick {
    pub(crate) fn item(&self) -> &Item {
        &self.item
    }

    /// Of the list that it was picked from.
    pub(crate) fn list_version(&self) -> i32 {
        self.list_version
    }

    /// It is gone, or another consumer has it.
    pub(crate) fn gone(mut self) {
        self.comes_back = false;
    }
}

impl Drop for Pick {
    fn drop(&mut self) {
        let Some(cache) = self.cache.upgrade() else {
            return;
        };
        let mut state = cache.state();
        state.busy.remove(self.item.name());
        state.stale |= self.comes_back;
        if !self.is_read {
            state.end_read(self.item.rank());
        }
        drop(state);
        if self.comes_back {
            cache.came_back.notify_waiters();
        }
        if !self.is_read {
            cache.was_read.notify_waiters();
        }
    }
}

impl ItemCache {
    fn state(&self) -> MutexGuard<'_, CacheState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resolves when an item that a take of this handle had picked can be picked again. The servers may not know of it, so no watch would
    /// report it. It counts from the call, not from the first poll.
    pub(crate) fn came_back(&self) -> Notified<'_> {
        self.came_back.notified()
    }

    /// Items that are given back from now on are not in the list that is about to be read.
    pub(crate) fn begin_refill(&self) {
        let now_ms = to_ms(environment::system_time());
        let mut state = self.state();
        state.stale = false;
        state.later.retain(|(due_ms, _)| *due_ms > now_ms);
    }

    /// The list does not show the items that this handle has put itself.
    pub(crate) fn outdate(&self) {
        self.state().stale = true;
    }

    /// Takes note of the lists of items and, last, of claims. If there are items of another order, returns that order, and none can be taken.
    pub(crate) fn stock(
        &self,
        rule: Rule,
        version: i32,
        mut lists: Vec<Option<(Vec<String>, zk::Stat)>>,
    ) -> Option<RecordedOrder> {
        let stats: Vec<_> = lists
            .iter()
            .map(|list| list.as_ref().map(|(_, stat)| *stat))
            .collect();
        let claims = lists.pop().flatten().map(|(names, _)| names);
        self.unready();
        let mut state = self.state();
        state.counts = Counts::of(&stats);
        state.version = version;
        let claims = state.note_claims(claims.unwrap_or_default());
        let later: HashSet<&str> = state.later.iter().map(|(_, name)| name.as_str()).collect();
        let is_left_out =
            |name: &str| claims.contains(name) || state.busy.contains(name) || later.contains(name);
        let mut names = Vec::new();
        for name in lists.into_iter().flatten().flat_map(|(names, _)| names) {
            if !is_left_out(&name) {
                names.extend(Item::parse(rule, name));
            }
        }
        let mut orders = names.iter().filter_map(Item::order);
        let other = orders.find(|order| rule.recorded != Some(*order));
        if other.is_some() {
            names.clear();
        }
        names.sort_unstable();
        state.names = names.into();
        other
    }

    /// Takes note of what was read ahead: the items that were picked, in order, and the claims there were then.
    ///
    /// A consumer without rivals takes the items in order. Among rivals, each take chooses one at random, so that they do not all try the
    /// same item. Items picked from an older list are compared by their rank in the current list, since items of a better rank may have
    /// come since.
    pub(crate) fn add_ready(
        &self,
        rule: Rule,
        mut picks: Vec<Pick>,
        reads: Vec<zk::MultiReadResult>,
        claims: Vec<String>,
        returned: &[String],
    ) {
        let now_ms = to_ms(environment::system_time());
        let returned: HashMap<&str, (returned::ReturnedName<'_>, &String)> = returned
            .iter()
            .filter_map(|text| {
                returned::ReturnedName::parse(text).map(|name| (name.item, (name, text)))
            })
            .collect();
        let (claims, version) = {
            let mut state = self.state();
            (state.note_claims(claims), state.version)
        };
        let read: Vec<u64> = picks.iter().map(|pick| pick.item.rank()).collect();
        for pick in &mut picks {
            pick.is_read = true;
        }
        let mut found = VecDeque::new();
        let mut outdated = Vec::new();
        for (pick, read) in picks.into_iter().zip(reads) {
            match read {
                zk::MultiReadResult::Data(data, stat) if !claims.contains(pick.item.name()) => {
                    let returned = returned.get(pick.item.name()).copied();
                    if let Some((later, _)) = returned.filter(|(name, _)| name.due_ms > now_ms) {
                        let name = pick.item.name().to_owned();
                        self.state().later.insert((later.due_ms, name));
                        pick.gone();
                        continue;
                    }
                    match rule.overtakes && pick.list_version != version {
                        true => outdated.push(pick),
                        false => found.push_back(Ready {
                            pick,
                            data: data.to_vec(),
                            stat,
                            returned: returned.map(|(_, text)| text.clone()),
                            uncounted: returned.map_or(0, |(name, _)| name.uncounted),
                        }),
                    }
                }
                _ => pick.gone(),
            }
        }
        self.put_in_place(outdated);
        let mut state = self.state();
        let sizes = found.iter().map(|ready| ready.data.len());
        state.item_bytes = sizes.max().unwrap_or(state.item_bytes);
        let ranks = found.iter().map(|ready| ready.pick.item.rank());
        let first = ranks.clone().next();
        let choice = ranks
            .take_while(|rank| rule.may_choose(first, *rank))
            .count();
        let mut chosen = VecDeque::new();
        if state.rivals() > 0 {
            let wanted = choice.min(1 + state.waiting);
            for left in (0..choice).rev().take(wanted) {
                chosen.extend(found.remove(random_below(left + 1)));
            }
            state.spread = state.spread.saturating_sub(chosen.len());
        }
        state.ready.append(&mut found);
        // Two takes of one handle may have their answers in any order.
        let by_item = |ready: &Ready, other: &Ready| ready.pick.item.cmp(&other.pick.item);
        state.ready.make_contiguous().sort_by(by_item);
        drop(state);
        if !chosen.is_empty() {
            self.unready();
            self.state().ready.append(&mut chosen);
        }
        if read.is_empty() {
            return;
        }
        let mut state = self.state();
        for rank in read {
            state.end_read(rank);
        }
        drop(state);
        self.was_read.notify_waiters();
    }

    /// What a take does next: claim an item that was read ahead, or else read the first items that may be taken.
    pub(crate) fn next(self: &Arc<Self>, rule: Rule) -> Next<'_> {
        // Made first: whatever is read from now on wakes it.
        let was_read = self.was_read.notified();
        let mut state = self.state();
        if let Some(ready) = state.ready.pop_front() {
            return Next::Claim(ready);
        }
        let is_reading = !state.unread.is_empty();
        match self.pick_from(&mut state, rule) {
            picks if !picks.is_empty() => Next::Read(picks),
            _ if is_reading => {
                state.waiting += 1;
                Next::Wait(WaitForRead {
                    cache: self,
                    was_read: Box::pin(was_read),
                })
            }
            _ => Next::Nothing,
        }
    }

    /// Puts items that were read back into the list, in one step: a list that is read meanwhile has them or leaves them out.
    fn put_in_place(&self, picks: Vec<Pick>) {
        let mut state = self.state();
        for mut pick in picks {
            // Its drop has nothing to do.
            pick.cache = Weak::new();
            state.busy.remove(pick.item.name());
            let place = state.names.partition_point(|other| *other < pick.item);
            state.names.insert(place, pick.item.clone());
        }
    }

    /// Notes that another consumer has claimed an item that a take of this handle had just read.
    pub(crate) fn lost_race(&self) {
        self.state().spread = SPREAD;
    }

    /// Drops the read-ahead: other consumers work on the same items.
    pub(crate) fn unready(&self) {
        let ready = std::mem::take(&mut self.state().ready);
        // Another take of this handle may have put back others meanwhile, so the front is not always the place.
        self.put_in_place(ready.into_iter().map(|ready| ready.pick).collect());
    }

    /// Chooses what to read next: the first ones, as far as they are due.
    pub(crate) fn pick(self: &Arc<Self>, rule: Rule) -> Vec<Pick> {
        self.pick_from(&mut self.state(), rule)
    }

    fn pick_from(self: &Arc<Self>, state: &mut CacheState, rule: Rule) -> Vec<Pick> {
        if !state.ready.is_empty() {
            return Vec::new();
        }
        let first = state.names.front().map(Item::rank);
        let is_behind = |unread: &u64| {
            let rank = first.filter(|rank| rank > unread);
            rank.is_some_and(|rank| !rule.may_choose(Some(*unread), rank))
        };
        if state.unread.keys().next().is_some_and(is_behind) {
            // Another take reads items of a better rank, and may leave some of them.
            return Vec::new();
        }
        let now_ms = to_ms(environment::system_time());
        let rivals = state.rivals();
        let alone = rivals == 0;
        let most = match alone {
            true => READ_AHEAD,
            // Takes of this handle that read at the same time choose from the same first items together.
            false => {
                let reading: usize = state.unread.values().sum();
                (CHOICE_PER_OTHER * rivals).min(CHOICE_MAX.saturating_sub(reading))
            }
        };
        let count = (READ_BYTES / state.item_bytes.max(1)).max(1).min(most);
        let equal = |item: &&Item| alone || rule.may_choose(first, item.rank());
        let due = |item: &&Item| item.wait(rule, now_ms).is_none();
        let names = state.names.iter().take(count);
        let count = names.take_while(equal).take_while(due).count();
        let picked: Vec<Item> = state.names.drain(..count).collect();
        for item in &picked {
            state.busy.insert(item.name().to_owned());
        }
        for item in &picked {
            *state.unread.entry(item.rank()).or_default() += 1;
        }
        let list_version = state.version;
        let pick = |item| Pick {
            item,
            cache: Arc::downgrade(self),
            list_version,
            comes_back: true,
            is_read: false,
        };
        picked.into_iter().map(pick).collect()
    }

    /// Whether the list has to be read again, as far as this handle knows.
    pub(crate) fn is_stale(&self) -> bool {
        let state = self.state();
        let first = state.later.first().map(|(due_ms, _)| *due_ms);
        state.stale || first.is_some_and(|due_ms| due_ms <= to_ms(environment::system_time()))
    }

    /// How many items there were at the last list, claimed or not.
    pub(crate) fn depth(&self) -> usize {
        self.state().counts.depth
    }

    pub(crate) fn is_empty(&self) -> bool {
        let state = self.state();
        state.names.is_empty() && state.ready.is_empty()
    }

    /// Notes that claims have ended without their items since the last list, or that something was put where that matters.
    pub(crate) fn note_changes(&self, rule: Rule, counts: &Counts) {
        let mut state = self.state();
        state.stale |= counts.returns != state.counts.returns;
        state.stale |= rule.overtakes && counts.puts != state.counts.puts;
    }

    /// How long until the first item is due, zero if it is due; `None` if there is none.
    pub(crate) fn first_due(&self, rule: Rule) -> Option<Duration> {
        let now_ms = to_ms(environment::system_time());
        let state = self.state();
        let first = state.names.front();
        let first = first.map(|item| item.wait(rule, now_ms).unwrap_or_default());
        let later = state.later.first();
        let later = later.map(|(due_ms, _)| Duration::from_millis(due_ms.saturating_sub(now_ms)));
        first.into_iter().chain(later).min()
    }
}

impl CacheState {
    /// An item of this rank that was picked is no longer being read.
    fn end_read(&mut self, rank: u64) {
        if let Some(count) = self.unread.get_mut(&rank) {
            *count -= 1;
            if *count == 0 {
                self.unread.remove(&rank);
            }
        }
    }

    fn note_claims(&mut self, claims: Vec<String>) -> HashSet<String> {
        let claims: HashSet<String> = claims.into_iter().collect();
        self.others[self.looks % LOOKS] = claims.difference(&self.busy).count();
        self.looks += 1;
        claims
    }

    /// How many other consumers take items at the same moment, as far as this handle has noticed. A claim alone makes no rival: its
    /// consumer may work on the item for hours.
    fn rivals(&self) -> usize {
        match self.spread {
            0 => 0,
            _ => self.others.into_iter().max().unwrap_or(0),
        }
    }
}

/// A random number below `limit`.
fn random_below(limit: usize) -> usize {
    let limit = u64::try_from(limit).unwrap_or(u64::MAX);
    usize::try_from(environment::random() % limit).unwrap_or(0)
}

#[cfg(test)]
mod tests;
