//! Every operation, with its typed result.

use std::time::Duration;

use bellwether_client::{
    Acl, CreateMode, Error, ErrorCode, Id, Invalid, MultiError, MultiReadResult, MultiResult, acl,
};

use bellwether_testkit::Op;

use crate::support::place::Place;

on_both_engines! {
    create_makes_each_kind_of_node,
    create_is_refused_for_a_reason,
    set_get_exists_and_delete_heed_versions,
    children_are_listed_with_and_without_stat,
    access_lists_are_set_and_read,
    descendants_and_ephemerals_are_counted,
    multi_is_all_or_nothing,
    multi_read_answers_each_read,
    sync_config_and_who_am_i_answer,
    reconfig_of_a_single_server_is_refused,
    paths_that_no_node_can_have_are_not_sent,
    a_chroot_is_taken_off_every_path,
}

async fn create_makes_each_kind_of_node(place: Place) {
    let (proxy, client) = place.proxied(Duration::from_secs(60)).await;
    let plain = client.create("/plain", b"x", CreateMode::Persistent).await;
    let plain = plain.unwrap();
    assert_eq!(plain.path, "/plain");
    assert_eq!((plain.stat.version, plain.stat.data_length), (0, 1));
    assert_eq!(plain.stat.ephemeral_owner, 0);

    let ephemeral = client.create("/brief", b"", CreateMode::Ephemeral).await;
    let ephemeral = ephemeral.unwrap();
    assert_eq!(ephemeral.stat.ephemeral_owner, client.session_id());

    let mut numbers = Vec::new();
    for mode in [
        CreateMode::PersistentSequential,
        CreateMode::EphemeralSequential,
        CreateMode::PersistentSequentialWithTtl,
    ] {
        let options = match mode {
            CreateMode::PersistentSequentialWithTtl => mode.with_ttl(Duration::from_secs(60)),
            mode => mode.into(),
        };
        let path = client.create("/plain/n-", b"", options).await.unwrap().path;
        numbers.push(path.strip_prefix("/plain/n-").unwrap().to_owned());
    }
    assert_eq!(numbers, ["0000000000", "0000000001", "0000000002"]);

    // The servers report no owner for these; the request shows their kind.
    let container = client.create("/box", b"", CreateMode::Container).await;
    assert_eq!(container.unwrap().stat.ephemeral_owner, 0);
    let ttl = CreateMode::PersistentWithTtl.with_ttl(Duration::from_secs(60));
    let ttl = client.create("/milk", b"", ttl).await.unwrap();
    assert_eq!(ttl.stat.ephemeral_owner, 0);
    assert_eq!(proxy.count(Op::CreateContainer), 1);
    assert_eq!(proxy.count(Op::CreateTtl), 2);
}

async fn create_is_refused_for_a_reason(place: Place) {
    let client = place.client().await;
    client
        .create("/e", b"", CreateMode::Ephemeral)
        .await
        .unwrap();
    let create = |path: &str| client.create(path, b"", CreateMode::Persistent);
    assert_eq!(create("/e").await, Err(Error::NODE_EXISTS));
    assert_eq!(create("/none/x").await, Err(Error::NO_NODE));
    assert_eq!(create("/e/x").await, Err(Error::NO_CHILDREN_FOR_EPHEMERALS));
    let nobody = CreateMode::Persistent.with_acl([]);
    let refused = client.create("/x", b"", nobody).await;
    assert_eq!(refused, Err(Error::Refused(ErrorCode::InvalidAcl)));
    for options in [
        CreateMode::Persistent.with_ttl(Duration::from_secs(1)),
        CreateMode::PersistentWithTtl.into(),
        CreateMode::PersistentWithTtl.with_ttl(Duration::ZERO),
        CreateMode::PersistentWithTtl.with_ttl(Duration::MAX),
    ] {
        let refused = client.create("/x", b"", options).await;
        assert_eq!(refused, Err(Error::Invalid(Invalid::Ttl)));
    }
}

