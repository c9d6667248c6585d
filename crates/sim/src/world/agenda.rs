//! Future events, in the order of their times.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::time::Ms;

/// Events ordered by time. Events of the same time keep their order of insertion.
#[derive(Debug)]
pub(crate) struct Agenda<T> {
    /// Time and number of each event, and its place in `events`. Events are large, and stay where they are.
    heap: BinaryHeap<Reverse<(Ms, u64, usize)>>,
    events: Vec<Option<T>>,
    free: Vec<usize>,
    count: u64,
}

impl<T> Default for Agenda<T> {
    fn default() -> Self {
        Self {
            heap: BinaryHeap::new(),
            events: Vec::new(),
            free: Vec::new(),
            count: 0,
        }
    }
}

impl<T> Agenda<T> {
    pub(crate) fn put(&mut self, at: Ms, what: T) {
        self.count += 1;
        let place = self.free.pop().unwrap_or(self.events.len());
        match self.events.get_mut(place) {
            Some(free) => *free = Some(what),
            None => self.events.push(Some(what)),
        }
        self.heap.push(Reverse((at, self.count, place)));
    }

    /// Time of the next event.
    pub(crate) fn next_at(&self) -> Option<Ms> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    /// Takes the next event, if it is due.
    pub(crate) fn take_due(&mut self, now: Ms) -> Option<T> {
        if self.next_at()? > now {
            return None;
        }
        let Reverse((_, _, place)) = self.heap.pop()?;
        self.free.push(place);
        self.events[place].take()
    }
}
