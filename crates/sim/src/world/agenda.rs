//! Future events, in the order of their times.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::time::Ms;

/// Events ordered by time. Events of the same time keep their order of insertion.
#[derive(Debug)]
pub(crate) struct Agenda<T> {
    heap: BinaryHeap<Reverse<Entry<T>>>,
    count: u64,
}

#[derive(Debug)]
struct Entry<T> {
    at: Ms,
    number: u64,
    what: T,
}

impl<T> Default for Agenda<T> {
    fn default() -> Self {
        Self {
            heap: BinaryHeap::new(),
            count: 0,
        }
    }
}

impl<T> Agenda<T> {
    pub(crate) fn put(&mut self, at: Ms, what: T) {
        self.count += 1;
        self.heap.push(Reverse(Entry {
            at,
            number: self.count,
            what,
        }));
    }

    /// Time of the next event.
    pub(crate) fn next_at(&self) -> Option<Ms> {
        self.heap.peek().map(|Reverse(entry)| entry.at)
    }

    /// Takes the next event, if it is due.
    pub(crate) fn take_due(&mut self, now: Ms) -> Option<T> {
        match self.next_at() {
            Some(at) if at <= now => self.heap.pop().map(|Reverse(entry)| entry.what),
            _ => None,
        }
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.number) == (other.at, other.number)
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}
