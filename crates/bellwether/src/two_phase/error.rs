//! Errors of transactions.

use std::error::Error;
use std::time::Duration;

use crate::error::StateError;

/// Why a call about a transaction failed. The transaction stays as it is or continues in any case: a repeated call is harmless.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each field is named in its message")]
pub enum TransactionError {
    /// The number of sites is out of range. Correct it.
    #[error("a transaction has 1 to {sites_max} sites, {path} has {sites}")]
    BadSites {
        path: String,
        sites: usize,
        sites_max: usize,
    },
    /// There is a transaction with this id already. Take it over if it is yours, or use another id.
    #[error("{path} has begun already")]
    AlreadyBegun { path: String },
    /// There is no such transaction: none was begun, or every site had done its part and it was cleaned up.
    #[error("there is no transaction {path}")]
    NotFound { path: String },
    /// The transaction was begun without this site. Correct it.
    #[error("{site} has no part in {path}")]
    NotASite { path: String, site: String },
    /// There is no decision yet, so no site can have applied it. Wait for the decision first.
    #[error("{path} is not decided")]
    Undecided { path: String },
    /// These sites have not applied the decision yet, so the transaction cannot be removed. Wait for them, or use force.
    #[error("{path} is not done at {}", sites.join(", "))]
    NotDone { path: String, sites: Vec<String> },
    /// There was no decision within the limit. The transaction continues.
    #[error("timed out after {limit:?} waiting for the decision on {path}")]
    TimedOut { path: String, limit: Duration },
    /// The servers cannot be reached, or refuse; the state error says why.
    #[error(transparent)]
    State(#[from] StateError),
}

impl TransactionError {
    /// Whether the same call may succeed later: the session was lost, or a decision or a site is missing. Also after an unknown outcome,
    /// since a repeated call is harmless.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Undecided { .. } | Self::NotDone { .. } | Self::TimedOut { .. } => true,
            Self::State(StateError::OutcomeUnknown { .. }) => true,
            Self::State(error) => error.is_transient(),
            _ => false,
        }
    }
}

/// Why a site did not reach the end of a transaction. Call `participate` again: it continues where it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ParticipateError {
    /// A request about the transaction failed.
    #[error(transparent)]
    Transaction(#[from] TransactionError),
    /// A handler of the participant failed. No vote was cast, or the decision is not marked as applied.
    #[error("a handler failed")]
    Handler(#[source] Box<dyn Error + Send + Sync>),
}

impl ParticipateError {
    /// As [`TransactionError::is_transient`]; `false` if a handler failed, since only the handler's author knows.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Transaction(error) => error.is_transient(),
            Self::Handler(_) => false,
        }
    }
}
