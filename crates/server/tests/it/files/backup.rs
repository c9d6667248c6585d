//! Backups of a server under writes, and their restore.

use std::path::Path;

use bellwether_server::{BackupError, Config, Server, restore};
use bellwether_testkit::{RawClient, Request};

use crate::{children, ok};

async fn start(folder: &Path) -> Server {
    let builder = Server::builder().config(Config::default()).data(folder);
    builder.start().await.unwrap()
}

/// Creates two nodes at once.
fn pair(number: usize) -> Request {
    let node = |place: &str| Request::create(format!("/{place}/{number:05}"), "x");
    Request::Multi(vec![node("a"), node("b")])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_is_one_moment_of_a_server_that_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(&folder.path().join("data")).await;
    let address = server.addresses()[0];
    let mut client = RawClient::connect(address).await.unwrap();
    for place in ["/a", "/b"] {
        ok(&mut client, Request::create(place, "")).await;
    }
    for number in 0..100 {
        ok(&mut client, pair(number)).await;
    }
    let writing = tokio::spawn(async move {
        for number in 100..1100 {
            ok(&mut client, pair(number)).await;
        }
    });
    let mut files = Vec::new();
    while !writing.is_finished() || files.is_empty() {
        let file = folder.path().join(format!("backup-{}", files.len()));
        let backup = server.backup(&file).await.unwrap();
        files.push((file, backup));
    }
    writing.await.unwrap();
    server.shutdown().await;

    for (number, (file, backup)) in files.iter().enumerate() {
        let data = folder.path().join(format!("restored-{number}"));
        assert_eq!(restore(file, &data).unwrap().backup, *backup);
        let restored = start(&data).await;
        let mut again = RawClient::connect(restored.addresses()[0]).await.unwrap();
        let (a, b) = (
            children(&mut again, "/a").await,
            children(&mut again, "/b").await,
        );
        assert!(a == b, "half of a transaction");
        assert!(
            a.len() >= 100,
            "{} of what was acknowledged before",
            a.len()
        );
        let expected: Vec<_> = (0..a.len()).map(|number| format!("{number:05}")).collect();
        assert_eq!(a, expected);
        // The restored server continues from there.
        ok(&mut again, Request::create("/new", "")).await;
        restored.shutdown().await;
    }
}

#[tokio::test]
async fn only_a_good_backup_is_brought_back_and_only_to_an_empty_folder() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = start(&data).await;
    let mut client = RawClient::connect(server.addresses()[0]).await.unwrap();
    ok(&mut client, Request::create("/a", "some data")).await;
    let file = folder.path().join("backup");
    server.backup(&file).await.unwrap();
    let in_use = restore(&file, &data);
    assert!(
        matches!(in_use, Err(BackupError::Folder { .. })),
        "{in_use:?}"
    );
    let nowhere = server
        .backup(folder.path().join("no/such/folder/file"))
        .await;
    assert!(
        matches!(nowhere, Err(BackupError::Write { .. })),
        "{nowhere:?}"
    );
    server.shutdown().await;
    let not_empty = restore(&file, &data);
    assert!(
        matches!(not_empty, Err(BackupError::NotEmpty { .. })),
        "{not_empty:?}"
    );

    let good = std::fs::read(&file).unwrap();
    let elsewhere = folder.path().join("elsewhere");
    // Some bytes have no meaning, such as the database number: then the restored tree is the same.
    let mut without_meaning = 0;
    let mut exact_or_refused = |bytes: &[u8], what: &str| {
        std::fs::write(&file, bytes).unwrap();
        if let Ok(restored) = restore(&file, &elsewhere) {
            let name = format!("version-2/snapshot.{:x}", restored.continues_after);
            let written = std::fs::read(elsewhere.join(name)).unwrap();
            assert!(without_zxid(&written) == without_zxid(&good), "{what}");
            std::fs::remove_dir_all(&elsewhere).unwrap();
            without_meaning += 1;
        }
        assert!(!elsewhere.exists(), "{what}: something was written");
    };
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        exact_or_refused(&bad, &format!("the byte at {at} was changed"));
        exact_or_refused(&good[..at], &format!("cut at {at}"));
    }
    assert!(
        without_meaning < 30,
        "{without_meaning} of them were not noticed"
    );
    std::fs::write(&file, &good).unwrap();
    restore(&file, &elsewhere).unwrap();
}

/// A snapshot without its zxid and the checksum over it: nodes, sessions and digest.
fn without_zxid(snapshot: &[u8]) -> (&[u8], &[u8]) {
    const DIGEST_AND_SEAL: usize = 4 + 8 + 13;
    let (nodes, digest) = snapshot.split_at(snapshot.len() - DIGEST_AND_SEAL);
    (&nodes[..nodes.len() - 8], &digest[..4 + 8])
}
