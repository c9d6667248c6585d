//! The state of a transaction, as text and as JSON.

use bellwether::two_phase::{SiteStatus, Status, Vote};

/// A transaction as JSON.
pub(crate) use bellwether_dashboard::json::transaction as fields;

use crate::output::people::plain;

/// A summary.
pub(crate) fn title(status: &Status) -> String {
    let (sites, missing) = (status.sites.len(), status.missing().count());
    match status.decision {
        Some(decision) => match status.unapplied().count() {
            0 => format!("transaction, {decision}, applied at all sites"),
            unapplied => {
                format!("transaction, {decision}, not yet applied at {unapplied} of {sites} sites")
            }
        },
        None if missing == 0 => {
            "transaction in doubt: all sites have voted, and no decision was made".to_owned()
        }
        None => format!("transaction in doubt: {missing} of {sites} votes are missing"),
    }
}

/// A line for each site.
pub(crate) fn sites(status: &Status) -> Vec<String> {
    let line = |(name, site): (&String, &SiteStatus)| {
        let vote = site
            .ballot
            .as_ref()
            .map_or("no vote".to_owned(), |ballot| vote(&ballot.vote));
        let here = if site.is_here { ", present" } else { "" };
        let applied = if site.has_applied { ", applied" } else { "" };
        format!("{}: {vote}{here}{applied}", plain(name))
    };
    status.sites.iter().map(line).collect()
}

pub(crate) fn vote(vote: &Vote) -> String {
    match vote {
        Vote::Commit => "commit".to_owned(),
        Vote::Abort(reason) => format!("abort ({})", plain(reason)),
    }
}

/// A vote as JSON; the reason is a field of its own.
pub(crate) fn vote_word(vote: &Vote) -> &'static str {
    match vote {
        Vote::Commit => "commit",
        Vote::Abort(_) => "abort",
    }
}

/// The reason of a vote to abort.
pub(crate) fn vote_reason(vote: &Vote) -> Option<&str> {
    match vote {
        Vote::Commit => None,
        Vote::Abort(reason) => Some(reason),
    }
}
