//! Values that follow the servers.

use std::time::Duration;

use bellwether::state::{Instance, Live, Roster};
use bellwether::{Config, ErrorKind, Group, Names};

use crate::support::place::{Place, SESSION_TIMEOUT, expire, soon};

on_both_engines! {
    configuration_follows_and_tells_of_deletion,
    members_and_names_follow,
    value_is_stale_while_there_is_no_connection,
    value_is_followed_in_the_next_session,
    data_that_cannot_be_read_leaves_the_last_value,
    path_that_names_no_node_is_refused,
}

async fn until<T>(live: &mut Live<T>, is_so: impl Fn(&T) -> bool) {
    soon(async {
        while !is_so(&live.get()) {
            live.changed().await.unwrap();
        }
    })
    .await;
}

async fn configuration_follows_and_tells_of_deletion(place: Place) {
    let config = Config::<String>::new(&place.client().await, "/app/name");
    let mut live = soon(config.live()).await.unwrap();
    assert!(live.get().is_none() && !live.is_stale());
    let mut other = live.clone();
    let outside = Config::<String>::new(&place.client().await, "/app/name");
    for value in ["one", "two"] {
        outside.set(&value.to_owned()).await.unwrap();
        until(&mut live, |entry| {
            entry.as_ref().is_some_and(|entry| entry.value == value)
        })
        .await;
    }
    // Created again, it has the version of the previous node.
    assert!(outside.delete().await.unwrap());
    until(&mut live, Option::is_none).await;
    outside.set(&"three".to_owned()).await.unwrap();
    until(&mut live, Option::is_some).await;
    assert_eq!(live.get().as_ref().as_ref().unwrap().value, "three");
    // Each receiver has seen only what it has waited for.
    soon(other.changed()).await.unwrap();
    assert_eq!(other.get().as_ref().as_ref().unwrap().value, "three");
    drop((live, other));
    place.until_no_watches().await;
}

async fn members_and_names_follow(place: Place) {
    let client = place.client().await;
    let group = Group::new(&client, "/group");
    let mut live = soon(group.live()).await.unwrap();
    assert_eq!(*live.get(), Roster::new());
    let member = group.join_as("one", "here").await.unwrap();
    until(&mut live, |members| members.contains_key("one")).await;
    member.leave().await;
    until(&mut live, Roster::is_empty).await;

    let names = Names::new(&client, "/names");
    let mut live = soon(names.live()).await.unwrap();
    names.register_lasting("db", "10.0.0.1").await.unwrap();
    until(&mut live, |names| {
        names.get("db").is_some_and(|data| data == b"10.0.0.1")
    })
    .await;

    let mut live = soon(names.live_instances("web")).await.unwrap();
    assert!(live.get().is_empty());
    let instance = Instance::new("10.0.0.2:80");
    let _announced = names.announce("web", &instance).await.unwrap();
    until(&mut live, |instances| {
        instances.values().any(|found| *found == instance)
    })
    .await;
}

async fn value_is_stale_while_there_is_no_connection(place: Place) {
    let (proxy, client) = place.proxied(Duration::from_secs(20)).await;
    let config = Config::<String>::new(&client, "/value");
    config.set(&"old".to_owned()).await.unwrap();
    let group = Group::new(&client, "/group");
    let mut value = soon(config.live()).await.unwrap();
    let mut members = soon(group.live()).await.unwrap();
    let outside = place.client().await;
    for round in 0..3 {
        assert!(!value.is_stale() && !members.is_stale());
        proxy.refuse(true);
        proxy.cut(bellwether_testkit::Cut::Reset).await;
        soon(async {
            while !value.is_stale() || !members.is_stale() {
                tokio::task::yield_now().await;
            }
        })
        .await;
        let before = value.get();
        // In the last round nothing changes meanwhile.
        let new = format!("new {round}");
        if round < 2 {
            Config::new(&outside, "/value").set(&new).await.unwrap();
            let group = Group::new(&outside, "/group");
            group.join_as(new.as_str(), "").await.unwrap().leave().await;
        }
        assert_eq!(value.get(), before);
        assert!(value.stale_for().is_some());
        proxy.refuse(false);
        soon(value.fresh()).await.unwrap();
        soon(members.fresh()).await.unwrap();
        // Fresh means that it shows changes of the meantime.
        if round < 2 {
            assert_eq!(value.get().as_ref().as_ref().unwrap().value, new);
            soon(value.changed()).await.unwrap();
        }
        assert_eq!(*members.get(), Roster::new());
    }
    let is_unchanged = futures_util::FutureExt::now_or_never(members.changed());
    assert!(is_unchanged.is_none());
}

async fn value_is_followed_in_the_next_session(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let config = Config::<String>::new(&client, "/value");
    let mut live = soon(config.live()).await.unwrap();
    let group = Group::new(&client, "/group");
    let mut members = soon(group.live()).await.unwrap();
    expire(&proxy).await;
    let outside = place.client().await;
    let new = "new".to_owned();
    Config::new(&outside, "/value").set(&new).await.unwrap();
    let _member = Group::new(&outside, "/group")
        .join_as("one", "")
        .await
        .unwrap();
    until(&mut live, Option::is_some).await;
    until(&mut members, |members| members.contains_key("one")).await;
    soon(live.fresh()).await.unwrap();
}

async fn data_that_cannot_be_read_leaves_the_last_value(place: Place) {
    let client = place.client().await;
    let config = Config::<String>::new(&client, "/value");
    config.set(&"good".to_owned()).await.unwrap();
    let mut live = soon(config.live()).await.unwrap();
    place.outside().set("/value", &[0xff], None).await.unwrap();
    soon(async {
        while !live.is_stale() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(live.get().as_ref().as_ref().unwrap().value, "good");
    config.set(&"better".to_owned()).await.unwrap();
    soon(live.changed()).await.unwrap();
    soon(live.fresh()).await.unwrap();
    assert_eq!(live.get().as_ref().as_ref().unwrap().value, "better");
}

async fn path_that_names_no_node_is_refused(place: Place) {
    let config = Config::<String>::new(&place.client().await, "nowhere");
    let refused = soon(config.live()).await.map(drop);
    assert_fails!(refused, ErrorKind::BadPath(_));
}
