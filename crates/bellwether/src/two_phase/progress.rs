//! A transaction as it goes on.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use futures_util::stream::{BoxStream, StreamExt, unfold};

use super::error::TransactionError;
use super::status::Status;
use super::transaction::Transaction;
use super::view::{Then, View};

/// A stream of what there is to see of a transaction: who is there, who has voted, who is missing, what was decided, who is done. See
/// [`Transaction::progress`].
///
/// It goes on over lost connections and the end of a session, and ends when every site is done, or after an error.
pub struct TransactionProgress(BoxStream<'static, Result<Status, TransactionError>>);

impl TransactionProgress {
    pub(super) fn of(transaction: Transaction) -> Self {
        let watching = Watching::Begin(transaction);
        Self(unfold(watching, Watching::next).boxed())
    }
}

impl Stream for TransactionProgress {
    type Item = Result<Status, TransactionError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next_unpin(cx)
    }
}

impl fmt::Debug for TransactionProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransactionProgress")
            .finish_non_exhaustive()
    }
}

enum Watching {
    Begin(Transaction),
    /// What was shown last, and the one who looks.
    On(Box<(Status, View)>),
    End,
}

impl Watching {
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
    transaction.visit().await?;
    transaction.open_view().await
}
