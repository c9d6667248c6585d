//! The nodes below that of a transaction, by their names.

/// The node of the decision.
pub(in crate::two_phase) const DECISION: &str = "decision";

const VOTE: &str = "vote-";
const APPLIED: &str = "applied-";
const HERE: &str = "here-";
const COORDINATOR: &str = "coordinator-";

/// What the name of a node says. Other names are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::two_phase) enum Child<'a> {
    Decision,
    /// The vote of a site.
    Vote(&'a str),
    /// A site has applied the decision.
    Applied(&'a str),
    /// A session takes part as this site.
    Here(&'a str),
    /// A session counts the votes.
    Coordinator,
}

impl<'a> Child<'a> {
    pub(in crate::two_phase) fn parse(name: &'a str) -> Option<Self> {
        if name == DECISION {
            return Some(Self::Decision);
        }
        if let Some(site) = name.strip_prefix(VOTE) {
            return Some(Self::Vote(site));
        }
        if let Some(site) = name.strip_prefix(APPLIED) {
            return Some(Self::Applied(site));
        }
        if let Some(rest) = name.strip_prefix(HERE) {
            // What follows the name of the site is an id without a dash.
            return rest.rsplit_once('-').map(|(site, _)| Self::Here(site));
        }
        name.starts_with(COORDINATOR).then_some(Self::Coordinator)
    }
}

pub(in crate::two_phase) fn vote(site: &str) -> String {
    format!("{VOTE}{site}")
}

pub(in crate::two_phase) fn applied(site: &str) -> String {
    format!("{APPLIED}{site}")
}

/// The prefix of the presence nodes of a site.
pub(in crate::two_phase) fn here(site: &str) -> String {
    format!("{HERE}{site}-")
}

/// The first part of the names of coordinators.
pub(in crate::two_phase) fn coordinator() -> String {
    COORDINATOR.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for site in ["a", "here-b-", "-", "vote-c"] {
            assert_eq!(Child::parse(&vote(site)), Some(Child::Vote(site)));
            assert_eq!(Child::parse(&applied(site)), Some(Child::Applied(site)));
            let here = format!("{}00000000000000ff", here(site));
            assert_eq!(Child::parse(&here), Some(Child::Here(site)));
        }
        let coordinator = format!("{}00ff", coordinator());
        assert_eq!(Child::parse(&coordinator), Some(Child::Coordinator));
        assert_eq!(Child::parse(DECISION), Some(Child::Decision));
        assert_eq!(Child::parse("foreign"), None);
    }
}
