//! Circles of waiting over all the lines below a path.

use std::collections::{BTreeMap, BTreeSet};

use crate::contention::{Contention, Contestant, Wants};
use crate::error::ContentionError;
use crate::survey::{Overview, Recipe, Survey};

/// One step in a circle of waiting.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitsFor {
    /// Who waits: the task that named itself, or else the session.
    pub owner: String,
    /// The path of the line where it waits.
    pub path: String,
    /// The name of its node there.
    pub node: String,
    /// Whom it waits for.
    pub waits_for: String,
    /// The name of that one's node there.
    pub blocker: String,
}

impl Contention {
    /// Finds those who wait for each other in a circle, so that none of them will ever get through, in the line at this path and
    /// in all lines below it. Each circle is told once, as the steps around it.
    ///
    /// Tasks are told apart by the [owner](crate::Lock::owner) they gave, and else by their session: where several tasks share a
    /// session without a name of their own, a circle may be told that is none. Permits of semaphores are not followed, since
    /// any of several holders may end the wait. A circle that is told twice in a row, some time apart, is there to stay.
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    ///
    /// # Errors
    ///
    /// See [`ContentionError`].
    pub async fn deadlocks(&self) -> Result<Vec<Vec<WaitsFor>>, ContentionError> {
        let survey = Survey::new(&self.client, self.path.clone());
        Ok(survey.look().await?.deadlocks())
    }
}

impl Overview {
    /// As [`Contention::deadlocks`], in what was seen.
    #[must_use]
    pub fn deadlocks(&self) -> Vec<Vec<WaitsFor>> {
        self.graph().circles()
    }

    /// Who waits for whom: everybody who stands in the way of anybody, but for permits, which any of several may give back.
    #[must_use]
    pub fn waits(&self) -> Vec<WaitsFor> {
        self.graph().by_owner.into_values().flatten().collect()
    }

    fn graph(&self) -> Waits {
        let mut waits = Waits::default();
        for sight in &self.sights {
            if let Recipe::Line(line) = &sight.what {
                waits.add(&sight.path, &line.contestants);
            }
        }
        waits
    }
}

/// Who waits for whom.
#[derive(Debug, Default)]
struct Waits {
    by_owner: BTreeMap<String, Vec<WaitsFor>>,
}

impl Waits {
    fn add(&mut self, path: &str, line: &[Contestant]) {
        for (place, waiter) in line.iter().enumerate() {
            if waiter.holds {
                continue;
            }
            for blocker in blockers(waiter, &line[..place]) {
                let (owner, waits_for) = (waiter.owner(), blocker.owner());
                // Two tasks of one session may stand in one line; a name of its own only one has.
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

    /// Each circle once: a walk along the waits, as deep as it goes, that comes upon an owner it came through.
    fn circles(&self) -> Vec<Vec<WaitsFor>> {
        let mut circles = Vec::new();
        let mut done = BTreeSet::new();
        for start in self.by_owner.keys() {
            if done.contains(start.as_str()) {
                continue;
            }
            // The waits on the way here, and those left to follow at each step.
            let mut way: Vec<&WaitsFor> = Vec::new();
            let mut left = vec![self.of(start).iter()];
            while let Some(next) = left.last_mut() {
                let Some(wait) = next.next() else {
                    left.pop();
                    if let Some(walked) = way.pop() {
                        done.insert(walked.waits_for.as_str());
                    }
                    continue;
                };
                way.push(wait);
                if let Some(from) = way.iter().position(|step| step.owner == wait.waits_for) {
                    circles.push(way[from..].iter().copied().cloned().collect());
                    way.pop();
                } else if done.contains(wait.waits_for.as_str()) {
                    way.pop();
                } else {
                    left.push(self.of(&wait.waits_for).iter());
                }
            }
            done.insert(start.as_str());
        }
        circles
    }

    fn of(&self, owner: &str) -> &[WaitsFor] {
        self.by_owner.get(owner).map_or(&[], Vec::as_slice)
    }
}

/// Whom somebody waits for of those before it. Behind one that is alone, only that one: what that one waits for is its own wait.
fn blockers<'a>(
    waiter: &'a Contestant,
    before: &'a [Contestant],
) -> impl Iterator<Item = &'a Contestant> {
    let mut is_alone = false;
    before
        .iter()
        .rev()
        .filter(|other| match waiter.wants {
            Wants::Read => !other.shares(),
            Wants::Lock | Wants::Write | Wants::Leadership => true,
            // Any of several may end the wait, or somebody who stands in no line.
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

    /// Waits between owners, and how many circles they have, of which lengths.
    fn circles(waits: &[(&str, &str)]) -> Vec<usize> {
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
        circles.iter().map(Vec::len).collect()
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
        // Into a circle that was walked from elsewhere.
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
