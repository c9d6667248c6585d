//! The same random operations through this client and through the crate `zookeeper-client`, to Apache and to the embedded server: the
//! same results and the same events.
//!
//! `BELLWETHER_COMPARISON_SEED` runs one sequence alone.

use bellwether_client::{
    Client, CreateMode, Error, ErrorCode, MultiError, MultiResult, PersistentEvent,
    PersistentWatch, Stat, Watch, WatchMode,
};
use futures_util::FutureExt as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use zookeeper_client as zk;

use crate::support::place::{Place, soon};

const SEQUENCES: u64 = 40;
const OPERATIONS: usize = 80;

/// Nodes that one-shot watches are armed at.
const WATCHED: [&str; 5] = ["/a", "/b", "/a/x", "/a/y", "/a/x/z"];
/// Nodes of persistent watches. They are different ones, because servers before 3.9 and the other client confuse the two kinds.
const PERSISTENT: &str = "/p";
const RECURSIVE: &str = "/r";
const OTHERS: [&str; 5] = ["/p", "/p/x", "/r", "/r/x", "/r/x/y"];

#[derive(Clone, Debug)]
enum Operation {
    Create(&'static str, u8, Kind),
    Delete(&'static str, Option<i32>),
    Set(&'static str, u8, Option<i32>),
    Get(&'static str, bool),
    Exists(&'static str, bool),
    Children(&'static str, bool),
    ChildrenStat(&'static str),
    Descendants(&'static str),
    Ephemerals(&'static str),
    Multi(Vec<Operation>),
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Persistent,
    Ephemeral,
    Sequential,
}

fn plan(seed: u64) -> Vec<Operation> {
    let mut random = StdRng::seed_from_u64(seed);
    (0..OPERATIONS).map(|_| operation(&mut random)).collect()
}

fn operation(random: &mut StdRng) -> Operation {
    let watched = *WATCHED.choose(random).unwrap();
    let any = *[WATCHED, OTHERS].concat().choose(random).unwrap();
    let watch = random.random_bool(0.5);
    match random.random_range(0..14) {
        0..7 => write(random),
        7 => Operation::Get(if watch { watched } else { any }, watch),
        8 => Operation::Exists(if watch { watched } else { any }, watch),
        9 => Operation::Children(if watch { watched } else { any }, watch),
        10 => Operation::ChildrenStat(any),
        11 => Operation::Descendants(any),
        12 => Operation::Ephemerals(any),
        _ => {
            let count = random.random_range(0..5);
            Operation::Multi((0..count).map(|_| write(random)).collect())
        }
    }
}

fn write(random: &mut StdRng) -> Operation {
    let path = *[WATCHED, OTHERS].concat().choose(random).unwrap();
    let version = random.random_bool(0.3).then(|| random.random_range(0..3));
    match random.random_range(0..4) {
        0 | 1 => {
            let kinds = [
                Kind::Persistent,
                Kind::Persistent,
                Kind::Ephemeral,
                Kind::Sequential,
            ];
            Operation::Create(path, random.random(), *kinds.choose(random).unwrap())
        }
        2 => Operation::Set(path, random.random(), version),
        _ => Operation::Delete(path, version),
    }
}

/// A result of either client, in the same form.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Told {
    Path(String, Option<Facts>),
    Data(Vec<u8>, Facts),
    Facts(Option<Facts>),
    Names(Vec<String>, Option<Facts>),
    Count(usize),
    Done,
    Refused(String),
    Multi(Vec<Told>),
    MultiRefused(usize, String),
    Events(Vec<Option<(String, String)>>),
}

/// The fields of a Stat that do not depend on the server.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Facts {
    versions: [i32; 3],
    data_length: i32,
    num_children: i32,
    is_own: bool,
    is_fresh: bool,
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names
}

// --- this client ------------------------------------------------------------------------------

async fn ours(place: &Place, plan: &[Operation]) -> Vec<Told> {
    let client = place.client().await;
    let mut persistent = client
        .watch(PERSISTENT, WatchMode::Persistent)
        .await
        .unwrap();
    let mut recursive = client.watch(RECURSIVE, WatchMode::Recursive).await.unwrap();
    let (mut told, mut watches) = (Vec::new(), Vec::new());
    for operation in plan {
        let result = our_result(&client, operation, &mut watches).await;
        told.push(result.unwrap_or_else(|error| match error {
            Error::Refused(code) => Told::Refused(our_code(code)),
            error => panic!("{operation:?}: {error:?}"),
        }));
    }
    client.sync("/").await.unwrap();
    let event = |event: bellwether_client::Event| (format!("{:?}", event.kind), event.path);
    let fired = watches.into_iter().map(|watch| {
        let fired = tokio::task::unconstrained(watch).now_or_never();
        fired.map(|fired| event(fired.unwrap()))
    });
    told.push(Told::Events(fired.collect()));
    for watch in [&mut persistent, &mut recursive] {
        told.push(Told::Events(our_events(watch)));
    }
    client.close().await;
    told
}

fn our_events(watch: &mut PersistentWatch) -> Vec<Option<(String, String)>> {
    let next = || tokio::task::unconstrained(watch.next()).now_or_never();
    let events = std::iter::from_fn(next).map(|event| match event.unwrap() {
        PersistentEvent::Node(event) => Some((format!("{:?}", event.kind), event.path)),
        PersistentEvent::Missed => None,
    });
    events.collect()
}

fn our_code(code: ErrorCode) -> String {
    format!("{code:?}")
}

fn our_facts(client: &Client, stat: &Stat) -> Facts {
    Facts {
        versions: [stat.version, stat.cversion, stat.aversion],
        data_length: stat.data_length,
        num_children: stat.num_children,
        is_own: stat.ephemeral_owner == client.session_id(),
        is_fresh: stat.czxid == stat.mzxid,
    }
}

async fn our_result(
    client: &Client,
    operation: &Operation,
    watches: &mut Vec<Watch>,
) -> Result<Told, Error> {
    let facts = |stat: &Stat| our_facts(client, stat);
    Ok(match operation {
        Operation::Create(path, data, kind) => {
            let created = client.create(path, &[*data], our_mode(*kind)).await?;
            Told::Path(created.path, Some(facts(&created.stat)))
        }
        Operation::Delete(path, version) => {
            client.delete(path, *version).await?;
            Told::Done
        }
        Operation::Set(path, data, version) => {
            let stat = client.set(path, &[*data, 0], *version).await?;
            Told::Facts(Some(facts(&stat)))
        }
        Operation::Get(path, true) => {
            let (data, stat, watch) = client.get_watched(path).await?;
            watches.push(watch);
            Told::Data(data.to_vec(), facts(&stat))
        }
        Operation::Get(path, false) => {
            let (data, stat) = client.get(path).await?;
            Told::Data(data.to_vec(), facts(&stat))
        }
        Operation::Exists(path, true) => {
            let (stat, watch) = client.exists_watched(path).await?;
            watches.push(watch);
            Told::Facts(stat.as_ref().map(facts))
        }
        Operation::Exists(path, false) => {
            Told::Facts(client.exists(path).await?.as_ref().map(facts))
        }
        Operation::Children(path, true) => {
            let (names, watch) = client.children_watched(path).await?;
            watches.push(watch);
            Told::Names(sorted(names), None)
        }
        Operation::Children(path, false) => Told::Names(sorted(client.children(path).await?), None),
        Operation::ChildrenStat(path) => {
            let (names, stat) = client.children_stat(path).await?;
            Told::Names(sorted(names), Some(facts(&stat)))
        }
        Operation::Descendants(path) => Told::Count(client.count_descendants(path).await?),
        Operation::Ephemerals(path) => Told::Names(sorted(client.ephemerals(path).await?), None),
        Operation::Multi(writes) => {
            let mut multi = client.new_multi();
            for write in writes {
                match write {
                    Operation::Create(path, data, kind) => {
                        multi.create(path, &[*data], our_mode(*kind));
                    }
                    Operation::Delete(path, version) => {
                        multi.delete(path, *version);
                    }
                    Operation::Set(path, data, version) => {
                        multi.set(path, &[*data, 0], *version);
                    }
                    read => unreachable!("{read:?}"),
                }
            }
            match multi.commit().await {
                Err(MultiError::Refused { index, code }) => {
                    Told::MultiRefused(index, our_code(code))
                }
                Err(error) => return Err(error.into()),
                Ok(results) => Told::Multi(
                    results
                        .into_iter()
                        .map(|result| match result {
                            // Not all servers send the Stat.
                            MultiResult::Created { path, .. } => Told::Path(path, None),
                            MultiResult::Set(stat) => Told::Facts(Some(facts(&stat))),
                            _ => Told::Done,
                        })
                        .collect(),
                ),
            }
        }
    })
}

fn our_mode(kind: Kind) -> CreateMode {
    match kind {
        Kind::Persistent => CreateMode::Persistent,
        Kind::Ephemeral => CreateMode::Ephemeral,
        Kind::Sequential => CreateMode::PersistentSequential,
    }
}

// --- the other client -------------------------------------------------------------------------

async fn theirs(place: &Place, plan: &[Operation]) -> Vec<Told> {
    let client = zk::Client::connect(&place.connect_string()).await.unwrap();
    let persistent = client.watch(PERSISTENT, zk::AddWatchMode::Persistent);
    let mut persistent = persistent.await.unwrap();
    let recursive = client.watch(RECURSIVE, zk::AddWatchMode::PersistentRecursive);
    let mut recursive = recursive.await.unwrap();
    let (mut told, mut watches) = (Vec::new(), Vec::new());
    for operation in plan {
        let result = their_result(&client, operation, &mut watches).await;
        told.push(result.unwrap_or_else(|error| Told::Refused(format!("{error:?}"))));
    }
    client.sync("/").await.unwrap();
    let event = |event: zk::WatchedEvent| (format!("{:?}", event.event_type), event.path);
    let fired = watches.into_iter().map(|watch: zk::OneshotWatcher| {
        let fired = tokio::task::unconstrained(watch.changed()).now_or_never();
        fired.map(event)
    });
    told.push(Told::Events(fired.collect()));
    for watch in [&mut persistent, &mut recursive] {
        let next = || tokio::task::unconstrained(watch.changed()).now_or_never();
        let events = std::iter::from_fn(next).map(|told| Some(event(told)));
        told.push(Told::Events(events.collect()));
    }
    told
}

fn their_facts(client: &zk::Client, stat: &zk::Stat) -> Facts {
    Facts {
        versions: [stat.version, stat.cversion, stat.aversion],
        data_length: stat.data_length,
        num_children: stat.num_children,
        is_own: stat.ephemeral_owner == client.session_id().0,
        is_fresh: stat.czxid == stat.mzxid,
    }
}

async fn their_result(
    client: &zk::Client,
    operation: &Operation,
    watches: &mut Vec<zk::OneshotWatcher>,
) -> Result<Told, zk::Error> {
    let facts = |stat: &zk::Stat| their_facts(client, stat);
    Ok(match operation {
        Operation::Create(path, data, kind) => {
            let options = their_mode(*kind).with_acls(zk::Acls::anyone_all());
            let (stat, sequence) = client.create(path, &[*data], &options).await?;
            let path = match kind {
                Kind::Sequential => format!("{path}{sequence}"),
                _ => (*path).to_owned(),
            };
            Told::Path(path, Some(facts(&stat)))
        }
        Operation::Delete(path, version) => {
            client.delete(path, *version).await?;
            Told::Done
        }
        Operation::Set(path, data, version) => {
            let stat = client.set_data(path, &[*data, 0], *version).await?;
            Told::Facts(Some(facts(&stat)))
        }
        Operation::Get(path, true) => {
            let (data, stat, watch) = client.get_and_watch_data(path).await?;
            watches.push(watch);
            Told::Data(data, facts(&stat))
        }
        Operation::Get(path, false) => {
            let (data, stat) = client.get_data(path).await?;
            Told::Data(data, facts(&stat))
        }
        Operation::Exists(path, true) => {
            let (stat, watch) = client.check_and_watch_stat(path).await?;
            watches.push(watch);
            Told::Facts(stat.as_ref().map(facts))
        }
        Operation::Exists(path, false) => {
            Told::Facts(client.check_stat(path).await?.as_ref().map(facts))
        }
        Operation::Children(path, true) => {
            let (names, watch) = client.list_and_watch_children(path).await?;
            watches.push(watch);
            Told::Names(sorted(names), None)
        }
        Operation::Children(path, false) => {
            Told::Names(sorted(client.list_children(path).await?), None)
        }
        Operation::ChildrenStat(path) => {
            let (names, stat) = client.get_children(path).await?;
            Told::Names(sorted(names), Some(facts(&stat)))
        }
        Operation::Descendants(path) => Told::Count(client.count_descendants_number(path).await?),
        Operation::Ephemerals(path) => {
            Told::Names(sorted(client.list_ephemerals(path).await?), None)
        }
        Operation::Multi(writes) => their_multi(client, writes).await?,
    })
}

async fn their_multi(client: &zk::Client, writes: &[Operation]) -> Result<Told, zk::Error> {
    let mut multi = client.new_multi_writer();
    for write in writes {
        match write {
            Operation::Create(path, data, kind) => {
                let options = their_mode(*kind).with_acls(zk::Acls::anyone_all());
                multi.add_create(path, &[*data], &options)?;
            }
            Operation::Delete(path, version) => multi.add_delete(path, *version)?,
            Operation::Set(path, data, version) => {
                multi.add_set_data(path, &[*data, 0], *version)?;
            }
            read => unreachable!("{read:?}"),
        }
    }
    Ok(match multi.commit().await {
        Err(zk::MultiWriteError::OperationFailed { index, source }) => {
            Told::MultiRefused(index, format!("{source:?}"))
        }
        Err(error) => return Err(error.into()),
        Ok(results) => Told::Multi(
            results
                .into_iter()
                .map(|result| match result {
                    zk::MultiWriteResult::Create { path, .. } => Told::Path(path, None),
                    zk::MultiWriteResult::SetData { stat } => {
                        Told::Facts(Some(their_facts(client, &stat)))
                    }
                    _ => Told::Done,
                })
                .collect(),
        ),
    })
}

fn their_mode(kind: Kind) -> zk::CreateMode {
    match kind {
        Kind::Persistent => zk::CreateMode::Persistent,
        Kind::Ephemeral => zk::CreateMode::Ephemeral,
        Kind::Sequential => zk::CreateMode::PersistentSequential,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_sequences_have_the_same_results_through_both_clients() {
    let seed = std::env::var("BELLWETHER_COMPARISON_SEED").map(|seed| seed.parse().unwrap());
    let seeds = match seed {
        Ok(seed) => seed..seed + 1,
        Err(_) => {
            let first = rand::random_range(0..1_000_000);
            first..first + SEQUENCES
        }
    };
    eprintln!("seeds {seeds:?}");
    let engines = [Place::embedded().await, Place::apache().await];
    for seed in seeds {
        let plan = plan(seed);
        let mut first: Option<Vec<Told>> = None;
        for (index, engine) in engines.iter().enumerate() {
            let fresh = engine.fresh().await;
            let ours = soon(ours(&fresh, &plan)).await;
            let fresh = engine.fresh().await;
            let theirs = soon(theirs(&fresh, &plan)).await;
            for (who, told) in [("this client", ours), ("zookeeper-client", theirs)] {
                let expected = first.get_or_insert_with(|| told.clone());
                for (step, (told, expected)) in told.iter().zip(&*expected).enumerate() {
                    let operation = plan.get(step);
                    assert_eq!(
                        told, expected,
                        "{who}, server {index}, BELLWETHER_COMPARISON_SEED={seed}, step {step}: {operation:?}"
                    );
                }
            }
        }
    }
}
