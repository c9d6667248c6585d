//! How long holds at a path have taken, from the transaction log of the server.
//!
//! The log has each contender's node with the times of its create and delete, but not when its turn came. So the line is built again from the
//! log, by the rules of the recipes: a hold lasts from the moment when no contender was in the way until its node was deleted.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bellwether_server::files::LogReader;
use bellwether_server::files::txn::{Lifetime, TxnBody};

/// How many of the latest holds count.
const HOLDS_MAX: usize = 100;

/// How much of the log is read: the newest files with this size together, and the newest one in any case.
const LOG_BYTES_MAX: u64 = 256 << 20;

/// Figures of the latest holds at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HoldTimes {
    pub(super) count: usize,
    pub(super) median: Duration,
    pub(super) longest: Duration,
    /// When the first of them ended, in milliseconds since 1970.
    pub(super) since_ms: i64,
}

/// Reads the log files of a folder. For each path, the figures, or `None` where no hold has ended.
pub(super) fn read(folder: &Path, paths: &[String]) -> io::Result<Vec<Option<HoldTimes>>> {
    let mut lines: Vec<_> = paths.iter().map(|path| LoggedLine::new(path)).collect();
    for file in newest_files(folder)? {
        let mut log = LogReader::open(File::open(file)?)?;
        while let Some(record) = log.next()? {
            for line in &mut lines {
                line.apply(&record.txn.body, record.txn.time_ms);
                line.grant(record.txn.time_ms);
            }
        }
    }
    Ok(lines.iter().map(LoggedLine::times).collect())
}

/// The newest log files, the oldest of them first.
fn newest_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let zxid = name.to_str().and_then(|name| name.strip_prefix("log."));
        if let Some(zxid) = zxid.and_then(|zxid| u64::from_str_radix(zxid, 16).ok()) {
            files.push((zxid, entry.metadata()?.len(), entry.path()));
        }
    }
    if files.is_empty() {
        return Err(io::ErrorKind::NotFound.into());
    }
    files.sort_unstable();
    let mut size = 0;
    let newest = files.into_iter().rev().enumerate();
    let newest = newest.take_while(|(place, (_, bytes, _))| {
        size += bytes;
        *place == 0 || size <= LOG_BYTES_MAX
    });
    let mut newest: Vec<_> = newest.map(|(_, (_, _, path))| path).collect();
    newest.reverse();
    Ok(newest)
}

/// A line as the log describes it.
struct LoggedLine {
    path: String,
    /// The limit of a semaphore, in the data of the directory.
    limit: Option<u64>,
    /// In the order of their creation, which is that of the line.
    contenders: Vec<LoggedContender>,
    /// When the latest holds ended, and how long they took, in milliseconds.
    holds: VecDeque<(i64, i64)>,
}

struct LoggedContender {
    path: Arc<str>,
    wants: Share,
    /// When its turn came.
    granted_ms: Option<i64>,
}

/// What a contender needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Share {
    Alone,
    Read,
    Permits(u64),
}

impl LoggedLine {
    fn new(path: &str) -> Self {
        Self {
            path: path.to_owned(),
            limit: None,
            contenders: Vec::new(),
            holds: VecDeque::new(),
        }
    }

    fn apply(&mut self, body: &TxnBody, time_ms: i64) {
        match body {
            TxnBody::Create {
                path,
                data,
                lifetime,
                ..
            } => {
                if **path == *self.path {
                    self.limit = data.as_deref().and_then(limit);
                } else if *lifetime == Lifetime::Ephemeral
                    && let Some(wants) = self.name(path).and_then(share)
                {
                    self.contenders.push(LoggedContender {
                        path: path.clone(),
                        wants,
                        granted_ms: None,
                    });
                }
            }
            TxnBody::SetData { path, data, .. } if **path == *self.path => {
                self.limit = data.as_deref().and_then(limit);
            }
            TxnBody::Delete { path } | TxnBody::DeleteContainer { path } => {
                self.delete(path, time_ms);
            }
            TxnBody::CloseSession { paths } => {
                for path in paths {
                    self.delete(path, time_ms);
                }
            }
            TxnBody::Multi(parts) => {
                for part in parts {
                    self.apply(part, time_ms);
                }
            }
            _ => {}
        }
    }

    /// The name of a node of this directory.
    fn name<'a>(&self, path: &'a str) -> Option<&'a str> {
        let name = path.strip_prefix(&self.path)?.strip_prefix('/')?;
        (!name.contains('/')).then_some(name)
    }

    fn delete(&mut self, path: &str, time_ms: i64) {
        let place = self.contenders.iter().position(|one| *one.path == *path);
        let Some(place) = place else {
            return;
        };
        if let Some(granted_ms) = self.contenders.remove(place).granted_ms {
            self.holds.push_back((time_ms, time_ms - granted_ms));
            if self.holds.len() > HOLDS_MAX {
                self.holds.pop_front();
            }
        }
    }

    /// Notes the time for each contender whose turn has come.
    fn grant(&mut self, time_ms: i64) {
        for place in 0..self.contenders.len() {
            let (ahead, rest) = self.contenders.split_at_mut(place);
            let contender = &mut rest[0];
            if contender.granted_ms.is_none() && has_turn(ahead, contender.wants, self.limit) {
                contender.granted_ms = Some(time_ms);
            }
        }
    }

    fn times(&self) -> Option<HoldTimes> {
        let (since_ms, _) = *self.holds.front()?;
        let mut times: Vec<_> = self.holds.iter().map(|(_, time)| *time).collect();
        times.sort_unstable();
        // The clock of the server may have been set back.
        let duration = |ms: i64| Duration::from_millis(u64::try_from(ms).unwrap_or_default());
        Some(HoldTimes {
            count: times.len(),
            median: duration(times[times.len() / 2]),
            longest: duration(times[times.len() - 1]),
            since_ms,
        })
    }
}

