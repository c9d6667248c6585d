//! Truncated or changed data files: a server starts with the result of some prefix of its writes, or not at all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use bellwether_server::files::LogReader;
use bellwether_server::{Config, RecoveryError, Server, StartError};
use bellwether_testkit::{CrashDisk, Create, Model, RawClient, Request};

use crate::files::durability::{compare_trees, last_zxid};
use crate::until;

type Files = BTreeMap<String, Vec<u8>>;

#[tokio::test]
async fn a_log_cut_anywhere_is_what_its_whole_records_led_to() {
    let written = Written::new(1).await;
    let records = written.records("log.1");
    for cut in 0..written.files["log.1"].len() {
        let whole = records.iter().filter(|(_, end)| *end <= cut).count();
        let files = written.with("log.1", |bytes| bytes.truncate(cut));
        let found = written.start(files).await;
        assert_eq!(found.unwrap(), whole, "cut at {cut}");
    }
}

#[tokio::test]
async fn a_flipped_byte_costs_the_last_record_at_most_or_is_refused() {
    let written = Written::new(1).await;
    let records = written.records("log.1");
    let (last, end) = *records.last().unwrap();
    for position in 0..end + 40 {
        for mask in [0xFF, 1] {
            let files = written.with("log.1", |bytes| bytes[position] ^= mask);
            match written.start(files).await {
                // The part of the header that Apache does not check either.
                Ok(found) if position < 16 => assert_eq!(found, records.len()),
                Ok(found) if position < last => {
                    panic!("flipped at {position}: {found} of {}", records.len())
                }
                Ok(found) => assert!(
                    found == records.len() || position < end && found == records.len() - 1,
                    "flipped at {position}: {found} of {}",
                    records.len()
                ),
                Err(error) => assert_names_file(&error, "log.1"),
            }
        }
    }
}

#[tokio::test]
async fn a_log_before_the_last_is_whole_or_refused() {
    let written = Written::new(3).await;
    let logs = log_names(&written.files);
    let all = written.models.len() - 1;
    // Only the initial snapshot: everything else must come from the logs.
    let mut base = written.files.clone();
    base.retain(|name, _| name.starts_with("log") || name == "snapshot.0");
    let log = &logs[0];
    let end = written.records(log).last().unwrap().1;
    for position in 0..end {
        let mut cut = base.clone();
        cut.get_mut(log).unwrap().truncate(position);
        assert!(written.start(cut).await.is_err(), "cut at {position}");

        let mut flipped = base.clone();
        flipped.get_mut(log).unwrap()[position] ^= 0x20;
        match written.start(flipped).await {
            Ok(found) => assert!(
                found == all && (4..16).contains(&position),
                "flipped at {position}: {found}"
            ),
            Err(error) => assert!(matches!(error, RecoveryError::Damaged { .. }), "{error}"),
        }
    }
}

#[tokio::test]
async fn a_bad_snapshot_is_passed_over_for_the_one_before() {
    let written = Written::new(3).await;
    let all = written.models.len() - 1;
    let newest = written.newest_snapshot();
    assert_ne!(newest, "snapshot.0");
    let mut alone = written.files.clone();
    alone.retain(|name, _| name.starts_with("log") || *name == newest);
    for position in 0..written.files[&newest].len() {
        let spoil: [fn(&mut Vec<u8>, usize); 2] = [
            |bytes, position| bytes[position] ^= 0x40,
            |bytes, position| bytes.truncate(position),
        ];
        for (kind, spoil) in ["flipped", "cut"].into_iter().zip(spoil) {
            let files = written.with(&newest, |bytes| spoil(bytes, position));
            let found = written.start(files).await;
            assert_eq!(found.unwrap(), all, "{kind} at {position}");

            let mut files = alone.clone();
            spoil(files.get_mut(&newest).unwrap(), position);
            match written.start(files).await {
                // A snapshot without its digest is equally valid.
                Ok(found) => assert_eq!(found, all, "{kind} at {position}"),
                Err(error) => assert!(
                    matches!(error, RecoveryError::NoGoodSnapshot { count: 1 }),
                    "{kind} at {position}: {error}"
                ),
            }
        }
    }
}

#[tokio::test]
async fn a_bad_snapshot_without_the_logs_that_led_to_it_is_refused() {
    let written = Written::new(3).await;
    let newest = written.newest_snapshot();
    let mut files = written.with(&newest, |bytes| bytes.truncate(40));
    files.retain(|name, _| name == "snapshot.0" || *name == newest);
    let disk = CrashDisk::with_files(files.clone());
    let error = written.start_on(&disk).await.unwrap_err();
    let to = zxid_of(&newest);
    assert!(
        matches!(error, RecoveryError::Gap { from: 1, to: last, .. } if last == to),
        "{error}"
    );
    assert_eq!(disk.files(), files);
}

