//! Deadlocks: circles of waits over all lines below a path.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::error::Error;
use crate::inspect::contention::{Contention, QueueEntry, Wants};
use crate::inspect::survey::{Overview, Recipe, Survey};
use crate::session::telemetry::call;

/// One wait in a circle.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitsFor {
    /// The owner that waits: the name that the task gave, or else the session.
    pub owner: String,
    /// The path of the line where it waits.
    pub path: String,
    /// The name of its node there.
    pub node: String,
    /// The owner that it waits for.
    pub waits_for: String,
    /// The name of its node there.
    pub blocker: String,
}

impl Contention {
    /// Finds deadlocks: owners that wait for each other in a circle, in the line at this path and in all lines below it. Each owner in a
    /// circle appears in one result, which lists the steps of a shortest circle.
    ///
    /// Tasks are told apart by their [owner](crate::Lock::owner), or else by their session: if several tasks share a session without
    /// owners, a circle may be a false alarm. Permits of semaphores are not followed, since any of several holders may end the wait. A
    /// circle that is found twice, some time apart, is permanent.
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`](crate::ErrorKind): `BadPath`, `NoSession`, `SessionEnded`, `Disconnected`, `Refused`.
    pub async fn deadlocks(&self) -> Result<Vec<Vec<WaitsFor>>, Error> {
        call!("contention.deadlocks", self.path())
            .run(async {
                let survey = Survey::new(&self.client, self.path.clone());
                Ok(survey.look().await?.deadlocks())
            })
            .await
    }
}

impl Overview {
    /// Does the same as [`Contention::deadlocks`], in what was seen.
    #[must_use]
    pub fn deadlocks(&self) -> Vec<Vec<WaitsFor>> {
        self.graph().circles()
    }

    /// The graph of waits: each contender and the contenders in its way. Permits are left out, since any of several holders may release
    /// one.
    #[must_use]
    pub fn waits(&self) -> Vec<WaitsFor> {
        self.graph().by_owner.into_values().flatten().collect()
    }

    fn graph(&self) -> Waits {
        let mut waits = Waits::default();
        for sight in &self.recipes {
            if let Recipe::Line(line) = &sight.what {
                waits.add(&sight.path, &line.entries);
            }
        }
        waits
    }
}

/// The graph of waiters and holders.
#[derive(Debug, Default)]
struct Waits {
    by_owner: BTreeMap<String, Vec<WaitsFor>>,
}

impl Waits {
    fn add(&mut self, path: &str, line: &[QueueEntry]) {
        for (place, waiter) in line.iter().enumerate() {
            if waiter.holds {
                continue;
            }
            for blocker in blockers(waiter, &line[..place]) {
                let (owner, waits_for) = (waiter.owner(), blocker.owner());
                // Two tasks of one session may be in one line; a name of its own belongs to one task only.
                if owner == waits_for && owner == format!("{:x}", waiter.session) {
                    continue;
                }
                let wait = WaitsFor {
                    owner,
                    path: path.to_owned(),
                    node: waiter.node.clone(),
                    waits_for,
                    blocker: blocker.node.clone(),
                };
                self.by_owner
                    .entry(wait.owner.clone())
                    .or_default()
                    .push(wait);
            }
        }
    }

    /// A shortest circle through each owner that is in a circle, unless an earlier circle contains the owner.
    fn circles(&self) -> Vec<Vec<WaitsFor>> {
        let mut circles: Vec<Vec<WaitsFor>> = Vec::new();
        let mut told = BTreeSet::new();
        let entangled = self.entangled();
        for &owner in &entangled {
            if !told.contains(owner)
                && let Some(circle) = self.circle_through(owner, &entangled)
            {
                told.extend(circle.iter().map(|step| step.owner.clone()));
                circles.push(circle);
            }
        }
        circles
    }

    /// All owners except those from which no circle can be reached, or which no circle reaches. This drops long lines at the cost of one
    /// look at each wait.
    fn entangled(&self) -> BTreeSet<&str> {
        let waits = || self.by_owner.values().flatten();
        let forth = waits().map(|wait| (wait.owner.as_str(), wait.waits_for.as_str()));
        let back = forth.clone().map(|(owner, waits_for)| (waits_for, owner));
        let mut left = self.by_owner.keys().map(String::as_str).collect();
        without_ends(&mut left, forth.collect());
        without_ends(&mut left, back.collect());
        left
    }

    fn circle_through(&self, start: &str, among: &BTreeSet<&str>) -> Option<Vec<WaitsFor>> {
        // The wait through which each owner was reached first.
        let mut come_by: BTreeMap<&str, &WaitsFor> = BTreeMap::new();
        let mut next = VecDeque::from([start]);
        while let Some(owner) = next.pop_front() {
            for wait in self.of(owner) {
                let waits_for = wait.waits_for.as_str();
                if among.contains(waits_for) && !come_by.contains_key(waits_for) {
                    come_by.insert(waits_for, wait);
                    next.push_back(waits_for);
                }
            }
        }
        let mut circle = vec![(*come_by.get(start)?).clone()];
        while circle.last().is_some_and(|step| step.owner != start) {
            let step = circle
                .last()
                .and_then(|step| come_by.get(step.owner.as_str()));
            circle.extend(step.map(|&step| step.clone()));
        }
        circle.reverse();
        Some(circle)
    }

    fn of(&self, owner: &str) -> &[WaitsFor] {
        self.by_owner.get(owner).map_or(&[], Vec::as_slice)
    }
}

/// Drops owners from which no step leads to a remaining owner.
fn without_ends<'a>(left: &mut BTreeSet<&'a str>, steps: Vec<(&'a str, &'a str)>) {
    let mut steps_to: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut steps_left: BTreeMap<&str, usize> = left.iter().map(|&one| (one, 0)).collect();
    for (from, to) in steps {
        if left.contains(from) && left.contains(to) {
            steps_to.entry(to).or_default().push(from);
            *steps_left.entry(from).or_default() += 1;
        }
    }
    let ends = steps_left.iter().filter(|(_, steps)| **steps == 0);
    let mut ends: Vec<&str> = ends.map(|(end, _)| *end).collect();
    while let Some(end) = ends.pop() {
        left.remove(end);
        for from in steps_to.remove(end).unwrap_or_default() {
            let steps = steps_left.entry(from).or_default();
            *steps -= 1;
            if *steps == 0 {
                ends.push(from);
            }
        }
    }
}

/// The contenders that a waiter waits for. Behind an exclusive contender, only that contender: what it waits for is its own wait.
fn blockers<'a>(
    waiter: &'a QueueEntry,
    before: &'a [QueueEntry],
) -> impl Iterator<Item = &'a QueueEntry> {
    let mut is_alone = false;
    before
        .iter()
        .rev()
        .filter(|other| match waiter.wants {
            Wants::Read => !other.shares(),
            Wants::Lock | Wants::Write | Wants::Leadership => true,
            // Any of several holders may end the wait, or a client that is in no line.
            Wants::Permits(_) | Wants::Barrier | Wants::Item => false,
        })
        .take_while(move |other| {
            let goes_on = !is_alone;
            is_alone = !other.shares();
            goes_on
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits between owners, and the lengths of the circles in them.
    fn circles(waits: &[(&str, &str)]) -> Vec<usize> {
        found(waits).iter().map(Vec::len).collect()
    }

    fn found(waits: &[(&str, &str)]) -> Vec<Vec<WaitsFor>> {
        let mut all = Waits::default();
        for (owner, waits_for) in waits {
            let wait = WaitsFor {
                owner: (*owner).to_owned(),
                path: "/".to_owned(),
                node: String::new(),
                waits_for: (*waits_for).to_owned(),
                blocker: String::new(),
            };
            all.by_owner
                .entry(wait.owner.clone())
                .or_default()
                .push(wait);
        }
        let circles = all.circles();
        for circle in &circles {
            let next = circle.iter().cycle().skip(1);
            assert!(
                circle
                    .iter()
                    .zip(next)
                    .all(|(step, next)| step.waits_for == next.owner)
            );
        }
        circles
    }

    #[test]
    fn everybody_who_is_stuck_is_named_whatever_the_names() {
        for [a, b, c] in [
            ["a", "b", "c"],
            ["a", "c", "b"],
            ["b", "a", "c"],
            ["b", "c", "a"],
            ["c", "a", "b"],
            ["c", "b", "a"],
        ] {
            let circles = found(&[(a, b), (a, c), (b, a), (c, b), ("behind", a), (a, "free")]);
            let named: BTreeSet<_> = circles.iter().flatten().map(|step| &step.owner).collect();
            assert!(named.into_iter().eq(["a", "b", "c"]), "{circles:?}");
        }
    }

    #[test]
    fn circles_are_found_once_each() {
        assert_eq!(circles(&[("a", "b"), ("b", "a")]), [2]);
        assert_eq!(
            circles(&[("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")]),
            [3]
        );
        assert_eq!(
            circles(&[("a", "b"), ("b", "a"), ("c", "d"), ("d", "c")]),
            [2, 2]
        );
        assert_eq!(circles(&[("a", "a")]), [1]);
        // Leads into a circle that was already found.
        assert_eq!(
            circles(&[("a", "c"), ("b", "c"), ("c", "d"), ("d", "c")]),
            [2]
        );
    }

    #[test]
    fn chains_are_no_circles() {
        assert_eq!(circles(&[]), [0; 0]);
        let diamond = [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("d", "e")];
        assert_eq!(circles(&diamond), [0; 0]);
    }
}
