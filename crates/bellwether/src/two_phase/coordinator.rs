//! One who counts the votes for all.

use std::ops::Deref;

use super::ballot::Decision;
use super::error::TransactionError;
use super::presence::Presence;
use super::status::Status;
use super::terms::Terms;
use super::transaction::Transaction;
use super::view::{Then, View};
use crate::clock::Moment;

/// A coordinator of a [`Transaction`], which it derefs to.
///
/// It owns nothing: any number of them, at once or after each other, come to the same decision. Dropped before that, the
/// transaction waits for another one, or for its deadline.
#[derive(Debug)]
pub struct Coordinator {
    view: View,
    presence: Presence,
    due: Option<Moment>,
}

impl Coordinator {
    pub(super) fn new(view: View, presence: Presence, terms: &Terms, begun_ms: i64) -> Self {
        let due = terms.limit().map(|limit| presence.due(begun_ms, limit));
        Self {
            view,
            presence,
            due,
        }
    }

    /// Waits until the votes are enough for a decision, records it for all to see, and returns what stands.
    ///
    /// It is *commit* when every site has voted for it, and *abort* with the first vote against it. In the place of a site that
    /// has died it votes to abort, unless the transaction is to [wait](crate::DeadSite::Wait), and when the deadline has passed in
    /// the place of whoever is missing.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, it may have been decided or not. A later call, or any other coordinator, goes on.
    ///
    /// # Errors
    ///
    /// See [`TransactionError`].
    pub async fn decide(&mut self) -> Result<Decision, TransactionError> {
        self.view.decide(&mut self.presence, self.due).await
    }

    /// Decides if the votes that are there are enough for that; `None` if they are not. It waits for nobody.
    ///
    /// # Cancel safety
    ///
    /// As [`decide`](Self::decide).
    ///
    /// # Errors
    ///
    /// As [`decide`](Self::decide).
    pub async fn try_decide(&mut self) -> Result<Option<Decision>, TransactionError> {
        self.view.look(Then::Leave).await?;
        self.view.try_decide().await
    }

    /// Votes to abort in the place of every site that has not voted, and returns what is decided then: a transaction that all
    /// have voted for is committed, and cannot be aborted any more.
    ///
    /// # Cancel safety
    ///
    /// As [`decide`](Self::decide).
    ///
    /// # Errors
    ///
    /// As [`decide`](Self::decide).
    pub async fn abort(&mut self, reason: &str) -> Result<Decision, TransactionError> {
        self.view.look(Then::Leave).await?;
        self.view.abort(reason).await?;
        self.decide().await
    }

    /// What this one has seen last: after [`decide`](Self::decide) all votes that it was made of.
    #[must_use]
    pub fn last_seen(&self) -> &Status {
        self.view.status()
    }
}

impl Deref for Coordinator {
    type Target = Transaction;

    fn deref(&self) -> &Transaction {
        self.view.transaction()
    }
}
