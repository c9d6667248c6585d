//! What tells one acquisition from all others: an id in the name of its node, or in its data.

use std::fmt;

use bellwether_client::environment;
use serde::{Deserialize, Serialize};

use crate::node::who::Who;

/// Tells one acquisition from all others. The session alone would not: two tasks may share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OperationId(u64);

impl OperationId {
    /// An id that no other acquisition has, in this process or another.
    pub(crate) fn new() -> Self {
        Self(environment::random())
    }
}

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The data of a node that belongs to one acquisition: the identity of its creator, and the id of the acquisition. Another client's node
/// may have had the same path before.
#[derive(Serialize, Deserialize)]
pub(crate) struct ClaimData {
    #[serde(flatten)]
    who: Who,
    acquisition: String,
}

impl ClaimData {
    pub(crate) fn new(who: Who, acquisition: &str) -> Self {
        Self {
            who,
            acquisition: acquisition.to_owned(),
        }
    }

    pub(crate) fn to_data(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings and numbers are JSON")
    }

    /// Whether the data of a node is that of this acquisition.
    pub(crate) fn is_of(data: &[u8], acquisition: &str) -> bool {
        serde_json::from_slice::<Self>(data).is_ok_and(|claim| claim.acquisition == acquisition)
    }

    /// Whether the data of a node is that of any acquisition.
    pub(crate) fn is_any(data: &[u8]) -> bool {
        serde_json::from_slice::<Self>(data).is_ok()
    }
}
