//! The transactions that a site has a part in, as they come.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bellwether_client as zk;
use futures_core::Stream;
use futures_util::stream::{BoxStream, StreamExt, unfold};

use super::child;
use super::error::TransactionError;
use super::transaction::Transaction;
use super::{TwoPhase, is_id};
use crate::node_event::NodeEvent;
use crate::state::StateError;

/// A stream of the transactions that wait for a site: those that it has not done its part of first, then each new one. See
/// [`TwoPhase::invitations`].
///
/// It goes on over lost connections and the end of a session, and ends after an error. Nothing is sent until it is polled.
pub struct Invitations(BoxStream<'static, Result<Transaction, TransactionError>>);

impl TwoPhase {
    /// The transactions that wait for a site: what it has left open, perhaps in an earlier process, then each new one. To
    /// [take part](Transaction::participate) in every one of them is all that recovery takes.
    ///
    /// Each is told once. Every beginning and every end of a transaction below the path wakes whoever listens.
    pub fn invitations(&self, site: impl Into<String>) -> Invitations {
        let listening = Listening {
            of: self.clone(),
            site: site.into(),
            known: BTreeSet::new(),
            waiting: VecDeque::new(),
            event: None,
            ended: false,
        };
        Invitations(unfold(listening, Listening::next).boxed())
    }
}

impl Stream for Invitations {
    type Item = Result<Transaction, TransactionError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next_unpin(cx)
    }
}

impl fmt::Debug for Invitations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Invitations").finish_non_exhaustive()
    }
}

struct Listening {
    of: TwoPhase,
    site: String,
    /// The ids that have been looked at, as long as they are there.
    known: BTreeSet<String>,
    /// New ones.
    waiting: VecDeque<String>,
    event: Option<NodeEvent>,
    ended: bool,
}

impl Listening {
    async fn next(mut self) -> Option<(Result<Transaction, TransactionError>, Self)> {
        if self.ended {
            return None;
        }
        let next = self.invitation().await;
        self.ended = next.is_err();
        Some((next, self))
    }

    async fn invitation(&mut self) -> Result<Transaction, TransactionError> {
        loop {
            while let Some(id) = self.waiting.pop_front() {
                let transaction = self.of.transaction(&id);
                let is_invited = self.is_invited(&transaction).await?;
                self.known.insert(id);
                if is_invited {
                    return Ok(transaction);
                }
            }
            if let Some(event) = self.event.take() {
                event.await;
            }
            let ids = self.ids().await?.into_iter().filter(|id| is_id(id));
            let ids: BTreeSet<String> = ids.collect();
            self.known.retain(|id| ids.contains(id));
            self.waiting.extend(ids.difference(&self.known).cloned());
        }
    }

    async fn is_invited(&self, transaction: &Transaction) -> Result<bool, TransactionError> {
        let (terms, names) = tokio::join!(transaction.terms(), transaction.children());
        match (terms, names) {
            (Ok((terms, ..)), Ok(names)) => {
                let applied = child::applied(&self.site);
                Ok(terms.sites.contains(&self.site) && !names.contains(&applied))
            }
            // Forgotten meanwhile, or somebody else's.
            (
                Err(
                    TransactionError::NotFound { .. }
                    | TransactionError::State(StateError::Unreadable { .. }),
                ),
                _,
            )
            | (_, Err(TransactionError::NotFound { .. })) => Ok(false),
            (Err(error), _) | (_, Err(error)) => Err(error),
        }
    }

    /// The ids that there are, and a watch for the next change.
    async fn ids(&mut self) -> Result<Vec<String>, TransactionError> {
        let dir = &self.of.dir;
        loop {
            let visit = dir.visit_in_time().await?;
            let zk = visit.client.zk();
            let node = visit.node.as_str();
            let error = match zk.children_watched(node).await {
                Ok((ids, watch)) => {
                    self.event = Some(NodeEvent::of(watch));
                    return Ok(ids);
                }
                Err(zk::Error::NO_NODE) => match zk.exists_watched(node).await {
                    Ok((None, watch)) => {
                        self.event = Some(NodeEvent::of(watch));
                        return Ok(Vec::new());
                    }
                    Ok((Some(_), _)) => continue,
                    Err(error) => error,
                },
                Err(error) => error,
            };
            dir.again(&visit, error).await?;
        }
    }
}
