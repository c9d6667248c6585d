//! The data of a contender's node: its identity, and what was added later.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::node::who::Who;

/// The largest description of a contender in its node. Every client that asks for the holder reads it.
pub(crate) const DATA_BYTES_MAX: usize = 64 << 10;

/// The data by which programs that follow ZooKeeper's documentation ask a holder to release.
const UNLOCK: &[u8] = b"unlock";

/// What Curator's `Revoker` writes for the same.
pub(crate) const CURATOR_REVOKE: &[u8] = b"__REVOKE__";

/// A request to a holder to release. The holder may release, or ignore it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Revocation {
    /// Who asks; `None` for requests of other libraries, which do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Who>,
    /// A message to the holder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// After how many milliseconds the hold will be broken by force, if it will.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_ms: Option<u64>,
}

impl Revocation {
    pub(crate) fn new(by: Who, message: Option<String>, grace: Option<Duration>) -> Self {
        let in_ms = |grace: Duration| u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        Self {
            by: Some(by),
            message,
            grace_ms: grace.map(in_ms),
        }
    }

    /// After which time the hold will be broken by force; `None` if it is only asked for.
    #[must_use]
    pub fn grace(&self) -> Option<Duration> {
        self.grace_ms.map(Duration::from_millis)
    }

    /// The request in the data of a node.
    pub(crate) fn from_data(data: &[u8]) -> Option<Self> {
        match data {
            UNLOCK | CURATOR_REVOKE => Some(Self::default()),
            data => NodeData::from_data(data)?.revoke,
        }
    }
}

/// The data of a contender's node: its identity, and what was added later.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeData {
    #[serde(flatten)]
    pub(crate) who: Who,
    /// The writer reads from now on, and readers may join it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) downgraded: bool,
    /// The contender has its permits, and the next contender is now the first waiter.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) granted: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) revoke: Option<Revocation>,
    /// What a recipe of its own says there, kept as it is.
    #[serde(flatten)]
    other: Map<String, Value>,
}

impl NodeData {
    pub(crate) fn from_data(data: &[u8]) -> Option<Self> {
        serde_json::from_slice(data).ok()
    }

    /// As [`from_data`](Self::from_data), for a node of `who` whose data another library may have written over.
    pub(crate) fn of(who: &Who, data: &[u8]) -> Self {
        Self::from_data(data).unwrap_or_else(|| Self {
            who: who.clone(),
            revoke: Revocation::from_data(data),
            ..Self::default()
        })
    }

    pub(crate) fn to_data(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings and numbers are JSON")
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature is serde's"
)]
fn is_false(flag: &bool) -> bool {
    !flag
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_forms_of_a_request_are_understood() {
        assert_eq!(
            Revocation::from_data(b"unlock"),
            Some(Revocation::default())
        );
        assert_eq!(
            Revocation::from_data(b"__REVOKE__"),
            Some(Revocation::default())
        );
        let grace = Some(Duration::from_secs(3));
        let asked = Revocation::new(Who::here(7), Some("please".into()), grace);
        let data = NodeData {
            revoke: Some(asked.clone()),
            ..NodeData::of(&Who::here(8), b"")
        };
        let read = Revocation::from_data(&data.to_data()).unwrap();
        assert_eq!(read, asked);
        assert_eq!(read.grace(), grace);
    }

    #[test]
    fn payload_stays_readable_beside_the_words() {
        let who = Who::here(8);
        let mut data = NodeData::of(&who, &who.to_data());
        assert_eq!(data.to_data(), who.to_data(), "no word, no change");
        data.downgraded = true;
        data.revoke = Some(Revocation::default());
        assert_eq!(Who::from_data(&data.to_data()), Some(who));
    }

    #[test]
    fn ordinary_data_asks_for_nothing() {
        for data in [b"".as_slice(), b"unlock ", b"{}", &Who::here(1).to_data()] {
            assert_eq!(Revocation::from_data(data), None);
        }
    }
}
