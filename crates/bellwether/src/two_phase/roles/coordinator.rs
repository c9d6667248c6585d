//! The coordinator: counts the votes for all sites.

use std::ops::Deref;

use crate::session::Moment;
use crate::session::telemetry::call;
use crate::two_phase::error::TransactionError;
use crate::two_phase::nodes::ballot::Decision;
use crate::two_phase::nodes::transaction_spec::TransactionSpec;
use crate::two_phase::roles::presence::Presence;
use crate::two_phase::status::Status;
use crate::two_phase::transaction::Transaction;
use crate::two_phase::view::{Then, View};

/// A coordinator of a [`Transaction`], which it derefs to.
///
/// It owns nothing: any number of coordinators, at once or one after the other, reach the same decision. If it is dropped before that, the
/// transaction waits for another coordinator, or for its deadline.
#[derive(Debug)]
pub struct Coordinator {
    view: View,
    presence: Presence,
    due: Option<Moment>,
}

impl Coordinator {
    pub(in crate::two_phase) fn new(
        view: View,
        presence: Presence,
        spec: &TransactionSpec,
    ) -> Self {
        let due = spec
            .limit()
            .map(|limit| presence.due(view.begun_ms(), limit));
        Self {
            view,
            presence,
            due,
        }
    }

    /// Waits until the votes are enough for a decision, records the decision, and returns it.
    ///
    /// It is *commit* when every site has voted for it, and *abort* with the first vote against it. The coordinator votes to abort in place
    /// of a site that has died, unless the transaction is to [wait](crate::two_phase::DeadSite::Wait), and after the deadline in place of
    /// every missing site.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the transaction may have been decided or not. A later call, or any other coordinator, continues.
    ///
    /// # Errors
    ///
    /// See [`TransactionError`].
    pub async fn decide(&mut self) -> Result<Decision, TransactionError> {
        call!("transaction.decide", self.place().path())
            .run_to(
                self.view.decide(&mut self.presence, self.due),
                Decision::outcome,
            )
            .await
    }

    /// Decides if the present votes are enough; `None` if they are not. It does not wait.
    ///
    /// # Cancel safety
    ///
    /// As [`decide`](Self::decide).
    ///
    /// # Errors
    ///
    /// As [`decide`](Self::decide).
    pub async fn try_decide(&mut self) -> Result<Option<Decision>, TransactionError> {
        call!("transaction.try_decide", self.place().path())
            .find(async {
                self.view.look(Then::Leave).await?;
                self.view.try_decide().await
            })
            .await
    }

    /// Votes to abort in place of every site that has not voted, and returns the decision: a transaction that all sites have voted to
    /// commit is committed, and can no longer be aborted.
    ///
    /// # Cancel safety
    ///
    /// As [`decide`](Self::decide).
    ///
    /// # Errors
    ///
    /// As [`decide`](Self::decide).
    pub async fn abort(&mut self, reason: &str) -> Result<Decision, TransactionError> {
        call!("transaction.abort", self.place().path())
            .run_to(
                async {
                    self.view.look(Then::Leave).await?;
                    self.view.abort(reason).await?;
                    self.decide().await
                },
                Decision::outcome,
            )
            .await
    }

    /// The status that was seen last: after [`decide`](Self::decide), all votes behind the decision.
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