async fn set_get_exists_and_delete_heed_versions(place: Place) {
    let client = place.client().await;
    assert_eq!(client.exists("/n").await, Ok(None));
    assert_eq!(client.get("/n").await, Err(Error::NO_NODE));
    assert_eq!(client.set("/n", b"", None).await, Err(Error::NO_NODE));
    assert_eq!(client.delete("/n", None).await, Err(Error::NO_NODE));

    let created = client.create("/n", b"one", CreateMode::Persistent).await;
    let created = created.unwrap().stat;
    assert_eq!(client.exists("/n").await, Ok(Some(created)));
    let (data, stat) = client.get("/n").await.unwrap();
    assert_eq!((&data[..], stat), (&b"one"[..], created));

    let set = client.set("/n", b"three", Some(0)).await.unwrap();
    assert_eq!((set.version, set.data_length), (1, 5));
    assert_eq!(set.czxid, created.czxid);
    assert!(set.mzxid > created.mzxid);
    let stale = client.set("/n", b"", Some(0)).await;
    assert_eq!(stale, Err(Error::BAD_VERSION));
    assert_eq!(client.set("/n", b"", None).await.unwrap().version, 2);
    assert_eq!(client.get("/n").await.unwrap().0.len(), 0);

    client
        .create("/n/c", b"", CreateMode::Persistent)
        .await
        .unwrap();
    assert_eq!(client.delete("/n", Some(0)).await, Err(Error::BAD_VERSION));
    assert_eq!(client.delete("/n", Some(2)).await, Err(Error::NOT_EMPTY));
    assert_eq!(client.delete("/n/c", Some(0)).await, Ok(()));
    assert_eq!(client.delete("/n", None).await, Ok(()));
    assert_eq!(client.exists("/n").await, Ok(None));
}

async fn children_are_listed_with_and_without_stat(place: Place) {
    let client = place.client().await;
    assert_eq!(client.children("/p").await, Err(Error::NO_NODE));
    for path in ["/p", "/p/a", "/p/b"] {
        client
            .create(path, b"", CreateMode::Persistent)
            .await
            .unwrap();
    }
    let mut names = client.children("/p").await.unwrap();
    names.sort();
    assert_eq!(names, ["a", "b"]);
    let (mut names, stat) = client.children_stat("/p").await.unwrap();
    names.sort();
    assert_eq!(names, ["a", "b"]);
    assert_eq!((stat.num_children, stat.cversion), (2, 2));
    assert!(client.children("/p/a").await.unwrap().is_empty());
}

async fn access_lists_are_set_and_read(place: Place) {
    let client = place.client().await;
    client
        .create("/n", b"", CreateMode::Persistent)
        .await
        .unwrap();
    let (open, stat) = client.acl("/n").await.unwrap();
    assert_eq!((open, stat.aversion), (vec![Acl::open()], 0));
    let reader = Acl {
        perms: acl::READ | acl::ADMIN,
        id: Id::new("world", "anyone"),
    };
    let set = client.set_acl("/n", std::slice::from_ref(&reader), Some(0));
    assert_eq!(set.await.unwrap().aversion, 1);
    assert_eq!(
        client.acl("/n").await.unwrap().0,
        std::slice::from_ref(&reader)
    );
    assert_eq!(client.set("/n", b"", None).await, Err(Error::NO_AUTH));
    let stale = client.set_acl("/n", &[reader], Some(0)).await;
    assert_eq!(stale, Err(Error::BAD_VERSION));
}

