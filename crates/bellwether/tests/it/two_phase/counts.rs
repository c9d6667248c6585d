//! Cost of a transaction: requests and events, counted between clients and server (except the syncs of the tests). With a coordinator the
//! cost is linear in the number of sites; if every site counts, it is quadratic.

use bellwether::two_phase::{Decision, Form, Participation, Vote};
use bellwether::{Client, TwoPhase};
use bellwether_testkit::{Direction, FaultProxy};
use bellwether_wire::op::Op;
use tokio::task::JoinHandle;

use crate::line::counts::{LONG, expected, requests};
use crate::support::place::{Place, soon};

on_both_engines! {
    coordinator_makes_it_linear,
    every_site_makes_it_quadratic,
    beginning_and_joining_are_one_round_trip_each,
}

/// The sites of a transaction, each with a session of its own, all through one proxy.
struct Sites {
    proxy: FaultProxy,
    clients: Vec<Client>,
    names: Vec<String>,
}

impl Sites {
    async fn new(place: &Place, count: usize) -> Self {
        let (proxy, first) = place.counted().await;
        let mut clients = vec![first];
        while clients.len() < count {
            clients.push(place.client_through(&proxy, LONG).await);
        }
        Self {
            proxy,
            clients,
            names: (0..count).map(|site| format!("site-{site:02}")).collect(),
        }
    }

    async fn join(&self, id: &str) -> Vec<Participation> {
        let mut seats = Vec::new();
        for (client, name) in self.clients.iter().zip(&self.names) {
            let transaction = TwoPhase::new(client, "/tx").transaction(id);
            seats.push(transaction.join(name).await.unwrap());
        }
        seats
    }
}

