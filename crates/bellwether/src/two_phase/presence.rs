//! Ephemeral nodes that show who takes part.

use std::time::Duration;

use bellwether_client as zk;

use super::error::TransactionError;
use super::transaction::Transaction;
use crate::client::Client;
use crate::clock::Moment;
use crate::ephemerals::Room;
use crate::error::{Outcome, outcome};
use crate::janitor::Litter;
use crate::name::AcquisitionId;
use crate::state::StateError;
use crate::who::Who;

/// Somebody who takes part for as long as this lives, in one session after the other.
#[derive(Debug)]
pub(super) struct Presence {
    transaction: Transaction,
    prefix: String,
    node: Node,
}

/// A node of one session. Dropped, it is deleted in the background.
#[derive(Debug)]
struct Node {
    client: Client,
    path: String,
    _room: Room,
    /// When it was made: by the clock of the servers, and by ours.
    made_ms: i64,
    asked: Moment,
    /// The servers have refused to make it.
    is_certainly_absent: bool,
}

impl Presence {
    /// Makes a node whose name begins so.
    pub(super) async fn enter(
        transaction: &Transaction,
        prefix: String,
    ) -> Result<Self, TransactionError> {
        Ok(Self {
            node: Node::make(transaction, &prefix).await?,
            transaction: transaction.clone(),
            prefix,
        })
    }

    /// Makes the node anew if its session has ended.
    pub(super) async fn keep(&mut self) -> Result<(), TransactionError> {
        if self.node.client.is_ended() {
            self.node = Node::make(&self.transaction, &self.prefix).await?;
        }
        Ok(())
    }

    /// When its node was made, by the clock of the servers.
    pub(super) fn made_ms(&self) -> i64 {
        self.node.made_ms
    }

    /// Resolves when the node goes with its session.
    pub(super) async fn lost(&self) {
        self.node.client.ended().await;
    }

    /// When a time after the beginning has passed. Both ends are measured by the clock of the servers, so clocks of other
    /// machines may differ as they like.
    pub(super) fn due(&self, begun_ms: i64, limit: Duration) -> Moment {
        let age_ms = self.node.made_ms.saturating_sub(begun_ms);
        let age = Duration::from_millis(u64::try_from(age_ms).unwrap_or_default());
        self.node.asked + limit.saturating_sub(age)
    }
}

impl Node {
    async fn make(transaction: &Transaction, prefix: &str) -> Result<Self, TransactionError> {
        let place = transaction.place();
        loop {
            let visit = place.visit_in_time().await?;
            let client = &visit.client;
            // A name of its own for each try: what became of one whose reply was lost need not be known.
            let path = visit
                .node
                .child(format_args!("{prefix}{}", AcquisitionId::new()));
            let Some(room) = Room::reserve(client, path.len()) else {
                let error = StateError::TooManyEphemerals {
                    bytes: client.ephemerals().bytes(),
                    path,
                };
                return Err(error.into());
            };
            let mut node = Self {
                client: client.clone(),
                path,
                _room: room,
                made_ms: 0,
                asked: Moment::now(),
                is_certainly_absent: false,
            };
            let who = Who::here(client.session_id()).to_data();
            let options = zk::CreateMode::Ephemeral.with_acl(place.access().acl());
            match client.zk().create(&node.path, &who, &options).await {
                Ok(zk::Created { stat, .. }) => {
                    node.made_ms = stat.ctime;
                    return Ok(node);
                }
                Err(error) => {
                    if outcome(&error) == Outcome::Refused {
                        node.is_certainly_absent = true;
                    }
                    match error {
                        zk::Error::NO_NODE => return Err(transaction.not_found()),
                        error => place.again(&visit, error).await?,
                    }
                }
            }
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if !self.is_certainly_absent {
            let litter = Litter::Node(std::mem::take(&mut self.path));
            self.client.janitor().remove(litter);
        }
    }
}
