//! A site that takes part in all transactions that wait for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bellwether::two_phase::{DeadSite, Decision, Form, Participant, Proposal, Vote};
use bellwether::{Error, ErrorKind, TwoPhase};
use futures_util::StreamExt;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;

use super::{Actor, transactions, until_status};
use crate::support::place::{Place, soon};

on_both_engines! {
    failed_invitation_comes_again,
    handlers_that_failed_are_called_again,
    absent_site_blocks_no_other_transaction,
    handlers_run_at_once_up_to_their_limit,
    path_that_cannot_be_served_ends_it,
}

async fn failed_invitation_comes_again(place: Place) {
    let begun = transactions(&place, Form::EverySite).await;
    let begun = begun.dead_site(DeadSite::Wait);
    begun.begin_as("1", ["a"], "").await.unwrap();
    let mut invitations = TwoPhase::new(&place.client().await, "/tx").invitations("a");
    let mut actor = Actor {
        failures: 2,
        ..Actor::default()
    };
    for _ in 0..2 {
        let invitation = soon(invitations.next()).await.unwrap().unwrap();
        assert_eq!((invitation.id(), invitation.site()), ("1", "a"));
        soon(invitation.participate(&mut actor)).await.unwrap_err();
    }
    let invitation = soon(invitations.next()).await.unwrap().unwrap();
    let decision = soon(invitation.participate(&mut actor)).await;
    assert_eq!(decision.unwrap(), Decision::Commit);
    let prepares = ["prepare a"; 3];
    assert_eq!(actor.calls[..3], prepares);
    assert_eq!(actor.calls[3..], ["commit a"]);
    // A finished transaction is not returned again: the next one is new.
    drop(invitation);
    begun.begin_as("2", ["a"], "").await.unwrap();
    let next = soon(invitations.next()).await.unwrap().unwrap();
    assert_eq!(next.id(), "2");
}

/// Serves a site in a separate task, through a separate session.
async fn serve<P: Participant + Send + 'static>(
    place: &Place,
    handlers_max: usize,
    mut participant: impl FnMut() -> P + Send + 'static,
) -> JoinHandle<Error> {
    let serving = TwoPhase::new(&place.client().await, "/tx").handlers_max(handlers_max);
    tokio::spawn(async move { serving.serve("a", move |_| participant()).await })
}

/// Fails the first call of each handler, by a count that its transactions share.
struct Unsteady(Arc<AtomicUsize>);

impl Unsteady {
    fn call(&self) -> Result<(), String> {
        match self.0.fetch_add(1, Ordering::Relaxed) % 2 {
            0 => Err("out of order".into()),
            _ => Ok(()),
        }
    }
}

impl Participant for Unsteady {
    type Error = String;

    async fn prepare(&mut self, _: &Proposal) -> Result<Vote, String> {
        self.call().map(|()| Vote::Commit)
    }

    async fn commit(&mut self, _: &Proposal) -> Result<(), String> {
        self.call()
    }

    async fn abort(&mut self, _: &Proposal) -> Result<(), String> {
        self.call()
    }
}

async fn handlers_that_failed_are_called_again(place: Place) {
    let begun = transactions(&place, Form::EverySite).await;
    let begun = begun.dead_site(DeadSite::Wait);
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let serving = serve(&place, 1, move || Unsteady(counted.clone())).await;
    let coordinator = begun.begin(["a"], "").await.unwrap();
    let status = until_status(&coordinator, |status| status.unapplied().count() == 0).await;
    assert_eq!(status.decision, Some(Decision::Commit));
    assert_eq!(calls.load(Ordering::Relaxed), 4);
    serving.abort();
}

async fn absent_site_blocks_no_other_transaction(place: Place) {
    let begun = transactions(&place, Form::EverySite).await.no_deadline();
    let waiting = begun.begin(["a", "absent"], "").await.unwrap();
    let serving = serve(&place, 1, Actor::default).await;
    let voted = |status: &bellwether::two_phase::Status| status.sites["a"].ballot.is_some();
    until_status(&waiting, voted).await;
    for _ in 0..3 {
        let other = begun.begin(["a"], "").await.unwrap();
        let status = until_status(&other, |status| status.unapplied().count() == 0).await;
        assert_eq!(status.decision, Some(Decision::Commit));
    }
    let status = waiting.status().await.unwrap();
    assert_eq!((status.decision, status.sites["a"].is_here), (None, true));
    serving.abort();
}

/// Reports that it prepares, and continues when it may.
struct Slow {
    begun: mpsc::UnboundedSender<()>,
    may_end: Arc<Semaphore>,
}

impl Participant for Slow {
    type Error = String;

    async fn prepare(&mut self, _: &Proposal) -> Result<Vote, String> {
        self.begun.send(()).unwrap();
        self.may_end.acquire().await.unwrap().forget();
        Ok(Vote::Commit)
    }

    async fn commit(&mut self, _: &Proposal) -> Result<(), String> {
        Ok(())
    }

    async fn abort(&mut self, _: &Proposal) -> Result<(), String> {
        Ok(())
    }
}

async fn handlers_run_at_once_up_to_their_limit(place: Place) {
    let begun = transactions(&place, Form::EverySite).await.no_deadline();
    let (sender, mut prepares) = mpsc::unbounded_channel();
    let may_end = Arc::new(Semaphore::new(0));
    let permits = may_end.clone();
    let serving = serve(&place, 2, move || Slow {
        begun: sender.clone(),
        may_end: permits.clone(),
    })
    .await;
    let mut all = Vec::new();
    for _ in 0..4 {
        all.push(begun.begin(["a"], "").await.unwrap());
    }
    for _ in 0..2 {
        soon(prepares.recv()).await.unwrap();
    }
    // All of them have their seats, and two of them wait for a handler.
    for transaction in &all {
        until_status(transaction, |status| status.sites["a"].is_here).await;
    }
    prepares.try_recv().unwrap_err();
    // Each one that ends lets one more begin.
    for _ in 0..2 {
        may_end.add_permits(1);
        soon(prepares.recv()).await.unwrap();
    }
    may_end.add_permits(2);
    for transaction in &all {
        until_status(transaction, |status| status.unapplied().count() == 0).await;
    }
    serving.abort();
}

async fn path_that_cannot_be_served_ends_it(place: Place) {
    let serving = TwoPhase::new(&place.client().await, "no path");
    let error = soon(serving.serve("a", |_| Actor::default())).await;
    assert!(matches!(error.kind, ErrorKind::BadPath(_)), "{error:?}");
}