async fn descendants_and_ephemerals_are_counted(place: Place) {
    let client = place.client().await;
    for path in ["/p", "/p/a", "/p/a/b"] {
        client
            .create(path, b"", CreateMode::Persistent)
            .await
            .unwrap();
    }
    assert_eq!(client.count_descendants("/p").await, Ok(2));
    assert_eq!(client.count_descendants("/p/a/b").await, Ok(0));
    assert_eq!(client.count_descendants("/q").await, Err(Error::NO_NODE));
    assert!(client.ephemerals("/").await.unwrap().is_empty());
    for path in ["/p/e1", "/p/a/e2"] {
        client
            .create(path, b"", CreateMode::Ephemeral)
            .await
            .unwrap();
    }
    let mut all = client.ephemerals("/").await.unwrap();
    all.sort();
    assert_eq!(all, ["/p/a/e2", "/p/e1"]);
    assert_eq!(client.ephemerals("/p/e").await.unwrap(), ["/p/e1"]);
    assert_eq!(client.ephemerals("/p/a/").await.unwrap(), ["/p/a/e2"]);
    // A path that begins with the same letters as the chroot is not below it.
    let neighbour = format!("{}-neighbour", place.chroot());
    let root = client.at_root();
    root.create(&neighbour, b"", CreateMode::Ephemeral)
        .await
        .unwrap();
    let mut all = client.ephemerals("/").await.unwrap();
    all.sort();
    assert_eq!(all, ["/p/a/e2", "/p/e1"]);
    let at_root = root.ephemerals("/").await.unwrap();
    assert_eq!(at_root.len(), 3);
    assert!(at_root.contains(&neighbour));
}

async fn multi_is_all_or_nothing(place: Place) {
    let client = place.client().await;
    client
        .create("/n", b"", CreateMode::Persistent)
        .await
        .unwrap();
    let mut multi = client.new_multi();
    multi.check("/n", Some(0));
    multi.create("/n/s-", b"1", CreateMode::EphemeralSequential);
    multi.create("/n/box", b"", CreateMode::Container);
    multi.set("/n", b"new", Some(0));
    multi.delete("/n/box", None);
    let results = multi.commit().await.unwrap();
    assert_eq!(results.len(), 5);
    assert_eq!(results[0], MultiResult::Checked);
    let MultiResult::Created { path, .. } = &results[1] else {
        panic!("{results:?}");
    };
    assert_eq!(path, "/n/s-0000000000");
    assert!(matches!(&results[2], MultiResult::Created { path, .. } if path == "/n/box"));
    assert!(matches!(&results[3], MultiResult::Set(stat) if stat.version == 1));
    assert_eq!(results[4], MultiResult::Deleted);

    let mut multi = client.new_multi();
    multi.delete("/n/s-0000000000", None);
    multi.set("/n", b"", Some(0));
    multi.create("/n/never", b"", CreateMode::Persistent);
    let refused = multi.commit().await;
    let code = ErrorCode::BadVersion;
    assert_eq!(refused, Err(MultiError::Refused { index: 1, code }));
    assert_eq!(client.children("/n").await.unwrap(), ["s-0000000000"]);
    assert_eq!(client.new_multi().commit().await, Ok(vec![]));

    let mut multi = client.new_multi();
    multi.delete("/n/s-0000000000", None);
    multi.delete("n", None);
    assert!(matches!(
        multi.commit().await,
        Err(MultiError::Request(Error::Invalid(Invalid::Path(_))))
    ));
    assert_eq!(client.children("/n").await.unwrap().len(), 1);
}

async fn multi_read_answers_each_read(place: Place) {
    let client = place.client().await;
    client
        .create("/n", b"data", CreateMode::Persistent)
        .await
        .unwrap();
    let child = client.create("/n/c", b"", CreateMode::Persistent).await;
    let mut reads = client.new_multi_read();
    reads.get("/n/c");
    reads.children("/n");
    reads.get("/none");
    reads.children("/none");
    reads.get("/n");
    let results = reads.commit().await.unwrap();
    let (data, stat) = client.get("/n").await.unwrap();
    assert_eq!(
        results,
        [
            MultiReadResult::Data(Default::default(), child.unwrap().stat),
            MultiReadResult::Children(vec!["c".to_owned()]),
            MultiReadResult::Refused(ErrorCode::NoNode),
            MultiReadResult::Refused(ErrorCode::NoNode),
            MultiReadResult::Data(data, stat),
        ]
    );
    assert_eq!(client.new_multi_read().commit().await, Ok(vec![]));
}

