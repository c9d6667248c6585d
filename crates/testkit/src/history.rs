//! What several processes did and when, and whether that was right.
//!
//! Contenders note what they do as [`Event`]s on one clock of the machine; in processes of their own they print them, and
//! whoever collects them has a [`History`]. The checks are functions of it: [`check_holds`], [`check_order`],
//! [`check_fencing`], [`check_crash_marks`] and [`check_progress`]. What is wrong comes back as a [`Violation`], which prints the part of the
//! history that shows it, and the seed.

mod checks;
mod event;
mod holds;
mod pulse;
pub mod rounds;
pub mod transactions;

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub use checks::{check_crash_marks, check_fencing, check_holds, check_order, check_progress};
pub use event::{Event, Moment, What};
pub use holds::Terms;
pub use pulse::Pulse;

/// Takes events from any thread, in any order.
#[derive(Debug, Clone)]
pub struct Recorder {
    seed: u64,
    events: Arc<Mutex<Vec<Event>>>,
}

impl Recorder {
    /// Begins an empty history; the seed is whatever makes the run happen again.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            events: Arc::default(),
        }
    }

    /// Notes what a contender does, or what is done to it, now.
    pub fn record(&self, who: usize, what: What) {
        self.add(Event::now(who, what));
    }

    /// Adds an event that another process noted.
    pub fn add(&self, event: Event) {
        let mut events = self.events.lock().expect("nothing panics under this lock");
        events.push(event);
    }

    /// Who was granted something last, as far as is known here.
    pub fn last_granted(&self) -> Option<usize> {
        let events = self.events.lock().expect("nothing panics under this lock");
        let mut grants = events.iter().filter(|event| event.is_grant());
        grants.next_back().map(|event| event.who)
    }

    /// All that was recorded so far, in the order of time.
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
    /// Sorts events by time; those of one moment stay as they were.
    pub fn new(seed: u64, mut events: Vec<Event>) -> Self {
        events.sort_by_key(|event| event.at);
        Self { seed, events }
    }

    /// The events.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// How many holds were granted.
    pub fn grants(&self) -> usize {
        let grants = self.events.iter().filter(|event| event.is_grant());
        grants.count()
    }

    /// A violation, with what happened between two moments to those it concerns, and every fault then.
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

/// How much of a history a violation prints at most.
const EXCERPT_LINES_MAX: usize = 60;

/// On a busy machine there are many shorter ones.
const STALL_SHOWN: Duration = Duration::from_millis(100);

/// Something that must not happen, and did.
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
