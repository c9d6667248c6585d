//! Counter, folder, membership and cache under random faults of one seed, on one server, at the same time.
//!
//! `BELLWETHER_HISTORIES_SEED` makes the same faults come again, and `BELLWETHER_HISTORIES_SECONDS` makes them last.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use bellwether::{
    Cache, CacheEvent, Client, ConfigFolder, Counter, Entries, Group, StateError, connect,
};
use bellwether_testkit::{Climate, Engine, FaultProxy, Forecast, Op, Recorder, Target, Weather};
use futures_util::StreamExt;
use tokio::task::JoinSet;

use crate::place::soon;
use crate::weather_settings;

const CLIENTS: usize = 4;
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// How long faults go on, unless told otherwise.
const FAULTS: Duration = Duration::from_secs(5);

const CLIMATE: Climate = Climate {
    contenders: CLIENTS,
    session_timeout: Duration::from_secs(1),
    calm_max: Duration::from_millis(200),
};

#[tokio::test(flavor = "multi_thread")]
async fn state_is_right_under_faults_on_the_embedded_server() {
    round(Engine::embedded().await.unwrap(), &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn state_is_right_under_faults_on_apache() {
    round(Engine::apache().await.unwrap(), &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn state_is_right_without_persistent_watches_on_the_embedded_server() {
    round(Engine::embedded().await.unwrap(), &[Op::AddWatch]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn state_is_right_without_persistent_watches_on_apache() {
    round(Engine::apache().await.unwrap(), &[Op::AddWatch]).await;
}

/// What the clients have been told.
#[derive(Default)]
struct Told {
    acknowledged: AtomicI64,
    unknown: AtomicI64,
    is_over: AtomicBool,
}

/// `hidden` are operations that the server does not know.
async fn round(mut engine: Engine, hidden: &[Op]) {
    let seed = weather_settings::seed();
    let faults = weather_settings::duration().unwrap_or(FAULTS);
    let (mut targets, mut clients) = (Vec::new(), Vec::new());
    for _ in 0..CLIENTS {
        let proxy = FaultProxy::start(engine.addresses()[0]).await.unwrap();
        hidden.iter().for_each(|op| proxy.hide(*op));
        let client = connect(proxy.connect_string()).session_timeout(CLIMATE.session_timeout);
        clients.push(client.await.unwrap());
        targets.push(Arc::new(Target {
            proxy,
            process: None,
        }));
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

    let recorder = Recorder::new(seed);
    let mut weather = Weather {
        targets: &targets,
        engine: &mut engine,
        recorder: &recorder,
    };
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
    weather
        .pass(Forecast::new(seed, CLIMATE), faults)
        .await
        .unwrap();

    told.is_over.store(true, Ordering::Relaxed);
    soon(tasks.join_all()).await;
    let latest = soon(updating).await.unwrap();
    let outside = connect(engine.connect_string()).await.unwrap();
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

    // Quiet now, but for receipts that go with their sessions: a copy made now equals the one that was kept.
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

/// Adds until it is over.
async fn count(client: Client, told: Arc<Told>) {
    let counter = Counter::new(&client, "/history/counter");
    while !told.is_over.load(Ordering::Relaxed) {
        match counter.add(1).await {
            Ok(_) => told.acknowledged.fetch_add(1, Ordering::Relaxed),
            Err(StateError::OutcomeUnknown { .. }) => told.unknown.fetch_add(1, Ordering::Relaxed),
            Err(StateError::NoSession { .. }) => 0,
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
            Ok(_) | Err(StateError::OutcomeUnknown { .. } | StateError::NoSession { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Sees no half of a change, and no old one after a new one.
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
            Err(StateError::NoSession { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Listens to the end, and tells whether a node went back.
async fn watch(mut changes: bellwether::CacheChanges) -> Result<(), String> {
    let mut newest = HashMap::new();
    while let Some(change) = changes.next().await {
        if let CacheEvent::Changed { path, node } = change {
            check_forward(&mut newest, &path, node.mzxid)?;
        }
    }
    Ok(())
}

/// Every addition that was acknowledged was made, and no other but those of which nobody knows.
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
