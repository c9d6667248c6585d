//! What a handle knows of the items on the servers, so that it does not have to list them for each take.

use std::collections::hash_map::RandomState;
use std::collections::{HashSet, VecDeque};
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use zookeeper_client as zk;

use crate::queue::order::{Item, Rule, to_ms};
use crate::queue::shelf::Tally;

/// How many items are read ahead while nobody else takes any.
const READ_AHEAD: usize = 16;

/// Among how many items for each other consumer one chooses. The more, the less often two choose the same, and the less
/// the order is kept.
const CHOICE_PER_OTHER: usize = 8;

/// Among how many items one chooses at most.
const CHOICE_MAX: usize = 64;

/// How many looks at the claims tell how many others are at work.
const LOOKS: usize = 8;

/// How much is read at once, judging by the largest item of the last time.
const READ_BYTES: usize = 256 << 10;

/// The warm list of a place. Whatever is wrong in it is noticed when an item is claimed.
#[derive(Debug, Default)]
pub(crate) struct Warm {
    state: Mutex<State>,
    came_back: Notify,
    /// Somebody has read what was picked, or has let go of it.
    was_read: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// What can be claimed as of the last list, in its order.
    names: VecDeque<Item>,
    /// The first of them, with what is in them.
    ready: VecDeque<Ready>,
    tally: Tally,
    /// Of the list: what is put later changes it, where that matters.
    version: i32,
    /// Whether something came back that the list does not show.
    stale: bool,
    /// What takes and claims of this very handle are about.
    busy: HashSet<String>,
    /// How many of these are being read.
    unread: usize,
    /// How many claims of others there were at the last looks. One look alone may fall between two claims of each.
    others: [usize; LOOKS],
    looks: usize,
    /// The largest item that was read the last time.
    item_bytes: usize,
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
    /// Items that were read ahead are in there, and must not keep it alive.
    warm: Weak<Warm>,
    list_version: i32,
    /// Whether the list has to be made anew for it to be seen again.
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
    /// Waits until other takes of this handle have read what they picked: they may leave something.
    Wait(Notified<'a>),
    /// There is nothing that may be taken now.
    Nothing,
}

impl Pick {
    pub(crate) fn item(&self) -> &Item {
        &self.item
    }

    /// Of the list that it was picked from.
    pub(crate) fn list_version(&self) -> i32 {
        self.list_version
    }

    /// It is gone, or somebody else's.
    pub(crate) fn gone(mut self) {
        self.comes_back = false;
    }
}

impl Drop for Pick {
    fn drop(&mut self) {
        let Some(warm) = self.warm.upgrade() else {
            return;
        };
        let mut state = warm.state();
        state.busy.remove(self.item.name());
        state.stale |= self.comes_back;
        state.unread -= usize::from(!self.is_read);
        drop(state);
        if self.comes_back {
            warm.came_back.notify_waiters();
        }
        if !self.is_read {
            warm.was_read.notify_waiters();
        }
    }
}

impl Warm {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resolves when an item that a take of this handle had picked can be picked again. The servers may know nothing of that,
    /// so that no watch would tell. It counts from the call, not from the first poll.
    pub(crate) fn came_back(&self) -> Notified<'_> {
        self.came_back.notified()
    }

    /// Whatever comes back from now on is not in the list that is about to be made.
    pub(crate) fn begin_refill(&self) {
        self.state().stale = false;
    }

    /// The list does not show what this handle has put itself.
    pub(crate) fn outdate(&self) {
        self.state().stale = true;
    }

