//! Watches: what arms them, what fires them, in which order, and when they are removed.

use bellwether_server::Config;
use bellwether_testkit::{Body, RawClient, Request, TestServer, WatchLists};
use bellwether_wire::acl::{ALL, Acl, Id, WRITE};
use bellwether_wire::code::ErrorCode::{MarshallingError, NoNode, NoWatcher};
use bellwether_wire::event::EventKind::{
    NodeChildrenChanged, NodeCreated, NodeDataChanged, NodeDeleted,
};

use crate::{client_of, event, events, ok, refusal, server_and_client};

fn add(path: &str, mode: i32) -> Request {
    Request::AddWatch {
        path: path.into(),
        mode,
    }
}

fn remove(path: &str, kind: i32) -> Request {
    Request::RemoveWatches {
        path: path.into(),
        kind,
    }
}

fn check(path: &str, kind: i32) -> Request {
    Request::CheckWatches {
        path: path.into(),
        kind,
    }
}

/// Carries out requests one after the other, and returns the events that arrived meanwhile.
async fn events_of<const N: usize>(
    client: &mut RawClient,
    requests: [Request; N],
) -> Vec<(bellwether_wire::event::EventKind, String)> {
    for request in requests {
        ok(client, request).await;
    }
    events(client).await
}

#[tokio::test]
async fn only_exists_watches_a_node_that_is_not_there() {
    let (server, mut client) = server_and_client().await;
    for request in [
        Request::get_data("/a").watching(),
        Request::get_children("/a").watching(),
    ] {
        assert_eq!(refusal(&mut client, request).await, NoNode);
    }
    assert_eq!(server.watch_count().unwrap(), 0);
    let exists = Request::exists("/a").watching();
    assert_eq!(refusal(&mut client, exists).await, NoNode);
    let told = events_of(&mut client, [Request::create("/a", "")]).await;
    assert_eq!(told, [(NodeCreated, "/a".into())]);
}

#[tokio::test]
async fn a_watch_set_twice_fires_once_and_is_gone() {
    let (_server, mut client) = server_and_client().await;
    ok(&mut client, Request::create("/a", "")).await;
    ok(&mut client, Request::get_data("/a").watching()).await;
    ok(&mut client, Request::exists("/a").watching()).await;
    let twice = [Request::set_data("/a", "x"), Request::set_data("/a", "y")];
    let told = events_of(&mut client, twice).await;
    assert_eq!(told, [(NodeDataChanged, "/a".into())]);
}

#[tokio::test]
async fn a_create_is_told_of_the_node_first_and_of_its_parent_then() {
    let (_server, mut client) = server_and_client().await;
    ok(&mut client, Request::get_children("/").watching()).await;
    refusal(&mut client, Request::exists("/a").watching()).await;
    let told = events_of(&mut client, [Request::create("/a", "")]).await;
    assert_eq!(
        told,
        [
            (NodeCreated, "/a".into()),
            (NodeChildrenChanged, "/".into())
        ]
    );
}

#[tokio::test]
async fn a_change_of_the_access_list_tells_nobody_and_grandchildren_do_not_count() {
    let (_server, mut client) = server_and_client().await;
    ok(&mut client, Request::create("/a", "")).await;
    ok(&mut client, Request::get_data("/a").watching()).await;
    ok(&mut client, Request::get_children("/").watching()).await;
    let set_acl = Request::SetAcl {
        path: "/a".into(),
        acl: vec![Acl::open()],
        version: 0,
    };
    let told = events_of(&mut client, [set_acl, Request::create("/a/b", "")]).await;
    assert_eq!(told, []);
}

#[tokio::test]
async fn a_multi_tells_in_the_order_of_its_operations_and_a_failed_one_not_at_all() {
    let (_server, mut client) = server_and_client().await;
    ok(&mut client, Request::create("/a", "")).await;
    ok(&mut client, Request::get_data("/a").watching()).await;
    ok(&mut client, Request::get_children("/").watching()).await;
    refusal(&mut client, Request::exists("/b").watching()).await;
    let set = Request::set_data("/a", "x");
    let failing = vec![set.clone(), Request::delete("/none")];
    let told = events_of(&mut client, [Request::Multi(failing)]).await;
    assert_eq!(told, []);
    let multi = Request::Multi(vec![Request::create("/b", ""), set, Request::delete("/a")]);
    client.call(multi).await.unwrap();
    let told: Vec<_> = client
        .take_events()
        .into_iter()
        .map(|e| (e.kind, e.path))
        .collect();
    assert_eq!(
        told,
        [
            (NodeCreated, "/b".into()),
            (NodeChildrenChanged, "/".into()),
            (NodeDataChanged, "/a".into()),
        ],
        "before the reply"
    );
}

