//! A panic in an essential thread: the server stops and reports it, instead of leaving its clients waiting.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bellwether_server::files::{Disk, DiskFile};
use bellwether_server::{Config, Server};
use bellwether_testkit::{CrashDisk, RawClient, Request};
use tokio::time::timeout;

/// A disk that panics, once armed, when a file with a certain text in its name is created.
#[derive(Debug)]
struct PanickingDisk {
    disk: CrashDisk,
    name: &'static str,
    is_armed: AtomicBool,
}

impl Disk for PanickingDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn read(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        self.disk.read(name)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let panics = self.is_armed.load(Relaxed) && name.contains(self.name);
        assert!(!panics, "a bug in the disk");
        self.disk.create(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn truncate(&self, name: &str, bytes: u64) -> io::Result<()> {
        self.disk.truncate(name, bytes)
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        self.disk.sync(name)
    }

    fn sync_names(&self) -> io::Result<()> {
        self.disk.sync_names()
    }
}

async fn server_that_panics_at(name: &'static str) -> Server {
    let disk = Arc::new(PanickingDisk {
        disk: CrashDisk::new(),
        name,
        is_armed: AtomicBool::new(false),
    });
    let config = Config {
        tick: Duration::from_secs(60),
        snap_count: 2,
        ..Config::default()
    };
    let builder = Server::builder().config(config);
    let builder = builder.disks(disk.clone(), disk.clone());
    let server = builder.start().await.unwrap();
    disk.is_armed.store(true, Relaxed);
    server
}

/// Why the server has stopped; it must not accept connections any more.
async fn reason(server: Server) -> String {
    let limit = Duration::from_secs(10);
    let failure = timeout(limit, server.failed())
        .await
        .expect("the server still runs");
    let mut late = RawClient::open(server.addresses()[0]).await.unwrap();
    late.closed().await.unwrap();
    timeout(limit, server.shutdown()).await.expect("it hangs");
    failure.to_string()
}

#[tokio::test]
async fn a_panic_while_the_log_is_written_stops_the_server() {
    let server = server_that_panics_at("log.").await;
    let refused = RawClient::connect(server.addresses()[0]).await;
    assert!(refused.is_err(), "a session that is nowhere");
    let reason = reason(server).await;
    assert_eq!(reason, "the writer thread panicked: a bug in the disk");
}

#[tokio::test]
async fn a_panic_while_a_snapshot_is_written_stops_the_server() {
    let server = server_that_panics_at("snapshot.").await;
    let mut client = RawClient::connect(server.addresses()[0]).await.unwrap();
    // A snapshot is due now and then; everything written until it fails is on disk.
    while client.call(Request::set_data("/", "x")).await.is_ok() {}
    let reason = reason(server).await;
    assert_eq!(reason, "the snapshot thread panicked: a bug in the disk");
}
