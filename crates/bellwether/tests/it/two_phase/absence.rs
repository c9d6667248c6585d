//! Sites and coordinators that are absent: dead, late, or cut off.

use std::time::Duration;

use bellwether::TwoPhase;
use bellwether::two_phase::{DeadSite, Decision, Form, Participation, Status, Vote};
use bellwether_wire::op::Op;

use super::{Actor, SITES, elsewhere, spawn, transactions, until_status};
use crate::support::place::{Place, SESSION_TIMEOUT, expire, soon};

on_both_engines! {
    dead_site_aborts_or_is_waited_for,
    missing_vote_is_one_to_abort_after_the_deadline,
    site_takes_over_after_the_deadline,
    coordinator_is_followed_by_another,
    lost_replies_change_nothing,
    new_session_goes_on,
}

async fn dead_site_aborts_or_is_waited_for(place: Place) {
    for (dead_site, form) in [
        (DeadSite::Abort, Form::Coordinator),
        (DeadSite::Abort, Form::EverySite),
        (DeadSite::Wait, Form::Coordinator),
        (DeadSite::Wait, Form::EverySite),
    ] {
        let (counting, client) = place.counted().await;
        let transactions = TwoPhase::new(&client, "/tx")
            .form(form)
            .no_deadline()
            .dead_site(dead_site);
        let mut coordinator = transactions.begin(["a", "b"], "").await.unwrap();
        let transaction = transactions.transaction(coordinator.id());
        let mut voter = transaction.join("a").await.unwrap();
        voter.vote(Vote::Commit).await.unwrap();
        let seen = elsewhere(&place, &transaction).await;
        let (proxy, dying) = place.proxied(SESSION_TIMEOUT).await;
        let dying = TwoPhase::new(&dying, "/tx").transaction(seen.id());
        let dying = dying.join("b").await.unwrap();
        counting.reset_counts();
        let deciding = tokio::spawn(async move {
            match form {
                Form::EverySite => voter.decision().await,
                _ => coordinator.decide().await,
            }
        });
        // The counting process has seen which sites are present, and has handled that: the round trips are of its session.
        let until_counted = async || {
            soon(async {
                while counting.count(Op::GetChildren) == 0 {
                    client.raw().sync("/").await.unwrap();
                }
            })
            .await;
            for _ in 0..3 {
                client.raw().sync("/").await.unwrap();
            }
        };
        until_counted().await;
        counting.reset_counts();
        proxy.refuse(true);
        proxy.expire_session().await.unwrap();
        match dead_site {
            DeadSite::Abort => {
                assert_eq!(soon(deciding).await.unwrap().unwrap(), Decision::Abort);
                let status = seen.status().await.unwrap();
                let ballot = status.sites["b"].ballot.clone().unwrap();
                assert!(!ballot.is_own);
                assert_eq!(ballot.vote, Vote::Abort("the site is gone".into()));
                // It returns, and cannot vote any more.
                proxy.refuse(false);
                let mut late = seen.join("b").await.unwrap();
                assert_eq!(*late.vote(Vote::Commit).await.unwrap(), ballot);
                assert_eq!(late.decision().await.unwrap(), Decision::Abort);
            }
            _ => {
                let gone = |status: &Status| !status.sites["b"].is_here;
                until_status(&seen, gone).await;
                until_counted().await;
                assert!(!deciding.is_finished(), "decided without a vote");
                let mut late = seen.join("b").await.unwrap();
                late.vote(Vote::Commit).await.unwrap();
                assert_eq!(soon(deciding).await.unwrap().unwrap(), Decision::Commit);
            }
        }
        drop(dying);
    }
}

async fn missing_vote_is_one_to_abort_after_the_deadline(place: Place) {
    for form in [Form::Coordinator, Form::EverySite] {
        let transactions = transactions(&place, form).await;
        let mut coordinator = transactions
            .deadline(Duration::from_millis(300))
            .begin(["a", "b"], "")
            .await
            .unwrap();
        let mut participation = coordinator.join("a").await.unwrap();
        assert!(participation.proposal().time_left().unwrap() <= Duration::from_millis(300));
        participation.vote(Vote::Commit).await.unwrap();
        let decision = match form {
            Form::EverySite => soon(participation.decision()).await,
            _ => soon(coordinator.decide()).await,
        };
        assert_eq!(decision.unwrap(), Decision::Abort);
        let status = coordinator.status().await.unwrap();
        let ballot = status.sites["b"].ballot.as_ref().unwrap();
        assert_eq!(ballot.vote, Vote::Abort("no vote in time".into()));
    }
}

