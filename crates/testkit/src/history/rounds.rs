//! Checks of a double barrier: all members of a round start and end together, and rounds do not mix.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::event::{Event, Moment, What};

/// A step at a double barrier, as a process records it; [`stays`] combines them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RoundStep {
    /// See [`RoundStay::arrived`].
    Arrived,
    /// See [`RoundStay::entered`].
    #[expect(missing_docs, reason = "said above")]
    Entered { round: u64 },
    /// The process gave up entering, began to leave, learned that its membership was lost, or died.
    Ending,
    /// See [`RoundStay::left`].
    Left,
}

/// One stay at a double barrier, from the call to enter to the end of the call to leave. Steps that did not happen are `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoundStay {
    /// The number of the member.
    pub who: usize,
    /// When it called enter: recorded before the call.
    pub arrived: Moment,
    /// When it was admitted, and to which round: recorded after the call returned.
    pub entered: Option<(Moment, u64)>,
    /// When it gave up entering: recorded after the call returned or was dropped.
    pub gave_up: Option<Moment>,
    /// When it began to leave, learned that its membership was lost, or the test ended its session: recorded before.
    pub leaving: Option<Moment>,
    /// When it learned that all have left.
    pub left: Option<Moment>,
}

impl RoundStay {
    /// A stay that begins now.
    pub fn begin(who: usize) -> Self {
        Self {
            who,
            arrived: Moment::now(),
            entered: None,
            gave_up: None,
            leaving: None,
            left: None,
        }
    }

    /// Ends the stay early if the server may have removed the member by then without its knowledge: its process was stopped, or another
    /// process ended its session.
    pub fn excuse(&mut self, events: &[Event], session_timeout: Duration) {
        let Some((entered, _)) = self.entered else {
            return;
        };
        let until = self.leaving.unwrap_or(Moment::NEVER);
        let mut paused = None;
        let mut excuse = |since: Moment, to: Moment| {
            if since <= until && to >= entered {
                let ended = since.max(entered);
                self.leaving = Some(self.leaving.map_or(ended, |leaving| leaving.min(ended)));
            }
        };
        for event in events.iter().filter(|event| event.who == self.who) {
            match event.what {
                What::Paused => paused = Some(event.at),
                What::Resumed => {
                    if let Some(since) = paused.take() {
                        excuse(since, event.at);
                    }
                }
                // A shorter stall ends no session without its process noticing in time.
                What::Stalled { since } if event.at.since(since) >= session_timeout / 4 => {
                    excuse(since, event.at);
                }
                What::Expired => excuse(event.at, event.at.plus(session_timeout)),
                _ => {}
            }
        }
        if let Some(since) = paused {
            excuse(since, Moment::NEVER);
        }
    }

    /// Whether it may have been counted between two moments, if a member that gave up stays visible for `linger`.
    fn may_have_been_there(&self, from: Moment, to: Moment, linger: Duration) -> bool {
        let until = self.gave_up.map_or(Moment::NEVER, |at| at.plus(linger));
        self.arrived <= to && until >= from
    }
}

/// Combines steps, which are in the order of time, each with the number of its member.
pub fn stays(steps: impl IntoIterator<Item = (Moment, usize, RoundStep)>) -> Vec<RoundStay> {
    let mut stays: Vec<RoundStay> = Vec::new();
    let mut open: HashMap<usize, usize> = HashMap::new();
    for (at, who, step) in steps {
        if step == RoundStep::Arrived {
            open.insert(who, stays.len());
            stays.push(RoundStay {
                arrived: at,
                ..RoundStay::begin(who)
            });
            continue;
        }
        let Some(stay) = open.get(&who).map(|index| &mut stays[*index]) else {
            continue;
        };
        match step {
            RoundStep::Arrived => {}
            RoundStep::Entered { round } => stay.entered = Some((at, round)),
            RoundStep::Ending if stay.entered.is_none() => stay.gave_up = stay.gave_up.or(Some(at)),
            RoundStep::Ending => stay.leaving = stay.leaving.or(Some(at)),
            RoundStep::Left => stay.left = Some(at),
        }
    }
    stays
}