#[tokio::test]
async fn modes_and_types_of_watches_are_checked() {
    let (_server, mut client) = server_and_client().await;
    for mode in [-1, 2, 100] {
        assert_eq!(refusal(&mut client, add("/", mode)).await, MarshallingError);
    }
    for kind in [0, -1, 6] {
        assert_eq!(
            refusal(&mut client, remove("/", kind)).await,
            MarshallingError
        );
        assert_eq!(
            refusal(&mut client, check("/", kind)).await,
            MarshallingError
        );
    }
    // The path is not checked: it need not exist or be valid.
    for path in ["/none", "relative", ""] {
        assert_eq!(ok(&mut client, add(path, 0)).await, Body::Code(0));
    }
}

#[tokio::test]
async fn watches_are_found_and_removed_by_their_type() {
    let (server, mut client) = server_and_client().await;
    let mut other = client_of(&server).await;
    ok(&mut client, Request::get_data("/").watching()).await;
    ok(&mut client, Request::get_children("/").watching()).await;
    assert_eq!(refusal(&mut other, check("/", 3)).await, NoWatcher);
    assert_eq!(refusal(&mut other, remove("/", 3)).await, NoWatcher);
    for kind in [1, 2, 3] {
        ok(&mut client, check("/", kind)).await;
    }
    ok(&mut client, remove("/", 1)).await;
    assert_eq!(refusal(&mut client, check("/", 1)).await, NoWatcher);
    ok(&mut client, check("/", 2)).await;
    ok(&mut client, remove("/", 3)).await;
    assert_eq!(refusal(&mut client, remove("/", 3)).await, NoWatcher);
    assert_eq!(server.watch_count().unwrap(), 0);
    let told = events_of(&mut client, [Request::set_data("/", "x")]).await;
    assert_eq!(told, []);
}

#[tokio::test]
async fn lasting_watches_are_removed_without_the_others_of_their_path() {
    let (server, mut client) = server_and_client().await;
    ok(&mut client, add("/", 0)).await;
    ok(&mut client, add("/", 1)).await;
    ok(&mut client, Request::get_data("/").watching()).await;
    ok(&mut client, remove("/", 4)).await;
    let told = events_of(&mut client, [Request::create("/a", "")]).await;
    assert_eq!(told, [(NodeCreated, "/a".into())], "the recursive one");
    ok(&mut client, remove("/", 5)).await;
    assert_eq!(server.watch_count().unwrap(), 1);
    ok(&mut client, remove("/", 2)).await;
    assert_eq!(server.watch_count().unwrap(), 0);
}

#[tokio::test]
async fn a_watch_through_the_empty_alias_of_the_root_never_fires() {
    let (_server, mut client) = server_and_client().await;
    ok(&mut client, Request::get_data("").watching()).await;
    ok(&mut client, Request::get_children("").watching()).await;
    let changes = [Request::set_data("/", "x"), Request::create("/a", "")];
    assert_eq!(events_of(&mut client, changes).await, []);
}

#[tokio::test]
async fn several_watches_of_one_connection_tell_of_a_change_once() {
    let (_server, mut client) = server_and_client().await;
    ok(&mut client, Request::create("/a", "")).await;
    ok(&mut client, Request::create("/a/b", "")).await;
    ok(&mut client, add("/", 1)).await;
    ok(&mut client, add("/a", 1)).await;
    ok(&mut client, Request::get_data("/a/b").watching()).await;
    let told = events_of(&mut client, [Request::set_data("/a/b", "x")]).await;
    assert_eq!(told, [(NodeDataChanged, "/a/b".into())]);
    ok(&mut client, Request::get_children("/a/b").watching()).await;
    let told = events_of(&mut client, [Request::create("/a/b/c", "")]).await;
    assert_eq!(
        told,
        [
            (NodeCreated, "/a/b/c".into()),
            (NodeChildrenChanged, "/a/b".into())
        ]
    );
}

#[tokio::test]
async fn a_lasting_watch_outlives_its_node() {
    let (_server, mut client) = server_and_client().await;
    ok(&mut client, add("/a", 0)).await;
    let changes = [
        Request::create("/a", ""),
        Request::delete("/a"),
        Request::create("/a", ""),
    ];
    assert_eq!(
        events_of(&mut client, changes).await,
        [
            (NodeCreated, "/a".into()),
            (NodeDeleted, "/a".into()),
            (NodeCreated, "/a".into())
        ]
    );
}

