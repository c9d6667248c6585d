//! What becomes of transactions that are over.

use std::time::{Duration, SystemTime};

use zookeeper_client as zk;

use super::TwoPhase;
use super::ballot::Decision;
use super::child::{Child, DECISION};
use super::error::TransactionError;
use super::transaction::Transaction;
use crate::who::Who;

impl TwoPhase {
    /// Forgets the transactions that are done at every site and began so long ago, and returns their ids. To be called now and
    /// then; several who do it at once do no harm.
    ///
    /// # Cancel safety
    ///
    /// Each one has been forgotten or not.
    ///
    /// # Errors
    ///
    /// See [`TransactionError`].
    pub async fn clean_up(&self, older_than: Duration) -> Result<Vec<String>, TransactionError> {
        let now = SystemTime::now();
        let mut forgotten = Vec::new();
        for status in self.list().await? {
            let age = now.duration_since(status.begun).unwrap_or_default();
            if !status.is_done() || age < older_than {
                continue;
            }
            match self.transaction(&status.id).forget().await {
                Ok(()) => forgotten.push(status.id),
                // Somebody else was quicker.
                Err(TransactionError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(forgotten)
    }
}

impl Transaction {
    /// Removes everything about a transaction that is done at every site. Nobody can ask for its decision any more.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, all of it has been removed or nothing.
    ///
    /// # Errors
    ///
    /// [`TransactionError::NotDone`] while a site is not done; else see [`TransactionError`].
    pub async fn forget(&self) -> Result<(), TransactionError> {
        let status = self.status().await?;
        if !status.is_done() {
            return Err(TransactionError::NotDone {
                path: self.path(),
                sites: status.unapplied().map(str::to_owned).collect(),
            });
        }
        self.remove(|writer, node, names| {
            for name in names {
                writer.add_delete(&format!("{node}/{name}"), None)?;
            }
            writer.add_delete(node, None)
        })
        .await
    }

    /// Gives up on sites that will not come back: decides, as [`abort`](super::Coordinator::abort) does, and removes votes and payload. The
    /// decision stays as a tombstone, so that a site that does come back learns it; when all have, [`forget`](Self::forget) removes
    /// that too.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, it may have been decided, and removed or not.
    ///
    /// # Errors
    ///
    /// See [`TransactionError`].
    pub async fn forget_by_force(&self) -> Result<Decision, TransactionError> {
        let decision = self.coordinate().await?.abort("given up by force").await?;
        let (mut terms, _, _) = self.terms().await?;
        terms.forgotten_by = Some(Who::here(self.client().session_id()));
        let tombstone = terms.to_data(b"");
        self.remove(|writer, node, names| {
            writer.add_set_data(node, &tombstone, None)?;
            // Without it nothing may go.
            writer.add_check_version(&format!("{node}/{DECISION}"), -1)?;
            let votes = names
                .iter()
                .filter(|name| matches!(Child::parse(name), Some(Child::Vote(_))));
            for name in votes {
                writer.add_delete(&format!("{node}/{name}"), None)?;
            }
            Ok(())
        })
        .await?;
        Ok(decision)
    }

    /// Makes writes about the node and all that is below it, in one transaction of the servers, which is harmless twice.
    async fn remove(
        &self,
        fill: impl Fn(&mut zk::MultiWriter<'_>, &str, &[String]) -> Result<(), zk::Error>,
    ) -> Result<(), TransactionError> {
        let place = self.place();
        let mut in_doubt = false;
        loop {
            let names = match self.children().await {
                Err(TransactionError::NotFound { .. }) if in_doubt => return Ok(()),
                names => names?,
            };
            let visit = place.visit_in_time().await?;
            let mut writer = visit.client.zk().new_multi_writer();
            let node = visit.node.as_str();
            if let Err(error) = fill(&mut writer, node, &names) {
                return Err(place.refused(error).into());
            }
            match writer.commit().await.map_err(zk::Error::from) {
                Ok(_) => return Ok(()),
                // Somebody came or went between the two.
                Err(zk::Error::NoNode | zk::Error::NotEmpty) => {}
                Err(error) => {
                    place.again(&visit, error).await?;
                    in_doubt = true;
                }
            }
        }
    }
}