fn has_turn(ahead: &[LoggedContender], wants: Share, limit: Option<u64>) -> bool {
    match wants {
        Share::Alone => ahead.is_empty(),
        Share::Read => ahead.iter().all(|one| one.wants == Share::Read),
        Share::Permits(permits) => {
            let taken = ahead.iter().map(|one| match one.wants {
                Share::Permits(permits) => permits,
                Share::Alone | Share::Read => 0,
            });
            limit.is_none_or(|limit| taken.sum::<u64>() + permits <= limit)
        }
    }
}

/// What the name of a node says that its contender needs; `None` for other nodes. See docs/recipes.md, and the names of Curator and kazoo.
fn share(name: &str) -> Option<Share> {
    let (kind, _) = name.split_once('-')?;
    match kind {
        "lock" | "write" => return Some(Share::Alone),
        "read" => return Some(Share::Read),
        _ => {}
    }
    if let Some(permits) = kind.strip_prefix("permit") {
        return permits.parse().ok().map(Share::Permits);
    }
    let has = |marks: &[&str]| marks.iter().any(|mark| name.contains(mark));
    if has(&["__READ__", "__rlock__"]) {
        return Some(Share::Read);
    }
    has(&["-lock-", "__WRIT__", "__lock__"]).then_some(Share::Alone)
}

/// The limit in the data of a semaphore.
fn limit(data: &[u8]) -> Option<u64> {
    std::str::from_utf8(data).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create(path: &str, data: &[u8], lifetime: Lifetime) -> TxnBody {
        TxnBody::Create {
            path: path.into(),
            data: Some(data.into()),
            acl: Arc::new([]),
            lifetime,
            parent_cversion: 1,
        }
    }

    fn enter(path: &str) -> TxnBody {
        create(path, b"", Lifetime::Ephemeral)
    }

    fn leave(path: &str) -> TxnBody {
        TxnBody::Delete { path: path.into() }
    }

    /// The figures after transactions at these seconds.
    #[track_caller]
    fn assert_times(log: &[(i64, TxnBody)], expected: Option<(usize, u64, u64)>) {
        let mut line = LoggedLine::new("/x");
        for (seconds, body) in log {
            line.apply(body, seconds * 1000);
            line.grant(seconds * 1000);
        }
        let times = line.times();
        let figures =
            times.map(|times| (times.count, times.median.as_secs(), times.longest.as_secs()));
        assert_eq!(figures, expected);
    }

    #[test]
    fn wait_is_not_part_of_a_hold() {
        let log = [
            (0, enter("/x/lock-1-a-0000000000")),
            (1, enter("/x/lock-2-b-0000000001")),
            (2, enter("/x/deeper/lock-3-c-0000000000")),
            (10, leave("/x/lock-1-a-0000000000")),
            // With its session, as after a crash.
            (
                13,
                TxnBody::CloseSession {
                    paths: vec!["/x/lock-2-b-0000000001".into()],
                },
            ),
        ];
        assert_times(&log[..3], None);
        assert_times(&log[..4], Some((1, 10, 10)));
        assert_times(&log, Some((2, 10, 10)));
    }

    #[test]
    fn waiter_that_gave_up_held_nothing() {
        let log = [
            (0, enter("/x/write-1-a-0000000000")),
            (1, enter("/x/read-2-b-0000000001")),
            (5, leave("/x/read-2-b-0000000001")),
        ];
        assert_times(&log, None);
    }

    #[test]
    fn readers_and_permits_are_held_together() {
        let readers = [
            (0, enter("/x/read-1-a-0000000000")),
            (1, enter("/x/read-2-b-0000000001")),
            (4, TxnBody::Multi(vec![leave("/x/read-2-b-0000000001")])),
            (5, leave("/x/read-1-a-0000000000")),
        ];
        assert_times(&readers, Some((2, 5, 5)));
        let permits = [
            (0, create("/x", b"2", Lifetime::Container)),
            (0, enter("/x/permit1-1-a-0000000000")),
            (1, enter("/x/permit1-2-b-0000000001")),
            (2, enter("/x/permit1-3-c-0000000002")),
            (6, leave("/x/permit1-1-a-0000000000")),
            (7, leave("/x/permit1-3-c-0000000002")),
        ];
        assert_times(&permits, Some((2, 6, 6)));
    }
}
