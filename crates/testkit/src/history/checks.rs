//! Checks that hold for every history.

use std::collections::BTreeMap;

use super::event::{Moment, What};
use super::holds::{Excuses, Hold, Terms, holds};
use super::{History, Violation};

/// Checks that the holds at any moment do not exceed the capacity.
///
/// Tokens alone prove nothing here: two holders at once also have rising tokens.
pub fn check_holds(history: &History, terms: &Terms) -> Result<(), Violation> {
    let excuses = Excuses::of(&history.events, terms);
    let mut now: Vec<Hold> = Vec::new();
    for hold in holds(&history.events) {
        now.retain(|other| other.until > hold.from);
        now.push(hold);
        let together: Vec<&Hold> = now
            .iter()
            .filter(|held| !excuses.explain(held, hold.from))
            .collect();
        let weight: u64 = together.iter().map(|held| u64::from(held.weight)).sum();
        if weight > u64::from(terms.capacity) {
            let whom: Vec<usize> = together.iter().map(|held| held.who).collect();
            let from = together.iter().map(|held| held.from).min();
            let to = together.iter().map(|held| held.until).min();
            return Err(history.violation(
                format!(
                    "{weight} of {} held at once, by contenders {whom:?}",
                    terms.capacity
                ),
                from.unwrap_or(hold.from),
                to.unwrap_or(hold.from),
                &whom,
            ));
        }
    }
    Ok(())
}

/// Checks that grants follow the order in which the places in line were created, which is that of their tokens.
///
/// Two holds that fit together may be recorded in either order.
pub fn check_order(history: &History, terms: &Terms) -> Result<(), Violation> {
    let excuses = Excuses::of(&history.events, terms);
    let holds = holds(&history.events);
    let mut highest_before = Vec::with_capacity(holds.len());
    let mut highest = i64::MIN;
    for (index, late) in holds.iter().enumerate() {
        let overtakers = holds[..index]
            .iter()
            .zip(&highest_before)
            .rev()
            .take_while(|(_, highest)| **highest > late.token)
            .map(|(hold, _)| hold)
            .filter(|hold| hold.token > late.token);
        for early in overtakers {
            let held = holds[..index].iter().filter(|hold| {
                // A hold that had ended without its contender's knowledge took no capacity.
                hold.is_on(early.from) && !excuses.explain(hold, early.from)
            });
            let weight: u64 = held.map(|hold| u64::from(hold.weight)).sum();
            let fits = weight + u64::from(late.weight) <= u64::from(terms.capacity);
            // It had its turn before and lost it, and was paused before it could record that.
            let was_away = excuses.cover(late.who, early.from, late.from);
            if !fits && !was_away {
                return Err(history.violation(
                    format!(
                        "contender {} with token {} was granted before contender {} with token {}",
                        early.who, early.token, late.who, late.token
                    ),
                    early.from,
                    late.from,
                    &[early.who, late.who],
                ));
            }
        }
        highest = highest.max(late.token);
        highest_before.push(highest);
    }
    Ok(())
}

/// Checks that the fenced store accepts no lower token after a higher one, and refuses no holder.
pub fn check_fencing(history: &History, terms: &Terms) -> Result<(), Violation> {
    let excuses = Excuses::of(&history.events, terms);
    let holds = holds(&history.events);
    let mut highest: Option<(i64, usize, Moment)> = None;
    for event in &history.events {
        let What::Wrote { token, accepted } = event.what else {
            continue;
        };
        let (before, holder, since) = highest.unwrap_or((i64::MIN, event.who, event.at));
        let wrong = if accepted && token < before {
            Some("was accepted")
        } else {
            let held = |hold: &&Hold| {
                (hold.who, hold.token) == (event.who, token)
                    && hold.is_on(event.at)
                    && !excuses.explain(hold, event.at)
            };
            // Search the latest grants first: a writer's hold is among them.
            let refused = !accepted && holds.iter().rev().any(|hold| held(&hold));
            refused.then_some("was refused though it held")
        };
        if let Some(wrong) = wrong {
            return Err(history.violation(
                format!(
                    "a write of contender {} with token {token} {wrong}, after one with token {before}",
                    event.who
                ),
                since,
                event.at,
                &[event.who, holder],
            ));
        }
        if accepted {
            highest = Some((token, event.who, event.at));
        }
    }
    Ok(())
}

/// Checks that each holder learned correctly whether the previous holder crashed: no crash is missed, and none invented.
///
/// If a release was not acknowledged, either answer is right. A contender may also have died right after its
/// grant, without a hold in the history; that is a crash too. An operator who deletes nodes deletes marks too.
pub fn check_crash_marks(history: &History) -> Result<(), Violation> {
    #[derive(Clone, Copy, PartialEq)]
    enum End {
        Open,
        InDoubt,
        Clean,
        Crash,
    }
    let mut ends = BTreeMap::new();
    for event in &history.events {
        let (token, end) = match event.what {
            What::Granted { token, .. } => {
                ends.insert(token, (event, End::Open));
                continue;
            }
            What::Releasing { token } => (token, End::InDoubt),
            What::Released { token } => (token, End::Clean),
            What::Lost { token } | What::Dropping { token } => (token, End::Crash),
            _ => continue,
        };
        if let Some((_, known)) = ends.get_mut(&token)
            // A hold lost during its release is in doubt, too.
            && (*known == End::Open || end == End::Clean)
        {
            *known = end;
        }
    }
    let mut marks_deleted = false;
    for event in &history.events {
        marks_deleted |= matches!(event.what, What::Deleting { .. });
        let What::Found { token, crashed } = event.what else {
            continue;
        };
        let wrong = match crashed {
            // A later release had cleared it.
            Some(crashed) => {
                let mut since = ends.range(crashed..token);
                since
                    .rfind(|(_, (_, end))| *end == End::Clean)
                    .map(|(_, (grant, _))| (grant, "of a false or a cleared crash"))
            }
            None if marks_deleted => None,
            None => {
                let before = ends.range(..token).next_back();
                before
                    .filter(|(_, (_, end))| *end == End::Crash)
                    .map(|(_, (grant, _))| (grant, "nothing of the previous crash"))
            }
        };
        if let Some((grant, what)) = wrong {
            return Err(history.violation(
                format!("contender {} with token {token} learned {what}", event.who),
                grant.at,
                event.at,
                &[grant.who, event.who],
            ));
        }
    }
    Ok(())
}

/// Checks that each of `contenders` was granted a hold after `since`.
pub fn check_progress(
    history: &History,
    since: Moment,
    contenders: impl IntoIterator<Item = usize>,
) -> Result<(), Violation> {
    for who in contenders {
        let came_through = |event: &super::Event| event.is_grant() && event.who == who;
        let later = history.events.iter().rev();
        if !later.take_while(|event| event.at > since).any(came_through) {
            // Its last events, and those of all others since.
            let own = history.events.iter().filter(|event| event.who == who);
            let mut deeds = own.filter(|event| !event.what.is_fault());
            let last = deeds.next_back().map_or(since, |event| event.at);
            let everybody: Vec<usize> = history.events.iter().map(|event| event.who).collect();
            return Err(history.violation(
                format!("contender {who} made no progress after all faults had ended"),
                last.min(since),
                Moment::NEVER,
                &everybody,
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
