//! What a session restores after a lost connection.

use std::time::Duration;

use bellwether_client::{Client, CreateMode, Error, EventKind, PersistentEvent, WatchMode};
use bellwether_testkit::{Cut, FaultProxy, Op};
use futures_util::FutureExt as _;

use crate::support::place::{Place, create, soon, until_connections, until_down};

on_both_engines! {
    watches_of_each_kind_are_armed_again,
    changes_while_disconnected_are_told_once,
    a_watch_that_waits_for_a_connection_is_armed_by_its_request_alone,
    five_thousand_watches_survive_a_reconnect_storm,
}

const SESSION_TIMEOUT: Duration = Duration::from_secs(40);

/// Cuts the connection, and keeps new ones away until `meanwhile` is done.
async fn without_connection(
    proxy: &FaultProxy,
    client: &Client,
    meanwhile: impl Future<Output = ()>,
) {
    let before = client.connections();
    proxy.refuse(true);
    proxy.cut(Cut::Reset).await;
    until_down(client).await;
    meanwhile.await;
    proxy.refuse(false);
    until_connections(client, before + 1).await;
}

async fn watches_of_each_kind_are_armed_again(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let other = place.client().await;
    create(&client, "/n").await;
    let (_, _, data) = client.get_watched("/n").await.unwrap();
    let (_, missing) = client.exists_watched("/missing").await.unwrap();
    let (_, children) = client.children_watched("/n").await.unwrap();
    without_connection(&proxy, &client, async {}).await;
    client.sync("/").await.unwrap();
    // Servers before 3.6 know nothing else.
    assert_eq!(
        (proxy.count(Op::SetWatches), proxy.count(Op::SetWatches2)),
        (1, 0)
    );
    let mut persistent = client.watch("/p", WatchMode::Persistent).await.unwrap();
    let mut recursive = client.watch("/r", WatchMode::Recursive).await.unwrap();
    without_connection(&proxy, &client, async {}).await;
    client.sync("/").await.unwrap();
    assert_eq!(
        (proxy.count(Op::SetWatches), proxy.count(Op::SetWatches2)),
        (1, 1)
    );
    for watch in [&mut persistent, &mut recursive] {
        assert_eq!(soon(watch.next()).await, Ok(PersistentEvent::Missed));
    }
    other.set("/n", b"", None).await.unwrap();
    for path in ["/missing", "/n/c", "/p", "/r", "/r/deep"] {
        create(&other, path).await;
    }
    assert_eq!(soon(data).await.unwrap().kind, EventKind::NodeDataChanged);
    assert_eq!(soon(missing).await.unwrap().kind, EventKind::NodeCreated);
    assert_eq!(
        soon(children).await.unwrap().kind,
        EventKind::NodeChildrenChanged
    );
    for (watch, paths) in [
        (&mut persistent, vec!["/p"]),
        (&mut recursive, vec!["/r", "/r/deep"]),
    ] {
        for path in paths {
            let Ok(PersistentEvent::Node(event)) = soon(watch.next()).await else {
                panic!("the end of a session");
            };
            assert_eq!(
                (event.kind, event.path.as_str()),
                (EventKind::NodeCreated, path)
            );
        }
    }
}

async fn changes_while_disconnected_are_told_once(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let other = place.client().await;
    for path in ["/set", "/deleted", "/parent"] {
        create(&client, path).await;
    }
    let (_, _, set) = client.get_watched("/set").await.unwrap();
    let (_, _, deleted) = client.get_watched("/deleted").await.unwrap();
    let (_, deleted_too) = client.children_watched("/deleted").await.unwrap();
    let (_, created) = client.exists_watched("/created").await.unwrap();
    let (_, children) = client.children_watched("/parent").await.unwrap();
    without_connection(&proxy, &client, async {
        other.set("/set", b"", None).await.unwrap();
        other.set("/set", b"", None).await.unwrap();
        other.delete("/deleted", None).await.unwrap();
        create(&other, "/created").await;
        create(&other, "/parent/c").await;
    })
    .await;
    assert_eq!(soon(set).await.unwrap().kind, EventKind::NodeDataChanged);
    assert_eq!(soon(deleted).await.unwrap().kind, EventKind::NodeDeleted);
    assert_eq!(
        soon(deleted_too).await.unwrap().kind,
        EventKind::NodeDeleted
    );
    assert_eq!(soon(created).await.unwrap().kind, EventKind::NodeCreated);
    assert_eq!(
        soon(children).await.unwrap().kind,
        EventKind::NodeChildrenChanged
    );
    assert!(place.watched_paths().await.is_empty());
    // They are used up: a watch that is armed now reports only later changes.
    let (_, stat, set) = client.get_watched("/set").await.unwrap();
    client.sync("/").await.unwrap();
    let mut set = Box::pin(set);
    assert!(set.as_mut().now_or_never().is_none());
    client.set("/set", b"", Some(stat.version)).await.unwrap();
    soon(set).await.unwrap();
}

/// No watch must be armed for a caller that gets *no node*.
async fn a_watch_that_waits_for_a_connection_is_armed_by_its_request_alone(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let mut waiting = None;
    without_connection(&proxy, &client, async {
        waiting = Some(client.children_watched("/n"));
    })
    .await;
    assert_eq!(soon(waiting.unwrap()).await.unwrap_err(), Error::NO_NODE);
    client.sync("/").await.unwrap();
    assert_eq!(proxy.count(Op::SetWatches), 0);
    assert_eq!(proxy.events(), 0);
}

const WATCHES: usize = 5_000;
const ROUNDS: usize = 10;

/// Long, so that all of them are more than one setWatches.
fn path(index: usize) -> String {
    format!("/storm/{index:080}")
}

