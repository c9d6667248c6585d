//! Tokens of holders whose server went back in time.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use bellwether::{Client, Error, ErrorKind, Fence, Lock, LockGuard};
use bellwether_server::files::{LogReader, Repair};
use bellwether_server::{Config, Server, restore};
use tokio::time::timeout;

/// Longer than anything here takes. Before a server could continue above what clients had seen, they would have waited for ever.
const LIMIT: Duration = Duration::from_secs(60);

const PATH: &str = "/jobs/nightly";

/// A server on a folder, at an address that stays.
struct Site {
    folder: tempfile::TempDir,
    address: SocketAddr,
    server: Option<Server>,
}

impl Site {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut site = Self {
            folder,
            address: ([127, 0, 0, 1], 0).into(),
            server: None,
        };
        site.resume().await;
        site
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    async fn stop(&mut self) {
        self.server.take().unwrap().shutdown().await;
    }

    async fn resume(&mut self) {
        let builder = Server::builder().config(Config::default());
        let server = builder.listen(self.address).data(self.data()).start();
        let server = server.await.unwrap();
        self.address = server.addresses()[0];
        self.server = Some(server);
    }

    async fn client(&self) -> Client {
        let connect = bellwether::connect(self.address.to_string());
        connect.session_timeout(LIMIT).await.unwrap()
    }
}

async fn soon<T>(what: impl Future<Output = T>) -> T {
    timeout(LIMIT, what).await.expect("it ends")
}

/// A holder that the server forgets. `keep` saves the state before, `set_back` brings it back while no server runs.
async fn tokens_stay_ordered(keep: impl AsyncFnOnce(&mut Site), set_back: impl FnOnce(&Site)) {
    let mut site = Site::start().await;
    let early = site.client().await;
    let fence = Fence::new();
    let first = soon(Lock::new(&early, PATH).acquire()).await.unwrap();
    fence.admit(first.token()).unwrap();
    soon(first.release()).await.unwrap();
    keep(&mut site).await;

    let forgotten = soon(Lock::new(&early, PATH).acquire()).await.unwrap();
    fence.admit(forgotten.token()).unwrap();
    // It has seen the latest zxid of all.
    let witness = site.client().await;
    let other = Lock::new(&witness, "/jobs/other");
    soon(soon(other.acquire()).await.unwrap().release())
        .await
        .unwrap();
    site.stop().await;
    set_back(&site);
    site.resume().await;

    // Its node is gone, so its client learns it as soon as it is back.
    soon(forgotten.lost()).await;
    let late = site.client().await;
    let next = soon(Lock::new(&late, PATH).acquire()).await.unwrap();
    assert!(forgotten.token() < next.token());
    fence.admit(next.token()).unwrap();
    fence.admit(forgotten.token()).unwrap_err();
    soon(next.release()).await.unwrap();
    let again = soon(in_a_new_session(&Lock::new(&early, PATH))).await;
    assert!(again.token() > fence.highest().unwrap());
    soon(again.release()).await.unwrap();
    let seen_latest = soon(in_a_new_session(&other)).await;
    soon(seen_latest.release()).await.unwrap();
    site.stop().await;
}

/// Acquires a lock, also if the client has not heard yet that the servers no longer have its session.
async fn in_a_new_session(lock: &Lock) -> LockGuard {
    loop {
        match lock.acquire().await {
            Err(Error {
                kind: ErrorKind::SessionEnded,
                ..
            }) => {}
            acquired => return acquired.unwrap(),
        }
    }
}

#[tokio::test]
async fn t102_tokens_after_a_restore_are_higher_and_clients_are_back() {
    let keep = async |site: &mut Site| {
        let backup = site.server().backup(site.beside("backup")).await;
        backup.unwrap();
    };
    let set_back = |site: &Site| {
        fs::remove_dir_all(site.data()).unwrap();
        restore(&site.beside("backup"), &site.data()).unwrap();
    };
    tokens_stay_ordered(keep, set_back).await;
}

#[tokio::test]
async fn t102_tokens_after_a_repair_are_higher_and_clients_are_back() {
    // The next log begins with the hold.
    let keep = async |site: &mut Site| {
        site.stop().await;
        site.resume().await;
    };
    let set_back = |site: &Site| {
        damage_first_record(&newest_log(&site.data()));
        let repair = Repair::plan(site.data(), site.data()).unwrap();
        assert!(repair.wrong().is_some());
        repair.apply().unwrap();
    };
    tokens_stay_ordered(keep, set_back).await;
}

#[tokio::test]
async fn t102_tokens_after_an_old_copy_took_the_place_of_a_folder_are_higher() {
    let keep = async |site: &mut Site| {
        site.stop().await;
        let mut copy = Command::new("cp");
        let copied = copy.arg("-a").args([site.data(), site.beside("old")]);
        assert!(copied.status().unwrap().success());
        site.resume().await;
    };
    let set_back = |site: &Site| {
        fs::remove_dir_all(site.data()).unwrap();
        fs::rename(site.beside("old"), site.data()).unwrap();
    };
    tokens_stay_ordered(keep, set_back).await;
}

fn newest_log(data: &Path) -> PathBuf {
    let entries = fs::read_dir(data.join("version-2")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let logs = paths.filter_map(|path| {
        let zxid = path.file_name()?.to_str()?.strip_prefix("log.")?.to_owned();
        Some((i64::from_str_radix(&zxid, 16).unwrap(), path))
    });
    logs.max().unwrap().1
}

fn damage_first_record(log: &Path) {
    let mut records = LogReader::open(fs::File::open(log).unwrap()).unwrap();
    let first = records.next().unwrap().unwrap();
    assert!(records.next().unwrap().is_some(), "others follow");
    let mut bytes = fs::read(log).unwrap();
    bytes[usize::try_from(first.offset).unwrap() + 30] ^= 0x10;
    fs::write(log, bytes).unwrap();
}
