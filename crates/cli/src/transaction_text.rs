//! How far a transaction is, for people and as JSON.

use bellwether::{SiteStatus, Status, Vote};
use serde_json::{Value, json};

use crate::people::plain;

/// In a few words.
pub(crate) fn title(status: &Status) -> String {
    let (sites, missing) = (status.sites.len(), status.missing().count());
    match status.decision {
        Some(decision) => match status.unapplied().count() {
            0 => format!("transaction, {decision}, done at all sites"),
            unapplied => {
                format!("transaction, {decision}, not done yet at {unapplied} of {sites} sites")
            }
        },
        None if missing == 0 => {
            "transaction in doubt, all have voted and nobody decides".to_owned()
        }
        None => format!("transaction in doubt, {missing} of {sites} votes are missing"),
    }
}

/// A line for each site.
pub(crate) fn sites(status: &Status) -> Vec<String> {
    let line = |(name, site): (&String, &SiteStatus)| {
        let vote = site
            .ballot
            .as_ref()
            .map_or("no vote".to_owned(), |ballot| vote(&ballot.vote));
        let here = if site.is_here { ", here" } else { "" };
        let applied = if site.has_applied { ", done" } else { "" };
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

/// The same for programs, who get the reason by itself.
pub(crate) fn vote_word(vote: &Vote) -> &'static str {
    match vote {
        Vote::Commit => "commit",
        Vote::Abort(_) => "abort",
    }
}

/// Why it is to abort.
pub(crate) fn vote_reason(vote: &Vote) -> Option<&str> {
    match vote {
        Vote::Commit => None,
        Vote::Abort(reason) => Some(reason),
    }
}

/// What programs are told of it.
pub(crate) fn fields(status: &Status) -> Value {
    let sites: Value = status
        .sites
        .iter()
        .map(|(name, site)| {
            json!({
                "site": name,
                "vote": site.ballot.as_ref().map(|ballot| vote_word(&ballot.vote)),
                "reason": site.ballot.as_ref().and_then(|ballot| vote_reason(&ballot.vote)),
                "here": site.is_here,
                "applied": site.has_applied,
            })
        })
        .collect();
    json!({
        "decision": status.decision.map(|decision| decision.to_string()),
        "coordinators": status.coordinators,
        "sites": sites,
    })
}