/// Waits until `count` requests of a kind have passed.
async fn until(proxy: &FaultProxy, op: Op, count: usize) {
    soon(async {
        while proxy.count(op) < count {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(proxy.count(op), count, "{op:?}");
}

/// Waits until all requests of a session so far are answered, at the cost of one more request.
async fn answered(client: &Client) {
    client.raw().sync("/").await.unwrap();
}

/// A directory that is not empty, so that it is not deleted.
async fn directory(client: &Client) {
    let other = TwoPhase::new(client, "/tx").begin(["other"], "").await;
    drop(other.unwrap());
}

/// Waits for the decision, and marks it as done.
fn end(mut participation: Participation) -> JoinHandle<()> {
    tokio::spawn(async move {
        assert_eq!(participation.decision().await.unwrap(), Decision::Commit);
        participation.applied().await.unwrap();
    })
}

async fn coordinator_makes_it_linear(place: Place) {
    for n in [2, 5, 10] {
        let sites = Sites::new(&place, n).await;
        let (proxy, client) = place.counted().await;
        directory(&client).await;
        until(&proxy, Op::Delete, 2).await;
        for proxy in [&sites.proxy, &proxy] {
            proxy.reset_counts();
        }
        let mut coordinator = TwoPhase::new(&client, "/tx")
            .begin(sites.names.clone(), "")
            .await
            .unwrap();
        let seats = sites.join(coordinator.id()).await;
        let deciding = tokio::spawn(async move { coordinator.decide().await.unwrap() });
        until(&proxy, Op::GetChildren, 1).await;
        answered(&client).await;
        // One vote after the other is the worst case: concurrent votes are read together.
        let mut ends = Vec::new();
        for (site, mut participation) in seats.into_iter().enumerate() {
            if site == n - 1 {
                // The last site has to wait like the others.
                proxy.hold(Direction::ToServer);
            }
            participation.vote(Vote::Commit).await.unwrap();
            ends.push(end(participation));
            until(&sites.proxy, Op::Exists, site + 1).await;
            answered(&sites.clients[site]).await;
            proxy.resume(Direction::ToServer);
            until(&proxy, Op::GetChildren, site + 2).await;
            until(&proxy, Op::GetData, site + 1).await;
        }
        assert_eq!(soon(deciding).await.unwrap(), Decision::Commit);
        for end in ends {
            soon(end).await.unwrap();
        }
        // The coordinator's node, and the receipt of the begin.
        until(&proxy, Op::Delete, 2).await;
        until(&sites.proxy, Op::Delete, n).await;
        assert_eq!(
            requests(&proxy),
            expected([
                (Op::Multi, 1),
                (Op::Create2, 2),
                (Op::GetChildren, n + 1),
                (Op::GetData, n),
                (Op::Delete, 2),
                (Op::Sync, 1),
            ])
        );
        assert_eq!(
            requests(&sites.proxy),
            expected([
                (Op::Create2, 2 * n),
                (Op::Multi, n),
                (Op::GetChildren, n),
                (Op::GetData, 2 * n),
                (Op::Exists, n),
                (Op::Delete, n),
                (Op::Sync, n),
            ])
        );
        // The coordinator gets an event for each vote and for its own decision, and each site one for the decision.
        assert_eq!((proxy.events(), sites.proxy.events()), (n + 1, n));
    }
}

async fn every_site_makes_it_quadratic(place: Place) {
    for n in [2, 5, 10] {
        let sites = Sites::new(&place, n).await;
        let client = place.client().await;
        directory(&client).await;
        let transactions = TwoPhase::new(&client, "/tx").form(Form::EverySite);
        let begun = transactions.begin(sites.names.clone(), "").await.unwrap();
        let id = begun.id().to_owned();
        drop(begun);
        place.until_children(&format!("/tx/{id}"), 0).await;
        sites.proxy.reset_counts();
        let seats = sites.join(&id).await;
        let (mut looks, mut reads) = (n, n);
        let mut ends = Vec::new();
        for (before, mut participation) in seats.into_iter().enumerate() {
            participation.vote(Vote::Commit).await.unwrap();
            // It reads the votes, and the sites before it read again: each reads what is new to it.
            ends.push(tokio::spawn(async move {
                assert_eq!(participation.decision().await.unwrap(), Decision::Commit);
                participation
            }));
            looks += 1 + before;
            reads += 2 * before;
            until(&sites.proxy, Op::GetChildren, looks).await;
            answered(&sites.clients[before]).await;
            if before < n - 1 {
                until(&sites.proxy, Op::GetData, reads).await;
            }
        }
        // Sites that decided together have to read which decision was first.
        reads += n - 1;
        until(&sites.proxy, Op::GetData, reads).await;
        assert_eq!(looks, 2 * n + n * (n - 1) / 2);
        assert_eq!(reads, n + n * (n - 1) + (n - 1));
        let events = sites.proxy.events();
        assert!((n * (n - 1) / 2..=n * (n + 1) / 2).contains(&events));
        for end in ends {
            let participation = soon(end).await.unwrap();
            participation.applied().await.unwrap();
        }
        assert_eq!(sites.proxy.count(Op::Multi), n);
        // Presence, vote, and the decision of sites that did not see it yet.
        let creates = sites.proxy.count(Op::Create2);
        assert!((2 * n + 1..=3 * n).contains(&creates), "{creates} of {n}");
    }
}

async fn beginning_and_joining_are_one_round_trip_each(place: Place) {
    let (proxy, client) = place.counted().await;
    directory(&client).await;
    until(&proxy, Op::Delete, 2).await;
    proxy.reset_counts();
    // All requests that are needed are sent without waiting for a reply.
    proxy.hold(Direction::ToClient);
    let transactions = TwoPhase::new(&client, "/tx");
    let begin = {
        let transactions = transactions.clone();
        tokio::spawn(async move { transactions.begin_as("x", ["a"], "").await })
    };
    until(&proxy, Op::Multi, 1).await;
    until(&proxy, Op::Create2, 1).await;
    proxy.resume(Direction::ToClient);
    let _coordinator = soon(begin).await.unwrap().unwrap();
    proxy.reset_counts();
    proxy.hold(Direction::ToClient);
    let join = tokio::spawn(async move { transactions.transaction("x").join("a").await });
    until(&proxy, Op::Create2, 1).await;
    until(&proxy, Op::GetData, 1).await;
    until(&proxy, Op::GetChildren, 1).await;
    proxy.resume(Direction::ToClient);
    let _seat = soon(join).await.unwrap().unwrap();
    let sent = [(Op::Create2, 1), (Op::GetData, 1), (Op::GetChildren, 1)];
    assert_eq!(requests(&proxy), expected(sent));
}
