//! What the consumers of a queue do with their claims, and an operator with the claims of others.

use std::collections::BTreeSet;
use std::pin::pin;

use bellwether::{Claim, Client, Error, ErrorKind};
use bellwether_testkit::history::What;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use rand::Rng as _;

use super::ledger::{ItemEnd, lock, note_end};
use super::queue::{Items, QueueKind};
use crate::worker::{Gone, Worker};

impl<K: QueueKind> Items<K> {
    /// Works on items, and ends their claims.
    pub(crate) async fn consume(
        &self,
        worker: &mut Worker,
        client: &Client,
        mut claims: Vec<Claim<String>>,
    ) -> Result<(), Gone> {
        if self.is_meddled_with && worker.is_calm() && worker.random.random_bool(0.5) {
            while let Some(claim) = claims.pop() {
                self.lose(worker, client, claim).await?;
            }
            return Ok(());
        }
        let lost = work_while_held(worker, client, &claims).await;
        for claim in &claims {
            let token = claim.token().number();
            if !lost.contains(&token) {
                worker.note(What::Releasing { token });
            }
        }
        for claim in claims {
            let is_lost = lost.contains(&claim.token().number());
            self.settle(worker, claim, is_lost).await;
        }
        Ok(())
    }

    /// Acknowledges an item, rejects it, gives it back or drops the claim. A consumer whose claim is lost tries too: if another one has the
    /// item, the server must refuse it.
    async fn settle(&self, worker: &mut Worker, claim: Claim<String>, is_lost: bool) {
        let (item, token) = (claim.payload().clone(), claim.token().number());
        let ledger = &self.ledger;
        match worker.random.random_range(0..12) {
            0..2 if !is_lost => drop(claim),
            2..4 => match claim.give_back("not now").await {
                Ok(()) => lock(ledger).given_back(&item, token),
                Err(Error {
                    kind: ErrorKind::NotHeld,
                    ..
                }) => {}
                Err(error) => worker.failed(&error),
            },
            4 => {
                lock(ledger).doubt(&item, token, ItemEnd::Rejected);
                let ended = claim.reject("never").await;
                note_end(worker, ledger, &item, (token, ItemEnd::Rejected), ended);
            }
            _ => {
                lock(ledger).doubt(&item, token, ItemEnd::Acked);
                let ended = claim.ack().await;
                note_end(worker, ledger, &item, (token, ItemEnd::Acked), ended);
            }
        }
    }

    /// Deletes the own claim, as an operator could. The consumer must learn of it, and must not acknowledge the item.
    async fn lose(
        &self,
        worker: &mut Worker,
        client: &Client,
        claim: Claim<String>,
    ) -> Result<(), Gone> {
        let (id, token) = (claim.id().to_string(), claim.token().number());
        let zk = client.raw();
        let names = zk.children(&Self::claims()).await.unwrap_or_default();
        let mut is_deleted = false;
        if let Some(name) = names.iter().find(|name| name.contains(&id)) {
            lock(&self.ledger).break_claim(name);
            let deleted = zk.delete(&format!("{}/{name}", Self::claims()), None).await;
            is_deleted = deleted.is_ok();
        }
        if !is_deleted {
            worker.note(What::Releasing { token });
            drop(claim);
            return Ok(());
        }
        worker.unless_stopped(claim.lost()).await?;
        worker.note(What::Lost { token });
        let item = claim.payload().clone();
        match claim.ack().await {
            Ok(()) => worker.wrong(format!("{item} was acknowledged without a claim")),
            Err(Error {
                kind: ErrorKind::NotHeld,
                ..
            }) => {}
            Err(error) => worker.failed(&error),
        }
        Ok(())
    }

    /// Deletes the claims of other consumers, as an operator could. These consumers must not settle their items.
    pub(crate) async fn take_claims_away(&self, client: &Client) {
        let names = client.raw().children(&Self::claims()).await;
        for name in names.unwrap_or_default() {
            lock(&self.ledger).break_claim(&name);
            let claim = format!("{}/{name}", Self::claims());
            // It may be deleted already, or the connection may fail first.
            let _ = client.raw().delete(&claim, None).await;
        }
    }
}

/// Works until the work is done or all claims are lost. Returns the tokens of claims that were lost.
async fn work_while_held(
    worker: &mut Worker,
    client: &Client,
    claims: &[Claim<String>],
) -> BTreeSet<i64> {
    let (recorder, who) = (worker.recorder.clone(), worker.who);
    let mut losses: FuturesUnordered<_> = claims
        .iter()
        .map(|claim| async {
            claim.lost().await;
            claim.token().number()
        })
        .collect();
    let mut lost = BTreeSet::new();
    let mut work = pin!(worker.work_with(client));
    while lost.len() < claims.len() {
        tokio::select! {
            biased;
            Some(token) = losses.next() => {
                recorder.note(who, What::Lost { token });
                lost.insert(token);
            }
            () = &mut work => break,
        }
    }
    lost
}