/// A node has its number as data, so that an answer to the wrong request would be seen.
fn data(index: usize) -> Vec<u8> {
    index.to_be_bytes().to_vec()
}

async fn five_thousand_watches_survive_a_reconnect_storm(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let other = place.client().await;
    create(&other, "/storm").await;
    let mode = CreateMode::Persistent;
    let is_missing = |index: usize| index % 5 == 1;
    let made: Vec<_> = (0..WATCHES)
        .filter(|index| !is_missing(*index))
        .map(|index| other.create(&path(index), &data(index), mode))
        .collect();
    for made in made {
        soon(made).await.unwrap();
    }
    let (mut one_shots, mut streams) = (Vec::new(), Vec::new());
    let arming: Vec<_> = (0..WATCHES)
        .filter(|index| index % 5 < 3)
        .map(|index| {
            let path = path(index);
            let armed = match index % 5 {
                0 => client
                    .get_watched(&path)
                    .map(|reply| reply.unwrap().2)
                    .boxed(),
                1 => client
                    .exists_watched(&path)
                    .map(|reply| reply.unwrap().1)
                    .boxed(),
                _ => client
                    .children_watched(&path)
                    .map(|reply| reply.unwrap().1)
                    .boxed(),
            };
            (armed, index)
        })
        .collect();
    for (armed, index) in arming {
        one_shots.push((index, soon(armed).await));
    }
    for index in 0..WATCHES {
        let mode = match index % 5 {
            3 => WatchMode::Persistent,
            4 => WatchMode::Recursive,
            _ => continue,
        };
        streams.push((index, client.watch(&path(index), mode)));
    }
    let mut persistent = Vec::new();
    for (index, watch) in streams {
        persistent.push((index, soon(watch).await.unwrap()));
    }

    // Every second node changes, a tenth of them in each round, while connections are cut.
    proxy.reset_counts();
    let changes = |index: usize| (index / 5).is_multiple_of(2);
    let change = |index: usize| match index % 5 {
        1 => other
            .create(&path(index), &data(index), mode)
            .map(Result::err)
            .boxed(),
        2 => other
            .create(&format!("{}/c", path(index)), b"", mode)
            .map(Result::err)
            .boxed(),
        _ => other
            .set(&path(index), &data(index), None)
            .map(Result::err)
            .boxed(),
    };
    let (mut answered, mut lost) = (0, 0);
    for round in 0..ROUNDS {
        let reads: Vec<_> = (0..WATCHES)
            .filter(|index| index % 5 != 1 && index % ROUNDS == round)
            .map(|index| (index, client.get(&path(index))))
            .collect();
        let changing: Vec<_> = (0..WATCHES)
            .filter(|index| changes(*index) && index / 10 % ROUNDS == round)
            .map(change)
            .collect();
        proxy
            .cut(if round % 2 == 0 {
                Cut::Reset
            } else {
                Cut::Close
            })
            .await;
        for changed in changing {
            assert_eq!(soon(changed).await, None);
        }
        for (index, read) in reads {
            match soon(read).await {
                Ok((found, _)) => {
                    assert_eq!(found, data(index), "a reply of another request");
                    answered += 1;
                }
                Err(Error::Unknown | Error::NotSent) => lost += 1,
                Err(error) => panic!("{error:?}"),
            }
        }
    }
    eprintln!(
        "reads: {answered} answered, {lost} lost; {} connections",
        proxy.connections()
    );
    until_connections(&client, ROUNDS as u64 / 2).await;
    assert!(!client.state().is_ended());
    // Connections of the storm may have been cut before their watches were sent; this one is not.
    proxy.reset_counts();
    proxy.cut(Cut::Close).await;
    soon(async { while client.sync("/").await.is_err() {} }).await;
    let set_watches = proxy.count(Op::SetWatches) + proxy.count(Op::SetWatches2);
    assert!(set_watches > 2, "several frames: {set_watches}");

    // All events so far have arrived: the sync was answered behind them.
    let mut left = Vec::new();
    for (index, watch) in one_shots {
        let mut watch = Box::pin(watch);
        let event = tokio::task::unconstrained(watch.as_mut()).now_or_never();
        assert_eq!(event.is_some(), changes(index), "{index}");
        match event {
            None => left.push((index, watch)),
            Some(event) => {
                let kind = match index % 5 {
                    0 => EventKind::NodeDataChanged,
                    1 => EventKind::NodeCreated,
                    _ => EventKind::NodeChildrenChanged,
                };
                let event = event.unwrap();
                assert_eq!((event.kind, event.path), (kind, path(index)));
            }
        }
    }
    for (index, watch) in &mut persistent {
        let (mut told, mut missed) = (0, 0);
        while let Some(event) = tokio::task::unconstrained(watch.next()).now_or_never() {
            match event.unwrap() {
                PersistentEvent::Missed => missed += 1,
                PersistentEvent::Node(event) => {
                    assert_eq!(event.path, path(*index));
                    told += 1;
                }
            }
        }
        assert!(missed > 0, "{index}");
        assert!(
            told <= usize::from(changes(*index)),
            "{index}: told {told} times"
        );
    }
    // Each remaining watch reports the next change, once.
    let changing: Vec<_> = (0..WATCHES)
        .filter(|index| !changes(*index))
        .map(change)
        .collect();
    for changed in changing {
        assert_eq!(soon(changed).await, None);
    }
    soon(client.sync("/")).await.unwrap();
    for (index, watch) in left {
        let event = soon(watch).await.unwrap();
        assert_eq!(event.path, path(index));
    }
    for (index, watch) in &mut persistent {
        let told = std::iter::from_fn(|| tokio::task::unconstrained(watch.next()).now_or_never());
        assert_eq!(told.count(), usize::from(!changes(*index)), "{index}");
    }
}
