//! Two-phase commit where nothing but the sites themselves goes wrong.

mod crashes;
mod histories;
mod witness;

use std::time::Duration;

use bellwether::blocking::{Wait, iter};
use bellwether::{
    DeadSite, Decision, Form, Participant, ParticipateError, Proposal, Seat, StateError, Status,
    Transaction, TransactionError, TwoPhase, Vote,
};
use bellwether_server::proto::op::Op;
use futures_util::StreamExt;

use crate::place::{Place, SESSION_TIMEOUT, expire, soon};

on_both_engines! {
    all_commit_when_all_vote_for_it,
    all_abort_when_one_votes_against_it,
    abort_is_known_with_the_first_vote_for_it,
    dead_site_aborts_or_is_waited_for,
    missing_vote_is_one_to_abort_after_the_deadline,
    site_takes_over_after_the_deadline,
    coordinator_is_followed_by_another,
    racing_coordinators_decide_alike,
    abort_comes_too_late_when_all_have_voted,
    first_vote_stands,
    status_is_seen_without_taking_part,
    progress_tells_who_is_missing,
    failed_handler_is_called_again,
    done_transactions_are_forgotten,
    tombstone_keeps_the_decision,
    invitations_tell_what_is_open_and_what_is_new,
    bad_calls_are_refused,
    lost_replies_change_nothing,
    new_session_goes_on,
    plain_threads_take_part,
}

const SITES: [&str; 3] = ["a", "b", "c"];

/// Says what it was told to, and notes what it is called for.
#[derive(Default)]
struct Actor {
    refuses: bool,
    /// How many calls fail before one succeeds.
    failures: usize,
    calls: Vec<String>,
}

impl Actor {
    fn call(&mut self, what: &str, proposal: &Proposal) -> Result<(), String> {
        self.calls.push(format!("{what} {}", proposal.site()));
        match self.failures.checked_sub(1) {
            Some(left) => {
                self.failures = left;
                Err(format!("cannot {what}"))
            }
            None => Ok(()),
        }
    }
}

impl Participant for Actor {
    type Error = String;

    async fn prepare(&mut self, proposal: &Proposal) -> Result<Vote, String> {
        self.call("prepare", proposal)?;
        Ok(match self.refuses {
            true => Vote::Abort("will not".into()),
            false => Vote::Commit,
        })
    }

    async fn commit(&mut self, proposal: &Proposal) -> Result<(), String> {
        self.call("commit", proposal)
    }

    async fn abort(&mut self, proposal: &Proposal) -> Result<(), String> {
        self.call("abort", proposal)
    }
}

/// Transactions, seen through a session of their own.
async fn transactions(place: &Place, form: Form) -> TwoPhase {
    TwoPhase::new(&place.client().await, "/tx").form(form)
}

/// The same ones, through another session.
async fn elsewhere(place: &Place, transaction: &Transaction) -> Transaction {
    TwoPhase::new(&place.client().await, "/tx").transaction(transaction.id())
}

/// Takes part in a task of its own.
fn spawn(
    transaction: Transaction,
    site: &'static str,
    mut actor: Actor,
) -> tokio::task::JoinHandle<(Result<Decision, ParticipateError<String>>, Actor)> {
    tokio::spawn(async move {
        let decision = transaction.participate(site, &mut actor).await;
        (decision, actor)
    })
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

/// One transaction among sites with sessions of their own: the decision, and what each was called for.
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
    assert!(place.children("/tx").await.is_empty());
    (decision, calls)
}