#[tokio::test]
async fn a_log_without_a_snapshot_is_refused_even_if_its_first_record_is_damaged() {
    let written = Written::new(1).await;
    let (first, _) = written.records("log.1")[0];
    let mut files = written.with("log.1", |bytes| bytes[first + 30] ^= 0x10);
    files.retain(|name, _| name == "log.1");
    let disk = CrashDisk::with_files(files.clone());
    let error = written.start_on(&disk).await.unwrap_err();
    assert!(matches!(error, RecoveryError::NoSnapshot), "{error}");
    assert_eq!(disk.files(), files);
}

#[tokio::test]
async fn a_missing_log_is_a_gap() {
    let written = Written::new(3).await;
    let logs = log_names(&written.files);
    let mut files = written.files.clone();
    files.retain(|name, _| !name.starts_with("snapshot") || name == "snapshot.0");
    for missing in &logs[..logs.len() - 1] {
        let mut files = files.clone();
        files.remove(missing);
        let error = written.start(files).await.unwrap_err();
        let from = zxid_of(missing);
        assert!(
            matches!(error, RecoveryError::Gap { from: first, .. } if first == from),
            "{missing}: {error}"
        );
    }
    // Data that no snapshot or log mentions cannot be missed.
    let last = logs.last().unwrap();
    files.remove(last);
    let found = written.start(files).await.unwrap();
    assert_eq!(i64::try_from(found).unwrap(), zxid_of(last) - 1);
}

#[tokio::test]
async fn logs_without_a_snapshot_are_refused() {
    let written = Written::new(1).await;
    let mut files = written.files.clone();
    files.remove("snapshot.0");
    let error = written.start(files).await.unwrap_err();
    assert!(matches!(error, RecoveryError::NoSnapshot), "{error}");
}

#[tokio::test]
async fn a_snapshot_needs_no_log() {
    let written = Written::new(3).await;
    let newest = written.newest_snapshot();
    let mut files = written.files.clone();
    files.retain(|name, _| *name == newest);
    let found = written.start(files).await.unwrap();
    assert_eq!(i64::try_from(found).unwrap(), zxid_of(&newest));
}

#[tokio::test]
async fn leftovers_of_an_interrupted_start_are_removed() {
    let written = Written::new(3).await;
    let mut files = written.files.clone();
    let leftovers = ["unfinished-log.ffff", "unfinished-snapshot.ffff"];
    for name in leftovers {
        files.insert(name.into(), b"half".to_vec());
    }
    let disk = CrashDisk::with_files(files);
    let found = written.start_on(&disk).await.unwrap();
    assert_eq!(found, written.models.len() - 1);
    // A file that the running server writes itself has such a name too.
    let left = disk.files();
    assert!(leftovers.iter().all(|name| !left.contains_key(*name)));
}

#[tokio::test]
async fn what_is_kept_is_enough_to_recover_from_each_snapshot() {
    let written = Written::keeping(6, Some(2)).await;
    let all = written.models.len() - 1;
    let mut files = written.files.clone();
    let mut snapshots: Vec<_> = files.keys().cloned().collect();
    snapshots.retain(|name| name.starts_with("snapshot"));
    snapshots.sort_by_key(|name| std::cmp::Reverse(zxid_of(name)));
    assert_eq!(snapshots.len(), 2);
    assert!(!files.contains_key("log.1"));
    for newest in snapshots {
        let found = written.start(files.clone()).await;
        assert_eq!(found.unwrap(), all, "from {newest}");
        files.remove(&newest);
    }
}

fn assert_names_file(error: &RecoveryError, name: &str) {
    match error {
        RecoveryError::Damaged { file, .. } => assert_eq!(file, name),
        other => panic!("{other}"),
    }
}

/// The logs in their order.
fn log_names(files: &Files) -> Vec<String> {
    let mut logs: Vec<_> = files.keys().cloned().collect();
    logs.retain(|name| name.starts_with("log"));
    logs.sort_by_key(|name| zxid_of(name));
    logs
}

/// The zxid of the newest snapshot; there is always one.
fn newest_snapshot(files: &Files) -> i64 {
    let snapshots = files.keys().filter(|name| name.starts_with("snapshot"));
    snapshots.map(|name| zxid_of(name)).max().unwrap()
}

fn zxid_of(name: &str) -> i64 {
    let (_, zxid) = name.split_once('.').unwrap();
    i64::from_str_radix(zxid, 16).unwrap()
}

/// Files of a stopped server, and its state after each write.
struct Written {
    files: Files,
    models: Vec<Model>,
    config: Config,
}

