//! Checks of transactions: one decision for all sites, commit only if all voted for it, and every transaction ends.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::event::Moment;

/// An event of a transaction, recorded by a site or a coordinator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The time.
    pub at: Moment,
    /// The id of the transaction.
    pub transaction: String,
    /// The number of the site; `None` for a coordinator.
    pub site: Option<usize>,
    /// The event.
    pub deed: Deed,
}

/// A step of a transaction. `true` is commit, and `false` abort.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Deed {
    /// The site is about to vote: recorded before the call.
    Votes(bool),
    /// The final vote of the site: its own, or one in its place.
    Stands(bool),
    /// A process learned the decision: recorded after the call.
    Told(bool),
    /// The handler of the site was called with the decision.
    Applies(bool),
}

impl Note {
    /// An event at the present moment.
    pub fn now(transaction: &str, site: Option<usize>, deed: Deed) -> Self {
        Self {
            at: Moment::now(),
            transaction: transaction.to_owned(),
            site,
            deed,
        }
    }
}

/// Checks transactions among `sites` sites; returns the violation as text.
///
/// All processes must learn the same decision, and none a commit before every site has begun to vote for it. If
/// all final votes are for it, it must be committed, and aborted if one is against it.
pub fn check_transactions(notes: &[Note], sites: usize) -> Result<(), String> {
    for (id, notes) in by_transaction(notes) {
        check_one(&notes, sites).map_err(|wrong| format!("{id}: {wrong}\n{notes:#?}"))?;
    }
    Ok(())
}

/// Checks that each of these transactions was applied at every site.
pub fn check_ends<'a>(
    notes: &[Note],
    begun: impl IntoIterator<Item = &'a str>,
    sites: usize,
) -> Result<(), String> {
    let by_transaction = by_transaction(notes);
    for id in begun {
        let notes = by_transaction.get(id).map_or(&[][..], Vec::as_slice);
        let applied = notes.iter().filter_map(|note| match note.deed {
            Deed::Applies(_) => note.site,
            _ => None,
        });
        let applied: BTreeSet<usize> = applied.collect();
        if let Some(site) = (0..sites).find(|site| !applied.contains(site)) {
            return Err(format!(
                "{id}: site {site} never came to an end\n{notes:#?}"
            ));
        }
    }
    Ok(())
}

fn by_transaction(notes: &[Note]) -> BTreeMap<&str, Vec<&Note>> {
    let mut all: BTreeMap<&str, Vec<&Note>> = BTreeMap::new();
    for note in notes {
        all.entry(&note.transaction).or_default().push(note);
    }
    for notes in all.values_mut() {
        notes.sort_by_key(|note| note.at);
    }
    all
}

fn check_one(notes: &[&Note], sites: usize) -> Result<(), String> {
    let mut decision = None;
    for note in notes {
        let (Deed::Told(commits) | Deed::Applies(commits)) = note.deed else {
            continue;
        };
        let (first, _) = *decision.get_or_insert((commits, note.at));
        if first != commits {
            return Err("two decisions".to_owned());
        }
    }
    let Some((commits, at)) = decision else {
        return Ok(());
    };
    let stands = |vote: bool| {
        let standing = notes.iter().filter(|note| note.deed == Deed::Stands(vote));
        standing
            .filter_map(|note| note.site)
            .collect::<BTreeSet<_>>()
    };
    if commits {
        let voted = |site: usize| {
            notes.iter().any(|note| {
                note.site == Some(site) && note.deed == Deed::Votes(true) && note.at <= at
            })
        };
        if let Some(site) = (0..sites).find(|&site| !voted(site)) {
            return Err(format!("committed before site {site} had voted for it"));
        }
        if let Some(site) = stands(false).first() {
            return Err(format!("committed against the vote of site {site}"));
        }
    } else if stands(true).len() == sites {
        return Err("aborted though all have voted to commit".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn note(ms: u64, site: usize, deed: Deed) -> Note {
        Note {
            at: Moment::after_boot(Duration::from_millis(ms)),
            transaction: "t".to_owned(),
            site: Some(site),
            deed,
        }
    }

    fn committed() -> Vec<Note> {
        vec![
            note(1, 0, Deed::Votes(true)),
            note(2, 1, Deed::Votes(true)),
            note(3, 0, Deed::Told(true)),
            note(4, 1, Deed::Applies(true)),
            note(5, 0, Deed::Applies(true)),
            note(6, 0, Deed::Stands(true)),
            note(6, 1, Deed::Stands(true)),
        ]
    }

    #[track_caller]
    fn assert_wrong(notes: &[Note], what: &str) {
        let found = check_transactions(notes, 2).unwrap_err();
        assert!(found.contains(what), "{found}");
    }

    #[test]
    fn what_is_right_passes() {
        assert_eq!(check_transactions(&committed(), 2), Ok(()));
        assert_eq!(check_ends(&committed(), ["t"], 2), Ok(()));
        let aborted = [
            note(1, 0, Deed::Votes(true)),
            note(2, 0, Deed::Told(false)),
            note(3, 1, Deed::Applies(false)),
            note(4, 0, Deed::Stands(true)),
            note(4, 1, Deed::Stands(false)),
        ];
        assert_eq!(check_transactions(&aborted, 2), Ok(()));
        assert_eq!(check_transactions(&aborted[..1], 2), Ok(()));
    }

    #[test]
    fn two_decisions_are_found() {
        let mut notes = committed();
        notes.push(note(9, 1, Deed::Applies(false)));
        assert_wrong(&notes, "two decisions");
    }

    #[test]
    fn decision_before_the_last_vote_is_found() {
        let mut notes = committed();
        notes[1] = note(4, 1, Deed::Votes(true));
        assert_wrong(&notes, "before site 1");
        notes[1] = note(2, 1, Deed::Votes(false));
        assert_wrong(&notes, "before site 1");
    }

    #[test]
    fn decision_against_the_votes_is_found() {
        let mut notes = committed();
        notes[6] = note(6, 1, Deed::Stands(false));
        assert_wrong(&notes, "against the vote of site 1");
        let notes = [
            note(1, 0, Deed::Told(false)),
            note(2, 0, Deed::Stands(true)),
            note(2, 1, Deed::Stands(true)),
        ];
        assert_wrong(&notes, "though all");
    }

    #[test]
    fn site_that_never_ends_is_found() {
        let notes = &committed()[..4];
        let found = check_ends(notes, ["t"], 2).unwrap_err();
        assert!(found.contains("site 0 never"), "{found}");
        assert!(check_ends(notes, ["other"], 2).is_err());
    }
}
