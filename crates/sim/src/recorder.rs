//! What happens in a run, in order.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bellwether_testkit::history::{Event, SERVERS, What};

use crate::world::{Ms, Shared, Trace, in_history};

/// What workers do, in order.
#[derive(Debug, Default)]
struct RunNotes {
    events: Vec<Event>,
    /// Holds that have begun and not ended, by worker and token.
    open: Vec<(usize, i64)>,
    /// When each worker last completed a round, and how many it has completed.
    rounds: Vec<(Ms, u64)>,
    /// How many workers have ended their last round.
    idle: usize,
    /// The first thing that must not happen.
    wrong: Option<String>,
}

/// Records events in the order of time.
#[derive(Debug, Clone)]
pub(crate) struct Recorder {
    notes: Arc<Mutex<RunNotes>>,
    shared: Shared,
}

impl Recorder {
    pub(crate) fn new(shared: Shared, workers: usize) -> Self {
        let notes = RunNotes {
            rounds: vec![(0, 0); workers],
            ..RunNotes::default()
        };
        Self {
            notes: Arc::new(Mutex::new(notes)),
            shared,
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut RunNotes) -> T) -> T {
        act(&mut self.notes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn note(&self, who: usize, what: What) {
        let now = self.shared.with(|it| {
            let line = || match who {
                SERVERS => format!("servers: {what:?}"),
                _ => format!("worker {who}: {what:?}"),
            };
            let sum = who as u64 ^ Trace::text(&what);
            it.trace.add(it.now, 9, sum, line);
            it.now
        });
        self.with(|notes| {
            match what {
                What::Granted { token, .. } => notes.open.push((who, token)),
                What::Lost { token } | What::Releasing { token } | What::Dropping { token } => {
                    notes.open.retain(|open| *open != (who, token));
                }
                _ => {}
            }
            // Nanoseconds keep the order of events within one millisecond.
            let nanos = u64::try_from(notes.events.len()).unwrap_or(0) % 1_000_000;
            let last = notes.events.last().map(|event| event.at);
            let at = in_history(now).plus(Duration::from_nanos(nanos));
            let at = last.map_or(at, |last| at.max(last));
            notes.events.push(Event { at, who, what });
        });
    }

    /// A process was killed: its holds end with it.
    pub(crate) fn killed(&self, who: usize) {
        let open = self.with(|notes| notes.open.clone());
        for (_, token) in open.into_iter().filter(|(other, _)| *other == who) {
            self.note(who, What::Dropping { token });
        }
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        self.with(|notes| notes.events.clone())
    }

    /// A worker has completed a round.
    pub(crate) fn count_round(&self, who: usize) {
        let now = self.shared.with(|it| it.now);
        self.with(|notes| {
            let (last, count) = &mut notes.rounds[who];
            *last = now;
            *count += 1;
        });
    }

    /// A worker has ended its last round.
    pub(crate) fn idle(&self) {
        self.with(|notes| notes.idle += 1);
    }

    /// How many workers have ended their last round.
    pub(crate) fn idle_count(&self) -> usize {
        self.with(|notes| notes.idle)
    }

    pub(crate) fn set_wrong(&self, what: String) {
        self.with(|notes| {
            notes.wrong.get_or_insert(what);
        });
    }

    /// The first thing that must not have happened.
    pub(crate) fn wrong(&self) -> Option<String> {
        self.with(|notes| notes.wrong.clone())
    }

    /// When each worker last completed a round, and how many it has.
    pub(crate) fn rounds(&self) -> Vec<(Ms, u64)> {
        self.with(|notes| notes.rounds.clone())
    }
}
