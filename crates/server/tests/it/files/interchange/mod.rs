//! Data folders move between this server and Apache's, and nothing in them changes.

mod epochs;
mod killed;
mod workload;

use std::ffi::OsStr;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use bellwether_server::files::{LogEnd, LogReader};
use bellwether_server::{Config, Server, SessionPasswords};
use bellwether_testkit::{
    Apache, Body, ConnectOptions, Contents, RawClient, Request, TestServer, raw::four_letter_word,
    read_contents,
};
use tempfile::TempDir;

/// The superuser, on all servers here.
const SUPER: &str = "super:secret";

/// The same as a server setting.
const SUPER_DIGEST: &str = "super:lK75jTNcA+U9vtVEw5vB51mj/w4=";

/// The timeout of the sessions that move.
const SESSION_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq)]
enum Engine {
    Ours,
    Apache,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Stop {
    Clean,
    Kill,
}

/// How often servers take snapshots: hardly ever, so that everything comes from the logs, or all the time.
#[derive(Debug, Clone, Copy)]
enum Snapshots {
    Few,
    Many,
}

#[tokio::test]
async fn ours_to_apache_and_back_after_clean_stops() {
    round_trip(Engine::Ours, Stop::Clean, Snapshots::Few)
        .await
        .unwrap();
}

#[tokio::test]
async fn apaches_to_ours_and_back_after_clean_stops() {
    round_trip(Engine::Apache, Stop::Clean, Snapshots::Few)
        .await
        .unwrap();
}

#[tokio::test]
async fn ours_to_apache_and_back_after_kills() {
    round_trip(Engine::Ours, Stop::Kill, Snapshots::Few)
        .await
        .unwrap();
}

#[tokio::test]
async fn apaches_to_ours_and_back_after_kills() {
    round_trip(Engine::Apache, Stop::Kill, Snapshots::Few)
        .await
        .unwrap();
}

#[tokio::test]
async fn folders_with_many_snapshots_and_logs_go_both_ways() {
    round_trip(Engine::Ours, Stop::Clean, Snapshots::Many)
        .await
        .unwrap();
    round_trip(Engine::Apache, Stop::Kill, Snapshots::Many)
        .await
        .unwrap();
}

/// One server after the other opens the folder, finds everything unchanged, and continues to write.
async fn round_trip(first: Engine, stop: Stop, snapshots: Snapshots) -> Result<()> {
    let mut folder = tempfile::tempdir()?;
    let mut engine = first;
    let mut sessions = Vec::new();
    let mut left: Option<Contents> = None;
    for round in 0..4 {
        let server = Running::start(engine, folder, snapshots).await?;
        let context = format!("round {round}, {engine:?} after {stop:?}");
        if let Some(left) = &left {
            assert_same(left, &server.contents().await?, &context);
        }
        sessions = go_on(&sessions, server.address()).await?;
        if round > 0 {
            workload::change_earlier(&mut sessions[0], &format!("round-{}", round - 1)).await?;
        }
        let name = format!("round-{round}");
        workload::write(server.address(), &name, &mut sessions).await?;
        left = Some(server.contents().await?);
        server.assert_content().await?;
        folder = server.stop(stop).await?;
        engine = match engine {
            Engine::Ours => Engine::Apache,
            Engine::Apache => Engine::Ours,
        };
    }
    Ok(())
}

/// Resumes sessions on another server, or opens the first ones. They must still own their nodes.
async fn go_on(sessions: &[RawClient], address: SocketAddr) -> Result<Vec<RawClient>> {
    let mut taken_up = Vec::new();
    for session in sessions {
        let mut client = session.reattach(address).await?;
        assert_eq!(client.session_id(), session.session_id());
        assert_eq!(client.timeout_ms(), session.timeout_ms());
        let prefix = String::from("/");
        let body = client.call(Request::GetEphemerals { prefix }).await?.ok()?;
        assert!(matches!(body, Body::Ephemerals(paths) if !paths.is_empty()));
        taken_up.push(client);
    }
    // The maximum that servers grant: a busy machine takes its time between two of them.
    let options = ConnectOptions {
        timeout: SESSION_TIMEOUT,
        ..ConnectOptions::default()
    };
    while taken_up.len() < 2 {
        taken_up.push(RawClient::connect_with(address, &options).await?);
    }
    Ok(taken_up)
}

/// A server of either kind on a folder.
#[derive(Debug)]
struct Running {
    server: Kind,
    folder: TempDir,
}

#[derive(Debug)]
enum Kind {
    Ours(Box<Server>),
    Apache(Apache),
}

impl Running {
    async fn start(engine: Engine, folder: TempDir, snapshots: Snapshots) -> Result<Self> {
        let snap_count = match snapshots {
            Snapshots::Few => 100_000,
            Snapshots::Many => 10,
        };
        let server = match engine {
            Engine::Ours => {
                let config = Config {
                    snap_count,
                    snapshots_kept: None,
                    ..config(folder.path())
                };
                Kind::Ours(Box::new(Server::start(config).await?))
            }
            Engine::Apache => {
                let builder = Apache::builder()
                    .data_dir(folder.path())
                    .extended_types()
                    .super_digest(SUPER_DIGEST)
                    .property("zookeeper.snapCount", snap_count.to_string());
                Kind::Apache(builder.start().await?)
            }
        };
        Ok(Self { server, folder })
    }

