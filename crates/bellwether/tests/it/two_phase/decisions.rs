//! Votes, and the decisions that follow from them.

use bellwether::two_phase::{Decision, Form, Vote};
use bellwether::{Error, ErrorKind};

use super::{Actor, SITES, elsewhere, spawn, transactions};
use crate::support::place::{Place, soon};

on_both_engines! {
    all_commit_when_all_vote_for_it,
    all_abort_when_one_votes_against_it,
    abort_is_known_with_the_first_vote_for_it,
    racing_coordinators_decide_alike,
    abort_comes_too_late_when_all_have_voted,
    first_vote_stands,
    bad_calls_are_refused,
}

async fn all_commit_when_all_vote_for_it(place: Place) {
    for form in [Form::Coordinator, Form::EverySite] {
        let (decision, calls) = run(&place, form, |_| false).await;
        assert_eq!(decision, Decision::Commit);
        for (site, calls) in SITES.iter().zip(calls) {
            assert_eq!(calls, [format!("prepare {site}"), format!("commit {site}")]);
        }
    }
}

async fn all_abort_when_one_votes_against_it(place: Place) {
    for form in [Form::Coordinator, Form::EverySite] {
        let (decision, calls) = run(&place, form, |site| site == "b").await;
        assert_eq!(decision, Decision::Abort);
        for (site, calls) in SITES.iter().zip(calls) {
            let abort = format!("abort {site}");
            let is_right = calls == [format!("prepare {site}"), abort.clone()] || calls == [abort];
            assert!(is_right, "{calls:?}");
        }
    }
}

/// One transaction among sites with separate sessions: returns the decision, and the calls of each site.
async fn run(
    place: &Place,
    form: Form,
    refuses: impl Fn(&str) -> bool,
) -> (Decision, Vec<Vec<String>>) {
    let mut coordinator = transactions(place, form)
        .await
        .begin(SITES, "move 7")
        .await
        .unwrap();
    let mut sites = Vec::new();
    for site in SITES {
        let actor = Actor {
            refuses: refuses(site),
            ..Actor::default()
        };
        sites.push(spawn(elsewhere(place, &coordinator).await, site, actor));
    }
    let decision = match form {
        Form::EverySite => soon(coordinator.decision()).await.unwrap(),
        _ => soon(coordinator.decide()).await.unwrap(),
    };
    let mut calls = Vec::new();
    for site in sites {
        let (decided, actor) = soon(site).await.unwrap();
        assert_eq!(decided.unwrap(), decision);
        calls.push(actor.calls);
    }
    let status = coordinator.status().await.unwrap();
    assert!(status.is_done(), "{status:?}");
    assert_eq!(status.payload, b"move 7");
    coordinator.forget().await.unwrap();
    drop(coordinator);
    place.until_children("/tx", 0).await;
    (decision, calls)
}

async fn abort_is_known_with_the_first_vote_for_it(place: Place) {
    for form in [Form::Coordinator, Form::EverySite] {
        let transactions = transactions(&place, form).await.no_deadline();
        let mut coordinator = transactions.begin(SITES, "").await.unwrap();
        let mut participation = coordinator.join("a").await.unwrap();
        participation.vote(Vote::Abort("no".into())).await.unwrap();
        if form == Form::Coordinator {
            assert_eq!(soon(coordinator.decide()).await.unwrap(), Decision::Abort);
        }
        // The other sites have not even joined.
        assert_eq!(
            soon(participation.decision()).await.unwrap(),
            Decision::Abort
        );
        let status = coordinator.status().await.unwrap();
        assert_eq!(status.missing().collect::<Vec<_>>(), ["b", "c"]);
    }
}

async fn racing_coordinators_decide_alike(place: Place) {
    let transactions = transactions(&place, Form::Coordinator).await;
    for round in 0..10 {
        let first = transactions.begin(SITES, "").await.unwrap();
        let mut racing = Vec::new();
        for racer in 0..4 {
            let mut other = elsewhere(&place, &first).await.coordinate().await.unwrap();
            racing.push(tokio::spawn(async move {
                match racer {
                    0 => other.abort("changed my mind").await,
                    _ => other.decide().await,
                }
            }));
        }
        for site in SITES {
            first.vote(site, Vote::Commit).await.unwrap();
        }
        let decision = soon(first.decision()).await.unwrap();
        for racer in racing {
            assert_eq!(soon(racer).await.unwrap().unwrap(), decision, "{round}");
        }
        let status = first.status().await.unwrap();
        assert_eq!(status.outcome(), Some(decision));
    }
}

async fn abort_comes_too_late_when_all_have_voted(place: Place) {
    let transactions = transactions(&place, Form::Coordinator).await;
    let mut coordinator = transactions.begin(["a"], "").await.unwrap();
    assert_eq!(coordinator.try_decide().await.unwrap(), None);
    coordinator.vote("a", Vote::Commit).await.unwrap();
    assert_eq!(coordinator.abort("late").await.unwrap(), Decision::Commit);
    let mut coordinator = transactions.begin(SITES, "").await.unwrap();
    coordinator.vote("a", Vote::Commit).await.unwrap();
    assert_eq!(coordinator.abort("early").await.unwrap(), Decision::Abort);
    let seen = coordinator.last_seen();
    assert!(seen.sites["a"].ballot.as_ref().unwrap().is_own);
    assert!(!seen.sites["b"].ballot.as_ref().unwrap().is_own);
}

async fn first_vote_stands(place: Place) {
    let transactions = transactions(&place, Form::Coordinator).await;
    let coordinator = transactions.begin(SITES, "").await.unwrap();
    let first = coordinator.vote("a", Vote::Commit).await.unwrap();
    let other = elsewhere(&place, &coordinator).await;
    let no = Vote::Abort("too late".into());
    assert_eq!(other.vote("a", no.clone()).await.unwrap(), first);
    let mut participation = other.join("a").await.unwrap();
    assert!(participation.has_voted());
    assert_eq!(*participation.vote(no).await.unwrap(), first);
}

async fn bad_calls_are_refused(place: Place) {
    let transactions = transactions(&place, Form::Coordinator).await;
    let none: [&str; 0] = [];
    let begun = transactions.begin(none, "").await;
    assert_fails!(begun, ErrorKind::BadSize { .. });
    for bad in ["", "a/b", ".."] {
        for error in [
            transactions.begin([bad], "").await.map(drop),
            transactions.begin_as(bad, ["a"], "").await.map(drop),
            transactions.transaction(bad).status().await.map(drop),
        ] {
            let is_bad = matches!(
                error,
                Err(Error {
                    kind: ErrorKind::BadPath(_),
                    ..
                })
            );
            assert!(is_bad, "{error:?}");
        }
    }
    let huge = transactions.begin(["a"], vec![0; 2_000_000]).await;
    assert_fails!(huge, ErrorKind::TooLarge { .. });
    let first = transactions.begin_as("x", ["a"], "").await.unwrap();
    let again = transactions.begin_as("x", ["a"], "").await;
    assert_fails!(again, ErrorKind::AlreadyBegun);
    for error in [
        first.join("b").await.map(drop),
        first.vote("b", Vote::Commit).await.map(drop),
        first.applied("b").await,
    ] {
        assert_fails!(error, ErrorKind::NotASite { .. });
    }
    let undecided = first.applied("a").await;
    assert_fails!(undecided, ErrorKind::Undecided);
    let undecided = first.join("a").await.unwrap().applied().await;
    assert_fails!(undecided, ErrorKind::Undecided);
    // The transaction is unchanged.
    place.until_children("/tx/x", 1).await;
}
