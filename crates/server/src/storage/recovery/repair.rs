//! Removes damaged data and everything after it, so that a server can start from what precedes the damage.

use std::fmt;
use std::io::{self, Read, Write};
use std::path::PathBuf;

use super::digest_check::DigestCheck;
use super::newest_snapshot::{self, Loaded, check_reaches_snapshots};
use super::{RecoveryError, list_logs, replay};
use crate::storage::disk::{Disk, DiskFile};
use crate::storage::log::reader::{records_in, without_zeros};
use crate::storage::log::record::HEADER;
use crate::storage::names::{self, DataFile};
use crate::storage::store::OpenFolders;
use crate::tree::Tree;

/// Plan of a repair. Its folders stay locked against other servers.
///
/// Nothing is deleted: removed data is kept in files beside, under names that both this server and Apache's ignore.
#[derive(Debug)]
pub struct Repair {
    folders: OpenFolders,
    wrong: Option<RecoveryError>,
    steps: Vec<RepairStep>,
    /// The highest zxid that a removed transaction is known to have.
    used_zxid: i64,
}

/// Change to one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepairStep {
    /// The file.
    pub file: String,
    /// Where it is truncated; 0 if the whole file is set aside.
    pub offset: u64,
    /// Number of bytes removed, not counting preallocated zeros.
    pub bytes: usize,
    /// Number of valid transactions among them.
    pub txns: usize,
    /// First and last zxid of those.
    pub zxids: Option<(i64, i64)>,
    /// The file that keeps them.
    pub kept_in: String,
}

impl Repair {
    /// Finds what is wrong in the folders of a server, and what a repair would remove. Changes nothing. Fails if no repair is possible, or
    /// if another server uses the folders.
    pub fn plan(data: impl Into<PathBuf>, logs: impl Into<PathBuf>) -> Result<Self, RecoveryError> {
        let folders = OpenFolders::open(data.into(), logs.into())?;
        let Plan {
            wrong,
            steps,
            used_zxid,
        } = plan(&folders.snapshots, &folders.logs)?;
        Ok(Self {
            folders,
            wrong,
            steps,
            used_zxid,
        })
    }

    /// Why a server does not start; `None` if it does.
    pub fn wrong(&self) -> Option<&RecoveryError> {
        self.wrong.as_ref()
    }

    /// The changes, in the order in which they are made.
    pub fn steps(&self) -> &[RepairStep] {
        &self.steps
    }

    /// Carries out the repair, and returns the last zxid before those that a server assigns next: no zxid of a removed transaction is
    /// assigned again. If it is interrupted, run another repair.
    pub fn apply(self) -> Result<i64, RecoveryError> {
        let OpenFolders {
            snapshots,
            logs,
            claim,
        } = &self.folders;
        if self.wrong.is_some() {
            // First: from here on, a start continues above, whatever is cut already.
            claim.mark.put(self.used_zxid.max(claim.mark.zxid()?))?;
            apply(snapshots, logs, &self.steps)?;
        }
        Ok(self.folders.recover(false)?.tree.last_zxid())
    }
}

impl fmt::Display for RepairStep {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, offset, .. } = self;
        match offset {
            0 => write!(out, "set {file} aside")?,
            _ => write!(out, "cut {file} at offset {offset}")?,
        }
        write!(out, ": {} bytes", self.bytes)?;
        match self.zxids {
            None => write!(out, " without a readable transaction")?,
            Some((first, last)) => {
                let txns = self.txns;
                write!(
                    out,
                    " with {txns} readable transactions, {first:#x} to {last:#x}"
                )?;
            }
        }
        write!(out, ", kept in {}", self.kept_in)
    }
}

/// What is wrong in folders, and what to do about it.
#[derive(Default)]
struct Plan {
    wrong: Option<RecoveryError>,
    steps: Vec<RepairStep>,
    used_zxid: i64,
}

