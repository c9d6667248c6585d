//! What calls about transactions report.

use std::error::Error;
use std::time::Duration;

use crate::state::StateError;

/// Why a call about a transaction failed. Whatever it says, a transaction stays as it is or goes on: to call again is
/// harmless.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each field is named in its message")]
pub enum TransactionError {
    /// A transaction has one site at least, and not too many. Correct it.
    #[error("{sites} sites for {path}, where 1 to {sites_max} can take part")]
    BadSites {
        path: String,
        sites: usize,
        sites_max: usize,
    },
    /// There is a transaction with this id. Take it over, if it is yours, or take another id.
    #[error("{path} has begun already")]
    AlreadyBegun { path: String },
    /// There is no such transaction: none was begun, or every site had done its part and it was cleaned up.
    #[error("there is no transaction {path}")]
    NotFound { path: String },
    /// The transaction was begun without this site. Correct it.
    #[error("{site} has no part in {path}")]
    NotASite { path: String, site: String },
    /// There is no decision yet, so nobody can have done as was decided. Wait for it first.
    #[error("{path} is not decided")]
    Undecided { path: String },
    /// These sites have not done yet what was decided, so it cannot be forgotten. Wait for them, or use force.
    #[error("{path} is not done at {}", sites.join(", "))]
    NotDone { path: String, sites: Vec<String> },
    /// No decision in time. The transaction goes on.
    #[error("no decision about {path} within {limit:?}")]
    TimedOut { path: String, limit: Duration },
    /// The servers cannot be reached or refuse; the state error says why.
    #[error(transparent)]
    State(#[from] StateError),
}

/// Why a site did not come to the end of a transaction. Take part again: it goes on where it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ParticipateError {
    /// Something about the transaction.
    #[error(transparent)]
    Transaction(#[from] TransactionError),
    /// A handler of the participant failed. No vote was cast, or the decision is not marked as applied.
    #[error("a handler failed")]
    Handler(#[source] Box<dyn Error + Send + Sync>),
}
