//! Counter, folder, membership and cache under random faults of one seed, on one server, at the same time.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use bellwether::cache::CacheEvent;
use bellwether::state::Entries;
use bellwether::{Cache, Client, ConfigFolder, Counter, Error, ErrorKind, Group, connect};
use bellwether_testkit::Op;
use futures_util::StreamExt;
use tokio::task::JoinSet;

use crate::support::place::soon;
use crate::support::storm::{SESSION_TIMEOUT, Storm};

const CLIENTS: usize = 4;
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

under_faults! {
    state_is_right_under_faults: async |storm| round(storm, &[]).await,
    state_is_right_without_persistent_watches: async |storm| round(storm, &[Op::AddWatch]).await,
}

/// Results that the clients have seen.
#[derive(Default)]
struct Told {
    acknowledged: AtomicI64,
    unknown: AtomicI64,
    is_over: AtomicBool,
}

/// `hidden` are operations that the server does not support.
async fn round(mut storm: Storm<'_>, hidden: &[Op]) {
    let seed = storm.seed;
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let proxy = storm.proxy().await;
        hidden.iter().for_each(|op| proxy.hide(*op));
        // A separate path for each seed.
        let address = format!("{}/{seed}", proxy.connect_string());
        let client = connect(address).session_timeout(SESSION_TIMEOUT);
        clients.push(client.await.unwrap());
        storm.expose(proxy, None);
    }
    let told = Arc::new(Told::default());
    let mut tasks = JoinSet::new();
    for client in &clients {
        tasks.spawn(count(client.clone(), told.clone()));
    }
    tasks.spawn(change(clients[0].clone(), told.clone()));
    tasks.spawn(read(clients[1].clone(), told.clone()));
    let group = Group::new(&clients[2], "/history/group");
    let member = Arc::new(soon(group.join_as("member", "0")).await.unwrap());
    let tree = soon(Cache::new(&clients[3], "/history").open())
        .await
        .unwrap();
    let changes = tokio::spawn(watch(tree.changes()));

    let updating = tokio::spawn({
        let (member, told) = (member.clone(), told.clone());
        async move {
            let mut latest = 0;
            while !told.is_over.load(Ordering::Relaxed) {
                latest += 1;
                member.update(latest.to_string()).await.unwrap();
            }
            latest
        }
    });
    storm.pass().await;

    told.is_over.store(true, Ordering::Relaxed);
    soon(tasks.join_all()).await;
    let latest = soon(updating).await.unwrap();
    let outside = connect(format!("{}/{seed}", storm.engine.connect_string()))
        .await
        .unwrap();
    let sum = Counter::new(&outside, "/history/counter")
        .get()
        .await
        .unwrap();
    let (acknowledged, unknown) = (
        told.acknowledged.load(Ordering::Relaxed),
        told.unknown.load(Ordering::Relaxed),
    );
    eprintln!("{acknowledged} additions, {unknown} unknown, {latest} updates of a member");
    assert!(acknowledged > 0);
    check_sum(acknowledged, unknown, sum).unwrap_or_else(|error| panic!("{error}, seed {seed}"));
    let members = Group::new(&outside, "/history/group")
        .members()
        .await
        .unwrap();
    let expected = [("member".to_owned(), latest.to_string().into_bytes())];
    assert_eq!(members, expected.into(), "seed {seed}");

    // Quiet now, except for receipts that are deleted with their sessions: a new copy equals the one that was kept.
    let fresh = soon(Cache::new(&outside, "/history").open()).await.unwrap();
    let mut news = (tree.changes(), fresh.changes());
    soon(async {
        while tree.snapshot() != fresh.snapshot() {
            tokio::select! {
                _ = news.0.next() => {}
                _ = news.1.next() => {}
            }
        }
    })
    .await;
    drop(tree);
    soon(changes)
        .await
        .unwrap()
        .unwrap_or_else(|error| panic!("{error}, seed {seed}"));
    Arc::into_inner(member).unwrap().leave().await;
}

