//! The epoch files that a member of an ensemble leaves in a folder. Apache's members refuse a folder whose zxids are ahead of them.

use std::io::{self, Read as _, Write as _};

use super::disk::Disk;
use super::names;
use crate::tree::zxid;

/// In the order in which they are raised: Apache refuses a current epoch above the accepted one.
const FILES: [&str; 2] = ["acceptedEpoch", "currentEpoch"];

/// Raises the files to the epoch of `zxid`, if they exist. Elsewhere Apache's members create them.
pub(in crate::storage) fn raise(snapshots: &dyn Disk, zxid: i64) -> io::Result<()> {
    let epoch = zxid::epoch(zxid);
    let existing = snapshots.list()?;
    for name in FILES {
        if !existing.iter().any(|other| other == name) {
            continue;
        }
        let mut text = String::new();
        snapshots.read(name)?.read_to_string(&mut text)?;
        // Apache itself refuses one that is not a number.
        if text.trim().parse().is_ok_and(|found: i64| found < epoch) {
            let unfinished = names::unfinished(name);
            let mut file = snapshots.create(&unfinished)?;
            write!(file, "{epoch}")?;
            file.sync()?;
            snapshots.rename(&unfinished, name)?;
            snapshots.sync_names()?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::disk::Folder;

    #[test]
    fn epoch_files_rise_with_the_zxid_and_are_not_created() {
        let folder = tempfile::tempdir().unwrap();
        let disk = Folder::open(folder.path()).unwrap();
        raise(&disk, 5 << 32).unwrap();
        assert!(disk.list().unwrap().is_empty());
        for (before, after) in [("4", "5"), ("7", "7"), ("x", "x")] {
            for name in FILES {
                std::fs::write(folder.path().join(name), before).unwrap();
            }
            raise(&disk, (5 << 32) | 9).unwrap();
            for name in FILES {
                let text = std::fs::read_to_string(folder.path().join(name)).unwrap();
                assert_eq!(text, after, "{name}");
            }
        }
    }
}