#[tokio::test]
async fn an_expiry_tells_of_every_node_that_goes() {
    let (server, mut watcher) = server_and_client().await;
    let mut owner = client_of(&server).await;
    ok(&mut watcher, add("/", 1)).await;
    for path in ["/a", "/b"] {
        ok(&mut owner, Request::create_ephemeral(path)).await;
    }
    server.expire_session(owner.session_id()).unwrap();
    let mut told = Vec::new();
    for _ in 0..4 {
        told.push(event(&mut watcher).await);
    }
    told[2..].sort_by(|one, other| one.1.cmp(&other.1));
    assert_eq!(
        told,
        [
            (NodeCreated, "/a".into()),
            (NodeCreated, "/b".into()),
            (NodeDeleted, "/a".into()),
            (NodeDeleted, "/b".into())
        ]
    );
}

#[tokio::test]
async fn who_may_not_read_a_node_is_not_told_of_its_changes() {
    let server = TestServer::start().await.unwrap();
    let (mut owner, mut stranger) = (client_of(&server).await, client_of(&server).await);
    ok(&mut owner, Request::auth_digest("user:password")).await;
    ok(&mut stranger, add("/", 1)).await;
    ok(&mut owner, add("/", 1)).await;
    let private = |perms, id| Acl { perms, id };
    let mut create = Request::create("/secret", "");
    if let Request::Create(create) = &mut create {
        create.acl = vec![
            private(ALL, Id::new("auth", "")),
            private(WRITE, Id::new("world", "anyone")),
        ];
    }
    let changes = [
        create,
        Request::set_data("/secret", "x"),
        Request::delete("/secret"),
    ];
    assert_eq!(events_of(&mut owner, changes).await.len(), 3);
    assert_eq!(events(&mut stranger).await, []);
}

/// Returns a node that its owner alone can read.
fn private(path: &str) -> Request {
    let mut create = Request::create(path, "");
    if let Request::Create(create) = &mut create {
        create.acl = vec![Acl {
            perms: ALL,
            id: Id::new("auth", ""),
        }];
    }
    create
}

/// As a client asks for them that has seen everything: no event was missed.
fn rearm(zxid: i64) -> Request {
    let both = || vec!["/open".to_owned(), "/private".to_owned()];
    Request::SetWatches2(WatchLists {
        relative_zxid: zxid,
        data: both(),
        child: both(),
        persistent: vec!["/private".into()],
        ..WatchLists::default()
    })
}

#[tokio::test]
async fn watches_of_nodes_that_the_client_may_not_read_are_not_armed_again_and_others_are() {
    let server = TestServer::start().await.unwrap();
    let (mut owner, mut stranger) = (client_of(&server).await, client_of(&server).await);
    ok(&mut owner, Request::auth_digest("user:password")).await;
    ok(&mut owner, Request::create("/open", "")).await;
    ok(&mut owner, private("/private")).await;
    let zxid = owner.last_zxid();
    // The owner of the node gets no event.
    ok(&mut owner, rearm(zxid)).await;
    assert_eq!(events(&mut owner).await, []);
    // The stranger gets the same events whether the node has changed or not: it reads again, and is refused.
    let told = [
        (NodeDataChanged, "/private".into()),
        (NodeChildrenChanged, "/private".into()),
    ];
    for zxid in [zxid, 0] {
        stranger.call(rearm(zxid)).await.unwrap().ok().unwrap();
        let mut seen = events(&mut stranger).await;
        seen.retain(|(_, path)| path == "/private");
        assert_eq!(seen, told);
    }
    ok(&mut stranger, rearm(zxid)).await;
    assert_eq!(events(&mut stranger).await, told);
    let changes = ["/private", "/open"].map(|path| Request::set_data(path, "x"));
    assert_eq!(events_of(&mut owner, changes).await.len(), 2);
    assert_eq!(
        events(&mut stranger).await,
        [(NodeDataChanged, "/open".into())]
    );
}

#[tokio::test]
async fn without_access_lists_everybody_is_told() {
    let server = TestServer::with(Config {
        skip_acl: true,
        ..TestServer::config()
    })
    .await
    .unwrap();
    let mut client = client_of(&server).await;
    ok(&mut client, add("/", 1)).await;
    let mut create = Request::create("/secret", "");
    if let Request::Create(create) = &mut create {
        create.acl[0].perms = 0;
    }
    let changes = [create, Request::set_data("/secret", "x")];
    assert_eq!(events_of(&mut client, changes).await.len(), 2);
}
