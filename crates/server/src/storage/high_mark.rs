//! The highest zxid that a folder is known to have used, in a file beside the data files.
//!
//! A czxid is a fencing token, so a zxid must not be assigned again, even if the data files have been replaced by older ones. Then the server
//! continues above the mark, at a zxid from the clock. So it does if the folder is a copy: the folder that it was copied from may have been
//! used since.

use std::fs;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;

use super::disk::{Disk as _, Folder};
use super::names;
use super::store::LOCK_FILE;
use crate::clock;
use crate::tree::zxid;

/// Name of the file. Apache ignores it.
const FILE: &str = "bellwether.zxid";

/// The mark of a locked folder.
#[derive(Debug)]
pub(super) struct HighMark {
    folder: Folder,
}

/// What the file says.
#[derive(Debug, PartialEq, Eq)]
struct Mark {
    zxid: i64,
    /// When the inode of the lock file was last changed. Programs cannot set this time, so copies have another one.
    lock_changed: String,
}

/// Why zxids continue above those of the data files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    Older,
    Copied,
    Unreadable,
    Asked,
}

impl HighMark {
    /// The mark in `folder`, which contains the lock file.
    pub(super) fn of(folder: Folder) -> Self {
        Self { folder }
    }

    /// Where a server continues whose data files end at `last_zxid`; `None` if right there. `asked`: the user wants it elsewhere.
    pub(super) fn continue_after(&self, last_zxid: i64, asked: bool) -> io::Result<Option<i64>> {
        let (used, reason) = match self.read()? {
            Found::Mark(mark) if mark.zxid > last_zxid => (mark.zxid, Reason::Older),
            Found::Mark(mark) if mark.lock_changed != self.lock_changed()? => {
                (last_zxid, Reason::Copied)
            }
            Found::Unreadable => (last_zxid, Reason::Unreadable),
            _ if asked => (last_zxid, Reason::Asked),
            _ => return Ok(None),
        };
        let zxid = zxid::continue_above(used, clock::wall_us());
        let why = match reason {
            Reason::Older => "the data files are older than this folder",
            Reason::Copied => "the folder is a copy, or its files were moved",
            Reason::Unreadable => "bellwether.zxid cannot be read",
            Reason::Asked => "asked to",
        };
        tracing::warn!(
            why,
            last_zxid = format_args!("{last_zxid:#x}"),
            used = format_args!("{used:#x}"),
            zxid = format_args!("{zxid:#x}"),
            epoch = zxid::epoch(zxid),
            "zxids and fencing tokens continue in a new epoch"
        );
        Ok(Some(zxid))
    }

    /// The highest zxid known to be used; 0 if none is.
    pub(super) fn zxid(&self) -> io::Result<i64> {
        Ok(match self.read()? {
            Found::Mark(mark) => mark.zxid,
            Found::Nothing | Found::Unreadable => 0,
        })
    }

    /// Records that zxids up to `zxid` are used. Returns when that is durable.
    pub(super) fn put(&self, zxid: i64) -> io::Result<()> {
        let lock_changed = self.lock_changed()?;
        let line = format!("{zxid:x} {lock_changed}\n");
        let mark = Mark { zxid, lock_changed };
        if self.read()? == Found::Mark(mark) {
            return Ok(());
        }
        let unfinished = names::unfinished(FILE);
        let mut file = self.folder.create(&unfinished)?;
        file.write_all(line.as_bytes())?;
        file.sync()?;
        self.folder.rename(&unfinished, FILE)?;
        self.folder.sync_names()
    }

    /// As [`Self::put`], where nothing depends on it: the next start then finds an older mark.
    pub(super) fn note(&self, zxid: i64) {
        if let Err(error) = self.put(zxid) {
            tracing::warn!(%error, "cannot record the zxid");
        }
    }

    fn read(&self) -> io::Result<Found> {
        let mut file = match self.folder.read(FILE) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Found::Nothing),
            Err(error) => return Err(error),
        };
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        Ok(Mark::parse(&text).map_or(Found::Unreadable, Found::Mark))
    }

    fn lock_changed(&self) -> io::Result<String> {
        let lock = fs::metadata(self.folder.path().join(LOCK_FILE))?;
        Ok(format!("{}.{:09}", lock.ctime(), lock.ctime_nsec()))
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Found {
    Nothing,
    Unreadable,
    Mark(Mark),
}

impl Mark {
    fn parse(text: &[u8]) -> Option<Self> {
        let line = str::from_utf8(text).ok()?.strip_suffix('\n')?;
        let (zxid, lock_changed) = line.split_once(' ')?;
        let zxid = i64::from_str_radix(zxid, 16).ok()?;
        Some(Self {
            zxid,
            lock_changed: lock_changed.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn locked_folder() -> (TempDir, HighMark) {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(LOCK_FILE), "").unwrap();
        let mark = HighMark::of(Folder::open(folder.path()).unwrap());
        (folder, mark)
    }

    #[test]
    fn zxids_continue_above_the_mark_only_if_data_are_older() {
        let (_folder, mark) = locked_folder();
        assert_eq!(mark.continue_after(0, false).unwrap(), None);
        mark.put(0x20).unwrap();
        assert_eq!(mark.zxid().unwrap(), 0x20);
        for last_zxid in [0x20, 0x21, 7 << 32] {
            assert_eq!(mark.continue_after(last_zxid, false).unwrap(), None);
        }
        let ahead = 700_000 << 32;
        for (used, last_zxid) in [(0x20, 0x1f), (0x20, 0), (ahead, 0x20)] {
            mark.put(used).unwrap();
            let next = mark.continue_after(last_zxid, false).unwrap().unwrap();
            assert!(zxid::epoch(next) > zxid::epoch(used), "{next:#x}");
        }
        mark.put(5).unwrap();
        assert!(mark.continue_after(5, true).unwrap().is_some());
    }

    #[test]
    fn a_copy_of_a_folder_is_noticed_even_with_the_times_of_its_files() {
        let (folder, mark) = locked_folder();
        mark.put(0x20).unwrap();
        let copy = tempfile::tempdir().unwrap();
        for name in [LOCK_FILE, FILE] {
            let (from, to) = (folder.path().join(name), copy.path().join(name));
            fs::copy(&from, &to).unwrap();
            let modified = fs::metadata(&from).unwrap().modified().unwrap();
            let to = fs::File::options().write(true).open(to).unwrap();
            to.set_modified(modified).unwrap();
        }
        let copied = HighMark::of(Folder::open(copy.path()).unwrap());
        assert!(copied.continue_after(0x20, false).unwrap().is_some());
        copied.put(0x20).unwrap();
        assert_eq!(copied.continue_after(0x20, false).unwrap(), None);
        assert_eq!(mark.continue_after(0x20, false).unwrap(), None);
    }

    #[test]
    fn a_mark_that_cannot_be_read_counts_as_one_of_another_folder() {
        let (folder, mark) = locked_folder();
        for text in ["", "20", "x y\n", "20 1.0"] {
            fs::write(folder.path().join(FILE), text).unwrap();
            assert!(
                mark.continue_after(0x20, false).unwrap().is_some(),
                "{text}"
            );
        }
    }
}