async fn site_takes_over_after_the_deadline(place: Place) {
    for votes in [vec!["a"], vec!["a", "b"]] {
        let transactions = transactions(&place, Form::Coordinator).await;
        let transactions = transactions.deadline(Duration::from_millis(300));
        let coordinator = transactions.begin(["a", "b"], "").await.unwrap();
        let transaction = transactions.transaction(coordinator.id());
        drop(coordinator);
        let mut seats: Vec<Participation> = Vec::new();
        for site in &votes {
            let mut participation = transaction.join(site).await.unwrap();
            participation.vote(Vote::Commit).await.unwrap();
            seats.push(participation);
        }
        let expected = match votes.len() {
            2 => Decision::Commit,
            _ => Decision::Abort,
        };
        for mut participation in seats {
            assert_eq!(soon(participation.decision()).await.unwrap(), expected);
        }
    }
}

async fn coordinator_is_followed_by_another(place: Place) {
    let transactions = transactions(&place, Form::Coordinator).await.no_deadline();
    let coordinator = transactions.begin(SITES, "").await.unwrap();
    let mut sites = Vec::new();
    for site in SITES {
        let transaction = elsewhere(&place, &coordinator).await;
        sites.push(spawn(transaction, site, Actor::default()));
    }
    let id = coordinator.id().to_owned();
    drop(coordinator);
    let voted = |status: &Status| status.missing().next().is_none();
    until_status(&transactions.transaction(&id), voted).await;
    // Another process finds the transaction without a coordinator.
    let other = TwoPhase::new(&place.client().await, "/tx");
    let in_doubt = soon(async {
        loop {
            let [status] = other.in_doubt().await.unwrap().try_into().unwrap();
            if status.coordinators == 0 {
                return status;
            }
        }
    })
    .await;
    assert_eq!(in_doubt.id, id);
    let mut successor = other.transaction(id).coordinate().await.unwrap();
    assert_eq!(soon(successor.decide()).await.unwrap(), Decision::Commit);
    assert!(other.in_doubt().await.unwrap().is_empty());
    for site in sites {
        let (decision, actor) = soon(site).await.unwrap();
        assert_eq!(decision.unwrap(), Decision::Commit);
        assert_eq!(actor.calls.len(), 2);
    }
}

async fn lost_replies_change_nothing(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let transactions = TwoPhase::new(&client, "/tx");
    transactions.begin(["z"], "").await.unwrap();
    // The reply of each create and of each read.
    for form in [Form::Coordinator, Form::EverySite] {
        for lost in 0..12 {
            let transactions = transactions.clone().form(form);
            let left = std::sync::atomic::AtomicUsize::new(lost);
            let order = std::sync::atomic::Ordering::Relaxed;
            let fault = proxy.swallow_reply_where(move |request| {
                let counts = request.op != Op::Ping;
                counts
                    && left
                        .fetch_update(order, order, |left| left.checked_sub(1))
                        .is_err()
            });
            let mut coordinator = soon(transactions.begin(["a"], "")).await.unwrap();
            let site = spawn(
                transactions.transaction(coordinator.id()),
                "a",
                Actor::default(),
            );
            assert_eq!(soon(coordinator.decide()).await.unwrap(), Decision::Commit);
            let (decision, actor) = soon(site).await.unwrap();
            assert_eq!(decision.unwrap(), Decision::Commit);
            assert_eq!(actor.calls, ["prepare a", "commit a"]);
            soon(coordinator.forget()).await.unwrap();
            proxy.calm();
            drop(fault);
        }
    }
    place.until_children("/tx", 1).await;
}

async fn new_session_goes_on(place: Place) {
    for form in [Form::Coordinator, Form::EverySite] {
        let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
        let transactions = TwoPhase::new(&client, "/tx")
            .form(form)
            .dead_site(DeadSite::Wait);
        let mut coordinator = transactions.begin(["a", "b"], "").await.unwrap();
        let transaction = transactions.transaction(coordinator.id());
        let seen = elsewhere(&place, &transaction).await;
        let site = spawn(transaction, "a", Actor::default());
        let deciding = tokio::spawn(async move { coordinator.decide().await });
        let voted = |status: &Status| status.sites["a"].ballot.is_some();
        until_status(&seen, voted).await;
        expire(&proxy).await;
        // Both have returned.
        let back = |status: &Status| status.sites["a"].is_here && status.coordinators == 1;
        until_status(&seen, back).await;
        seen.vote("b", Vote::Commit).await.unwrap();
        assert_eq!(soon(deciding).await.unwrap().unwrap(), Decision::Commit);
        let (decision, actor) = soon(site).await.unwrap();
        assert_eq!(decision.unwrap(), Decision::Commit);
        assert_eq!(actor.calls, ["prepare a", "commit a"]);
    }
}