async fn abort_is_known_with_the_first_vote_for_it(place: Place) {
    for form in [Form::Coordinator, Form::EverySite] {
        let transactions = transactions(&place, form).await.no_deadline();
        let mut coordinator = transactions.begin(SITES, "").await.unwrap();
        let mut seat = coordinator.join("a").await.unwrap();
        seat.vote(Vote::Abort("no".into())).await.unwrap();
        if form == Form::Coordinator {
            assert_eq!(soon(coordinator.decide()).await.unwrap(), Decision::Abort);
        }
        // The others have not even come.
        assert_eq!(soon(seat.decision()).await.unwrap(), Decision::Abort);
        let status = coordinator.status().await.unwrap();
        assert_eq!(status.missing().collect::<Vec<_>>(), ["b", "c"]);
    }
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
        // Whoever counts has seen that it is there.
        soon(async {
            while counting.count(Op::GetChildren) == 0 {
                client.raw().sync("/").await.unwrap();
            }
        })
        .await;
        client.raw().sync("/").await.unwrap();
        proxy.refuse(true);
        proxy.expire_session().await.unwrap();
        match dead_site {
            DeadSite::Abort => {
                assert_eq!(soon(deciding).await.unwrap().unwrap(), Decision::Abort);
                let status = seen.status().await.unwrap();
                let ballot = status.sites["b"].ballot.clone().unwrap();
                assert!(!ballot.is_own);
                assert_eq!(ballot.vote, Vote::Abort("the site is gone".into()));
                // It comes back, and cannot vote any more.
                proxy.refuse(false);
                let mut late = seen.join("b").await.unwrap();
                assert_eq!(*late.vote(Vote::Commit).await.unwrap(), ballot);
                assert_eq!(late.decision().await.unwrap(), Decision::Abort);
            }
            _ => {
                let gone = |status: &Status| !status.sites["b"].is_here;
                until_status(&seen, gone).await;
                assert!(!deciding.is_finished());
                let mut late = seen.join("b").await.unwrap();
                late.vote(Vote::Commit).await.unwrap();
                assert_eq!(soon(deciding).await.unwrap().unwrap(), Decision::Commit);
            }
        }
        drop(dying);
    }
}

async fn until_watches(place: &Place, count: usize) {
    soon(async {
        while place.watches().await != count {
            place.outside().sync("/").await.unwrap();
        }
    })
    .await;
}

async fn until_status(transaction: &Transaction, is_so: impl Fn(&Status) -> bool) -> Status {
    let mut progress = transaction.progress();
    soon(async {
        loop {
            let status = progress.next().await.unwrap().unwrap();
            if is_so(&status) {
                return status;
            }
        }
    })
    .await
}

