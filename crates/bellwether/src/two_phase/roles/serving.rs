//! A site that takes part in every transaction, concurrently.

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::select;
use tokio::sync::{Semaphore, SemaphorePermit};
use tracing::warn;

use super::invitations::Invitation;
use super::participant::Participant;
use crate::two_phase::TwoPhase;
use crate::two_phase::error::{ParticipateError, TransactionError};
use crate::two_phase::transaction::Transaction;

/// In how many transactions a site takes part at once. Most of them wait for other sites. Further ones wait for their turn.
const PARTS_MAX: usize = 1_000;

/// How many handlers run at once unless set.
pub(in crate::two_phase) const HANDLERS_MAX: usize = 16;

/// Limits how many handlers run at once.
///
/// Commits and aborts have their own permits: a prepare may wait for data that another transaction keeps locked until it commits or aborts.
#[derive(Debug)]
pub(in crate::two_phase) struct Handlers {
    preparing: Semaphore,
    settling: Semaphore,
}

impl Handlers {
    fn new(limit: usize) -> Self {
        Self {
            preparing: Semaphore::new(limit),
            settling: Semaphore::new(limit),
        }
    }

    pub(in crate::two_phase) async fn to_prepare(&self) -> SemaphorePermit<'_> {
        permit(&self.preparing).await
    }

    pub(in crate::two_phase) async fn to_settle(&self) -> SemaphorePermit<'_> {
        permit(&self.settling).await
    }
}

async fn permit(of: &Semaphore) -> SemaphorePermit<'_> {
    of.acquire().await.expect("it is never closed")
}

impl TwoPhase {
    /// Takes part in every transaction that waits for a site, unfinished ones first, until the future is dropped or an error ends it, which
    /// is returned.
    ///
    /// `participant` makes the handlers of one transaction. Transactions run concurrently: one that waits for an absent site blocks no
    /// other. [`handlers_max`](Self::handlers_max) limits how many of their handlers run at once. When a handler fails, the error is logged
    /// and the [invitation](Invitation) is repeated.
    ///
    /// ```
    /// # use bellwether::{TwoPhase, connect};
    /// # use bellwether::two_phase::{Participant, Proposal, Vote};
    /// #[derive(Clone)]
    /// struct Bank; // Has a pool of connections to its database.
    /// # impl Participant for Bank {
    /// #     type Error = std::convert::Infallible;
    /// #     async fn prepare(&mut self, _: &Proposal) -> Result<Vote, Self::Error> { Ok(Vote::Commit) }
    /// #     async fn commit(&mut self, _: &Proposal) -> Result<(), Self::Error> { Ok(()) }
    /// #     async fn abort(&mut self, _: &Proposal) -> Result<(), Self::Error> { Ok(()) }
    /// # }
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = bellwether_testkit::TestServer::start().await?;
    /// let client = connect(server.connect_string()).await?;
    /// let transfers = TwoPhase::new(&client, "/transfers");
    /// let bank = Bank;
    /// let serving = transfers.serve("payer", |_| bank.clone());
    /// # let mut coordinator = transfers.begin(["payer"], "").await?;
    /// # tokio::select! {
    /// #     error = serving => return Err(error.into()),
    /// #     decision = coordinator.decide() => assert_eq!(decision?, bellwether::two_phase::Decision::Commit),
    /// # }
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropped at any await, a later call continues where this call was.
    pub async fn serve<P: Participant>(
        &self,
        site: impl Into<String>,
        mut participant: impl FnMut(&Transaction) -> P,
    ) -> TransactionError {
        let handlers = Handlers::new(self.handlers_max);
        let mut invitations = self.invitations(site);
        let mut parts = FuturesUnordered::new();
        loop {
            let has_room = parts.len() < PARTS_MAX;
            select! {
                biased;
                Some(()) = parts.next(), if !parts.is_empty() => {}
                Some(invitation) = invitations.next(), if has_room => match invitation {
                    Ok(invitation) => {
                        let participant = participant(invitation.transaction());
                        parts.push(take_part(invitation, participant, &handlers));
                    }
                    Err(error) => return error,
                },
            }
        }
    }
}

async fn take_part<P: Participant>(
    invitation: Invitation,
    mut participant: P,
    handlers: &Handlers,
) {
    let transaction = invitation.transaction();
    let part = async {
        let participation = transaction.join(invitation.site()).await?;
        participation.run(&mut participant, Some(handlers)).await
    };
    match part.await {
        Ok(_) => invitation.done(),
        // Forgotten meanwhile.
        Err(ParticipateError::Transaction(TransactionError::NotFound { .. })) => {}
        Err(error) => {
            let error: &dyn std::error::Error = &error;
            warn!(
                transaction = transaction.id(),
                site = invitation.site(),
                error,
                "taking part failed, will be retried"
            );
        }
    }
}
