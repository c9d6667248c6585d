//! The progress of a transaction, as a stream.

use futures_util::stream::unfold;

use crate::request::Events;
use crate::two_phase::error::TransactionError;
use crate::two_phase::status::Status;
use crate::two_phase::transaction::Transaction;
use crate::two_phase::view::{Then, View};

/// A stream of the status of a transaction: which sites are present, have voted, are missing, the decision, and which sites are done. See
/// [`Transaction::progress`].
///
/// It continues over lost connections and session expiry, and ends when every site is done, or after an error.
pub type TransactionProgress = Events<Result<Status, TransactionError>>;

impl TransactionProgress {
    pub(super) fn of(transaction: Transaction) -> Self {
        let watching = StatusWatch::Begin(transaction);
        Self::from_stream(unfold(watching, StatusWatch::next))
    }
}

enum StatusWatch {
    Begin(Transaction),
    /// The status that was shown last, and the view that reads it.
    On(Box<(Status, View)>),
    End,
}

impl StatusWatch {
    async fn next(self) -> Option<(Result<Status, TransactionError>, Self)> {
        let (shown, mut view) = match self {
            Self::End => return None,
            Self::Begin(transaction) => match begin(&transaction).await {
                Ok(view) => (None, view),
                Err(error) => return Some((Err(error), Self::End)),
            },
            Self::On(on) if on.0.is_done() => return None,
            Self::On(on) => (Some(on.0), on.1),
        };
        loop {
            view.changed(None).await;
            if let Err(error) = view.look(Then::Watch).await {
                return Some((Err(error), Self::End));
            }
            let status = view.status();
            if shown.as_ref() != Some(status) {
                let status = status.clone();
                let on = Self::On(Box::new((status.clone(), view)));
                return Some((Ok(status), on));
            }
        }
    }
}

async fn begin(transaction: &Transaction) -> Result<View, TransactionError> {
    transaction.open().await?;
    transaction.open_view().await
}
