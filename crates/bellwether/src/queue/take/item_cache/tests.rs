use futures_util::FutureExt;

use bellwether_client::environment;

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

/// As [`stocked`], where another consumer has just claimed what this one wanted.
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
    let name = |due: u64| format!("{due}-{due:016x}-{:010}", 1);
    let rule = ByDueTime::RULE;
    assert_eq!(
        stocked(rule, vec![name(DUE_MIN)], Vec::new()).first_due(rule),
        Some(Duration::ZERO)
    );
    let in_an_hour = to_ms(environment::system_time()) + 3_600_000;
    let wait = stocked(rule, vec![name(in_an_hour)], Vec::new()).first_due(rule);
    assert!(wait > Some(Duration::from_secs(3000)), "{wait:?}");
    assert_eq!(stocked(rule, Vec::new(), Vec::new()).first_due(rule), None);
}

#[test]
fn large_items_are_read_one_by_one() {
    let cache = stocked(Fifo::RULE, names(3), Vec::new());
    cache.state().item_bytes = READ_BYTES;
    assert_eq!(cache.pick(Fifo::RULE).len(), 1);
}