fn plan(snapshots: &dyn Disk, logs: &dyn Disk) -> Result<Plan, RecoveryError> {
    let files = list_logs(logs)?;
    // In a damaged log, only records before the damage count. Without the rest, access lists that a snapshot lacks may be missing.
    let before_damage = |tree: &mut Tree, digests: &mut DigestCheck| {
        Ok(replay(&Unchanged(logs), &files, tree, digests))
    };
    let Some(loaded) = newest_snapshot::load(snapshots, before_damage)? else {
        // The start tells a new folder from one with missing files.
        return Ok(Plan::default());
    };
    let Loaded { tree, replayed, .. } = loaded;
    let Err(wrong) = replayed.and_then(|_| check_reaches_snapshots(snapshots, &tree)) else {
        return Ok(Plan::default());
    };
    let last_zxid = tree.last_zxid();
    let mut steps = match &wrong {
        RecoveryError::Damaged { file, offset, .. } => {
            cut_logs(logs, &files, file, *offset, last_zxid)?
        }
        RecoveryError::Gap { file, .. } => cut_logs(logs, &files, file, 0, last_zxid)?,
        _ => return Err(wrong),
    };
    // Newer snapshots exist only if they are unusable, and a start refuses what does not reach them.
    for name in snapshots.list()? {
        if matches!(DataFile::parse(&name), Some(DataFile::Snapshot(zxid, _)) if zxid > last_zxid) {
            steps.push(RepairStep {
                bytes: read_from(snapshots, &name, 0)?.len(),
                kept_in: free_name(snapshots, &name, 0)?,
                file: name,
                offset: 0,
                txns: 0,
                zxids: None,
            });
        }
    }
    // At least one was assigned that cannot be read.
    let used_zxid = steps.iter().fold(last_zxid + 1, |used, step| {
        let (DataFile::Log(named) | DataFile::Snapshot(named, _)) =
            DataFile::parse(&step.file).unwrap_or(DataFile::Log(used));
        let readable = step.zxids.map_or(used, |(_, last)| last);
        used.max(named).max(readable)
    });
    Ok(Plan {
        wrong: Some(wrong),
        steps,
        used_zxid,
    })
}

/// Plans the removal of everything in the logs from `bad` on, which is truncated at `offset`. No steps if `bad` is a snapshot.
fn cut_logs(
    logs: &dyn Disk,
    files: &[(i64, String)],
    bad: &str,
    offset: u64,
    last_zxid: i64,
) -> io::Result<Vec<RepairStep>> {
    let first = files.iter().position(|(_, name)| name == bad);
    let from_bad = &files[first.unwrap_or(files.len())..];
    // The last file first: whenever this is interrupted, the damage is still found.
    let steps = from_bad.iter().enumerate().rev().map(|(index, (_, name))| {
        let offset = if index == 0 { offset } else { 0 };
        step(logs, name, offset, last_zxid)
    });
    steps.collect()
}

fn step(logs: &dyn Disk, name: &str, offset: u64, last_zxid: i64) -> io::Result<RepairStep> {
    let header = HEADER.len() as u64;
    // A file that would keep nothing but its header is set aside as a whole.
    let offset = if offset <= header { 0 } else { offset };
    let bytes = read_from(logs, name, offset)?;
    let records = read_from(logs, name, offset.max(header))?;
    let zxids: Vec<i64> = records_in(&records, last_zxid).collect();
    Ok(RepairStep {
        file: name.to_owned(),
        offset,
        bytes: bytes.len(),
        txns: zxids.len(),
        zxids: zxids.first().copied().zip(zxids.last().copied()),
        kept_in: free_name(logs, name, offset)?,
    })
}

/// Content of a file from `offset` on, without trailing zeros.
fn read_from(disk: &dyn Disk, name: &str, offset: u64) -> io::Result<Vec<u8>> {
    let mut input = disk.read(name)?;
    io::copy(&mut input.by_ref().take(offset), &mut io::sink())?;
    let mut bytes = Vec::new();
    input.read_to_end(&mut bytes)?;
    let end = without_zeros(&bytes).len();
    bytes.truncate(end);
    Ok(bytes)
}

