//! Watched values: always the latest, and never an older one after it.

use std::sync::{Arc, Mutex};

use bellwether::state::{Entries, Seen, Watch};
use bellwether::{Config, ConfigFolder, ErrorKind, Json};
use bellwether_testkit::Cut;
use bellwether_wire::op::Op;
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};

use crate::support::place::{Place, SESSION_TIMEOUT, expire, soon, until_no_successor};

on_both_engines! {
    values_of_a_type_are_set_compared_and_deleted,
    write_with_a_lost_reply_does_not_come_back_over_a_later_one,
    t79_value_is_fresh_after_a_reconnect_though_the_version_is_the_same,
    t83_watch_catches_up_before_it_reads_in_a_new_session,
    watch_ends_on_the_latest_value_and_tells_of_deletion,
    too_much_and_strange_data_are_errors,
    folder_changes_as_a_whole,
    folder_does_not_take_receipts_for_values,
    folder_is_never_seen_half_changed,
    folder_update_with_a_lost_reply_is_made_once,
    folder_refuses_an_update_whose_paths_do_not_fit,
    folder_update_is_told_though_the_session_ended_before_it_was_read,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Limits {
    requests_max: u32,
}

async fn next<T>(watch: &mut Watch<T>) -> Seen<T> {
    soon(watch.next()).await.unwrap().unwrap()
}

async fn values_of_a_type_are_set_compared_and_deleted(place: Place) {
    let config = Config::<Json<Limits>>::new(&place.client().await, "/app/limits");
    let limits = |requests_max| Json(Limits { requests_max });
    assert_eq!(config.get().await.unwrap(), None);
    assert!(config.create(&limits(1)).await.unwrap());
    assert!(!config.create(&limits(2)).await.unwrap());
    let first = config.get().await.unwrap().unwrap();
    assert_eq!(first.value, limits(1));
    let second = config.compare_and_set(first.version, &limits(3)).await;
    let second = second.unwrap().unwrap();
    let late = config.compare_and_set(first.version, &limits(4)).await;
    assert_eq!(late.unwrap(), None);
    let now = config.get().await.unwrap().unwrap();
    assert_eq!((now.value, now.version), (limits(3), second));
    config.set(&limits(5)).await.unwrap();
    assert!(config.delete().await.unwrap());
    assert!(!config.delete().await.unwrap());
    let gone = config.compare_and_set(second, &limits(6)).await;
    assert_eq!(gone.unwrap(), None);
    config.set(&limits(7)).await.unwrap();
    assert_eq!(config.get().await.unwrap().unwrap().value, limits(7));
}

async fn write_with_a_lost_reply_does_not_come_back_over_a_later_one(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let config = Config::<String>::new(&client, "/app/name");
    config.set(&"old".to_owned()).await.unwrap();
    proxy.refuse(true);
    let lost = proxy.swallow_reply(Op::Multi);
    let setting = tokio::spawn({
        let config = config.clone();
        async move { config.set(&"mine".to_owned()).await }
    });
    lost.happened().await.unwrap();
    let outside = place.outside();
    outside.set("/app/name", b"later", None).await.unwrap();
    proxy.refuse(false);
    soon(setting).await.unwrap().unwrap();
    assert_eq!(config.get().await.unwrap().unwrap().value, "later");
}

async fn t79_value_is_fresh_after_a_reconnect_though_the_version_is_the_same(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let config = Config::<String>::new(&client, "/app/name");
    config.create(&"first".to_owned()).await.unwrap();
    let mut values = config.watch();
    let Seen::Value(first) = next(&mut values).await else {
        panic!("it is there");
    };
    // Deleted and created again while this client is disconnected: the version is the same as before.
    proxy.refuse(true);
    proxy.cut(Cut::Reset).await;
    let other = Config::<String>::new(&place.client().await, "/app/name");
    assert!(other.delete().await.unwrap());
    assert!(other.create(&"second".to_owned()).await.unwrap());
    proxy.refuse(false);
    let second = loop {
        match next(&mut values).await {
            Seen::Value(entry) => break entry,
            Seen::Absent | Seen::Renewed => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(
        (first.version, second.version, second.value.as_str()),
        (second.version, first.version, "second")
    );
}

async fn t83_watch_catches_up_before_it_reads_in_a_new_session(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let config = Config::<String>::new(&client, "/app/name");
    config.set(&"first".to_owned()).await.unwrap();
    let mut values = config.watch();
    assert!(matches!(next(&mut values).await, Seen::Value(_)));
    // The next server may lag behind the one that returned the value.
    let seen = Arc::new(Mutex::new(Vec::new()));
    let _never = proxy.drop_request_where({
        let seen = seen.clone();
        move |request| {
            let is_of_it = |path: String| path.ends_with("/app/name");
            if request.op == Op::Sync || request.path().is_some_and(is_of_it) {
                seen.lock().unwrap().push(request.op);
            }
            false
        }
    });
    expire(&proxy).await;
    assert_eq!(next(&mut values).await, Seen::Renewed);
    config.set(&"second".to_owned()).await.unwrap();
    assert!(matches!(next(&mut values).await, Seen::Value(_)));
    let seen = seen.lock().unwrap();
    assert_eq!(seen.first(), Some(&Op::Sync), "{seen:?}");
}

async fn watch_ends_on_the_latest_value_and_tells_of_deletion(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let writer = Config::<String>::new(&place.client().await, "/app/name");
    let mut values = Config::<String>::new(&client, "/app/name").watch();
    assert_eq!(next(&mut values).await, Seen::Absent);
    for round in 0..3 {
        for value in 0..20 {
            writer.set(&format!("{round} {value}")).await.unwrap();
            if value == 10 {
                proxy.cut(Cut::Reset).await;
            }
        }
        loop {
            if let Seen::Value(entry) = next(&mut values).await
                && entry.value == format!("{round} 19")
            {
                break;
            }
        }
    }
    writer.delete().await.unwrap();
    assert_eq!(next(&mut values).await, Seen::Absent);
}

async fn too_much_and_strange_data_are_errors(place: Place) {
    let client = place.client().await;
    let config = Config::<Json<Limits>>::new(&client, "/app/limits");
    Config::<String>::new(&client, "/app/limits")
        .set(&"what?".to_owned())
        .await
        .unwrap();
    let strange = config.get().await;
    assert_fails!(strange, ErrorKind::Unreadable(_));
    // A watch reports it, and continues.
    let mut values = config.watch();
    assert!(soon(values.next()).await.unwrap().is_err());
    config.set(&Json(Limits { requests_max: 1 })).await.unwrap();
    assert!(matches!(next(&mut values).await, Seen::Value(_)));
    // The server would close the connection, again and again.
    let large = Config::new(&client, "/app/large");
    let refused = soon(large.set(&vec![0; 2_000_000])).await;
    assert_fails!(refused, ErrorKind::TooLarge { .. });
}

fn entries<const N: usize>(entries: [(&str, &str); N]) -> Entries {
    let owned = entries.map(|(name, data)| (name.to_owned(), data.as_bytes().to_owned()));
    owned.into()
}

async fn folder_changes_as_a_whole(place: Place) {
    let folder = ConfigFolder::new(&place.client().await, "/app/database");
    let mut states = ConfigFolder::new(&place.client().await, "/app/database").watch();
    assert_eq!(next(&mut states).await, Seen::Absent);
    assert_eq!(folder.get().await.unwrap(), Entries::new());
    let first = entries([("host", "db1"), ("port", "5432")]);
    let set = folder.update(|all| all.clone_from(&first)).await.unwrap();
    assert_eq!(set, first);
    assert_eq!(next(&mut states).await, Seen::Value(first));
    let changed = folder
        .update(|all| {
            all.remove("port");
            all.insert("host".into(), "db2".into());
            all.insert("user".into(), "app".into());
        })
        .await
        .unwrap();
    let second = entries([("host", "db2"), ("user", "app")]);
    assert_eq!(changed, second);
    assert_eq!(folder.get().await.unwrap(), second);
    assert_eq!(next(&mut states).await, Seen::Value(second));
    for name in ["ready", "receipt-1", "a/b", "", ".."] {
        let refused = folder.update(|all| drop(all.insert(name.into(), Vec::new())));
        let refused = refused.await;
        assert_fails!(refused, ErrorKind::BadPath(_));
    }
}

async fn folder_does_not_take_receipts_for_values(place: Place) {
    let client = place.client().await;
    let folder = ConfigFolder::new(&client, "/app/database");
    let first = entries([("host", "db1")]);
    folder.update(|all| all.clone_from(&first)).await.unwrap();
    // It leaves its receipt beside the value, in the folder.
    let port = Config::<String>::new(&client, "/app/database/port");
    port.set(&"5432".to_owned()).await.unwrap();
    place.until_children("/app/database", 4).await;
    let both = entries([("host", "db1"), ("port", "5432")]);
    assert_eq!(folder.get().await.unwrap(), both);
    folder.update(Entries::clear).await.unwrap();
    let names = place.children("/app/database").await;
    let receipts = names.iter().filter(|name| name.starts_with("receipt-"));
    assert_eq!((receipts.count(), names.len()), (1, 2), "{names:?}");
}

async fn folder_is_never_seen_half_changed(place: Place) {
    const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
    let folder = ConfigFolder::new(&place.client().await, "/app/database");
    let fill = |all: &mut Entries, value: i32| {
        for name in NAMES {
            all.insert(name.to_owned(), value.to_string().into_bytes());
        }
    };
    folder.update(|all| fill(all, 0)).await.unwrap();
    let (proxy, reader) = place.proxied(SESSION_TIMEOUT).await;
    let reader = ConfigFolder::new(&reader, "/app/database");
    let writer = tokio::spawn(async move {
        for value in 1..=50 {
            folder.update(|all| fill(all, value)).await.unwrap();
        }
    });
    let mut reads = 0;
    let mut done = false;
    while !done {
        done = writer.is_finished();
        if reads % 10 == 5 {
            proxy.cut(Cut::Reset).await;
        }
        let seen = soon(reader.get()).await.unwrap();
        let values: Vec<_> = seen.values().collect();
        assert_eq!(values.len(), NAMES.len());
        assert!(values.windows(2).all(|two| two[0] == two[1]), "{seen:?}");
        reads += 1;
    }
    writer.await.unwrap();
    let last = reader.get().await.unwrap();
    assert_eq!(last["a"], b"50");
}

async fn folder_update_with_a_lost_reply_is_made_once(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let folder = ConfigFolder::new(&client, "/app/list");
    folder.update(|_| {}).await.unwrap();
    for count in 1..=3 {
        let lost = proxy.swallow_reply(Op::Multi);
        let grow = |all: &mut Entries| drop(all.insert(format!("item{}", all.len()), vec![]));
        let all = soon(folder.update(grow)).await.unwrap();
        lost.happened().await.unwrap();
        assert_eq!(all.len(), count);
    }
    assert_eq!(folder.get().await.unwrap().len(), 3);
}

async fn folder_refuses_an_update_whose_paths_do_not_fit(place: Place) {
    let path = format!("/app/{}", "x".repeat(400));
    let folder = ConfigFolder::new(&place.client().await, path);
    let fill = |all: &mut Entries, count: u32| {
        all.extend((0..count).map(|number| (number.to_string(), vec![])));
    };
    let refused = soon(folder.update(|all| fill(all, 3_000))).await;
    assert_fails!(refused, ErrorKind::TooLarge { .. });
    let filled = soon(folder.update(|all| fill(all, 2_000))).await;
    assert_eq!(filled.unwrap().len(), 2_000);
    assert_eq!(folder.get().await.unwrap().len(), 2_000);
}

async fn folder_update_is_told_though_the_session_ended_before_it_was_read(place: Place) {
    let (proxy, client) = place.impatient().await;
    let writer = ConfigFolder::new(&place.client().await, "/app/database");
    let (first, second) = (entries([("host", "db1")]), entries([("host", "db2")]));
    writer.update(|all| all.clone_from(&first)).await.unwrap();
    let mut states = ConfigFolder::new(&client, "/app/database").watch();
    assert_eq!(next(&mut states).await, Seen::Value(first));
    // The watch gets the event, and its session ends before it can read the new value.
    proxy.refuse(true);
    let lost = proxy.drop_request_where(|request| {
        let path = request.path();
        request.op == Op::GetChildren && path.is_some_and(|path| path.ends_with("/app/database"))
    });
    let told = async {
        loop {
            match next(&mut states).await {
                Seen::Value(entries) => break entries,
                Seen::Renewed => {}
                other => panic!("{other:?}"),
            }
        }
    };
    let faults = async {
        writer.update(|all| all.clone_from(&second)).await.unwrap();
        lost.happened().await.unwrap();
        proxy.expire_session().await.unwrap();
        until_no_successor(&client).await;
        proxy.refuse(false);
    };
    let (told, ()) = tokio::join!(told, faults);
    assert_eq!(told, second);
}
