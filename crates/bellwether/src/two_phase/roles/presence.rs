//! Ephemeral nodes that show who takes part.

use std::time::Duration;

use bellwether_client as zk;

use crate::error::StateError;
use crate::node::OperationId;
use crate::session::cleaner::Leftover;
use crate::session::{Moment, Reserved, Session};
use crate::two_phase::error::TransactionError;
use crate::two_phase::transaction::Transaction;

/// The presence of a site or coordinator while this value lives, across sessions.
#[derive(Debug)]
pub(in crate::two_phase) struct Presence {
    transaction: Transaction,
    prefix: String,
    node: PresenceNode,
}

/// A node of one session. Dropped, it is deleted in the background.
#[derive(Debug)]
struct PresenceNode {
    session: Session,
    path: String,
    _reserved: Reserved,
    /// When it was made: by the clock of the servers, and by ours.
    made_ms: i64,
    asked: Moment,
    /// The number of the connection that sent the create, until it is answered.
    sent_through: Option<u64>,
    /// The servers have refused to make it.
    is_certainly_absent: bool,
}

impl Presence {
    /// Creates a node whose name has this prefix.
    pub(in crate::two_phase) async fn enter(
        transaction: &Transaction,
        prefix: String,
    ) -> Result<Self, TransactionError> {
        Ok(Self {
            node: PresenceNode::make(transaction, &prefix).await?,
            transaction: transaction.clone(),
            prefix,
        })
    }

    /// Makes the node anew if its session has ended.
    pub(in crate::two_phase) async fn keep(&mut self) -> Result<(), TransactionError> {
        if self.node.session.is_ended() {
            self.node = PresenceNode::make(&self.transaction, &self.prefix).await?;
        }
        Ok(())
    }

    /// When its node was made, by the clock of the servers.
    pub(in crate::two_phase) fn made_ms(&self) -> i64 {
        self.node.made_ms
    }

    /// Resolves when the node goes with its session.
    pub(in crate::two_phase) async fn lost(&self) {
        self.node.session.ended().await;
    }

    /// When a time after the beginning has passed. Both ends are measured by the time of day of the leader, so clocks of other machines may
    /// differ as they like. Clocks of two leaders in turn may not: the result is wrong by their difference, but never earlier than the request
    /// for the node, nor later than `limit` after it.
    pub(in crate::two_phase) fn due(&self, begun_ms: i64, limit: Duration) -> Moment {
        let age_ms = self.node.made_ms.saturating_sub(begun_ms);
        let age = Duration::from_millis(u64::try_from(age_ms).unwrap_or_default());
        self.node.asked + limit.saturating_sub(age)
    }
}

impl PresenceNode {
    async fn make(transaction: &Transaction, prefix: &str) -> Result<Self, TransactionError> {
        let place = transaction.place();
        loop {
            let opened = place.open_in_time().await?;
            let session = &opened.session;
            // A new name for each try, so that the outcome of a try whose reply was lost does not matter.
            let path = opened
                .path
                .child(format_args!("{prefix}{}", OperationId::new()));
            let Some(reserved) = session.ephemeral_quota().reserve(path.len()) else {
                let error = StateError::TooManyEphemerals {
                    bytes: session.ephemeral_quota().bytes(),
                    path,
                };
                return Err(error.into());
            };
            let mut node = Self {
                session: session.clone(),
                path,
                _reserved: reserved,
                made_ms: 0,
                asked: Moment::now(),
                sent_through: Some(session.zk().connections()),
                is_certainly_absent: false,
            };
            let who = session.who().to_data();
            let options = zk::CreateMode::Ephemeral.with_acl(place.access().acl());
            match session.zk().create(&node.path, &who, &options).await {
                Ok(zk::Created { stat, .. }) => {
                    node.made_ms = stat.ctime;
                    node.sent_through = None;
                    return Ok(node);
                }
                Err(error) => {
                    node.is_certainly_absent = !error.is_in_doubt();
                    match error {
                        zk::Error::NO_NODE => return Err(transaction.not_found()),
                        error => place.again(&opened, error).await?,
                    }
                }
            }
        }
    }
}

impl Drop for PresenceNode {
    fn drop(&mut self) {
        if !self.is_certainly_absent {
            let leftover = Leftover::Node(std::mem::take(&mut self.path));
            let cleaner = self.session.cleaner();
            match self.sent_through {
                None => cleaner.remove(leftover),
                Some(connection) => cleaner.remove_late(leftover, connection),
            }
        }
    }
}