/// A name that tells where the bytes come from, and that no earlier repair has used.
fn free_name(disk: &dyn Disk, name: &str, offset: u64) -> io::Result<String> {
    let taken = disk.list()?;
    let name = names::cut(name, offset);
    let again = (2..).map(|count| format!("{name}-{count}"));
    let free = std::iter::once(name.clone())
        .chain(again)
        .find(|name| !taken.contains(name));
    Ok(free.expect("a folder has a limit"))
}

fn apply(snapshots: &dyn Disk, logs: &dyn Disk, steps: &[RepairStep]) -> io::Result<()> {
    for step in steps {
        let disk = match DataFile::parse(&step.file) {
            Some(DataFile::Snapshot(..)) => snapshots,
            _ => logs,
        };
        if step.offset == 0 {
            disk.rename(&step.file, &step.kept_in)?;
            disk.sync_names()?;
        } else {
            let mut kept = disk.create(&step.kept_in)?;
            kept.write_all(&read_from(disk, &step.file, step.offset)?)?;
            kept.sync()?;
            disk.sync_names()?;
            disk.truncate(&step.file, step.offset)?;
        }
    }
    Ok(())
}

/// A disk on which recovery changes nothing.
#[derive(Debug)]
struct Unchanged<'a>(&'a dyn Disk);

