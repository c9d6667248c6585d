//! Folders that were set back to an earlier state continue above all zxids that were assigned since.

use std::fs;
use std::path::Path;
use std::process::Command;

use bellwether_server::files::Repair;
use bellwether_server::{Config, Server, restore};
use bellwether_testkit::{ConnectOptions, Create, RawClient, Request, TestServer};
use tempfile::TempDir;

use crate::{created, ok, stat};

/// Zxids that the clock vouches for are above this one, of the year 2025.
const CLOCK: i64 = 482_000 << 32;

/// How a folder goes back in time.
#[derive(Debug, Clone, Copy)]
enum How {
    /// A backup is restored to a new folder.
    Restored,
    /// A damaged log is cut.
    Repaired,
    /// An earlier copy of the folder takes its place.
    Copied,
    /// An earlier copy of its data files takes their place.
    FilesCopied,
    /// Its data files are deleted.
    FilesDeleted,
}

fn data(folder: &TempDir) -> std::path::PathBuf {
    folder.path().join("data")
}

async fn start(data: &Path) -> Server {
    let config = Config::default();
    Server::builder()
        .config(config)
        .data(data)
        .start()
        .await
        .unwrap()
}

/// Creates a node with a new session, and returns its czxid.
async fn write(server: &Server) -> i64 {
    let mut client = RawClient::connect(server.addresses()[0]).await.unwrap();
    let create = Request::create_mode("/n-", "", Create::PERSISTENT_SEQUENTIAL);
    let path = created(&mut client, create).await;
    let czxid = stat(&mut client, &path).await.czxid;
    ok(&mut client, Request::CloseSession).await;
    czxid
}

fn cp(from: &Path, to: &Path) {
    let mut command = Command::new("cp");
    let status = command.arg("-a").args([from, to]).status().unwrap();
    assert!(status.success());
}

/// Sets a folder back. Returns the zxids of a write before and one after the state that it has then.
async fn set_back(how: How) -> (TempDir, i64, i64) {
    let folder = tempfile::tempdir().unwrap();
    let (data, old, backup) = (
        data(&folder),
        folder.path().join("old"),
        folder.path().join("backup"),
    );
    let server = start(&data).await;
    let before = write(&server).await;
    server.backup(&backup).await.unwrap();
    server.shutdown().await;
    match how {
        How::Copied => cp(&data, &old),
        How::FilesCopied => cp(&data.join("version-2"), &old),
        _ => {}
    }
    let server = start(&data).await;
    let after = write(&server).await;
    server.shutdown().await;
    match how {
        How::Restored => {
            fs::remove_dir_all(&data).unwrap();
            let restored = restore(&backup, &data).unwrap();
            assert!(restored.backup.zxid < after && after < restored.continues_after);
        }
        How::Repaired => {
            let log = data.join(format!("version-2/log.{:x}", after - 1));
            let mut bytes = fs::read(&log).unwrap();
            bytes[40] ^= 0x10;
            fs::write(&log, bytes).unwrap();
            let repair = Repair::plan(&data, &data).unwrap();
            assert_eq!(repair.steps().len(), 1);
            assert!(repair.apply().unwrap() > after);
        }
        How::Copied => {
            fs::remove_dir_all(&data).unwrap();
            fs::rename(&old, &data).unwrap();
        }
        How::FilesCopied => {
            fs::remove_dir_all(data.join("version-2")).unwrap();
            fs::rename(&old, data.join("version-2")).unwrap();
        }
        How::FilesDeleted => fs::remove_dir_all(data.join("version-2")).unwrap(),
    }
    (folder, before, after)
}

#[tokio::test]
async fn no_zxid_is_assigned_again_however_a_folder_went_back() {
    for how in [
        How::Restored,
        How::Repaired,
        How::Copied,
        How::FilesCopied,
        How::FilesDeleted,
    ] {
        let (folder, _, seen) = set_back(how).await;
        let server = start(&data(&folder)).await;
        // A client that has seen a zxid from after that state is not turned away.
        let options = ConnectOptions {
            last_zxid_seen: seen,
            ..ConnectOptions::default()
        };
        let address = server.addresses()[0];
        RawClient::connect_with(address, &options)
            .await
            .unwrap_or_else(|error| panic!("{how:?}: {error}"));
        let first = write(&server).await;
        assert!(first > CLOCK, "{how:?}: {first:#x}");
        server.shutdown().await;

        // From here on it counts as always.
        let server = start(&data(&folder)).await;
        let next = write(&server).await;
        assert!(
            (first..first + 10).contains(&next),
            "{how:?}: {next:#x} after {first:#x}"
        );
        server.shutdown().await;
    }
}

#[tokio::test]
async fn a_folder_that_was_only_renamed_or_killed_counts_on() {
    let folder = tempfile::tempdir().unwrap();
    let data = data(&folder);
    let server = start(&data).await;
    let first = write(&server).await;
    // Without an orderly end nothing is recorded.
    let version = folder.path().join("killed");
    cp(&data.join("version-2"), &version);
    server.shutdown().await;
    let renamed = folder.path().join("renamed");
    fs::rename(&data, &renamed).unwrap();
    fs::remove_dir_all(renamed.join("version-2")).unwrap();
    fs::rename(version, renamed.join("version-2")).unwrap();
    let server = start(&renamed).await;
    let next = write(&server).await;
    assert!(
        (first..first + 10).contains(&next),
        "{next:#x} after {first:#x}"
    );
    server.shutdown().await;
}

#[tokio::test]
async fn a_backup_that_is_restored_twice_yields_no_zxid_twice() {
    let (folder, ..) = set_back(How::Restored).await;
    let backup = folder.path().join("backup");
    let mut last = 0;
    for number in 0..3 {
        let data = folder.path().join(number.to_string());
        let restored = restore(&backup, &data).unwrap();
        assert!(restored.continues_after > last);
        let server = start(&data).await;
        let first = write(&server).await;
        assert!(first > restored.continues_after && first < restored.continues_after + 10);
        last = write(&server).await;
        server.shutdown().await;
    }
}

#[tokio::test]
async fn a_new_epoch_begins_on_request() {
    for data in [None, Some(tempfile::tempdir().unwrap())] {
        let config = Config {
            data_dir: data.as_ref().map(|folder| folder.path().to_owned()),
            new_epoch: true,
            ..TestServer::config()
        };
        let mut last = CLOCK;
        for _ in 0..2 {
            let server = Server::start(config.clone()).await.unwrap();
            let first = write(&server).await;
            assert!(first > last);
            last = first;
            server.shutdown().await;
        }
    }
}
