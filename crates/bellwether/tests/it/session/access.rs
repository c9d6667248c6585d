//! The access list of a client, for all of its recipes.

use bellwether::state::Instance;
use bellwether::{
    Barrier, Client, Config, ConfigFolder, Counter, DoubleBarrier, Election, ErrorKind, Group,
    Lock, Names, Queue, RwLock, Semaphore, SimpleLock, Tasks, TwoPhase, connect, zk,
};

use crate::support::place::{Place, soon};

on_both_engines! {
    every_node_of_every_recipe_has_the_list_of_the_client,
    members_get_in_and_strangers_do_not,
    directories_above_a_recipe_stay_open,
}

/// A client whose recipes are for clients with the same credential.
async fn member(place: &Place) -> Client {
    connect(format!("{}{}", place.server(), place.chroot()))
        .auth("digest", "group:secret")
        .acl([zk::Acl::creator()])
        .await
        .unwrap()
}

async fn every_node_of_every_recipe_has_the_list_of_the_client(place: Place) {
    let client = member(&place).await;
    // Held while the nodes are looked at.
    let lock = Lock::new(&client, "/lock").crash_mark();
    let lock = lock.acquire().await.unwrap();
    lock.write()
        .create("/lock/record", "")
        .commit()
        .await
        .unwrap();
    let holds = (
        RwLock::new(&client, "/rwlock").read().await.unwrap(),
        Semaphore::new(&client, "/semaphore", 2)
            .acquire()
            .await
            .unwrap(),
        SimpleLock::new(&client, "/simple").acquire().await.unwrap(),
        Election::new(&client, "/election")
            .campaign()
            .await
            .unwrap(),
        DoubleBarrier::new(&client, "/double", 1)
            .enter()
            .await
            .unwrap(),
        Group::new(&client, "/group").join("member").await.unwrap(),
    );
    assert!(Barrier::new(&client, "/barrier").set().await.unwrap());
    Counter::new(&client, "/counter").add(1).await.unwrap();
    let config = Config::<String>::new(&client, "/config");
    config.set(&"value".to_owned()).await.unwrap();
    ConfigFolder::new(&client, "/folder")
        .update(|entries| drop(entries.insert("key".to_owned(), b"value".to_vec())))
        .await
        .unwrap();
    let names = Names::new(&client, "/names");
    names.register_lasting("name", "value").await.unwrap();
    // It creates a directory inside that of the recipe first.
    let services = Names::new(&client, "/services");
    let instance = Instance::new("10.0.0.7:8080");
    let announced = services.announce("web", &instance).await.unwrap();
    let queue = Queue::<String>::new(&client, "/queue");
    queue.put(&"item".to_owned()).await.unwrap();
    let claim = soon(queue.take()).await.unwrap();
    queue.put(&"another".to_owned()).await.unwrap();
    // A consumer that comes before the first item creates the directory of its queue.
    let early = Queue::<String>::new(&client, "/early");
    let early = tokio::spawn(async move { early.take().await });
    let raw = client.raw();
    let in_line = async || {
        raw.children("/early/line")
            .await
            .is_ok_and(|line| !line.is_empty())
    };
    soon(async { while !in_line().await {} }).await;
    let tasks = Tasks::<String>::new(&client, "/tasks");
    assert!(tasks.add("task", &"item".to_owned()).await.unwrap());
    let transactions = TwoPhase::new(&client, "/transactions");
    let coordinator = transactions.begin(["site"], "").await.unwrap();

    let open = open_nodes(&client.raw()).await;
    assert!(open.is_empty(), "open to the world: {open:?}");
    early.abort();
    drop((lock, holds, claim, coordinator, announced));
}

async fn directories_above_a_recipe_stay_open(place: Place) {
    let member = member(&place).await;
    let stranger = place.client().await;
    Counter::new(&member, "/counters/a").add(1).await.unwrap();
    Counter::new(&stranger, "/counters/b").add(1).await.unwrap();
    let config = Config::<String>::new(&member, "/configs/a");
    config.set(&"value".to_owned()).await.unwrap();
    let config = Config::<String>::new(&stranger, "/configs/b");
    config.set(&"value".to_owned()).await.unwrap();
    for (client, path) in [(&member, "/folders/a"), (&stranger, "/folders/b")] {
        ConfigFolder::new(client, path)
            .update(|entries| drop(entries.insert("key".to_owned(), b"value".to_vec())))
            .await
            .unwrap();
    }
    let refused = Counter::new(&stranger, "/counters/a").get().await;
    assert_fails!(refused, ErrorKind::Refused { .. });
}

/// All nodes below the chroot that clients without the credential may use.
async fn open_nodes(zk: &zk::Client) -> Vec<String> {
    let mut open = Vec::new();
    let mut found = 0;
    let mut left = vec![String::new()];
    while let Some(above) = left.pop() {
        let list = match above.as_str() {
            "" => "/",
            above => above,
        };
        for name in zk.children(list).await.unwrap() {
            let path = format!("{above}/{name}");
            let (acl, _) = zk.acl(&path).await.unwrap();
            if acl.iter().any(|entry| entry.id == zk::Id::anyone()) {
                open.push(path.clone());
            }
            found += 1;
            left.push(path);
        }
    }
    assert!(found > 30, "only {found} nodes were made");
    open
}

async fn members_get_in_and_strangers_do_not(place: Place) {
    let (first, second) = (member(&place).await, member(&place).await);
    let stranger = place.client().await;
    let guard = Lock::new(&first, "/owned").acquire().await.unwrap();
    let waiting = Lock::new(&second, "/owned").join().await.unwrap();
    let refused = Lock::new(&stranger, "/owned").acquire().await;
    assert_fails!(
        refused,
        ErrorKind::Refused {
            source: zk::Error::NO_AUTH,
            ..
        }
    );
    guard.release().await.unwrap();
    let guard = soon(waiting.turn()).await.unwrap();
    guard.release().await.unwrap();

    Counter::new(&first, "/count").add(1).await.unwrap();
    assert_eq!(Counter::new(&second, "/count").add(1).await.unwrap(), 2);
    let refused = Counter::new(&stranger, "/count").get().await;
    assert_fails!(refused, ErrorKind::Refused { .. });

    // A recipe may have another list.
    let open = Lock::new(&first, "/open").acl([zk::Acl::open()]);
    open.acquire().await.unwrap().release().await.unwrap();
    let guard = Lock::new(&stranger, "/open").acquire().await.unwrap();
    guard.release().await.unwrap();
}
