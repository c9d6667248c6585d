//! Which snapshot a recovery begins with.

use std::io;
use std::sync::Arc;

use super::disk::Disk;
use super::names::{Compression, DataFile};
use super::recovery::RecoveryError;
use super::snapshot_reader::{self, Snapshot};
use crate::tree::access;

/// The snapshots in the order of their versions.
fn list_snapshots(snapshots: &dyn Disk) -> io::Result<Vec<(i64, Compression, String)>> {
    let mut files: Vec<_> = snapshots
        .list()?
        .into_iter()
        .filter_map(|name| match DataFile::parse(&name)? {
            DataFile::Snapshot(zxid, packing) => Some((zxid, packing, name)),
            DataFile::Log(_) => None,
        })
        .collect();
    files.sort();
    Ok(files)
}

/// The newest snapshot that can be used; a bad one is passed over for the one before.
pub(super) fn newest_snapshot(snapshots: &dyn Disk) -> Result<Option<Snapshot>, RecoveryError> {
    let files = list_snapshots(snapshots)?;
    let count = files.len();
    for (zxid, packing, name) in files.into_iter().rev() {
        match snapshot_reader::read(snapshots.read(&name)?, &name, packing, zxid) {
            Ok(snapshot) => return Ok(Some(snapshot)),
            Err(error) => {
                tracing::warn!(name, %error, "snapshot cannot be used, trying the one before")
            }
        }
    }
    if count > 0 {
        Err(RecoveryError::NoGoodSnapshot { count })
    } else {
        Ok(None)
    }
}

/// Refuses a tree, with the logs replayed, that lacks the access list of a node, or that does not reach the newest
/// snapshot: that one could not be used, and what led to it is not in the logs.
pub(super) fn check_complete(
    snapshots: &dyn Disk,
    snapshot: &Snapshot,
) -> Result<(), RecoveryError> {
    let Snapshot { tree, without_acl } = snapshot;
    let lacks_acl = |path: &&Arc<str>| {
        let node = tree.get(path);
        node.is_some_and(|node| access::is_unknown(&node.acl))
    };
    if let Some(path) = without_acl.iter().find(lacks_acl) {
        let path = path.to_string();
        return Err(RecoveryError::NoAccessList { path });
    }
    match list_snapshots(snapshots)?.pop() {
        Some((zxid, _, file)) if zxid > tree.last_zxid() => Err(RecoveryError::Gap {
            file,
            from: tree.last_zxid() + 1,
            to: zxid,
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use bytes::{BufMut as _, BytesMut};

    use super::*;
    use crate::proto::jute::Writer as _;
    use crate::proto::txn::{Lifetime, TxnBody};
    use crate::storage::recovery::recover;
    use crate::storage::recovery::tests::{folder, write_log};
    use crate::storage::snapshot_writer;

    /// A snapshot as Apache may write it while `/x` is created: with the node, without its list. The one list that
    /// it has is for a user whose name is a character beyond the basic plane, as Java writes it.
    fn snapshot_without_acl() -> BytesMut {
        let mut bytes = BytesMut::from(&snapshot_writer::HEADER[..]);
        bytes.put_count(0);
        bytes.put_count(1);
        bytes.put_i64(1);
        bytes.put_count(1);
        bytes.put_i32(31);
        bytes.put_ustring("digest");
        bytes.put_buffer(Some(b"\xed\xa0\xbd\xed\xb8\x80:hash"));
        for (path, acl) in [("", snapshot_writer::OPEN_ACL), ("/x", 7)] {
            bytes.put_ustring(path);
            bytes.put_buffer(Some(b""));
            bytes.put_i64(acl);
            bytes.put_bytes(0, 60);
        }
        bytes.put_ustring("/");
        let seal = i64::from(adler2::adler32_slice(&bytes));
        bytes.put_i64(seal);
        bytes.put_ustring("/");
        bytes
    }

    #[test]
    fn an_access_list_that_a_snapshot_lacks_is_taken_from_the_log() {
        let acl = access::world_readable();
        let create = TxnBody::Create {
            path: "/x".into(),
            data: None,
            acl: acl.clone(),
            lifetime: Lifetime::Persistent,
            parent_cversion: 1,
        };
        let set_acl = TxnBody::SetAcl {
            path: "/x".into(),
            acl: acl.clone(),
            version: 1,
        };
        let delete = TxnBody::Delete { path: "/x".into() };
        let other = TxnBody::CreateSession { timeout_ms: 1000 };
        for (body, expected) in [
            (create.clone(), Ok(Some(acl.clone()))),
            (TxnBody::Multi(vec![create]), Ok(Some(acl.clone()))),
            (set_acl, Ok(Some(acl))),
            (delete, Ok(None)),
            (other, Err(())),
        ] {
            let (folder, disk) = folder(&[]);
            let path = folder.path().join("snapshot.0");
            std::fs::write(path, snapshot_without_acl()).unwrap();
            write_log(&disk, &[(1, body)]);
            let found = match recover(&disk, &disk) {
                Ok(recovered) => Ok(recovered.tree.get("/x").map(|node| node.acl.clone())),
                Err(RecoveryError::NoAccessList { path }) if path == "/x" => Err(()),
                Err(error) => panic!("{error}"),
            };
            assert_eq!(found, expected);
        }
    }
}