/// Adds until the end.
async fn count(client: Client, told: Arc<Told>) {
    let counter = Counter::new(&client, "/history/counter");
    while !told.is_over.load(Ordering::Relaxed) {
        match counter.add(1).await {
            Ok(_) => told.acknowledged.fetch_add(1, Ordering::Relaxed),
            Err(Error {
                kind: ErrorKind::OutcomeUnknown(_),
                ..
            }) => told.unknown.fetch_add(1, Ordering::Relaxed),
            Err(Error {
                kind: ErrorKind::NoSession(_),
                ..
            }) => 0,
            Err(error) => panic!("{error}"),
        };
    }
}

/// Sets all values of a folder to the next number.
async fn change(client: Client, told: Arc<Told>) {
    let folder = ConfigFolder::new(&client, "/history/folder");
    let mut number = 0;
    while !told.is_over.load(Ordering::Relaxed) {
        number += 1;
        let fill = |all: &mut Entries| {
            for name in NAMES {
                all.insert(name.to_owned(), format!("{number:09}").into_bytes());
            }
        };
        match folder.update(fill).await {
            Ok(_)
            | Err(Error {
                kind: ErrorKind::OutcomeUnknown(_) | ErrorKind::NoSession(_),
                ..
            }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Sees no partial change, and no old value after a new one.
async fn read(client: Client, told: Arc<Told>) {
    let folder = ConfigFolder::new(&client, "/history/folder");
    let mut last = Vec::new();
    while !told.is_over.load(Ordering::Relaxed) {
        match folder.get().await {
            Ok(entries) if entries.is_empty() => assert!(last.is_empty()),
            Ok(entries) => {
                let numbers: Vec<_> = entries.values().collect();
                assert_eq!(numbers, vec![numbers[0]; NAMES.len()], "half a change");
                assert!(*numbers[0] >= last, "an old one after a new one");
                last.clone_from(numbers[0]);
            }
            Err(Error {
                kind: ErrorKind::NoSession(_),
                ..
            }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Listens to the end. Returns an error if a node went back.
async fn watch(mut changes: bellwether::cache::CacheChanges) -> Result<(), String> {
    let mut newest = HashMap::new();
    while let Some(change) = changes.next().await {
        if let CacheEvent::Changed { path, node } = change {
            check_forward(&mut newest, &path, node.mzxid)?;
        }
    }
    Ok(())
}

/// Checks that every acknowledged addition was made, and no other except those with an unknown result.
fn check_sum(acknowledged: i64, unknown: i64, sum: i64) -> Result<(), String> {
    match (acknowledged..=acknowledged + unknown).contains(&sum) {
        true => Ok(()),
        false => Err(format!(
            "{acknowledged} acknowledged, {unknown} unknown, but the sum is {sum}"
        )),
    }
}

fn check_forward(newest: &mut HashMap<String, i64>, path: &str, mzxid: i64) -> Result<(), String> {
    match newest.insert(path.to_owned(), mzxid) {
        Some(before) if before >= mzxid => {
            Err(format!("{path} went back from {before:#x} to {mzxid:#x}"))
        }
        _ => Ok(()),
    }
}

#[test]
fn checks_see_what_is_wrong() {
    assert!(check_sum(3, 0, 3).is_ok());
    assert!(check_sum(3, 2, 4).is_ok());
    assert!(check_sum(3, 0, 4).is_err(), "one was made twice");
    assert!(check_sum(3, 2, 2).is_err(), "one was lost");
    let mut newest = HashMap::new();
    assert!(check_forward(&mut newest, "/a", 2).is_ok());
    assert!(check_forward(&mut newest, "/b", 1).is_ok());
    assert!(check_forward(&mut newest, "/a", 3).is_ok());
    assert!(check_forward(&mut newest, "/a", 2).is_err());
}