/// Checks the stays at a barrier of `size` members; returns the violation as text.
///
/// A member that gave up while it was cut off is counted until the server notices or expires its session: at most `linger`.
pub fn check_rounds(stays: &[RoundStay], size: usize, linger: Duration) -> Result<(), String> {
    let mut rounds: BTreeMap<u64, Vec<(Moment, &RoundStay)>> = BTreeMap::new();
    for stay in stays {
        if let Some((at, round)) = stay.entered {
            rounds.entry(round).or_default().push((at, stay));
        }
    }
    let mut before: Option<(u64, &Vec<(Moment, &RoundStay)>)> = None;
    for (round, members) in &rounds {
        let first_in = members.iter().map(|(at, _)| *at).min();
        let first_in = first_in.unwrap_or(Moment::NEVER);
        if members.len() > size {
            return Err(format!(
                "round {round}: {} of {size} members are inside",
                members.len()
            ));
        }
        if let Some((_, late)) = members.iter().find(|(_, stay)| stay.arrived > first_in) {
            return Err(format!(
                "round {round}: a member passed before member {} had arrived",
                late.who
            ));
        }
        // Members that were counted but never learned it.
        let last_came = members.iter().map(|(_, stay)| stay.arrived).max();
        let last_came = last_came.unwrap_or(first_in);
        let others = stays.iter().filter(|stay| {
            stay.entered.is_none() && stay.may_have_been_there(last_came, first_in, linger)
        });
        if members.len() + others.count() < size {
            return Err(format!(
                "round {round}: passed with {} of {size} members",
                members.len()
            ));
        }
        for (_, stay) in members {
            let Some(left) = stay.left else { continue };
            let stayed = |other: &RoundStay| other.leaving.is_none_or(|leaving| leaving > left);
            if let Some((_, other)) = members.iter().find(|(_, other)| stayed(other)) {
                return Err(format!(
                    "round {round}: member {} left while member {} was inside",
                    stay.who, other.who
                ));
            }
        }
        if let Some((previous, members)) = before {
            let stayed = |stay: &RoundStay| stay.leaving.is_none_or(|leaving| leaving > first_in);
            if let Some((_, stay)) = members.iter().find(|(_, stay)| stayed(stay)) {
                return Err(format!(
                    "round {round} began while member {} was in round {previous}",
                    stay.who
                ));
            }
        }
        before = Some((*round, members));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINGER: Duration = Duration::ZERO;

    fn at(ms: u64) -> Moment {
        Moment::after_boot(Duration::from_millis(ms))
    }

    /// Two members of a round that begins at one moment.
    fn met(round: u64, from: u64) -> [RoundStay; 2] {
        [0, 1].map(|who| RoundStay {
            who,
            arrived: at(from + who as u64),
            entered: Some((at(from + 2), round)),
            gave_up: None,
            leaving: Some(at(from + 3 + who as u64)),
            left: Some(at(from + 5)),
        })
    }

    #[test]
    fn steps_become_stays() {
        let steps = [
            (at(0), 0, RoundStep::Arrived),
            (at(1), 1, RoundStep::Arrived),
            (at(2), 0, RoundStep::Entered { round: 7 }),
            (at(3), 1, RoundStep::Ending),
            (at(4), 0, RoundStep::Ending),
            (at(5), 0, RoundStep::Left),
        ];
        let [inside, outside] = stays(steps).try_into().unwrap();
        assert_eq!(inside.entered, Some((at(2), 7)));
        assert_eq!((inside.leaving, inside.left), (Some(at(4)), Some(at(5))));
        assert_eq!((outside.gave_up, outside.leaving), (Some(at(3)), None));
    }

    #[test]
    fn member_that_was_stopped_may_have_been_gone_since() {
        let [mut stay, _] = met(0, 10);
        let left = stay.leaving;
        let event = |ms, who, what| Event {
            at: at(ms),
            who,
            what,
        };
        let others = [event(12, 1, What::Paused), event(0, 0, What::Expired)];
        stay.excuse(&others, Duration::from_millis(5));
        assert_eq!(stay.leaving, left, "of another member, and long over");
        let early = [event(11, 0, What::Paused), event(20, 0, What::Resumed)];
        stay.excuse(&early, Duration::from_millis(5));
        assert_eq!(stay.leaving, Some(at(12)));
    }

    #[test]
    fn rounds_in_order_are_right() {
        let stays = [met(0, 0), met(1, 10), met(2, 20)].concat();
        assert_eq!(check_rounds(&stays, 2, LINGER), Ok(()));
    }

    #[test]
    fn early_entrance_is_found() {
        let mut stays = met(0, 0);
        stays[0].entered = Some((at(0), 0));
        assert!(
            check_rounds(&stays, 2, LINGER)
                .unwrap_err()
                .contains("had arrived")
        );
        let [alone, _] = met(0, 0);
        let found = check_rounds(&[alone], 2, LINGER).unwrap_err();
        assert!(found.contains("1 of 2"), "{found}");
    }

    #[test]
    fn one_who_was_counted_and_gave_up_is_no_early_entrance() {
        let [one, mut other] = met(0, 0);
        other.entered = None;
        other.gave_up = Some(at(4));
        assert_eq!(check_rounds(&[one, other], 2, LINGER), Ok(()));
        other.arrived = at(3);
        assert!(check_rounds(&[one, other], 2, LINGER).is_err());
        let mut early = other;
        early.arrived = at(0);
        early.gave_up = Some(at(0));
        let late = RoundStay {
            arrived: at(1),
            ..one
        };
        assert!(check_rounds(&[late, early], 2, LINGER).is_err());
        let linger = Duration::from_millis(1);
        assert_eq!(check_rounds(&[late, early], 2, linger), Ok(()));
    }

    #[test]
    fn early_leave_is_found() {
        let mut stays = met(0, 0);
        stays[0].left = Some(at(3));
        assert!(
            check_rounds(&stays, 2, LINGER)
                .unwrap_err()
                .contains("left while")
        );
        stays = met(0, 0);
        stays[1].leaving = None;
        assert!(
            check_rounds(&stays, 2, LINGER)
                .unwrap_err()
                .contains("left while")
        );
    }

    #[test]
    fn rounds_that_mix_are_found() {
        let mut stays = [met(0, 0), met(1, 10)].concat();
        stays[1].leaving = Some(at(13));
        stays[0].left = None;
        stays[1].left = None;
        assert!(
            check_rounds(&stays, 2, LINGER)
                .unwrap_err()
                .contains("began")
        );
    }

    #[test]
    fn one_too_many_is_found() {
        let mut extra = met(0, 0)[0];
        extra.who = 2;
        let stays = [met(0, 0).as_slice(), &[extra]].concat();
        assert!(
            check_rounds(&stays, 2, LINGER)
                .unwrap_err()
                .contains("3 of 2")
        );
    }
}
