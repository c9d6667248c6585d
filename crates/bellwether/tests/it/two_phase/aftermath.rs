//! What is reported of a transaction, and what stays of it.

use bellwether::blocking::Wait;
use futures_util::StreamExt;
use std::time::Duration;

use bellwether::blocking::iter;
use bellwether::two_phase::{Decision, Form, Status, Vote};
use bellwether::{Error, ErrorKind, TwoPhase, connect, zk};
use futures_util::future::try_join_all;

use super::{Actor, spawn, transactions};
use crate::barrier::together_counts::until_watches;
use crate::support::place::{Place, soon};

on_both_engines! {
    status_is_seen_without_taking_part,
    progress_tells_who_is_missing,
    failed_handler_is_called_again,
    done_transactions_are_forgotten,
    foreign_nodes_below_a_transaction_end_the_cleaning,
    clients_say_who_they_are,
    tombstone_keeps_the_decision,
    sites_with_long_names_are_forgotten_in_several_steps,
    long_reasons_are_cut,
    invitations_tell_what_is_open_and_what_is_new,
    plain_threads_take_part,
}

async fn status_is_seen_without_taking_part(place: Place) {
    let transactions = transactions(&place, Form::EverySite).await;
    let coordinator = transactions
        .begin_as("order-7", ["a", "b"], "x")
        .await
        .unwrap();
    let _seat = coordinator.join("a").await.unwrap();
    coordinator.vote("b", Vote::Commit).await.unwrap();
    let outside = TwoPhase::new(&place.client().await, "/tx").transaction("order-7");
    let status = outside.status().await.unwrap();
    assert_eq!(
        (status.id.as_str(), status.form),
        ("order-7", Form::EverySite)
    );
    assert_eq!(status.payload, b"x");
    assert_eq!(status.coordinators, 1);
    assert_eq!(status.begun_by.pid, std::process::id());
    assert_eq!(status.due.unwrap(), status.begun + Duration::from_secs(30));
    assert_eq!(status.missing().collect::<Vec<_>>(), ["a"]);
    assert_eq!(status.unapplied().count(), 2);
    assert!(status.sites["a"].is_here && !status.sites["b"].is_here);
    assert_eq!((status.decision, status.outcome()), (None, None));
    let limit = Duration::from_millis(50);
    let waited = outside.decision_timeout(limit).await;
    assert_fails!(waited, ErrorKind::TimedOut { .. });
    place.until_children("/tx/order-7", 3).await;
}

async fn progress_tells_who_is_missing(place: Place) {
    let transactions = transactions(&place, Form::Coordinator).await;
    let mut coordinator = transactions.begin(["a", "b"], "").await.unwrap();
    let mut progress = coordinator.progress();
    let missing = |status: &Status| status.missing().map(str::to_owned).collect::<Vec<_>>();
    let first = soon(progress.next()).await.unwrap().unwrap();
    assert_eq!(missing(&first), ["a", "b"]);
    coordinator.vote("b", Vote::Commit).await.unwrap();
    let second = soon(progress.next()).await.unwrap().unwrap();
    assert_eq!(missing(&second), ["a"]);
    coordinator.vote("a", Vote::Commit).await.unwrap();
    assert_eq!(soon(coordinator.decide()).await.unwrap(), Decision::Commit);
    for site in ["a", "b"] {
        coordinator.applied(site).await.unwrap();
    }
    // The stream ends by itself when all sites are done.
    let last = soon(progress.map(Result::unwrap).collect::<Vec<_>>()).await;
    let last = last.last().unwrap();
    assert!(last.is_done() && last.decision == Some(Decision::Commit));
    place.until_no_watches().await;
}

async fn failed_handler_is_called_again(place: Place) {
    let transactions = transactions(&place, Form::EverySite).await;
    let coordinator = transactions.begin(["a"], "").await.unwrap();
    let mut actor = Actor {
        failures: 1,
        ..Actor::default()
    };
    let failed = soon(coordinator.participate("a", &mut actor)).await;
    assert_fails!(failed, ErrorKind::Handler(_));
    let status = coordinator.status().await.unwrap();
    assert_eq!(status.sites["a"].ballot, None);
    actor.calls.clear();
    // The vote succeeds, and the commit does not.
    let mut participation = coordinator.join("a").await.unwrap();
    participation.vote(Vote::Commit).await.unwrap();
    drop(participation);
    actor.failures = 1;
    let failed = soon(coordinator.participate("a", &mut actor)).await;
    assert_fails!(failed, ErrorKind::Handler(_));
    let decision = soon(coordinator.participate("a", &mut actor)).await;
    assert_eq!(decision.unwrap(), Decision::Commit);
    assert_eq!(actor.calls, ["commit a", "commit a"]);
    // A site that is done is not called again.
    soon(coordinator.participate("a", &mut actor))
        .await
        .unwrap();
    assert_eq!(actor.calls.len(), 2);
}

