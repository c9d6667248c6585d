//! Slots: of the tasks of a session that want one thing, at most two have a node on the servers.
//!
//! Thousands of tasks of a process may wait for one lock. The holder and the next task have a node each, so that a hand-over costs no
//! round trip more; the others wait here, in the order in which they asked. A slot only delays a create: what this process remembers never
//! stands in for what the servers say.
//!
//! A waiter keeps its slot until its node is given to the cleaner, a holder until its hold is over.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use bellwether_client::process::Native;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::{ErrorKind, Failure};
use crate::session::lock;
use crate::session::telemetry::WaitTimer;

/// The number of tasks that have a slot at a time: the holder, and the task that is next.
const SLOTS: usize = 2;

/// The slots of one session.
#[derive(Debug, Default)]
pub(crate) struct Slots(Arc<Mutex<Lines>>);

type Lines = HashMap<Key, Weak<LocalLine>>;

/// A directory and an owner. Each owner has slots of its own, so that a search for deadlocks finds a node of every owner that waits.
type Key = (String, String);

/// The tasks of a session that have or want a slot, for one directory and owner.
#[derive(Debug)]
struct LocalLine {
    key: Key,
    lines: Arc<Mutex<Lines>>,
    /// First in, first out.
    slots: Arc<Semaphore>,
}

impl Slots {
    /// Waits for a slot. At most `line_max` tasks may have one or wait for one, the caller included.
    ///
    /// The caller is a task of the session: a future that is not polled must not get a slot, which other tasks would wait for.
    pub(crate) async fn take(
        &self,
        directory: &str,
        owner: &str,
        line_max: usize,
    ) -> Result<Slot, NoSlot> {
        let line = self.line((directory.to_owned(), owner.to_owned()));
        let mut wait = WaitTimer::begin();
        if let Ok(permit) = line.slots.clone().try_acquire_owned() {
            return Ok(Slot::new(permit, line, wait));
        }
        // Every task that has or wants a slot keeps its line; so does the caller.
        let depth = Arc::strong_count(&line) - 1;
        if depth >= line_max {
            return Err(NoSlot::LineFull { depth });
        }
        wait.is_for_another = true;
        let permit = line.slots.clone().acquire_owned().await;
        let permit = permit.expect("it is never closed");
        Ok(Slot::new(permit, line, wait))
    }

    fn line(&self, key: Key) -> Arc<LocalLine> {
        let mut lines = lock(&self.0);
        if let Some(known) = lines.get(&key).and_then(Weak::upgrade) {
            return known;
        }
        let new = Arc::new(LocalLine {
            key: key.clone(),
            lines: self.0.clone(),
            slots: Arc::new(Semaphore::new(SLOTS)),
        });
        lines.insert(key, Arc::downgrade(&new));
        new
    }
}

impl Drop for LocalLine {
    fn drop(&mut self) {
        let mut lines = lock(&self.lines);
        // Another one may have taken its place meanwhile.
        if lines
            .get(&self.key)
            .is_some_and(|line| line.strong_count() == 0)
        {
            lines.remove(&self.key);
        }
    }
}

/// The right to have a node. Dropped, it goes to the next task.
#[derive(Debug)]
pub(crate) struct Slot {
    /// A forked child must not touch its locks.
    _place: Native<(OwnedSemaphorePermit, Arc<LocalLine>)>,
    wait: WaitTimer,
}

impl Slot {
    fn new(permit: OwnedSemaphorePermit, line: Arc<LocalLine>, wait: WaitTimer) -> Self {
        Self {
            _place: Native::new((permit, line)),
            wait,
        }
    }

    /// The wait that began when its task asked for it.
    pub(crate) fn wait_so_far(&self) -> WaitTimer {
        self.wait
    }
}

/// The slot of a hold, which ends with the hold.
#[derive(Debug)]
pub(crate) struct HeldSlot(Mutex<Option<Slot>>);

impl HeldSlot {
    pub(crate) fn new(slot: Option<Slot>) -> Self {
        Self(Mutex::new(slot))
    }

    /// Passes the slot on, if there is one.
    pub(crate) fn free(&self) {
        let slot = lock(&self.0).take();
        drop(slot);
    }
}

/// The reason why a task got no slot.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoSlot {
    /// Too many tasks of the session have or want one.
    LineFull {
        depth: usize,
    },
    SessionEnded,
}

impl From<NoSlot> for Failure {
    fn from(reason: NoSlot) -> Self {
        let kind = match reason {
            NoSlot::LineFull { depth } => ErrorKind::Full { depth },
            NoSlot::SessionEnded => ErrorKind::SessionEnded,
        };
        kind.into()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    const MANY: usize = 100;

    #[test]
    fn tasks_get_slots_in_the_order_in_which_they_asked() {
        let slots = Slots::default();
        let take = || slots.take("/lock", "me", MANY);
        let mut taken = vec![take().now_or_never(), take().now_or_never()];
        assert!(taken.iter().all(Option::is_some));
        let (mut third, mut fourth) = (Box::pin(take()), Box::pin(take()));
        assert!((&mut third).now_or_never().is_none());
        assert!((&mut fourth).now_or_never().is_none());
        taken.pop();
        assert!((&mut fourth).now_or_never().is_none());
        assert!(third.now_or_never().unwrap().unwrap().wait.is_for_another);
        assert!(fourth.now_or_never().is_some());
    }

    #[test]
    fn directories_and_owners_have_slots_of_their_own() {
        let slots = Slots::default();
        let take = |dir, owner| slots.take(dir, owner, MANY).now_or_never();
        let taken = [take("/a", "me"), take("/a", "me")];
        assert!(take("/a", "me").is_none());
        assert!(take("/b", "me").is_some() && take("/a", "you").is_some());
        drop(taken);
        assert!(lock(&slots.0).is_empty(), "nothing is kept of unused lines");
    }

    #[test]
    fn dropped_waiter_passes_its_slot_on() {
        let slots = Slots::default();
        let take = || slots.take("/lock", "me", MANY);
        let taken = [take().now_or_never(), take().now_or_never()];
        let (mut third, mut fourth) = (Box::pin(take()), Box::pin(take()));
        assert!((&mut third).now_or_never().is_none());
        assert!((&mut fourth).now_or_never().is_none());
        drop(taken);
        drop(third);
        assert!(fourth.now_or_never().is_some());
    }

    #[test]
    fn line_has_a_longest_length() {
        let slots = Slots::default();
        let take = || slots.take("/lock", "me", 3);
        let _taken = [take().now_or_never(), take().now_or_never()];
        let mut third = Box::pin(take());
        assert!((&mut third).now_or_never().is_none());
        let refused = take().now_or_never().unwrap();
        assert_eq!(refused.err(), Some(NoSlot::LineFull { depth: 3 }));
    }
}