impl Disk for Unchanged<'_> {
    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }

    fn read(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        self.0.read(name)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        Err(io::Error::other(format!("a plan does not write {name}")))
    }

    fn rename(&self, _: &str, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn remove(&self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn truncate(&self, _: &str, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn sync_names(&self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::storage::disk::Folder;
    use crate::storage::recovery::newest_snapshot::tests::snapshot_without_acl;
    use crate::storage::recovery::{self, recover};

    /// A folder with logs of these transactions, each of 61 bytes.
    fn folder(logs: &[std::ops::Range<i64>]) -> (TempDir, Folder) {
        let logs: Vec<_> = logs.iter().map(|zxids| zxids.clone().collect()).collect();
        recovery::tests::folder(&logs)
    }

    fn flip(folder: &TempDir, name: &str, offset: usize) {
        let path = folder.path().join(name);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[offset] ^= 0x10;
        std::fs::write(path, bytes).unwrap();
    }

    fn names(disk: &Folder) -> Vec<String> {
        let mut names = disk.list().unwrap();
        names.sort();
        names
    }

    #[test]
    fn a_sound_folder_and_one_with_a_torn_end_want_no_repair() {
        let (folder, disk) = folder(&[1..4, 4..6]);
        let Plan { wrong, steps, .. } = plan(&disk, &disk).unwrap();
        assert!(wrong.is_none() && steps.is_empty());
        let torn = std::fs::File::options()
            .write(true)
            .open(folder.path().join("log.4"))
            .unwrap();
        torn.set_len(16 + 61 + 30).unwrap();
        let Plan { wrong, steps, .. } = plan(&disk, &disk).unwrap();
        assert!(wrong.is_none() && steps.is_empty());
        assert_eq!(torn.metadata().unwrap().len(), 16 + 61 + 30);
    }

    #[test]
    fn a_damaged_log_is_cut_and_later_ones_are_set_aside() {
        let (folder, disk) = folder(&[1..6, 6..8]);
        flip(&folder, "log.1", 16 + 61 + 30);
        let damaged = std::fs::read(folder.path().join("log.1")).unwrap();
        let before = names(&disk);
        let Plan { wrong, steps, .. } = plan(&disk, &disk).unwrap();
        assert!(matches!(
            wrong,
            Some(RecoveryError::Damaged { offset: 77, .. })
        ));
        assert_eq!(names(&disk), before);
        let lines: Vec<_> = steps.iter().map(RepairStep::to_string).collect();
        assert_eq!(
            lines,
            [
                "set log.6 aside: 138 bytes with 2 readable transactions, 0x6 to 0x7, kept in cut-log.6-0",
                "cut log.1 at offset 77: 244 bytes with 3 readable transactions, 0x3 to 0x5, kept in cut-log.1-77",
            ]
        );
        apply(&disk, &disk, &steps).unwrap();
        assert_eq!(
            names(&disk),
            ["cut-log.1-77", "cut-log.6-0", "log.1", "snapshot.0"]
        );
        let kept = std::fs::read(folder.path().join("cut-log.1-77")).unwrap();
        assert_eq!(kept, damaged[77..16 + 5 * 61]);
        assert_eq!(recover(&disk, &disk).unwrap().tree.last_zxid(), 1);
    }

    #[test]
    fn logs_behind_a_gap_are_set_aside() {
        let (_folder, disk) = folder(&[1..3, 5..6, 6..7]);
        let Plan { wrong, steps, .. } = plan(&disk, &disk).unwrap();
        assert!(matches!(
            wrong,
            Some(RecoveryError::Gap { from: 3, to: 4, .. })
        ));
        apply(&disk, &disk, &steps).unwrap();
        assert_eq!(
            names(&disk),
            ["cut-log.5-0", "cut-log.6-0", "log.1", "snapshot.0"]
        );
        assert_eq!(recover(&disk, &disk).unwrap().tree.last_zxid(), 2);
    }

    #[test]
    fn a_bad_snapshot_that_no_log_leads_to_is_set_aside() {
        let (folder, disk) = folder(&[1..2, 2..3]);
        std::fs::write(folder.path().join("snapshot.64"), "ZKSN").unwrap();
        let Plan { wrong, steps, .. } = plan(&disk, &disk).unwrap();
        assert!(matches!(
            wrong,
            Some(RecoveryError::Gap {
                from: 3,
                to: 0x64,
                ..
            })
        ));
        apply(&disk, &disk, &steps).unwrap();
        assert_eq!(
            names(&disk),
            ["cut-snapshot.64-0", "log.1", "log.2", "snapshot.0"]
        );
        assert_eq!(recover(&disk, &disk).unwrap().tree.last_zxid(), 2);
    }

    #[test]
    fn a_repair_overwrites_nothing_that_an_earlier_one_kept() {
        let (folder, disk) = folder(&[1..3, 5..6]);
        std::fs::write(folder.path().join("cut-log.5-0"), "kept").unwrap();
        let steps = plan(&disk, &disk).unwrap().steps;
        assert_eq!(steps[0].kept_in, "cut-log.5-0-2");
    }

    /// Writes a snapshot at `zxid` that lacks the access list of a node.
    fn put_snapshot_without_acl(folder: &TempDir, zxid: i64) {
        let path = folder.path().join(format!("snapshot.{zxid:x}"));
        std::fs::write(path, snapshot_without_acl()).unwrap();
    }

    #[test]
    fn a_cut_leaves_a_snapshot_from_which_a_server_starts() {
        let (folder, disk) = folder(&[1..2, 2..4]);
        put_snapshot_without_acl(&folder, 1);
        flip(&folder, "log.2", 16 + 30);
        let Plan { wrong, steps, .. } = plan(&disk, &disk).unwrap();
        assert!(matches!(wrong, Some(RecoveryError::Damaged { .. })));
        apply(&disk, &disk, &steps).unwrap();
        assert_eq!(recover(&disk, &disk).unwrap().tree.last_zxid(), 1);
    }

    #[test]
    fn nothing_is_cut_if_no_server_could_start_behind_it() {
        let (folder, disk) = folder(&[1..3, 3..4]);
        put_snapshot_without_acl(&folder, 0);
        flip(&folder, "log.1", 16 + 30);
        let error = plan(&disk, &disk).map(|_| ()).unwrap_err();
        assert!(
            matches!(error, RecoveryError::NoAccessList { .. }),
            "{error}"
        );
    }
}