async fn sync_config_and_who_am_i_answer(place: Place) {
    let client = place.client().await;
    assert_eq!(client.sync("/").await, Ok(()));
    assert_eq!(client.sync("/none").await, Ok(()));
    let (config, _) = client.config().await.unwrap();
    assert!(config.is_empty(), "{config:?}");
    let (_, _, watch) = client.config_watched().await.unwrap();
    drop(watch);
    assert_eq!(client.auth("digest", b"alice:secret").await, Ok(()));
    let mut infos = client.who_am_i().await.unwrap();
    infos.sort();
    let pair = |scheme: &str, user: &str| (scheme.to_owned(), user.to_owned());
    assert_eq!(infos, [pair("digest", "alice"), pair("ip", "127.0.0.1")]);
}

async fn reconfig_of_a_single_server_is_refused(place: Place) {
    let client = place.client().await;
    let refused = client.reconfig(Some("server.2=x:1:2;3"), None, None, None);
    let code = ErrorCode::ReconfigDisabled;
    assert_eq!(refused.await, Err(Error::Refused(code)));
}

async fn paths_that_no_node_can_have_are_not_sent(place: Place) {
    let (proxy, client) = place.proxied(Duration::from_secs(60)).await;
    proxy.reset_counts();
    for path in ["", "n", "/n/", "//", "/a//b", "/a/./b", "/../b", "/a\0"] {
        let is_path_error = |error: Error| matches!(error, Error::Invalid(Invalid::Path(_)));
        assert!(is_path_error(client.get(path).await.unwrap_err()), "{path}");
        assert!(is_path_error(
            client.exists_watched(path).await.unwrap_err()
        ));
        let created = client.create(path, b"", CreateMode::Persistent).await;
        assert!(is_path_error(created.unwrap_err()));
        assert!(client.chroot(path).is_err());
    }
    assert_eq!(proxy.counts().values().sum::<usize>(), 0);
    // A name that consists of its number only.
    client
        .create("/n", b"", CreateMode::Persistent)
        .await
        .unwrap();
    let numbered = client.create("/n/", b"", CreateMode::PersistentSequential);
    assert_eq!(numbered.await.unwrap().path, "/n/0000000000");
}

async fn a_chroot_is_taken_off_every_path(place: Place) {
    let client = place.client().await;
    client
        .create("/team", b"t", CreateMode::Persistent)
        .await
        .unwrap();
    let team = client.chroot("/team").unwrap();
    let made = team.create("/n", b"", CreateMode::Persistent).await;
    assert_eq!(made.unwrap().path, "/n");
    assert_eq!(client.children("/team").await.unwrap(), ["n"]);
    assert_eq!(&team.get("/").await.unwrap().0[..], b"t");
    let (_, watch) = team.children_watched("/").await.unwrap();
    let (_, _, root_watch) = team.get_watched("/").await.unwrap();
    let mut multi = team.new_multi();
    multi.create("/m", b"", CreateMode::Ephemeral);
    multi.set("/", b"", None);
    let results = multi.commit().await.unwrap();
    assert!(matches!(&results[0], MultiResult::Created { path, .. } if path == "/m"));
    assert_eq!(watch.await.unwrap().path, "/");
    assert_eq!(root_watch.await.unwrap().path, "/");
    assert_eq!(team.ephemerals("/").await.unwrap(), ["/m"]);
    let full = format!("{}/team/n", place.chroot());
    assert!(client.at_root().exists(&full).await.unwrap().is_some());
    assert_eq!(
        team.chroot("/").unwrap().children("/").await.unwrap().len(),
        2
    );
}
