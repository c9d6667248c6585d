//! What to do about a server that does not start, or that has stopped by itself.

use std::io::{self, ErrorKind};

use bellwether_server::{Failure, RecoveryError, StartError};

/// For a server that does not start.
pub(super) fn for_start(error: &StartError, folder_flag: &str) -> Option<String> {
    let error = match error {
        StartError::Data(error) => error,
        StartError::Unsupported { .. } => {
            return Some(
                "the server would start without the protection of these settings; --ignore-unsupported starts it anyway"
                    .to_owned(),
            );
        }
        StartError::Members { .. } => {
            return Some(
                "each host would be a separate service, whose locks do not exclude those of the others: `bellwether ensemble` moves a \
                 single server to an ensemble of Apache ZooKeeper; --standalone starts a single server anyway"
                    .to_owned(),
            );
        }
        _ => return None,
    };
    match error {
        RecoveryError::Damaged { .. } | RecoveryError::Gap { .. } => Some(format!(
            "restore the file from a backup, or see what would be cut off with: bellwether serve {folder_flag} --repair"
        )),
        RecoveryError::NoSnapshot | RecoveryError::NoGoodSnapshot { .. } => {
            Some("restore a snapshot from a backup; `bellwether snapshot FILE` checks it".to_owned())
        }
        RecoveryError::NoAccessList { .. } => Some(
            "restore another snapshot with its later logs from a backup; `bellwether snapshot FILE` counts nodes without access lists"
                .to_owned(),
        ),
        RecoveryError::InUse { .. } => {
            Some("stop that server, or choose another folder with --data".to_owned())
        }
        RecoveryError::Misplaced { .. } => {
            Some("snapshots belong in dataDir, logs in dataLogDir".to_owned())
        }
        RecoveryError::Disk(error) => Some(for_disk(error).to_owned()),
        _ => None,
    }
}

/// For a server that has stopped by itself.
pub(super) fn for_failure(failure: &Failure) -> Option<&'static str> {
    match failure {
        Failure::Log(error) => Some(for_disk(error)),
        _ => None,
    }
}

/// For an error of the disk with the data. No acknowledged write is lost by it, as long as the disk keeps what it has synced.
fn for_disk(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "free some space on that disk and start the server again; acknowledged writes are there"
        }
        ErrorKind::ReadOnlyFilesystem => {
            "the file system is read-only, perhaps after an error of the disk (see dmesg); mount it writable, or copy the folder to \
             another disk"
        }
        ErrorKind::PermissionDenied => {
            "the data folder and all files in it must belong to the user who runs the server"
        }
        _ => {
            "the disk may be failing (see dmesg); copy the folder to another disk and start there, or restore a backup with --restore"
        }
    }
}
