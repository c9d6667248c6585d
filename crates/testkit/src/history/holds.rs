//! The holds in a history, and excuses for a hold that looks longer than it was.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::event::{Event, Moment, What};

/// The capacity of the recipe, and how soon a contender must notice the end of a hold.
///
/// Each hold takes its weight of `capacity`. The capacity of a lock is one, that of a semaphore its
/// number of permits. A read/write lock has a large capacity, of which a reader takes one and a writer all.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    /// The sum of weights that can be held at a time.
    pub capacity: u32,
    /// The session timeout that the servers granted.
    pub session_timeout: Duration,
    /// How long after a pause a contender may still believe that it holds.
    pub grace: Duration,
}

/// A hold: from the return of acquire to the call of release, the drop, the loss, or the deletion of its node by an operator, whichever is
/// first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hold {
    pub(super) who: usize,
    pub(super) token: i64,
    pub(super) weight: u32,
    pub(super) from: Moment,
    pub(super) until: Moment,
}

impl Hold {
    pub(super) fn is_on(&self, at: Moment) -> bool {
        (self.from..self.until).contains(&at)
    }
}

/// All holds, by the time of their grant.
pub(super) fn holds(events: &[Event]) -> Vec<Hold> {
    let mut holds: Vec<Hold> = Vec::new();
    let mut open: HashMap<(usize, i64), usize> = HashMap::new();
    let mut deleted = HashSet::new();
    for event in events {
        match event.what {
            // It was granted while an operator deleted its node.
            What::Granted { token, .. } if deleted.contains(&token) => {}
            What::Granted { token, weight } => {
                open.insert((event.who, token), holds.len());
                holds.push(Hold {
                    who: event.who,
                    token,
                    weight,
                    from: event.at,
                    until: Moment::NEVER,
                });
            }
            What::Lost { token } | What::Releasing { token } | What::Dropping { token } => {
                if let Some(index) = open.remove(&(event.who, token)) {
                    holds[index].until = event.at;
                }
            }
            What::Deleting { token } => {
                deleted.insert(token);
                open.retain(|&(_, other), &mut index| {
                    if other == token {
                        holds[index].until = event.at;
                    }
                    other != token
                });
            }
            _ => {}
        }
    }
    holds
}

/// The times in which a contender could not know that its holds had ended.
///
/// It did not run, because of a signal or a busy machine; or the test ended its session, which it notices by
/// its connection, or by its own clock within a session timeout.
#[derive(Debug)]
pub(super) struct Excuses {
    of: HashMap<usize, Vec<(Moment, Moment)>>,
    /// When the history ends: nothing is known of a hold after that.
    end: Moment,
}

impl Excuses {
    pub(super) fn of(events: &[Event], terms: &Terms) -> Self {
        let mut excuses = Self {
            of: HashMap::new(),
            end: events.last().map_or(Moment::NEVER, |event| event.at),
        };
        let mut paused = HashMap::new();
        for event in events {
            let Event { at, who, ref what } = *event;
            match *what {
                What::Paused => {
                    paused.entry(who).or_insert(at);
                }
                What::Resumed => {
                    if let Some(since) = paused.remove(&who) {
                        excuses.add(who, since, at.plus(terms.grace));
                    }
                }
                What::Stalled { since } => excuses.add(who, since, at.plus(terms.grace)),
                What::Expired => {
                    excuses.add(who, at, at.plus(terms.session_timeout).plus(terms.grace));
                }
                _ => {}
            }
        }
        for (who, since) in paused {
            excuses.add(who, since, Moment::NEVER);
        }
        excuses.join();
        excuses
    }

    /// Whether a hold that continues after `moment` had already ended, and its contender could not know yet.
    pub(super) fn explain(&self, hold: &Hold, moment: Moment) -> bool {
        self.cover(hold.who, moment, hold.until)
    }

    /// Whether one excuse covers the time between two moments.
    pub(super) fn cover(&self, who: usize, from: Moment, until: Moment) -> bool {
        let until = until.min(self.end);
        self.of.get(&who).is_some_and(|all| {
            // Only the last one that begins by then can: they do not overlap.
            let next = all.partition_point(|&(since, _)| since <= from);
            next > 0 && until <= all[next - 1].1
        })
    }

    fn add(&mut self, who: usize, since: Moment, until: Moment) {
        self.of.entry(who).or_default().push((since, until));
    }

    /// Merges overlapping excuses: a contender that is paused while it is about to notice needs the time of both.
    fn join(&mut self) {
        for all in self.of.values_mut() {
            all.sort_unstable();
            all.dedup_by(|later, earlier| {
                let joined = later.0 <= earlier.1;
                if joined {
                    earlier.1 = earlier.1.max(later.1);
                }
                joined
            });
        }
    }
}
