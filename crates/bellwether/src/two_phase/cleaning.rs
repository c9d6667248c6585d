//! Cleaning up finished transactions.

use std::time::Duration;

use bellwether_client as zk;
use bellwether_client::environment;

use crate::error::StateError;
use crate::request::PersistentNode;
use crate::session::retry::Retry;
use crate::session::telemetry::call;
use crate::two_phase::TwoPhase;
use crate::two_phase::error::TransactionError;
use crate::two_phase::nodes::ballot::Decision;
use crate::two_phase::nodes::child::{self, Child, DECISION};
use crate::two_phase::nodes::transaction_spec::TransactionSpec;
use crate::two_phase::transaction::Transaction;

/// How much is removed in one request. Servers take no more than 1 MiB.
const BATCH_BYTES_MAX: usize = 700_000;

/// What it takes to delete a node besides its path: headers, a length and a version.
const DELETE_OVERHEAD_BYTES: usize = 20;

impl TwoPhase {
    /// Removes the transactions that are done at every site and began more than `older_than` ago, and returns their ids. The age is the time of
    /// day here less that of the servers, so it is wrong by the difference of their clocks. Call it now and
    /// then; concurrent calls do no harm.
    ///
    /// # Cancel safety
    ///
    /// Each transaction has been removed or not.
    ///
    /// # Errors
    ///
    /// See [`TransactionError`].
    pub async fn clean_up(&self, older_than: Duration) -> Result<Vec<String>, TransactionError> {
        call!("transaction.clean_up", self.dir.path())
            .run(self.clean_up_untraced(older_than))
            .await
    }