async fn missing_vote_is_one_to_abort_after_the_deadline(place: Place) {
    for form in [Form::Coordinator, Form::EverySite] {
        let transactions = transactions(&place, form).await;
        let mut coordinator = transactions
            .deadline(Duration::from_millis(300))
            .begin(["a", "b"], "")
            .await
            .unwrap();
        let mut seat = coordinator.join("a").await.unwrap();
        assert!(seat.proposal().time_left().unwrap() <= Duration::from_millis(300));
        seat.vote(Vote::Commit).await.unwrap();
        let decision = match form {
            Form::EverySite => soon(seat.decision()).await,
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
        let mut seats: Vec<Seat> = Vec::new();
        for site in &votes {
            let mut seat = transaction.join(site).await.unwrap();
            seat.vote(Vote::Commit).await.unwrap();
            seats.push(seat);
        }
        let expected = match votes.len() {
            2 => Decision::Commit,
            _ => Decision::Abort,
        };
        for mut seat in seats {
            assert_eq!(soon(seat.decision()).await.unwrap(), expected);
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
    // Another process finds it, and that nobody is at it.
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
    let mut seat = other.join("a").await.unwrap();
    assert!(seat.has_voted());
    assert_eq!(*seat.vote(no).await.unwrap(), first);
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
    assert!(matches!(waited, Err(TransactionError::TimedOut { .. })));
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
    // It ends by itself, when all are done.
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
    assert!(matches!(failed, Err(ParticipateError::Handler(_))));
    let status = coordinator.status().await.unwrap();
    assert_eq!(status.sites["a"].ballot, None);
    actor.calls.clear();
    // The vote succeeds, and the commit does not.
    let mut seat = coordinator.join("a").await.unwrap();
    seat.vote(Vote::Commit).await.unwrap();
    drop(seat);
    actor.failures = 1;
    let failed = soon(coordinator.participate("a", &mut actor)).await;
    assert!(matches!(failed, Err(ParticipateError::Handler(_))));
    let decision = soon(coordinator.participate("a", &mut actor)).await;
    assert_eq!(decision.unwrap(), Decision::Commit);
    assert_eq!(actor.calls, ["commit a", "commit a"]);
    // What is done is not done again.
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
        Err(TransactionError::NotDone { sites, .. }) => assert_eq!(sites, ["a", "b"]),
        other => panic!("{other:?}"),
    }
    let day = Duration::from_secs(86_400);
    assert!(transactions.clean_up(day).await.unwrap().is_empty());
    let mut expected = ids[..2].to_vec();
    expected.sort();
    let forgotten = transactions.clean_up(Duration::ZERO).await.unwrap();
    assert_eq!(forgotten, expected);
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
        assert!(matches!(error, Err(TransactionError::NotFound { .. })));
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
        // Those who come back do as was decided, and then there is nothing left to know.
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
        // There is not even a directory.
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
    soon(next.participate("a", &mut Actor::default()))
        .await
        .unwrap();
    // Another process of the same site finds what is left, and not what is done.
    first.vote("a", Vote::Commit).await.unwrap();
    let mut anew = transactions.invitations("a");
    assert_eq!(soon(anew.next()).await.unwrap().unwrap().id(), "1");
    transactions.begin_as("0", ["a"], "").await.unwrap();
    assert_eq!(soon(anew.next()).await.unwrap().unwrap().id(), "0");
    assert_eq!(soon(invitations.next()).await.unwrap().unwrap().id(), "0");
    drop((anew, invitations));
    place.until_no_watches().await;
}

async fn bad_calls_are_refused(place: Place) {
    let transactions = transactions(&place, Form::Coordinator).await;
    let none: [&str; 0] = [];
    let begun = transactions.begin(none, "").await;
    assert!(matches!(begun, Err(TransactionError::BadSites { .. })));
    for bad in ["", "a/b", ".."] {
        for error in [
            transactions.begin([bad], "").await.map(drop),
            transactions.begin_as(bad, ["a"], "").await.map(drop),
            transactions.transaction(bad).status().await.map(drop),
        ] {
            let is_bad = matches!(
                error,
                Err(TransactionError::State(StateError::BadPath { .. }))
            );
            assert!(is_bad, "{error:?}");
        }
    }
    let huge = transactions.begin(["a"], vec![0; 2_000_000]).await;
    assert!(matches!(
        huge,
        Err(TransactionError::State(StateError::TooLarge { .. }))
    ));
    let first = transactions.begin_as("x", ["a"], "").await.unwrap();
    let again = transactions.begin_as("x", ["a"], "").await;
    assert!(matches!(again, Err(TransactionError::AlreadyBegun { .. })));
    for error in [
        first.join("b").await.map(drop),
        first.vote("b", Vote::Commit).await.map(drop),
        first.applied("b").await,
    ] {
        assert!(matches!(error, Err(TransactionError::NotASite { .. })));
    }
    // What was begun is as it was.
    place.until_children("/tx/x", 1).await;
}

async fn lost_replies_change_nothing(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let transactions = TwoPhase::new(&client, "/tx");
    transactions.begin(["z"], "").await.unwrap();
    // The reply of each create and of each look.
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
        // Both are there again.
        let back = |status: &Status| status.sites["a"].is_here && status.coordinators == 1;
        until_status(&seen, back).await;
        seen.vote("b", Vote::Commit).await.unwrap();
        assert_eq!(soon(deciding).await.unwrap().unwrap(), Decision::Commit);
        let (decision, actor) = soon(site).await.unwrap();
        assert_eq!(decision.unwrap(), Decision::Commit);
        assert_eq!(actor.calls, ["prepare a", "commit a"]);
    }
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