    /// Takes note of lists of items, and last of the claims.
    pub(crate) fn stock(
        &self,
        rule: Rule,
        version: i32,
        mut lists: Vec<Option<(Vec<String>, zk::Stat)>>,
    ) {
        let stats: Vec<_> = lists
            .iter()
            .map(|list| list.as_ref().map(|(_, stat)| *stat))
            .collect();
        let claims = lists.pop().flatten().map(|(names, _)| names);
        self.unready();
        let mut state = self.state();
        state.tally = Tally::of(&stats);
        state.version = version;
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
    ///
    /// One consumer takes them in order. Where several are at work, each chooses one of them, so that they do not all try for
    /// the same. Those that were picked from an older list stand in their place in the present one, for something that goes
    /// before them may have come since.
    pub(crate) fn add_ready(
        &self,
        rule: Rule,
        mut picks: Vec<Pick>,
        reads: Vec<zk::MultiReadResult>,
        claims: Vec<String>,
    ) {
        let (claims, version) = {
            let mut state = self.state();
            (state.note_claims(claims), state.version)
        };
        let read_count = picks.len();
        for pick in &mut picks {
            pick.is_read = true;
        }
        let mut found = VecDeque::new();
        let mut outdated = Vec::new();
        for (pick, read) in picks.into_iter().zip(reads) {
            match read {
                zk::MultiReadResult::Data { data, stat } if !claims.contains(pick.item.name()) => {
                    match rule.overtakes && pick.list_version != version {
                        true => outdated.push(pick),
                        false => found.push_back(Ready { pick, data, stat }),
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
        let chosen = match (state.others(), choice) {
            (0, _) | (_, 0) => None,
            (_, choice) => found.remove(random_below(choice)),
        };
        state.ready.append(&mut found);
        drop(state);
        if let Some(chosen) = chosen {
            self.unready();
            self.state().ready.push_back(chosen);
        }
        self.state().unread -= read_count;
        self.was_read.notify_waiters();
    }

    /// What a take is to do: claim what was read ahead, or else read the first that may be taken.
    pub(crate) fn next(self: &Arc<Self>, rule: Rule) -> Next<'_> {
        // Made first: whatever is read from now on wakes it.
        let was_read = self.was_read.notified();
        let (ready, is_reading) = {
            let mut state = self.state();
            (state.ready.pop_front(), state.unread > 0)
        };
        if let Some(ready) = ready {
            return Next::Claim(ready);
        }
        match self.pick(rule) {
            picks if !picks.is_empty() => Next::Read(picks),
            _ if is_reading => Next::Wait(was_read),
            _ => Next::Nothing,
        }
    }

    fn put_in_place(&self, picks: Vec<Pick>) {
        for pick in picks {
            let item = pick.item.clone();
            pick.gone();
            let mut state = self.state();
            let place = state.names.partition_point(|other| *other < item);
            state.names.insert(place, item);
        }
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

    /// Chooses what to read next: the first ones, as far as they are due.
    pub(crate) fn pick(self: &Arc<Self>, rule: Rule) -> Vec<Pick> {
        let mut state = self.state();
        if !state.ready.is_empty() {
            return Vec::new();
        }
        let first = state.names.front().map(Item::rank);
        let now_ms = to_ms(SystemTime::now());
        let others = state.others();
        let alone = others == 0;
        let most = match alone {
            true => READ_AHEAD,
            false => (CHOICE_PER_OTHER * others).min(CHOICE_MAX),
        };
        let count = (READ_BYTES / state.item_bytes.max(1)).clamp(1, most);
        let equal = |item: &&Item| alone || rule.may_choose(first, item.rank());
        let due = |item: &&Item| item.wait(rule, now_ms).is_none();
        let names = state.names.iter().take(count);
        let count = names.take_while(equal).take_while(due).count();
        let picked: Vec<Item> = state.names.drain(..count).collect();
        for item in &picked {
            state.busy.insert(item.name().to_owned());
        }
        state.unread += picked.len();
        let list_version = state.version;
        drop(state);
        let pick = |item| Pick {
            item,
            warm: Arc::downgrade(self),
            list_version,
            comes_back: true,
            is_read: false,
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

    /// Notes that claims have ended without their items since the last list, or that something was put where that matters.
    pub(crate) fn note_changes(&self, rule: Rule, tally: &Tally) {
        let mut state = self.state();
        state.stale |= tally.returns != state.tally.returns;
        state.stale |= rule.overtakes && tally.puts != state.tally.puts;
    }

    /// How long until the first item is due, no time at all if it is; `None` if there is none.
    pub(crate) fn first_due(&self, rule: Rule) -> Option<Duration> {
        let now_ms = to_ms(SystemTime::now());
        let state = self.state();
        let first = state.names.front()?;
        Some(first.wait(rule, now_ms).unwrap_or_default())
    }
}

impl State {
    fn note_claims(&mut self, claims: Vec<String>) -> HashSet<String> {
        let claims: HashSet<String> = claims.into_iter().collect();
        self.others[self.looks % LOOKS] = claims.difference(&self.busy).count();
        self.looks += 1;
        claims
    }

    /// How many others are at work here.
    fn others(&self) -> usize {
        self.others.into_iter().max().unwrap_or(0)
    }
}

/// A number from 0 to just below this one.
fn random_below(limit: usize) -> usize {
    let limit = u64::try_from(limit).unwrap_or(u64::MAX);
    // The hasher's keys are new each time, which is all the randomness this needs.
    let random = RandomState::new().hash_one(limit) % limit;
    usize::try_from(random).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::queue::order::{ByDueTime, ByPriority, Fifo, Rules};

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

    fn stocked(rule: Rule, items: Vec<String>, claims: Vec<String>) -> Arc<Warm> {
        let warm = Arc::new(Warm::default());
        let lists = vec![Some((items, stat())), Some((claims, stat()))];
        warm.stock(rule, 1, lists);
        warm
    }

    fn read(warm: &Arc<Warm>, picks: Vec<Pick>, claims: Vec<String>) {
        let data = |_: &Pick| zk::MultiReadResult::Data {
            data: vec![0],
            stat: stat(),
        };
        let reads = picks.iter().map(data).collect();
        warm.add_ready(ByPriority::RULE, picks, reads, claims);
    }

    fn pop_ready(warm: &Warm) -> Option<Ready> {
        warm.state().ready.pop_front()
    }

    #[test]
    fn one_consumer_gets_all_in_order() {
        let items = names(40);
        let warm = stocked(
            Fifo::RULE,
            items.iter().rev().cloned().collect(),
            Vec::new(),
        );
        let mut taken = Vec::new();
        while let picks @ [_, ..] = &*warm.pick(Fifo::RULE) {
            assert!(picks.len() <= READ_AHEAD);
            taken.extend(picks.iter().map(|pick| pick.item().name().to_owned()));
        }
        assert_eq!(taken, items);
    }

    #[test]
    fn claimed_items_are_not_picked() {
        let items = names(3);
        let warm = stocked(Fifo::RULE, items.clone(), vec![items[0].clone()]);
        let picks = warm.pick(Fifo::RULE);
        let picked: Vec<_> = picks.iter().map(|pick| pick.item().name()).collect();
        assert_eq!(picked, [&items[1], &items[2]]);
        // Claimed between the list and the read.
        read(&warm, picks, vec![items[1].clone()]);
        let ready = pop_ready(&warm).unwrap();
        assert_eq!(ready.pick.item().name(), items[2]);
        assert!(pop_ready(&warm).is_none());
    }

    #[test]
    fn several_consumers_choose_one_at_a_time_and_leave_the_rest_in_order() {
        let items = names(30);
        let warm = stocked(Fifo::RULE, items.clone(), vec!["another's".to_owned()]);
        let picks = warm.pick(Fifo::RULE);
        assert_eq!(picks.len(), CHOICE_PER_OTHER);
        read(&warm, picks, Vec::new());
        let ready = pop_ready(&warm).unwrap();
        assert!(items[..CHOICE_PER_OTHER].contains(&ready.pick.item().name().to_owned()));
        assert!(pop_ready(&warm).is_none());
        let left: Vec<_> = warm.state().names.iter().cloned().collect();
        assert!(left.is_sorted() && left.len() == 29, "{left:?}");
    }

    #[test]
    fn no_choice_passes_over_a_better_rank() {
        let name = |rank: u32| format!("{rank}-{rank:016x}-{rank:010}");
        let items = vec![name(3), name(1), name(2)];
        let warm = stocked(ByPriority::RULE, items, vec!["another's".to_owned()]);
        let picks = warm.pick(ByPriority::RULE);
        let picked: Vec<_> = picks.iter().map(|pick| pick.item().name()).collect();
        assert_eq!(picked, [name(1)]);
    }

    #[test]
    fn no_choice_passes_over_a_better_rank_when_others_come_late() {
        let name = |rank: u32| format!("{rank}-{rank:016x}-{rank:010}");
        for _ in 0..20 {
            let items = vec![name(3), name(1), name(2)];
            let warm = stocked(ByPriority::RULE, items, Vec::new());
            let picks = warm.pick(ByPriority::RULE);
            read(&warm, picks, vec!["another's".to_owned()]);
            assert_eq!(pop_ready(&warm).unwrap().pick.item().name(), name(1));
        }
    }

    #[test]
    fn what_was_read_ahead_does_not_outlive_the_handle() {
        let warm = stocked(Fifo::RULE, names(3), Vec::new());
        let picks = warm.pick(Fifo::RULE);
        read(&warm, picks, Vec::new());
        let weak = Arc::downgrade(&warm);
        drop(warm);
        assert!(weak.upgrade().is_none());
    }

    #[test]
    fn item_that_comes_back_is_told_and_one_that_is_gone_is_not() {
        let warm = stocked(Fifo::RULE, names(1), Vec::new());
        let told = warm.came_back();
        warm.pick(Fifo::RULE).remove(0).gone();
        assert!(told.now_or_never().is_none());
        assert!(!warm.is_stale());
        warm.stock(Fifo::RULE, 1, vec![Some((names(1), stat())), None]);
        let told = warm.came_back();
        drop(warm.pick(Fifo::RULE));
        assert!(told.now_or_never().is_some());
        assert!(warm.is_stale());
    }

    #[test]
    fn take_waits_for_what_another_one_reads() {
        let warm = stocked(Fifo::RULE, names(2), Vec::new());
        let Next::Read(picks) = warm.next(Fifo::RULE) else {
            panic!("there is something to read");
        };
        let Next::Wait(was_read) = warm.next(Fifo::RULE) else {
            panic!("the other one may leave something");
        };
        read(&warm, picks, Vec::new());
        assert!(was_read.now_or_never().is_some());
        for _ in 0..2 {
            assert!(matches!(warm.next(Fifo::RULE), Next::Claim(_)));
        }
        assert!(matches!(warm.next(Fifo::RULE), Next::Nothing));
    }

    #[test]
    fn take_that_is_dropped_while_it_reads_lets_the_others_go_on() {
        let warm = stocked(Fifo::RULE, names(2), Vec::new());
        let picks = warm.pick(Fifo::RULE);
        let Next::Wait(was_read) = warm.next(Fifo::RULE) else {
            panic!("the other one may leave something");
        };
        drop(picks);
        assert!(was_read.now_or_never().is_some());
        assert!(warm.is_stale());
    }

    #[test]
    fn what_was_picked_from_an_older_list_goes_behind_what_is_better() {
        let name = |rank: u32| format!("{rank}-{rank:016x}-{rank:010}");
        let items = vec![name(2), name(3)];
        let warm = stocked(ByPriority::RULE, items, Vec::new());
        let picks = warm.pick(ByPriority::RULE);
        let lists = vec![Some((vec![name(1), name(2), name(3)], stat())), None];
        warm.stock(ByPriority::RULE, 2, lists);
        read(&warm, picks, Vec::new());
        let picks = warm.pick(ByPriority::RULE);
        let picked: Vec<_> = picks.iter().map(|pick| pick.item().name()).collect();
        assert_eq!(picked, [name(1), name(2), name(3)]);
    }

    #[test]
    fn item_that_has_become_due_is_not_waited_for() {
        let name = |due: u64| format!("{due}-{due:016x}-{:010}", 1);
        let rule = ByDueTime::RULE;
        assert_eq!(
            stocked(rule, vec![name(1)], Vec::new()).first_due(rule),
            Some(Duration::ZERO)
        );
        let in_an_hour = to_ms(SystemTime::now()) + 3_600_000;
        let wait = stocked(rule, vec![name(in_an_hour)], Vec::new()).first_due(rule);
        assert!(wait > Some(Duration::from_secs(3000)), "{wait:?}");
        assert_eq!(stocked(rule, Vec::new(), Vec::new()).first_due(rule), None);
    }

    #[test]
    fn large_items_are_read_one_by_one() {
        let warm = stocked(Fifo::RULE, names(3), Vec::new());
        warm.state().item_bytes = READ_BYTES;
        assert_eq!(warm.pick(Fifo::RULE).len(), 1);
    }
}
