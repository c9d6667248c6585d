//! The items on the servers as a handle knows them, so that it does not have to list them for each take.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bellwether_client as zk;
use bellwether_client::environment;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::node::data::RecordedOrder;
use crate::queue::claimed_item;
use crate::queue::core::Counts;
use crate::queue::order::{Item, Rule, to_ms};
use crate::session::lock;

/// The number of items that are read ahead by a consumer without rivals.
const READ_AHEAD: usize = 16;

/// The number of items that are chosen at random after a lost race. The larger it is, the fewer conflicts there are among rivals, and the
/// later the order is kept again when they are gone.
const SPREAD: usize = 32;

/// The number of items by which the choice grows for each other consumer. The larger it is, the fewer conflicts there are, and the less the
/// order is kept.
const CHOICE_PER_OTHER: usize = 8;

/// The largest choice.
const CHOICE_MAX: usize = 64;

/// The number of looks at the claims from which the number of other consumers is estimated.
const LOOKS: usize = 8;

/// The number of bytes that are read at once, judging by the largest item of the last read.
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
    /// True if an item was given back that the list does not show.
    stale: bool,
    /// The items that takes and claims of this handle have picked.
    busy: HashSet<String>,
    /// The ranks of those that are being read, each with their number.
    unread: BTreeMap<i64, usize>,
    /// The number of takes that wait for them.
    waiting: usize,
    /// The number of items that are still to be chosen at random, since another consumer has claimed an item at the same moment.
    spread: usize,
    /// The numbers of claims of other consumers at the last looks. A single look may fall between two claims of a consumer.
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
    /// The number of its claims that do not count as attempts.
    pub(crate) uncounted: u32,
}

impl Ready {
    /// Returns the number of deliveries, as far as that counts.
    pub(crate) fn attempts(&self) -> u32 {
        claimed_item::attempts(self.stat.version, self.uncounted)
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
    /// True if the item may still be there when this is dropped: then the list is stale, because it does not show the item.
    comes_back: bool,
    is_read: bool,
}

/// The next step of a take.
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

    /// Returns the version of the list that it was picked from.
    pub(crate) fn list_version(&self) -> i32 {
        self.list_version
    }