impl Written {
    /// Lets a server write until it has this many logs, with a snapshot before each but the first.
    async fn new(logs: usize) -> Self {
        Self::keeping(logs, None).await
    }

    async fn keeping(logs: usize, snapshots_kept: Option<usize>) -> Self {
        let config = Config {
            snap_count: if logs > 1 { 5 } else { 100 },
            log_preallocation_bytes: 40,
            snapshots_kept,
            ..Config::default()
        };
        let disk = CrashDisk::new();
        let mut models = vec![Model::new()];
        let server = start(&config, &disk).await.unwrap();
        let mut client = RawClient::connect(server.addresses()[0]).await.unwrap();
        let mut model = Model::new();
        model.open_session();
        models.push(model.clone());
        let mut seen = BTreeSet::new();
        let fillers = (0..1_000).map(|count| Request::set_data("/a", format!("{count}")));
        for request in requests().into_iter().chain(fillers) {
            if seen.len() >= logs && model.zxid() > 8 {
                break;
            }
            let _ = model.apply(client.session_id(), 0, &request);
            models.push(model.clone());
            client.call(request).await.unwrap();
            seen.extend(log_names(&disk.files()));
            // The next log begins with the next snapshot, and only one is written at a time.
            until("the snapshot before the log is there", || {
                let files = disk.files();
                let log = log_names(&files).pop();
                log.is_none_or(|log| newest_snapshot(&files) + 1 >= zxid_of(&log))
            })
            .await;
        }
        server.shutdown().await;
        assert_eq!(seen.len(), logs);
        let mut files = disk.files();
        // As a killed server leaves it, with preallocated space.
        let last = log_names(&files).pop().unwrap();
        files.get_mut(&last).unwrap().extend([0; 40]);
        Self {
            files,
            models,
            config,
        }
    }

    fn newest_snapshot(&self) -> String {
        format!("snapshot.{:x}", newest_snapshot(&self.files))
    }

    /// Where the records of a log begin and end.
    fn records(&self, log: &str) -> Vec<(usize, usize)> {
        let bytes = &self.files[log][..];
        let mut reader = LogReader::open(bytes).unwrap();
        let mut starts = Vec::new();
        while let Some(record) = reader.next().unwrap() {
            starts.push(usize::try_from(record.offset).unwrap());
        }
        let written = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
        let ends = starts.iter().skip(1).copied().chain([written]);
        starts.iter().copied().zip(ends).collect()
    }

    fn with(&self, name: &str, spoil: impl FnOnce(&mut Vec<u8>)) -> Files {
        let mut files = self.files.clone();
        spoil(files.get_mut(name).unwrap());
        files
    }

    async fn start(&self, files: Files) -> Result<usize, RecoveryError> {
        self.start_on(&CrashDisk::with_files(files)).await
    }

    /// Starts a server, which may fail. Otherwise it must have exactly the result of some number of writes, which is returned.
    async fn start_on(&self, disk: &CrashDisk) -> Result<usize, RecoveryError> {
        let server = match start(&self.config, disk).await {
            Ok(server) => server,
            Err(StartError::Data(error)) => return Err(error),
            Err(error) => panic!("{error:?}"),
        };
        let found = self.compare(&server).await.unwrap();
        server.shutdown().await;
        Ok(found)
    }

    async fn compare(&self, server: &Server) -> Result<usize> {
        let address = server.addresses()[0];
        let zxid = usize::try_from(last_zxid(address).await?)?;
        ensure!(zxid < self.models.len(), "{zxid} was never written");
        let mut model = self.models[zxid].clone();
        let mut client = RawClient::connect(address).await?;
        model.open_session();
        compare_trees(&mut client, &mut model)
            .await
            .with_context(|| format!("not what {zxid} writes led to"))?;
        Ok(zxid)
    }
}

async fn start(config: &Config, disk: &CrashDisk) -> Result<Server, StartError> {
    let builder = Server::builder().config(config.clone());
    let disk = Arc::new(disk.clone());
    builder.disks(disk.clone(), disk).start().await
}

/// One of each kind; some fail.
fn requests() -> [Request; 8] {
    [
        Request::create("/a", "1"),
        Request::create_ephemeral("/a/e"),
        Request::create("/a", "again"),
        Request::create_mode("/a/s", "2", Create::PERSISTENT_SEQUENTIAL),
        Request::Multi(vec![
            Request::create("/b", ""),
            Request::set_data("/a", "3"),
            Request::delete("/a/e"),
        ]),
        Request::Multi(vec![
            Request::set_data("/a", "4"),
            Request::delete("/nothing"),
        ]),
        Request::set_data("/b", vec![0; 100]),
        Request::delete("/b"),
    ]
}