    fn address(&self) -> SocketAddr {
        match &self.server {
            Kind::Ours(server) => server.addresses()[0],
            Kind::Apache(server) => server.address(),
        }
    }

    async fn contents(&self) -> Result<Contents> {
        contents(self.address()).await
    }

    /// Apache reports no problem, in its own files or in ours.
    async fn assert_content(&self) -> Result<()> {
        if let Kind::Apache(server) = &self.server {
            assert_no_complaint(&server.log()?);
            let figures = four_letter_word(server.address(), "mntr").await?;
            let mismatches = figures
                .lines()
                .find(|line| line.starts_with("zk_digest_mismatches_count"));
            assert_eq!(mismatches, Some("zk_digest_mismatches_count\t0"));
        }
        Ok(())
    }

    /// Stops the server and returns its folder, or what a crash would leave of it.
    async fn stop(self, how: Stop) -> Result<TempDir> {
        match (self.server, how) {
            (Kind::Ours(server), Stop::Clean) => {
                server.shutdown().await;
                Ok(self.folder)
            }
            (Kind::Ours(server), Stop::Kill) => {
                let left = copy(self.folder.path())?;
                server.shutdown().await;
                Ok(left)
            }
            (Kind::Apache(mut server), Stop::Clean) => {
                server.stop().await?;
                Ok(self.folder)
            }
            (Kind::Apache(mut server), Stop::Kill) => {
                server.kill();
                Ok(self.folder)
            }
        }
    }
}

#[tokio::test]
async fn apaches_tools_read_our_files() {
    let server = Running::start(Engine::Ours, tempfile::tempdir().unwrap(), Snapshots::Few)
        .await
        .unwrap();
    let mut sessions = go_on(&[], server.address()).await.unwrap();
    workload::write(server.address(), "tools", &mut sessions)
        .await
        .unwrap();
    let folder = server.stop(Stop::Clean).await.unwrap();
    // The second start writes a snapshot of what the first one left in the log.
    let server = Running::start(Engine::Ours, folder, Snapshots::Few)
        .await
        .unwrap();
    let nodes = server.contents().await.unwrap().len();
    let folder = server.stop(Stop::Clean).await.unwrap();

    let logs = data_files(folder.path(), "log.");
    assert!(logs.len() >= 2);
    for log in &logs {
        let dump = tool(
            "persistence.TxnLogToolkit",
            &["-d".as_ref(), log.as_os_str()],
        )
        .await;
        let records = dump
            .lines()
            .filter(|line| line.contains(" session 0x"))
            .count();
        assert_eq!(records, count_records(log), "{dump}");
        assert!(!dump.contains("CRC ERROR"), "{dump}");
    }
    let snapshots = data_files(folder.path(), "snapshot.");
    let newest = snapshots.last().unwrap();
    let listing = tool("SnapshotFormatter", &[newest.as_os_str()]).await;
    let listed = listing.lines().filter(|line| line.starts_with('/')).count();
    assert_eq!(listed, nodes, "{listing}");
    for session in &sessions {
        let id = format!("{:#x}, 60000", session.session_id());
        assert!(listing.contains(&id), "{id} in {listing}");
    }
    let arguments = ["-l", "-r", "-b", "-n"].map(OsStr::new);
    let [left, right, bytes, nodes] = arguments;
    let (newest, zero) = (newest.as_os_str(), OsStr::new("0"));
    let comparison = [left, newest, right, newest, bytes, zero, nodes, zero];
    let compared = tool("SnapshotComparer", &comparison).await;
    assert!(compared.contains("All layers compared"), "{compared}");
}

#[tokio::test]
async fn packed_snapshots_of_apache_are_read() {
    for method in ["gz", "snappy"] {
        let folder = tempfile::tempdir().unwrap();
        let builder = Apache::builder()
            .data_dir(folder.path())
            .extended_types()
            .super_digest(SUPER_DIGEST)
            .property("zookeeper.snapshot.compression.method", method);
        let mut apache = builder.start().await.unwrap();
        let mut sessions = go_on(&[], apache.address()).await.unwrap();
        workload::write(apache.address(), method, &mut sessions)
            .await
            .unwrap();
        let left = contents(apache.address()).await.unwrap();
        apache.stop().await.unwrap();
        apache.restart().await.unwrap();
        apache.stop().await.unwrap();
        let version = folder.path().join("version-2");
        let packed: Vec<_> = data_files(folder.path(), "snapshot.")
            .into_iter()
            .filter(|path| path.extension() == Some(OsStr::new(method)))
            .collect();
        assert!(packed.len() >= 2, "{packed:?}");
        // Without the logs, everything must come from the snapshot.
        for log in data_files(folder.path(), "log.") {
            fs::remove_file(version.join(log)).unwrap();
        }
        let server = Running::start(Engine::Ours, folder, Snapshots::Few)
            .await
            .unwrap();
        assert_same(&left, &server.contents().await.unwrap(), method);
        go_on(&sessions, server.address()).await.unwrap();
        server.stop(Stop::Clean).await.unwrap();
    }
}

#[tokio::test]
async fn an_ensemble_takes_over_and_gives_back() {
    let server = Running::start(Engine::Ours, tempfile::tempdir().unwrap(), Snapshots::Few)
        .await
        .unwrap();
    let mut sessions = go_on(&[], server.address()).await.unwrap();
    workload::write(server.address(), "alone", &mut sessions)
        .await
        .unwrap();
    let left = server.contents().await.unwrap();
    let folder = server.stop(Stop::Clean).await.unwrap();

    let builder = Apache::builder()
        .data_dir(folder.path())
        .extended_types()
        .super_digest(SUPER_DIGEST)
        .property("zookeeper.snapCount", "10");
    let mut ensemble = builder.ensemble(3).await.unwrap();
    // Members that were synchronized by others do not store the list of members there.
    let mut telling = None;
    for member in 0..3 {
        let mut found = contents(ensemble.address(member)).await.unwrap();
        let config = left["/zookeeper/config"].clone();
        let members = found.insert("/zookeeper/config".into(), config).unwrap();
        if members.data.unwrap().starts_with(b"server.1=") {
            telling = Some(member);
        }
        assert_same(&left, &found, &format!("member {member}"));
    }
    let telling = telling.unwrap();
    let mut sessions = go_on(&sessions, ensemble.address(1)).await.unwrap();
    workload::change_earlier(&mut sessions[0], "alone")
        .await
        .unwrap();
    workload::write(ensemble.address(1), "together", &mut sessions)
        .await
        .unwrap();
    let epoch = sessions[0].last_zxid() >> 32;
    assert!(epoch > 0);
    let left = contents(ensemble.address(telling)).await.unwrap();
    assert!(!left["/zookeeper/config"].data.as_ref().unwrap().is_empty());
    ensemble.stop().await.unwrap();

    let back = copy(ensemble.data_dir(telling)).unwrap();
    let server = Running::start(Engine::Ours, back, Snapshots::Few)
        .await
        .unwrap();
    assert_same(
        &left,
        &server.contents().await.unwrap(),
        "back from the ensemble",
    );
    let mut sessions = go_on(&sessions, server.address()).await.unwrap();
    workload::change_earlier(&mut sessions[0], "together")
        .await
        .unwrap();
    assert_eq!(sessions[0].last_zxid() >> 32, epoch);
    let left = server.contents().await.unwrap();
    let back = server.stop(Stop::Clean).await.unwrap();
    assert!(back.path().join("version-2/currentEpoch").exists());

    let server = Running::start(Engine::Apache, back, Snapshots::Few)
        .await
        .unwrap();
    assert_same(&left, &server.contents().await.unwrap(), "Apache alone");
    go_on(&sessions, server.address()).await.unwrap();
    server.assert_content().await.unwrap();
}

fn config(folder: &Path) -> Config {
    Config {
        data_dir: Some(folder.to_owned()),
        super_digest: Some(SUPER_DIGEST.into()),
        session_passwords: SessionPasswords::Apache,
        ..TestServer::config()
    }
}

/// Everything, read as the superuser.
async fn contents(address: SocketAddr) -> Result<Contents> {
    let mut client = RawClient::connect(address).await?;
    client.call(Request::auth_digest(SUPER)).await?.ok()?;
    // A member of an ensemble may lag behind acknowledged writes.
    let path = String::from("/");
    client.call(Request::Sync { path }).await?.ok()?;
    let contents = read_contents(&mut client).await?;
    client.call(Request::CloseSession).await?.ok()?;
    Ok(contents)
}

/// Compares node by node: the difference of whole trees would be unreadable.
fn assert_same(left: &Contents, found: &Contents, context: &str) {
    for (path, content) in left {
        assert_eq!(Some(content), found.get(path), "{path} in {context}");
    }
    let more: Vec<_> = found
        .keys()
        .filter(|path| !left.contains_key(*path))
        .collect();
    assert!(more.is_empty(), "{more:?} in {context}");
}

/// No complaint about data files. Messages about broken connections do not matter here.
fn assert_no_complaint(log: &str) {
    let about_data = [
        "server.persistence.",
        "DataTree",
        "ZKDatabase",
        "igest",
        "orrupt",
    ];
    let complaint = log.lines().find(|line| {
        let bad = line.contains("] WARN ") || line.contains("] ERROR ");
        bad && about_data.iter().any(|part| line.contains(part))
    });
    assert_eq!(complaint, None, "{log}");
}

async fn tool(class: &str, arguments: &[&OsStr]) -> String {
    let class = format!("org.apache.zookeeper.server.{class}");
    Apache::tool(&class, arguments).await.unwrap()
}

/// The data files of a kind, in the order of their zxids.
fn data_files(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder.join("version-2")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut files: Vec<_> = names
        .filter_map(|name| {
            let zxid = name.strip_prefix(prefix)?.split('.').next()?;
            Some((i64::from_str_radix(zxid, 16).unwrap(), name))
        })
        .collect();
    files.sort();
    let path = |(_, name)| folder.join("version-2").join(name);
    files.into_iter().map(path).collect()
}

fn count_records(log: &Path) -> usize {
    let mut log = LogReader::open(fs::File::open(log).unwrap()).unwrap();
    let mut count = 0;
    while log.next().unwrap().is_some() {
        count += 1;
    }
    assert_eq!(log.end(), LogEnd::Clean);
    count
}

fn copy(folder: &Path) -> Result<TempDir> {
    let copy = tempfile::tempdir()?;
    fs::create_dir(copy.path().join("version-2"))?;
    for entry in fs::read_dir(folder.join("version-2"))? {
        let from = entry?.path();
        let to = copy
            .path()
            .join("version-2")
            .join(from.file_name().unwrap());
        match fs::copy(&from, to) {
            Ok(_) => {}
            // A snapshot may just be renamed; a crash would leave one name or the other.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(copy)
}