    async fn clean_up_untraced(
        &self,
        older_than: Duration,
    ) -> Result<Vec<String>, TransactionError> {
        let now = environment::system_time();
        let mut forgotten = Vec::new();
        for status in self.list().await? {
            let age = now.duration_since(status.begun).unwrap_or_default();
            if !status.is_done() || age < older_than {
                continue;
            }
            match self.transaction(&status.id).forget().await {
                Ok(()) => forgotten.push(status.id),
                // Another client was quicker.
                Err(TransactionError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(forgotten)
    }
}

impl Transaction {
    /// Removes everything about a transaction that is done at every site. Its decision can no longer be read.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, all of it has been removed or nothing; of a transaction that does not fit one request, votes may
    /// be gone before the rest. Call again.
    ///
    /// # Errors
    ///
    /// [`TransactionError::NotDone`] while a site is not done; else see [`TransactionError`].
    pub async fn forget(&self) -> Result<(), TransactionError> {
        call!("transaction.forget", self.place().path())
            .run(self.forget_untraced())
            .await
    }

    async fn forget_untraced(&self) -> Result<(), TransactionError> {
        let status = self.status().await?;
        if !status.is_done() {
            return Err(TransactionError::NotDone {
                path: self.path(),
                sites: status.unapplied().map(str::to_owned).collect(),
            });
        }
        self.remove(|writer, node, names| {
            // Whether it is done, and how, is known to the end.
            let needed = |name: &&String| {
                let child = Child::parse(name);
                matches!(child, Some(Child::Decision | Child::Applied(_)))
            };
            let (last, first): (Vec<_>, Vec<_>) = names.iter().partition(needed);
            let fits_at_once =
                delete_bytes(node, &first) + delete_bytes(node, &last) <= BATCH_BYTES_MAX;
            if !fits_at_once && !first.is_empty() {
                add_deletes(writer, node, &fitting(node, &first));
                return Ok(Left::Something);
            }
            add_deletes(writer, node, &first);
            add_deletes(writer, node, &last);
            writer.delete(node, None);
            Ok(Left::Nothing)
        })
        .await
    }

    /// Gives up on sites that will not return: decides, as [`abort`](super::Coordinator::abort) does, and removes votes and payload. The
    /// decision stays as a tombstone, so that a site that does return learns it; when all sites have, [`forget`](Self::forget) removes that
    /// too.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, it may have been decided, and removed or not.
    ///
    /// # Errors
    ///
    /// See [`TransactionError`].
    pub async fn forget_by_force(&self) -> Result<Decision, TransactionError> {
        call!("transaction.forget_by_force", self.place().path())
            .run_to(self.forget_by_force_untraced(), Decision::outcome)
            .await
    }

    async fn forget_by_force_untraced(&self) -> Result<Decision, TransactionError> {
        let decision = self.coordinate().await?.abort("given up by force").await?;
        let (mut spec, _, _) = self.spec().await?;
        spec.forgotten_by = Some(self.client().current().who());
        let tombstone = spec.to_data(b"");
        self.remove(|writer, node, _| {
            writer.set(node, &tombstone, None);
            // Nothing may be removed without it.
            writer.check(&format!("{node}/{DECISION}"), None);
            Ok(Left::Nothing)
        })
        .await?;
        let swept = self.remove(|writer, node, names| {
            let is_vote = |name: &&String| matches!(Child::parse(name), Some(Child::Vote(_)));
            let votes: Vec<_> = names.iter().filter(is_vote).collect();
            let batch = fitting(node, &votes);
            writer.check(&format!("{node}/{DECISION}"), None);
            add_deletes(writer, node, &batch);
            Ok(match batch.len() < votes.len() {
                true => Left::Something,
                false => Left::Nothing,
            })
        });
        match swept.await {
            // The last site has come back after all, and has cleaned up.
            Ok(()) | Err(TransactionError::NotFound { .. }) => Ok(decision),
            Err(error) => Err(error),
        }
    }

    /// Makes writes to the node and everything below it, in as many multis as it takes, each of which is idempotent.
    async fn remove(
        &self,
        fill: impl Fn(&mut zk::Multi<'_>, &str, &[String]) -> Result<Left, zk::Error>,
    ) -> Result<(), TransactionError> {
        let place = self.place();
        // Once one of our writes is done, or may be, another client may do the rest.
        let mut is_begun = false;
        let mut retry = Retry::limited();
        loop {
            let names = match self.children().await {
                Err(TransactionError::NotFound { .. }) if is_begun => return Ok(()),
                names => names?,
            };
            let opened = place.open_in_time().await?;
            let mut writer = opened.session.zk().new_multi();
            let node = opened.path.as_str();
            let left = match fill(&mut writer, node, &names) {
                Ok(left) => left,
                Err(error) => return Err(place.refused(error).into()),
            };
            match writer.commit().await.map_err(zk::Error::from) {
                Ok(_) if left == Left::Nothing => return Ok(()),
                // The rest goes next.
                Ok(_) => (is_begun, retry) = (true, Retry::limited()),
                // A participant came or left between the two. Or another program created a node below a vote, and that stays.
                Err(error @ (zk::Error::NO_NODE | zk::Error::NOT_EMPTY)) => {
                    retry.count(error).map_err(|error| place.refused(error))?;
                }
                Err(error) => {
                    is_begun |= error.is_in_doubt();
                    place.again(&opened, error).await?;
                }
            }
        }
    }
}

/// Whether something is left to remove.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Left {
    Something,
    Nothing,
}

fn add_deletes(writer: &mut zk::Multi<'_>, node: &str, names: &[&String]) {
    for name in names {
        writer.delete(&format!("{node}/{name}"), None);
    }
}

/// As many of these as can be deleted in one request; one at least.
fn fitting<'a>(node: &str, names: &[&'a String]) -> Vec<&'a String> {
    let mut bytes = 0;
    let fits = |(index, name): &(usize, &&String)| {
        bytes += delete_bytes(node, &[name]);
        *index == 0 || bytes <= BATCH_BYTES_MAX
    };
    let names = names.iter().enumerate().take_while(fits);
    names.map(|(_, name)| *name).collect()
}

/// What it takes to delete these nodes.
fn delete_bytes(node: &str, names: &[&String]) -> usize {
    let bytes = names
        .iter()
        .map(|name| node.len() + name.len() + DELETE_OVERHEAD_BYTES);
    bytes.sum()
}

/// Refuses a transaction whose site names are so long that its removal would not fit into one request.
pub(super) fn check_can_be_forgotten(
    place: &PersistentNode,
    spec: &TransactionSpec,
) -> Result<(), StateError> {
    let marks: Vec<_> = spec.sites.iter().map(|site| child::applied(site)).collect();
    let bytes = delete_bytes(place.path(), &marks.iter().collect::<Vec<_>>());
    match bytes > BATCH_BYTES_MAX {
        true => Err(StateError::TooLarge {
            path: place.path().to_owned(),
            bytes,
            bytes_max: BATCH_BYTES_MAX,
        }),
        false => Ok(()),
    }
}
