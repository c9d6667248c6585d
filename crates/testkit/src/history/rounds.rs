//! What must be true of a double barrier: everybody in a round begins and ends together, and rounds do not mix.

use std::collections::BTreeMap;
use std::time::Duration;

use super::event::Moment;

/// One stay at a double barrier, from the call to enter to the end of the call to leave. What did not happen is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stay {
    /// The number of the member.
    pub who: usize,
    /// When it called enter: noted before.
    pub arrived: Moment,
    /// When it was let in, and to which round: noted after the call returned.
    pub entered: Option<(Moment, u64)>,
    /// When it gave up, entering: noted after the call returned or was dropped.
    pub gave_up: Option<Moment>,
    /// When it began to leave, or heard that its membership was lost, or had its session ended by another hand: noted before.
    pub leaving: Option<Moment>,
    /// When it was told that all have left.
    pub left: Option<Moment>,
}

impl Stay {
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

    /// Whether it may have been counted between two moments, if one who gave up may be seen for so long.
    fn may_have_been_there(&self, from: Moment, to: Moment, linger: Duration) -> bool {
        let until = self.gave_up.map_or(Moment::NEVER, |at| at.plus(linger));
        self.arrived <= to && until >= from
    }
}

/// Checks the stays at a barrier for so many members; what is wrong comes back in words.
///
/// One who gave up while it was cut off is counted until the server hears of it or ends its session: so long at most.
pub fn check_rounds(stays: &[Stay], size: usize, linger: Duration) -> Result<(), String> {
    let mut rounds: BTreeMap<u64, Vec<(Moment, &Stay)>> = BTreeMap::new();
    for stay in stays {
        if let Some((at, round)) = stay.entered {
            rounds.entry(round).or_default().push((at, stay));
        }
    }
    let mut before: Option<(u64, &Vec<(Moment, &Stay)>)> = None;
    for (round, members) in &rounds {
        let first_in = members.iter().map(|(at, _)| *at).min();
        let first_in = first_in.unwrap_or(Moment::NEVER);
        if members.len() > size {
            return Err(format!("round {round}: {} of {size} are in", members.len()));
        }
        if let Some((_, late)) = members.iter().find(|(_, stay)| stay.arrived > first_in) {
            return Err(format!(
                "round {round}: somebody was let in before member {} had come",
                late.who
            ));
        }
        // Those who were counted and never heard of it.
        let last_came = members.iter().map(|(_, stay)| stay.arrived).max();
        let last_came = last_came.unwrap_or(first_in);
        let others = stays.iter().filter(|stay| {
            stay.entered.is_none() && stay.may_have_been_there(last_came, first_in, linger)
        });
        if members.len() + others.count() < size {
            return Err(format!(
                "round {round}: let in with {} of {size}",
                members.len()
            ));
        }
        for (_, stay) in members {
            let Some(left) = stay.left else { continue };
            let stayed = |other: &Stay| other.leaving.is_none_or(|leaving| leaving > left);
            if let Some((_, other)) = members.iter().find(|(_, other)| stayed(other)) {
                return Err(format!(
                    "round {round}: member {} was let out while member {} was inside",
                    stay.who, other.who
                ));
            }
        }
        if let Some((previous, members)) = before {
            let stayed = |stay: &Stay| stay.leaving.is_none_or(|leaving| leaving > first_in);
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

    /// Two who meet in a round that begins at a moment.
    fn met(round: u64, from: u64) -> [Stay; 2] {
        [0, 1].map(|who| Stay {
            who,
            arrived: at(from + who as u64),
            entered: Some((at(from + 2), round)),
            gave_up: None,
            leaving: Some(at(from + 3 + who as u64)),
            left: Some(at(from + 5)),
        })
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
                .contains("had come")
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
        let late = Stay {
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
                .contains("let out")
        );
        stays = met(0, 0);
        stays[1].leaving = None;
        assert!(
            check_rounds(&stays, 2, LINGER)
                .unwrap_err()
                .contains("let out")
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
