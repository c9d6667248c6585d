//! Watches and their events.

use bellwether_testkit::{Frame, Request, WatchLists};
use bellwether_wire::event::EventKind::{
    NodeChildrenChanged, NodeCreated, NodeDataChanged, NodeDeleted,
};

use crate::{client_of, event, events, ok, server_and_client};

#[tokio::test]
async fn trap_10_an_event_precedes_the_reply_of_the_write_that_caused_it() {
    let (_server, mut client) = server_and_client().await;
    ok(&mut client, Request::exists("/").watching()).await;
    let xid = client.send(&Request::set_data("/", "x")).await.unwrap();
    assert_eq!(event(&mut client).await, (NodeDataChanged, "/".into()));
    let Frame::Reply(reply) = client.receive().await.unwrap() else {
        panic!("a second event");
    };
    assert_eq!(reply.xid, xid);
}

#[tokio::test]
async fn trap_11_a_delete_is_told_once_and_uses_up_both_watches() {
    let (server, mut client) = server_and_client().await;
    ok(&mut client, Request::create("/a", "")).await;
    ok(&mut client, Request::get_data("/a").watching()).await;
    ok(&mut client, Request::get_children("/a").watching()).await;
    ok(&mut client, Request::get_children("/").watching()).await;
    ok(&mut client, Request::delete("/a")).await;
    assert_eq!(
        events(&mut client).await,
        [
            (NodeDeleted, "/a".into()),
            (NodeChildrenChanged, "/".into())
        ]
    );
    assert_eq!(server.watch_count().unwrap(), 0);
}

#[tokio::test]
async fn trap_12_lasting_watches_stay_and_recursive_ones_know_no_children_changed() {
    let (_server, mut client) = server_and_client().await;
    ok(&mut client, Request::create("/p", "")).await;
    ok(&mut client, Request::create("/r", "")).await;
    let add = |path: &str, mode| Request::AddWatch {
        path: path.into(),
        mode,
    };
    ok(&mut client, add("/p", 0)).await;
    ok(&mut client, add("/r", 1)).await;
    // One-shot watches on the same paths do not replace them.
    ok(&mut client, Request::get_data("/p").watching()).await;
    ok(&mut client, Request::get_data("/r").watching()).await;
    for path in ["/p", "/r"] {
        for request in [
            Request::set_data(path, "x"),
            Request::set_data(path, "y"),
            Request::create(format!("{path}/c"), ""),
            Request::delete(format!("{path}/c")),
        ] {
            ok(&mut client, request).await;
        }
    }
    assert_eq!(
        events(&mut client).await,
        [
            (NodeDataChanged, "/p".into()),
            (NodeDataChanged, "/p".into()),
            (NodeChildrenChanged, "/p".into()),
            (NodeChildrenChanged, "/p".into()),
            (NodeDataChanged, "/r".into()),
            (NodeDataChanged, "/r".into()),
            (NodeCreated, "/r/c".into()),
            (NodeDeleted, "/r/c".into()),
        ]
    );
}

#[tokio::test]
async fn trap_13_watches_set_again_make_up_for_what_was_missed() {
    let (server, mut client) = server_and_client().await;
    for path in ["/same", "/changed", "/parent", "/exists"] {
        ok(&mut client, Request::create(path, "")).await;
    }
    let relative_zxid = client.last_zxid();
    ok(&mut client, Request::set_data("/changed", "x")).await;
    ok(&mut client, Request::create("/parent/child", "")).await;
    let paths = |paths: &[&str]| paths.iter().map(ToString::to_string).collect();
    let lists = WatchLists {
        relative_zxid,
        data: paths(&["/same", "/changed", "/gone"]),
        exist: paths(&["/exists", "/absent"]),
        child: paths(&["/same", "/parent", "/gone-too"]),
        persistent: paths(&["/changed"]),
        recursive: paths(&["/changed"]),
    };
    let mut back = client_of(&server).await;
    let xid = back.send(&Request::SetWatches2(lists)).await.unwrap();
    let mut missed = Vec::new();
    for _ in 0..5 {
        missed.push(event(&mut back).await);
    }
    assert_eq!(
        missed,
        [
            (NodeDataChanged, "/changed".into()),
            (NodeDeleted, "/gone".into()),
            (NodeCreated, "/exists".into()),
            (NodeChildrenChanged, "/parent".into()),
            (NodeDeleted, "/gone-too".into()),
        ]
    );
    assert_eq!(back.receive_reply().await.unwrap().xid, xid);
    for request in [
        Request::set_data("/same", "x"),
        Request::create("/same/child", ""),
        Request::create("/absent", ""),
        Request::set_data("/exists", "not armed"),
        Request::create("/parent/2", "not armed"),
    ] {
        ok(&mut client, request).await;
    }
    assert_eq!(
        events(&mut back).await,
        [
            (NodeDataChanged, "/same".into()),
            (NodeChildrenChanged, "/same".into()),
            (NodeCreated, "/absent".into()),
        ]
    );
}
