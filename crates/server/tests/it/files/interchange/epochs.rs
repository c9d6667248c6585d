//! Zxids of a new epoch: after the last of an epoch, and of a folder that was set back.

use super::*;
use bellwether_server::restore;
use bellwether_testkit::Create;

use crate::{created, ok, stat};

/// An empty folder whose last zxid is `zxid`, left by a member of an ensemble.
async fn folder_at(zxid: i64) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(Engine::Ours, folder, Snapshots::Few);
    let folder = server.await.unwrap().stop(Stop::Clean).await.unwrap();
    let version = folder.path().join("version-2");
    let at = version.join(format!("snapshot.{zxid:x}"));
    fs::rename(version.join("snapshot.0"), at).unwrap();
    for name in ["acceptedEpoch", "currentEpoch"] {
        fs::write(version.join(name), (zxid >> 32).to_string()).unwrap();
    }
    folder
}

/// Creates `count` nodes below `/`, and returns their czxids.
async fn czxids(client: &mut RawClient, count: usize) -> Vec<i64> {
    let mut czxids = Vec::new();
    for _ in 0..count {
        let create = Request::create_mode("/n-", "", Create::PERSISTENT_SEQUENTIAL);
        let path = created(client, create).await;
        czxids.push(stat(client, &path).await.czxid);
    }
    czxids
}

#[tokio::test]
async fn the_last_zxid_of_an_epoch_is_followed_by_the_next_epoch_on_both_servers() {
    const LAST: i64 = 0x4_ffff_ffff;
    let folder = folder_at(LAST - 6).await;
    let server = Running::start(Engine::Ours, folder, Snapshots::Few);
    let server = server.await.unwrap();
    let mut sessions = go_on(&[], server.address()).await.unwrap();
    for (number, session) in sessions.iter_mut().enumerate() {
        created(session, Request::create_ephemeral(format!("/e-{number}"))).await;
    }
    let over_the_edge = czxids(&mut sessions[0], 4).await;
    assert_eq!(over_the_edge, [LAST - 1, LAST, LAST + 2, LAST + 3]);
    let left = server.contents().await.unwrap();
    let killed = copy(server.folder.path()).unwrap();
    server.stop(Stop::Clean).await.unwrap();

    let server = Running::start(Engine::Ours, killed, Snapshots::Few);
    let server = server.await.unwrap();
    assert_same(&left, &server.contents().await.unwrap(), "after a kill");
    let mut sessions = go_on(&sessions, server.address()).await.unwrap();
    let later = czxids(&mut sessions[0], 1).await;
    assert!(later[0] > LAST + 3, "{later:x?}");
    let left = server.contents().await.unwrap();
    let folder = server.stop(Stop::Clean).await.unwrap();
    for name in ["acceptedEpoch", "currentEpoch"] {
        let file = folder.path().join("version-2").join(name);
        assert_eq!(fs::read_to_string(file).unwrap(), "5", "{name}");
    }

    let server = Running::start(Engine::Apache, folder, Snapshots::Few);
    let server = server.await.unwrap();
    assert_same(&left, &server.contents().await.unwrap(), "Apache");
    let mut sessions = go_on(&sessions, server.address()).await.unwrap();
    let at_last = czxids(&mut sessions[0], 1).await;
    assert!(at_last > later, "{at_last:x?} after {later:x?}");
    server.assert_content().await.unwrap();
}

#[tokio::test]
async fn a_folder_without_further_zxids_is_refused() {
    let folder = folder_at(i64::MAX - 5).await;
    let started = Server::start(config(folder.path())).await;
    let error = anyhow::Error::new(started.unwrap_err());
    assert!(
        format!("{error:#}").contains("too high a zxid"),
        "{error:#}"
    );
}

#[tokio::test]
async fn a_restored_folder_continues_on_apache_and_in_an_ensemble() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(Engine::Ours, tempfile::tempdir().unwrap(), Snapshots::Few);
    let server = server.await.unwrap();
    let mut sessions = go_on(&[], server.address()).await.unwrap();
    workload::write(server.address(), "before", &mut sessions)
        .await
        .unwrap();
    let backed_up = server.contents().await.unwrap();
    let backup = folder.path().join("backup");
    let Kind::Ours(ours) = &server.server else {
        panic!("started as ours");
    };
    ours.backup(&backup).await.unwrap();
    // The sessions see zxids that the backup does not have.
    let lost = czxids(&mut sessions[0], 3).await;
    ok(&mut sessions[1], Request::Ping).await;
    server.stop(Stop::Clean).await.unwrap();

    let data = folder.path().join("data");
    let restored = restore(&backup, &data).unwrap();
    let epoch = restored.continues_after >> 32;
    assert!(epoch > 0 && restored.continues_after > lost[2]);
    for name in ["acceptedEpoch", "currentEpoch"] {
        let file = data.join("version-2").join(name);
        assert!(!file.exists(), "{name} is for members to create");
    }
    let single = copy(&data).unwrap();
    let server = Running::start(Engine::Apache, single, Snapshots::Few);
    let server = server.await.unwrap();
    assert_same(&backed_up, &server.contents().await.unwrap(), "Apache");
    let mut there = go_on(&sessions, server.address()).await.unwrap();
    let later = czxids(&mut there[0], 1).await;
    assert!(later[0] > restored.continues_after, "{later:x?}");
    server.assert_content().await.unwrap();
    server.stop(Stop::Clean).await.unwrap();

    let builder = Apache::builder().data_dir(&data).extended_types();
    let builder = builder.super_digest(SUPER_DIGEST);
    let mut ensemble = builder.ensemble(3).await.unwrap();
    let mut there = go_on(&sessions, ensemble.address(1)).await.unwrap();
    let elected = czxids(&mut there[0], 1).await;
    assert_eq!(elected[0] >> 32, epoch + 1, "{elected:x?}");
    ensemble.stop().await.unwrap();
    let back = copy(ensemble.data_dir(1)).unwrap();
    let server = Running::start(Engine::Ours, back, Snapshots::Few);
    let server = server.await.unwrap();
    let mut there = go_on(&there, server.address()).await.unwrap();
    let last = czxids(&mut there[0], 1).await;
    assert!(last > elected, "{last:x?} after {elected:x?}");
    server.stop(Stop::Clean).await.unwrap();
}