    /// Records that the item is gone, or another consumer has it.
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
        lock(&self.state)
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
        let returned: HashMap<&str, (claimed_item::ReturnedName<'_>, &String)> = returned
            .iter()
            .filter_map(|text| {
                claimed_item::ReturnedName::parse(text).map(|name| (name.item, (name, text)))
            })
            .collect();
        let (claims, version) = {
            let mut state = self.state();
            (state.note_claims(claims), state.version)
        };
        let read: Vec<i64> = picks.iter().map(|pick| pick.item.rank()).collect();
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

    /// Returns the next step of a take: claim an item that was read ahead, or else read the first items that may be taken.
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
        let is_behind = |unread: &i64| {
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

    /// Returns whether the list has to be read again, as far as this handle knows.
    pub(crate) fn is_stale(&self) -> bool {
        let state = self.state();
        let first = state.later.first().map(|(due_ms, _)| *due_ms);
        state.stale || first.is_some_and(|due_ms| due_ms <= to_ms(environment::system_time()))
    }

    /// Returns the number of items at the last list, claimed or not.
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

    /// Returns the time until the first item is due, zero if it is due; `None` if there is none.
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
    fn end_read(&mut self, rank: i64) {
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

    /// Returns the number of other consumers that take items at the same moment, as far as this handle has noticed. A claim alone makes no
    /// rival: its consumer may work on the item for hours.
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
mod tests {
    use bellwether_client::environment;
    use futures_util::FutureExt;

    use super::*;

    use crate::queue::order::{ByDueTime, ByPriority, DUE_MIN, Fifo, Rules};

    fn names(count: usize) -> Vec<String> {
        let name = |number| format!("item-{number:016x}-{number:010}");
        (0..count).map(name).collect()
    }

    fn stat() -> zk::Stat {
        zk::Stat {
            czxid: 0,
            mzxid: 0,
            pzxid: 0,
            ctime: 0,
            mtime: 0,
            version: 0,
            cversion: 0,
            aversion: 0,
            ephemeral_owner: 0,
            data_length: 0,
            num_children: 0,
        }
    }

    fn stocked(rule: Rule, items: Vec<String>, claims: Vec<String>) -> Arc<ItemCache> {
        let cache = Arc::new(ItemCache::default());
        let lists = vec![Some((items, stat())), Some((claims, stat()))];
        cache.stock(rule, 1, lists);
        cache
    }

    /// Does the same as [`stocked`], where another consumer has just claimed what this one wanted.
    fn contested(rule: Rule, items: Vec<String>, claims: Vec<String>) -> Arc<ItemCache> {
        let cache = stocked(rule, items, claims);
        cache.lost_race();
        cache
    }

    fn read(cache: &Arc<ItemCache>, picks: Vec<Pick>, claims: Vec<String>) {
        let data = |_: &Pick| zk::MultiReadResult::Data(vec![0].into(), stat());
        let reads = picks.iter().map(data).collect();
        cache.add_ready(ByPriority::RULE, picks, reads, claims, &[]);
    }

    fn pop_ready(cache: &ItemCache) -> Option<Ready> {
        cache.state().ready.pop_front()
    }

    #[test]
    fn one_consumer_gets_all_in_order() {
        let items = names(40);
        let cache = stocked(
            Fifo::RULE,
            items.iter().rev().cloned().collect(),
            Vec::new(),
        );
        let mut taken = Vec::new();
        while let picks @ [_, ..] = &*cache.pick(Fifo::RULE) {
            assert!(picks.len() <= READ_AHEAD);
            taken.extend(picks.iter().map(|pick| pick.item().name().to_owned()));
        }
        assert_eq!(taken, items);
    }

    #[test]
    fn claimed_items_are_not_picked() {
        let items = names(3);
        let cache = stocked(Fifo::RULE, items.clone(), vec![items[0].clone()]);
        let picks = cache.pick(Fifo::RULE);
        let picked: Vec<_> = picks.iter().map(|pick| pick.item().name()).collect();
        assert_eq!(picked, [&items[1], &items[2]]);
        // Claimed between the list and the read.
        read(&cache, picks, vec![items[1].clone()]);
        let ready = pop_ready(&cache).unwrap();
        assert_eq!(ready.pick.item().name(), items[2]);
        assert!(pop_ready(&cache).is_none());
    }

    #[test]
    fn several_consumers_choose_one_at_a_time_and_leave_the_rest_in_order() {
        let items = names(30);
        let cache = contested(Fifo::RULE, items.clone(), vec!["another's".to_owned()]);
        let picks = cache.pick(Fifo::RULE);
        assert_eq!(picks.len(), CHOICE_PER_OTHER);
        read(&cache, picks, Vec::new());
        let ready = pop_ready(&cache).unwrap();
        assert!(items[..CHOICE_PER_OTHER].contains(&ready.pick.item().name().to_owned()));
        assert!(pop_ready(&cache).is_none());
        let left: Vec<_> = cache.state().names.iter().cloned().collect();
        assert!(left.is_sorted() && left.len() == 29, "{left:?}");
    }

    #[test]
    fn order_is_kept_beside_a_claim_and_again_after_a_lost_race() {
        let items = names(200);
        let cache = stocked(Fifo::RULE, items.clone(), vec!["another's".to_owned()]);
        let take = || {
            let Next::Read(picks) = cache.next(Fifo::RULE) else {
                panic!("there is something to read");
            };
            read(&cache, picks, vec!["another's".to_owned()]);
            let taken: Vec<_> = std::iter::from_fn(|| pop_ready(&cache)).collect();
            let names = taken
                .iter()
                .map(|ready| ready.pick.item().name().to_owned());
            let names: Vec<_> = names.collect();
            for ready in taken {
                ready.pick.gone();
            }
            names
        };
        assert_eq!(take(), items[..READ_AHEAD]);
        cache.lost_race();
        for _ in 0..SPREAD {
            assert_eq!(take().len(), 1);
        }
        let first = cache.state().names.front().cloned().unwrap();
        assert_eq!(take()[0], first.name());
    }

    #[test]
    fn takes_of_one_handle_leave_the_rest_in_order() {
        let cache = contested(Fifo::RULE, names(30), vec!["another's".to_owned()]);
        let both = [cache.pick(Fifo::RULE), cache.pick(Fifo::RULE)];
        for picks in both {
            assert_eq!(picks.len(), CHOICE_PER_OTHER);
            read(&cache, picks, Vec::new());
            pop_ready(&cache).unwrap().pick.gone();
        }
        let left: Vec<_> = cache.state().names.iter().cloned().collect();
        assert!(left.is_sorted() && left.len() == 28, "{left:?}");
    }

    /// Eight other claims: the first take picks as many items as any may choose from.
    #[test]
    fn takes_of_one_handle_choose_from_the_same_first_items() {
        let others = (0..8).map(|other| format!("another's {other}")).collect();
        let items = names(3 * CHOICE_MAX);
        let cache = contested(Fifo::RULE, items.clone(), others);
        let Next::Read(picks) = cache.next(Fifo::RULE) else {
            panic!("there is something to read");
        };
        assert_eq!(picks.len(), CHOICE_MAX);
        let waits = [(); 3].map(|()| cache.next(Fifo::RULE));
        assert!(waits.iter().all(|next| matches!(next, Next::Wait(_))));
        read(&cache, picks, Vec::new());
        // One for each of the four.
        let ready: Vec<_> = std::iter::from_fn(|| pop_ready(&cache)).collect();
        assert_eq!(ready.len(), 4);
        for ready in &ready {
            assert!(items[..CHOICE_MAX].contains(&ready.pick.item().name().to_owned()));
        }
        drop(waits);
        assert_eq!(cache.state().waiting, 0);
        let left: Vec<_> = cache.state().names.iter().cloned().collect();
        assert!(
            left.is_sorted() && left.len() == items.len() - 4,
            "{left:?}"
        );
    }

    #[test]
    fn no_choice_passes_over_a_better_rank() {
        let name = |rank: u32| format!("{rank}-{rank:016x}-{rank:010}");
        let items = vec![name(3), name(1), name(2)];
        let cache = contested(ByPriority::RULE, items, vec!["another's".to_owned()]);
        let picks = cache.pick(ByPriority::RULE);
        let picked: Vec<_> = picks.iter().map(|pick| pick.item().name()).collect();
        assert_eq!(picked, [name(1)]);
    }

    #[test]
    fn no_choice_passes_over_a_better_rank_when_others_come_late() {
        let name = |rank: u32| format!("{rank}-{rank:016x}-{rank:010}");
        for _ in 0..20 {
            let items = vec![name(3), name(1), name(2)];
            let cache = contested(ByPriority::RULE, items, Vec::new());
            let picks = cache.pick(ByPriority::RULE);
            read(&cache, picks, vec!["another's".to_owned()]);
            assert_eq!(pop_ready(&cache).unwrap().pick.item().name(), name(1));
        }
    }

    /// Two takes of one handle: the first reads two items of the better rank, and leaves one of them.
    #[test]
    fn no_take_passes_over_a_better_rank_that_another_one_reads() {
        let name = |rank: u32, number: u32| format!("{rank}-{number:016x}-{number:010}");
        let items = vec![name(1, 1), name(1, 2), name(2, 3)];
        let cache = contested(ByPriority::RULE, items, vec!["another's".to_owned()]);
        let Next::Read(picks) = cache.next(ByPriority::RULE) else {
            panic!("there is something to read");
        };
        assert_eq!(picks.len(), 2);
        assert!(matches!(cache.next(ByPriority::RULE), Next::Wait(_)));
        read(&cache, picks, Vec::new());
        assert!(matches!(cache.next(ByPriority::RULE), Next::Claim(_)));
        let Next::Read(picks) = cache.next(ByPriority::RULE) else {
            panic!("the first take has left one");
        };
        assert_eq!(picks[0].item().rank(), 1);
    }

    #[test]
    fn what_was_read_ahead_does_not_outlive_the_handle() {
        let cache = stocked(Fifo::RULE, names(3), Vec::new());
        let picks = cache.pick(Fifo::RULE);
        read(&cache, picks, Vec::new());
        let weak = Arc::downgrade(&cache);
        drop(cache);
        assert!(weak.upgrade().is_none());
    }

    #[test]
    fn item_that_comes_back_is_told_and_one_that_is_gone_is_not() {
        let cache = stocked(Fifo::RULE, names(1), Vec::new());
        let told = cache.came_back();
        cache.pick(Fifo::RULE).remove(0).gone();
        assert!(told.now_or_never().is_none());
        assert!(!cache.is_stale());
        cache.stock(Fifo::RULE, 1, vec![Some((names(1), stat())), None]);
        let told = cache.came_back();
        drop(cache.pick(Fifo::RULE));
        assert!(told.now_or_never().is_some());
        assert!(cache.is_stale());
    }

    #[test]
    fn take_waits_for_what_another_one_reads() {
        let cache = stocked(Fifo::RULE, names(2), Vec::new());
        let Next::Read(picks) = cache.next(Fifo::RULE) else {
            panic!("there is something to read");
        };
        let Next::Wait(was_read) = cache.next(Fifo::RULE) else {
            panic!("the other one may leave something");
        };
        read(&cache, picks, Vec::new());
        assert!(was_read.now_or_never().is_some());
        for _ in 0..2 {
            assert!(matches!(cache.next(Fifo::RULE), Next::Claim(_)));
        }
        assert!(matches!(cache.next(Fifo::RULE), Next::Nothing));
    }

    #[test]
    fn take_that_is_dropped_while_it_reads_lets_the_others_go_on() {
        let cache = stocked(Fifo::RULE, names(2), Vec::new());
        let picks = cache.pick(Fifo::RULE);
        let Next::Wait(was_read) = cache.next(Fifo::RULE) else {
            panic!("the other one may leave something");
        };
        drop(picks);
        assert!(was_read.now_or_never().is_some());
        assert!(cache.is_stale());
    }

    #[test]
    fn what_was_picked_from_an_older_list_goes_behind_what_is_better() {
        let name = |rank: u32| format!("{rank}-{rank:016x}-{rank:010}");
        let items = vec![name(2), name(3)];
        let cache = stocked(ByPriority::RULE, items, Vec::new());
        let picks = cache.pick(ByPriority::RULE);
        let lists = vec![Some((vec![name(1), name(2), name(3)], stat())), None];
        cache.stock(ByPriority::RULE, 2, lists);
        read(&cache, picks, Vec::new());
        let picks = cache.pick(ByPriority::RULE);
        let picked: Vec<_> = picks.iter().map(|pick| pick.item().name()).collect();
        assert_eq!(picked, [name(1), name(2), name(3)]);
    }

    #[test]
    fn item_that_has_become_due_is_not_waited_for() {
        let name = |due: i64| format!("{due}-{due:016x}-{:010}", 1);
        let rule = ByDueTime::RULE;
        assert_eq!(
            stocked(rule, vec![name(DUE_MIN)], Vec::new()).first_due(rule),
            Some(Duration::ZERO)
        );
        let in_an_hour = to_ms(environment::system_time()) + 3_600_000;
        let wait = stocked(
            rule,
            vec![name(i64::try_from(in_an_hour).unwrap())],
            Vec::new(),
        )
        .first_due(rule);
        assert!(wait > Some(Duration::from_secs(3000)), "{wait:?}");
        assert_eq!(stocked(rule, Vec::new(), Vec::new()).first_due(rule), None);
    }

    #[test]
    fn large_items_are_read_one_by_one() {
        let cache = stocked(Fifo::RULE, names(3), Vec::new());
        cache.state().item_bytes = READ_BYTES;
        assert_eq!(cache.pick(Fifo::RULE).len(), 1);
    }
}
