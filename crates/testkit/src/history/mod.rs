//! Histories: what contenders did and when, and checks that it was correct.
//!
//! Contenders record their actions as [`Event`]s on one clock of the machine. Separate processes print their events, and the test collects
//! them in a [`History`]. The checks are functions of it: [`check_holds`], [`check_order`], [`check_fencing`], [`check_crash_marks`] and
//! [`check_progress`]. They return a [`Violation`], which prints the relevant part of the history, and the seed.

mod checks;
pub mod deliveries;
mod event;
pub mod fenced_store;
pub mod gates;
mod holds;
pub mod members;
mod pulse;
pub mod registers;
pub mod rounds;
pub mod sights;
pub mod sums;
pub mod transactions;

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub use checks::{check_crash_marks, check_fencing, check_holds, check_order, check_progress};
pub use event::{Event, Moment, SERVERS, What};
pub use holds::Terms;
pub use pulse::Pulse;

/// Collects events from any thread, in any order.
#[derive(Debug, Clone)]
pub struct Recorder {
    seed: u64,
    events: Arc<Mutex<Vec<Event>>>,
}

impl Recorder {
    /// Begins an empty history; the seed reproduces the run.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            events: Arc::default(),
        }
    }

    /// Records what a contender does, or what is done to it, now.
    pub fn record(&self, who: usize, what: What) {
        self.add(Event::now(who, what));
    }

    /// Adds an event of another process.
    pub fn add(&self, event: Event) {
        let mut events = self.events.lock().expect("nothing panics under this lock");
        events.push(event);
    }

    /// The contender with the latest grant, as far as known here.
    pub fn last_granted(&self) -> Option<usize> {
        let events = self.events.lock().expect("nothing panics under this lock");
        let mut grants = events.iter().filter(|event| event.is_grant());
        grants.next_back().map(|event| event.who)
    }

    /// All events so far, in the order of time.
    pub fn history(&self) -> History {
        let events = self.events.lock().expect("nothing panics under this lock");
        History::new(self.seed, events.clone())
    }
}

/// Events in the order of time.
#[derive(Debug, Clone)]
pub struct History {
    seed: u64,
    events: Vec<Event>,
}

impl History {
    /// Sorts events by time; the sort is stable.
    pub fn new(seed: u64, mut events: Vec<Event>) -> Self {
        events.sort_by_key(|event| event.at);
        Self { seed, events }
    }

    /// The events.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// The number of granted holds.
    pub fn grants(&self) -> usize {
        let grants = self.events.iter().filter(|event| event.is_grant());
        grants.count()
    }

    /// A violation, with the events of its contenders between two moments, and all faults in that time.
    fn violation(&self, what: String, from: Moment, to: Moment, whom: &[usize]) -> Violation {
        let start = self.events.first().map_or(from, |event| event.at);
        let concerned = |event: &&Event| {
            let is_shown = match event.what {
                What::Stalled { since } => event.at.since(since) >= STALL_SHOWN,
                ref what => whom.contains(&event.who) || what.is_fault(),
            };
            is_shown && (from..=to).contains(&event.at)
        };
        let mut lines: Vec<String> = self
            .events
            .iter()
            .filter(concerned)
            .map(|event| event.line_after(start))
            .collect();
        if lines.len() > EXCERPT_LINES_MAX {
            let left_out = lines.len() - EXCERPT_LINES_MAX;
            lines.drain(EXCERPT_LINES_MAX / 2..EXCERPT_LINES_MAX / 2 + left_out);
            lines.insert(EXCERPT_LINES_MAX / 2, format!("  … {left_out} more …"));
        }
        Violation {
            what,
            excerpt: lines.join("\n"),
            seed: self.seed,
        }
    }
}

/// Maximum number of events that a violation prints.
const EXCERPT_LINES_MAX: usize = 60;

/// On a busy machine there are many shorter ones.
const STALL_SHOWN: Duration = Duration::from_millis(100);

/// A broken guarantee.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    what: String,
    excerpt: String,
    seed: u64,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            what,
            excerpt,
            seed,
        } = self;
        write!(f, "{what} (seed {seed})\n{excerpt}")
    }
}

impl std::error::Error for Violation {}