async fn done_transactions_are_forgotten(place: Place) {
    let transactions = transactions(&place, Form::EverySite).await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        let coordinator = transactions.begin(["a", "b"], "").await.unwrap();
        ids.push(coordinator.id().to_owned());
    }
    for id in &ids[..2] {
        let transaction = transactions.transaction(id);
        let (one, other) = (transaction.clone(), transaction.clone());
        let one = spawn(one, "a", Actor::default());
        let other = spawn(other, "b", Actor::default());
        soon(one).await.unwrap().0.unwrap();
        soon(other).await.unwrap().0.unwrap();
    }
    let open = transactions.transaction(&ids[2]);
    match open.forget().await {
        Err(Error {
            kind: ErrorKind::NotDone { sites, .. },
            ..
        }) => assert_eq!(sites, ["a", "b"]),
        other => panic!("{other:?}"),
    }
    let day = Duration::from_secs(86_400);
    assert!(transactions.clean_up(day).await.unwrap().is_empty());
    let mut expected = ids[..2].to_vec();
    expected.sort();
    let forgotten = transactions.clean_up(Duration::ZERO).await.unwrap();
    assert_eq!(forgotten, expected);
    place.until_children("/tx", 1).await;
    assert_eq!(place.children("/tx").await, [ids[2].clone()]);
    let gone = transactions.transaction(&ids[0]);
    for error in [
        gone.status().await.map(drop),
        gone.decision().await.map(drop),
        gone.join("a").await.map(drop),
        gone.coordinate().await.map(drop),
        gone.forget().await,
        gone.vote("a", Vote::Commit).await.map(drop),
    ] {
        assert_fails!(error, ErrorKind::NotFound);
    }
}

async fn foreign_nodes_below_a_transaction_end_the_cleaning(place: Place) {
    let transactions = transactions(&place, Form::EverySite).await;
    let coordinator = transactions.begin(["a"], "").await.unwrap();
    let transaction = transactions.transaction(coordinator.id());
    let site = spawn(transaction.clone(), "a", Actor::default());
    soon(site).await.unwrap().0.unwrap();
    drop(coordinator);
    let foreign = format!("/tx/{}/vote-a/foreign", transaction.id());
    let zk = place.outside();
    let created = zk.create(&foreign, b"", zk::CreateMode::Persistent).await;
    created.unwrap();
    let refused = soon(transaction.forget()).await;
    assert_fails!(
        refused,
        ErrorKind::Refused {
            source: zk::Error::NOT_EMPTY,
            ..
        }
    );
    zk.delete(&foreign, None).await.unwrap();
    soon(transaction.forget()).await.unwrap();
}

async fn clients_say_who_they_are(place: Place) {
    let client = connect(format!("{}{}", place.server(), place.chroot()))
        .command("transfer")
        .message("nightly")
        .owner("bank");
    let transactions = TwoPhase::new(&client.await.unwrap(), "/tx");
    let coordinator = transactions.begin(["a"], "").await.unwrap();
    let transaction = transactions.transaction(coordinator.id());
    let ballot = transaction.vote("a", Vote::Commit).await.unwrap();
    let status = transaction.status().await.unwrap();
    transaction.forget_by_force().await.unwrap();
    let forgotten = transaction.status().await.unwrap().forgotten_by;
    for who in [status.begun_by, ballot.by, forgotten.unwrap()] {
        let said = (&*who.owner, who.command.as_deref(), who.message.as_deref());
        assert_eq!(said, ("bank", Some("transfer"), Some("nightly")));
    }
    drop(coordinator);
}

/// The maximum number of sites. Their votes and marks together do not fit into one request.
fn long_names() -> Vec<String> {
    let name = |number| format!("{number:03}{}", "x".repeat(600));
    (0..1000).map(name).collect()
}

/// Creates a node for each of them directly: the recipe's calls would read their names each time.
async fn make_for_all(place: &Place, first_part: &str, data: &[u8]) {
    let options = &zk::CreateMode::Persistent.with_acl([zk::Acl::open()]);
    let made = long_names().into_iter().map(|site| async move {
        let node = format!("{first_part}{site}");
        place.outside().create(&node, data, options).await
    });
    try_join_all(made).await.unwrap();
}

async fn sites_with_long_names_are_forgotten_in_several_steps(place: Place) {
    let transactions = transactions(&place, Form::Coordinator).await;
    // The format of a vote.
    let other = transactions.begin_as("other", ["a"], "").await.unwrap();
    other.vote("a", Vote::Commit).await.unwrap();
    let (vote, _) = place.outside().get("/tx/other/vote-a").await.unwrap();
    for forced in [false, true] {
        let mut coordinator = transactions.begin(long_names(), "").await.unwrap();
        let path = format!("/tx/{}", coordinator.id());
        make_for_all(&place, &format!("{path}/vote-"), &vote).await;
        assert_eq!(soon(coordinator.decide()).await.unwrap(), Decision::Commit);
        if forced {
            let decision = soon(coordinator.forget_by_force()).await;
            assert_eq!(decision.unwrap(), Decision::Commit);
            let mut left = place.children(&path).await.into_iter();
            assert!(left.all(|name| !name.starts_with("vote-")));
        }
        make_for_all(&place, &format!("{path}/applied-"), b"").await;
        soon(coordinator.forget()).await.unwrap();
        let status = coordinator.status().await;
        assert_fails!(status, ErrorKind::NotFound);
    }
    let longer = long_names().into_iter().map(|name| name.repeat(2));
    let refused = transactions.begin(longer, "").await.map(drop);
    assert_fails!(refused, ErrorKind::TooLarge { .. });
}

