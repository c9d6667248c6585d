//! Data in real folders.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bellwether_server::{Config, RecoveryError, Server, StartError};
use bellwether_testkit::{Body, ConnectOptions, RawClient, Request};
use bellwether_wire::event::EventKind;
use tempfile::TempDir;

#[tokio::test]
async fn a_second_server_on_a_folder_is_refused() {
    let folder = TempDir::new().unwrap();
    let first = Server::builder().data(folder.path()).start().await.unwrap();
    assert_in_use(&config(folder.path(), None), folder.path()).await;
    first.shutdown().await;
    let again = Server::builder().data(folder.path()).start().await.unwrap();
    again.shutdown().await;
}

#[tokio::test]
async fn a_second_server_with_the_same_folder_for_its_log_is_refused() {
    let (one, other, log) = (folder(), folder(), folder());
    let first = Server::start(config(one.path(), Some(log.path())))
        .await
        .unwrap();
    assert_in_use(&config(other.path(), Some(log.path())), log.path()).await;
    assert_in_use(&config(log.path(), None), log.path()).await;
    first.shutdown().await;
}

#[tokio::test]
async fn data_and_log_may_lie_apart() {
    let (data, log) = (folder(), folder());
    let config = config(data.path(), Some(log.path()));
    let server = Server::start(config.clone()).await.unwrap();
    let mut client = RawClient::connect(server.addresses()[0]).await.unwrap();
    let request = Request::create("/a", "1");
    client.call(request).await.unwrap().outcome.unwrap();
    server.shutdown().await;
    assert_eq!(files(log.path()), ["bellwether.reserve", "log.1"]);
    assert_eq!(files(data.path()), ["snapshot.0"]);

    let server = Server::start(config).await.unwrap();
    let mut client = client.reattach(server.addresses()[0]).await.unwrap();
    let reply = client.call(Request::get_data("/a")).await.unwrap();
    assert!(matches!(reply.outcome, Ok(Body::DataStat(Some(data), _)) if data == b"1"));
    server.shutdown().await;
}

#[tokio::test]
async fn room_for_the_log_is_taken_while_it_is_written_and_given_back() {
    const RESERVED: u64 = 4 << 20;
    let folder = folder();
    let config = Config {
        log_preallocation_bytes: RESERVED,
        ..config(folder.path(), None)
    };
    let server = Server::start(config.clone()).await.unwrap();
    let client = RawClient::connect(server.addresses()[0]).await.unwrap();
    let log = folder.path().join("version-2/log.1");
    let allocated = || fs::metadata(&log).unwrap().blocks() * 512;
    assert!(allocated() >= RESERVED, "{} bytes", allocated());
    // A killed server leaves it to the next one.
    let left = fs::read(&log).unwrap();
    assert!(left.len() as u64 > RESERVED);
    server.shutdown().await;
    assert!(allocated() < RESERVED, "{} bytes", allocated());

    fs::write(&log, left).unwrap();
    let server = Server::start(config).await.unwrap();
    let again = client.reattach(server.addresses()[0]).await.unwrap();
    assert!(!again.is_refused());
    assert!(allocated() < RESERVED, "{} bytes", allocated());
    server.shutdown().await;
}

#[tokio::test]
async fn files_in_the_wrong_one_of_two_folders_are_refused() {
    let (data, log) = (folder(), folder());
    let server = Server::builder().data(data.path()).start().await.unwrap();
    drop(RawClient::connect(server.addresses()[0]).await.unwrap());
    server.shutdown().await;
    // The log would be ignored now, and its data with it.
    let apart = config(data.path(), Some(log.path()));
    assert_misplaced(&apart, &data.path().join("version-2/log.1")).await;
    let swapped = config(log.path(), Some(data.path()));
    assert_misplaced(&swapped, &data.path().join("version-2/snapshot.0")).await;
}

#[tokio::test]
async fn folders_and_files_are_for_their_owner_alone() {
    let folder = folder();
    let data = folder.path().join("new/data");
    let server = Server::builder().data(&data).start().await.unwrap();
    drop(RawClient::connect(server.addresses()[0]).await.unwrap());
    server.shutdown().await;
    let mut pending = vec![folder.path().join("new")];
    let mut seen = 0;
    while let Some(path) = pending.pop() {
        let metadata = fs::metadata(&path).unwrap();
        let expected = if metadata.is_dir() { 0o700 } else { 0o600 };
        let mode = metadata.permissions().mode() & 0o777;
        assert_eq!(mode, expected, "{}: {mode:o}", path.display());
        if metadata.is_dir() {
            let entries = fs::read_dir(&path).unwrap();
            pending.extend(entries.map(|entry| entry.unwrap().path()));
        }
        seen += 1;
    }
    assert_eq!(
        seen, 9,
        "three folders, a lock, a mark, a key, a snapshot, a log and a reserve"
    );
}

#[tokio::test]
async fn sessions_are_back_and_end_when_nobody_comes() {
    let folder = folder();
    let config = Config {
        tick: Duration::from_millis(100),
        session_timeout_max: Some(Duration::from_secs(60)),
        ..config(folder.path(), None)
    };
    let server = Server::start(config.clone()).await.unwrap();
    let options = ConnectOptions {
        timeout: Duration::from_secs(1),
        ..ConnectOptions::default()
    };
    let mut client = RawClient::connect_with(server.addresses()[0], &options)
        .await
        .unwrap();
    let request = Request::create_ephemeral("/e");
    client.call(request).await.unwrap().outcome.unwrap();
    server.shutdown().await;

    let server = Server::start(config).await.unwrap();
    assert_eq!(server.sessions(), 1);
    let mut other = RawClient::connect(server.addresses()[0]).await.unwrap();
    let reply = other.call(Request::exists("/e").watching()).await.unwrap();
    let Ok(Body::Stat(stat)) = reply.outcome else {
        panic!("{reply:?}");
    };
    assert_eq!(stat.ephemeral_owner, client.session_id());
    let event = other.receive_event().await.unwrap();
    assert_eq!((event.kind, &*event.path), (EventKind::NodeDeleted, "/e"));
    let gone = client.reattach(server.addresses()[0]).await.unwrap();
    assert!(gone.is_refused());
    server.shutdown().await;
}

fn folder() -> TempDir {
    TempDir::new().unwrap()
}

fn config(data: &Path, log: Option<&Path>) -> Config {
    Config {
        data_dir: Some(data.to_owned()),
        data_log_dir: log.map(PathBuf::from),
        ..Config::default()
    }
}

/// The data files in a folder.
fn files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder.join("version-2")).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

async fn assert_in_use(config: &Config, expected: &Path) {
    match Server::start(config.clone()).await {
        Err(StartError::Data(RecoveryError::InUse { folder })) => assert_eq!(folder, expected),
        other => panic!("{other:?}"),
    }
}

async fn assert_misplaced(config: &Config, expected: &Path) {
    match Server::start(config.clone()).await {
        Err(StartError::Data(RecoveryError::Misplaced { file })) => assert_eq!(file, expected),
        other => panic!("{other:?}"),
    }
}
