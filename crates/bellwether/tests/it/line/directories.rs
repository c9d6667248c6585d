//! Missing directories, which recipes create.

use bellwether::line::Layout;
use bellwether::{Client, Counter, Error, ErrorKind, Group, Lock, connect, zk};
use bellwether_testkit::TestServer;

use crate::support::place::{Place, soon, until_reaped};

on_both_engines! {
    join_where_nothing_may_be_made_is_refused,
}

fn assert_no_auth<T: std::fmt::Debug>(result: Result<T, Error>) {
    assert_fails!(
        result,
        ErrorKind::Refused {
            source: zk::Error::NO_AUTH,
            ..
        }
    );
}

async fn join_where_nothing_may_be_made_is_refused(place: Place) {
    let client = place.client().await;
    // It creates the chroot.
    drop(Group::new(&client, "/group").join("").await.unwrap());
    let options =
        zk::CreateMode::Persistent.with_acl([zk::Acl::new(zk::acl::READ, zk::Id::anyone())]);
    let made = place.outside().create("/closed", b"", &options).await;
    made.unwrap();
    assert_no_auth(soon(Group::new(&client, "/closed/in/group").join("")).await);
    let counter = Counter::new(&client, "/closed/in/counter");
    assert_no_auth(soon(counter.add(1)).await);
}

/// A container that was never used may be deleted before the one below it is created.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn directories_that_are_reaped_while_they_are_made_are_made_again() {
    let server = TestServer::start().await.unwrap();
    let client: Client = connect(server.connect_string()).await.unwrap();
    let outside = zk::Client::connect(server.connect_string()).await.unwrap();
    let reaping = tokio::spawn(async move {
        loop {
            server.reap_now().unwrap();
            outside.sync("/").await.unwrap();
        }
    });
    for number in 0..100 {
        let deep = Counter::new(&client, format!("/deep/in/{number}/counter"));
        assert_eq!(soon(deep.add(1)).await.unwrap(), 1);
    }
    reaping.abort();
}

/// kazoo users would fail if it were deleted between two of their holds.
#[tokio::test]
async fn directory_that_is_shared_with_kazoo_stays() {
    let server = TestServer::start().await.unwrap();
    let client = connect(server.connect_string()).await.unwrap();
    let kept = Lock::new(&client, "/kazoo").layout(Layout::Kazoo);
    kept.acquire().await.unwrap().release().await.unwrap();
    let gone = Lock::new(&client, "/ours");
    gone.acquire().await.unwrap().release().await.unwrap();
    until_reaped(&server, &client, "/ours").await;
    assert!(client.raw().exists("/kazoo").await.unwrap().is_some());
}
