//! A crash of each role at each point: before and after each of its requests, and around each of its handlers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bellwether::two_phase::{Decision, Form, Transaction};
use bellwether::{Error, ErrorKind, TwoPhase};
use bellwether_testkit::{Cut, Fault, FaultProxy, SeenRequest};
use bellwether_wire::op::Op;
use futures_util::StreamExt;
use tokio::task::JoinHandle;

use super::witness::{Notes, SITES, Witness};
use crate::support::place::{Place, SESSION_TIMEOUT, soon};

on_both_engines! {
    site_may_crash_at_every_request,
    site_may_crash_in_every_handler,
    coordinator_may_crash_at_every_request,
}

const FORMS: [Form; 2] = [Form::Coordinator, Form::EverySite];

/// When a process dies, relative to its request.
#[derive(Clone, Copy, Debug)]
enum When {
    /// The servers do not receive it.
    Before,
    /// They carry it out, but the process is gone when the reply arrives.
    After,
}

/// Lets `point` requests pass, and cuts the connection at the next. No other connection follows.
fn die_at(proxy: &FaultProxy, when: When, point: usize) -> Fault {
    let left = AtomicUsize::new(point);
    let is_it = move |request: &SeenRequest| {
        let pass = |left: usize| left.checked_sub(1);
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        request.op != Op::Ping && left.fetch_update(set, fetch, pass).is_err()
    };
    proxy.refuse(true);
    match when {
        When::Before => proxy.drop_request_where(is_it),
        When::After => proxy.swallow_reply_where(is_it),
    }
}

/// Takes part as a separate process, as far as the servers can tell.
fn take_part(transaction: Transaction, mut witness: Witness) -> JoinHandle<Decision> {
    tokio::spawn(async move {
        let site = SITES[witness.site];
        let decision = transaction.participate(site, &mut witness).await.unwrap();
        let notes = witness.notes;
        notes.told(transaction.id(), Some(witness.site), decision);
        decision
    })
}

async fn transactions(place: &Place, form: Form) -> TwoPhase {
    // Nothing here ends by a timeout.
    TwoPhase::new(&place.client().await, "/tx")
        .form(form)
        .no_deadline()
}

async fn site_may_crash_at_every_request(place: Place) {
    for form in FORMS {
        for when in [When::Before, When::After] {
            let mut point = 0;
            while crash_of_a_site(&place, form, Some((when, point)), None).await {
                point += 1;
            }
            assert!(point > 5, "{form:?} {when:?}: {point} requests");
        }
    }
}

async fn site_may_crash_in_every_handler(place: Place) {
    for form in FORMS {
        for refuses in [false, true] {
            let mut point = 0;
            while crash_of_a_site(&place, form, None, Some((point, refuses))).await {
                point += 1;
            }
            assert_eq!(point, 4, "two handlers of two points each");
        }
    }
}

/// One transaction in which the first site dies at a request or in a handler, and returns. Returns false if the transaction ended before
/// that.
async fn crash_of_a_site(
    place: &Place,
    form: Form,
    request: Option<(When, usize)>,
    handler: Option<(usize, bool)>,
) -> bool {
    let notes = Notes::default();
    let transactions = transactions(place, form).await;
    let mut coordinator = transactions.begin(SITES, "").await.unwrap();
    let transaction = transactions.transaction(coordinator.id());
    let mut others = Vec::new();
    for site in 1..SITES.len() {
        let other = TwoPhase::new(&place.client().await, "/tx").transaction(coordinator.id());
        others.push(take_part(other, Witness::new(site, &notes)));
    }
    let deciding = tokio::spawn(async move { coordinator.decide().await.unwrap() });

    let mut witness = Witness::new(0, &notes);
    if let Some((point, refuses)) = handler {
        (witness.points_left, witness.refuses) = (Some(point), refuses);
    }
    let died = witness.died.clone();
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let dying = TwoPhase::new(&client, "/tx").transaction(transaction.id());
    let fault = request.map(|(when, point)| die_at(&proxy, when, point));
    let mut dying = take_part(dying, witness);
    let is_dead = tokio::select! {
        _ = &mut dying => false,
        () = died.notified() => true,
        () = happened(fault) => true,
    };
    if is_dead {
        // The process is dead, and so are its connection and, soon, its session.
        proxy.refuse(true);
        proxy.cut(Cut::Reset).await;
        dying.abort();
        proxy.expire_session().await.unwrap();
        let mut back = Witness::new(0, &notes);
        back.refuses = handler.is_some_and(|(_, refuses)| refuses);
        soon(take_part(transaction.clone(), back)).await.unwrap();
    }
    let decision = soon(deciding).await.unwrap();
    for other in others {
        assert_eq!(soon(other).await.unwrap(), decision);
    }
    finish(
        &transactions,
        &notes,
        &format!("{form:?} {request:?} {handler:?}"),
    )
    .await;
    is_dead
}