async fn long_reasons_are_cut(place: Place) {
    let transactions = transactions(&place, Form::Coordinator).await;
    let mut coordinator = transactions.begin(["a", "b"], "").await.unwrap();
    let much = "m".repeat(2 << 20);
    let vote = soon(coordinator.vote("a", Vote::Abort(much.clone()))).await;
    assert_eq!(vote.unwrap().vote, Vote::Abort(much[..4 << 10].to_owned()));
    assert_eq!(
        soon(coordinator.abort(&much)).await.unwrap(),
        Decision::Abort
    );
    let status = coordinator.status().await.unwrap();
    for site in ["a", "b"] {
        let ballot = status.sites[site].ballot.as_ref().unwrap();
        assert_eq!(ballot.vote, Vote::Abort(much[..4 << 10].to_owned()));
    }
}

async fn tombstone_keeps_the_decision(place: Place) {
    let transactions = transactions(&place, Form::Coordinator).await;
    for (votes, expected) in [(1, Decision::Abort), (2, Decision::Commit)] {
        let coordinator = transactions.begin(["a", "b"], "payload").await.unwrap();
        for site in ["a", "b"].into_iter().take(votes) {
            coordinator.vote(site, Vote::Commit).await.unwrap();
        }
        let transaction = transactions.transaction(coordinator.id());
        drop(coordinator);
        assert_eq!(transaction.forget_by_force().await.unwrap(), expected);
        assert_eq!(transaction.forget_by_force().await.unwrap(), expected);
        let status = transaction.status().await.unwrap();
        assert_eq!(status.decision, Some(expected));
        assert!(status.payload.is_empty() && status.forgotten_by.is_some());
        place
            .until_children(&format!("/tx/{}", transaction.id()), 1)
            .await;
        // Sites that return apply the decision, and then nothing is left to know.
        for site in ["a", "b"] {
            let mut actor = Actor::default();
            let decision = soon(transaction.participate(site, &mut actor)).await;
            assert_eq!(decision.unwrap(), expected);
            assert_eq!(actor.calls, [format!("{expected} {site}")]);
        }
        transaction.forget().await.unwrap();
    }
    place.until_children("/tx", 0).await;
}

async fn invitations_tell_what_is_open_and_what_is_new(place: Place) {
    let transactions = transactions(&place, Form::EverySite).await;
    let other = TwoPhase::new(&place.client().await, "/tx");
    let mut invitations = other.invitations("a");
    let first = {
        // Not even the directory exists.
        let next = invitations.next();
        let begin = async {
            until_watches(&place, 1).await;
            transactions.begin_as("1", ["a", "b"], "").await.unwrap()
        };
        let (next, first) = soon(async { tokio::join!(next, begin) }).await;
        assert_eq!(next.unwrap().unwrap().id(), first.id());
        first
    };
    transactions.begin_as("2", ["b"], "").await.unwrap();
    transactions.begin_as("3", ["a"], "").await.unwrap();
    let next = soon(invitations.next()).await.unwrap().unwrap();
    assert_eq!(next.id(), "3");
    soon(next.participate(&mut Actor::default())).await.unwrap();
    // Another process of the same site finds the open transactions, and not the finished ones.
    first.vote("a", Vote::Commit).await.unwrap();
    let mut anew = transactions.invitations("a");
    assert_eq!(soon(anew.next()).await.unwrap().unwrap().id(), "1");
    transactions.begin_as("0", ["a"], "").await.unwrap();
    assert_eq!(soon(anew.next()).await.unwrap().unwrap().id(), "0");
    assert_eq!(soon(invitations.next()).await.unwrap().unwrap().id(), "0");
    drop((anew, invitations));
    place.until_no_watches().await;
}

async fn plain_threads_take_part(place: Place) {
    let client = place.client().await;
    let decide = move || {
        let transactions = TwoPhase::new(&client, "/tx");
        let mut coordinator = transactions.begin(["a", "b"], "x").wait().unwrap();
        let progress = iter(coordinator.progress());
        std::thread::scope(|scope| {
            for site in ["a", "b"] {
                let transaction = transactions.transaction(coordinator.id());
                scope.spawn(move || {
                    let mut actor = Actor::default();
                    let decision = transaction.participate(site, &mut actor).wait();
                    assert_eq!(decision.unwrap(), Decision::Commit);
                    assert_eq!(actor.calls.len(), 2);
                });
            }
            coordinator.decide().wait().unwrap()
        });
        let last = progress.map(Result::unwrap).last().unwrap();
        coordinator.forget().wait().unwrap();
        last.decision
    };
    let decided = soon(tokio::task::spawn_blocking(decide)).await.unwrap();
    assert_eq!(decided, Some(Decision::Commit));
}