async fn happened(fault: Option<Fault>) {
    match fault {
        Some(fault) => fault.happened().await.unwrap(),
        None => std::future::pending().await,
    }
}

/// All processes have reached the end, everything is correct, and nothing is left.
async fn finish(transactions: &TwoPhase, notes: &Notes, of: &str) {
    assert!(transactions.in_doubt().await.unwrap().is_empty(), "{of}");
    if let Err(wrong) = notes.check(transactions).await {
        panic!("{of}: {wrong}");
    }
    let forgotten = transactions.clean_up(Duration::ZERO).await.unwrap();
    assert_eq!(forgotten.len(), 1, "{of}");
}

async fn coordinator_may_crash_at_every_request(place: Place) {
    for form in FORMS {
        for when in [When::Before, When::After] {
            let mut point = 0;
            while crash_of_a_coordinator(&place, form, when, point).await {
                point += 1;
            }
            assert!(point > 4, "{form:?} {when:?}: {point} requests");
        }
    }
}

async fn crash_of_a_coordinator(place: &Place, form: Form, when: When, point: usize) -> bool {
    let notes = Notes::default();
    let transactions = transactions(place, form).await;
    let mut sites = Vec::new();
    for (site, name) in SITES.into_iter().enumerate() {
        let mut invitations = TwoPhase::new(&place.client().await, "/tx").invitations(name);
        let notes = notes.clone();
        sites.push(tokio::spawn(async move {
            let invitation = invitations.next().await.unwrap().unwrap();
            let transaction = invitation.transaction().clone();
            take_part(transaction, Witness::new(site, &notes))
                .await
                .unwrap()
        }));
    }
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let dying = TwoPhase::new(&client, "/tx").form(form).no_deadline();
    let fault = die_at(&proxy, when, point);
    let mut dying = tokio::spawn(async move { coordinate(&dying).await });
    let is_dead = tokio::select! {
        decision = &mut dying => {
            notes.told("order-7", None, decision.unwrap());
            false
        }
        () = happened(Some(fault)) => true,
    };
    if is_dead {
        dying.abort();
        proxy.expire_session().await.unwrap();
        let decision = soon(coordinate(&transactions)).await;
        notes.told("order-7", None, decision);
    }
    for site in sites {
        soon(site).await.unwrap();
    }
    finish(&transactions, &notes, &format!("{form:?} {when:?} {point}")).await;
    is_dead
}

/// Begins a transaction, or continues one from an earlier life, to the end.
async fn coordinate(transactions: &TwoPhase) -> Decision {
    let mut coordinator = match transactions.begin_as("order-7", SITES, "").await {
        Err(Error {
            kind: ErrorKind::AlreadyBegun,
            ..
        }) => {
            let transaction = transactions.transaction("order-7");
            transaction.coordinate().await.unwrap()
        }
        begun => begun.unwrap(),
    };
    coordinator.decide().await.unwrap()
}
