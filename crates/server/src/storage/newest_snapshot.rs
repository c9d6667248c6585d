//! Which snapshot a recovery begins with.

use std::io;
use std::sync::Arc;

use super::digest_check::DigestCheck;
use super::disk::Disk;
use super::names::{Compression, DataFile};
use super::recovery::RecoveryError;
use super::snapshot_reader::{self, Snapshot};
use crate::tree::{Tree, access};

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

/// A tree that was brought up to date.
pub(super) struct Loaded<T> {
    pub(super) tree: Tree,
    /// The version of the snapshot.
    pub(super) snapshot_zxid: i64,
    /// What `replay` returned.
    pub(super) replayed: T,
    /// How many digests of the snapshot and of the logs differ from those of the tree.
    pub(super) digest_mismatches: u64,
}

/// The newest snapshot that can be used, with the logs behind it, which `replay` applies; `None` if there is no
/// snapshot. One that is bad, or lacks an access list that is not in the logs either, is passed over for the one before:
/// the logs may lead from there.
pub(super) fn load<T>(
    snapshots: &dyn Disk,
    mut replay: impl FnMut(&mut Tree, &mut DigestCheck) -> Result<T, RecoveryError>,
) -> Result<Option<Loaded<T>>, RecoveryError> {
    let files = list_snapshots(snapshots)?;
    let count = files.len();
    let mut refused = None;
    for (snapshot_zxid, packing, name) in files.into_iter().rev() {
        let read = snapshot_reader::read(snapshots.read(&name)?, &name, packing, snapshot_zxid);
        let mut snapshot = match read {
            Ok(snapshot) => snapshot,
            Err(error) => {
                tracing::warn!(name, %error, "snapshot cannot be used, trying the one before");
                continue;
            }
        };
        let mut digests = DigestCheck::begin(&name, snapshot.digest, &snapshot.tree);
        let replayed = replay(&mut snapshot.tree, &mut digests)?;
        if let Some(path) = without_acl(&snapshot) {
            tracing::warn!(
                name,
                path,
                "snapshot lacks an access list, trying the one before"
            );
            refused.get_or_insert(RecoveryError::NoAccessList { path });
            continue;
        }
        return Ok(Some(Loaded {
            tree: snapshot.tree,
            snapshot_zxid,
            replayed,
            digest_mismatches: digests.mismatches(),
        }));
    }
    match refused {
        Some(refused) => Err(refused),
        None if count > 0 => Err(RecoveryError::NoGoodSnapshot { count }),
        None => Ok(None),
    }
}

/// A node whose access list neither the snapshot had nor the logs that were replayed.
fn without_acl(snapshot: &Snapshot) -> Option<String> {
    let Snapshot {
        tree, without_acl, ..
    } = snapshot;
    let lacks_acl = |path: &&Arc<str>| {
        let node = tree.get(path);
        node.is_some_and(|node| access::is_unknown(&node.acl))
    };
    without_acl
        .iter()
        .find(lacks_acl)
        .map(|path| path.to_string())
}

/// Refuses a tree, with the logs replayed, that does not reach the newest snapshot: that one could not be used, and what
/// led to it is not in the logs.
pub(super) fn check_reaches_snapshots(
    snapshots: &dyn Disk,
    tree: &Tree,
) -> Result<(), RecoveryError> {
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
pub(super) mod tests {
    use bytes::{BufMut as _, BytesMut};

    use super::*;
    use crate::proto::acl::Id;
    use crate::proto::jute::Writer as _;
    use crate::proto::txn::{AclList, Lifetime, TxnBody};
    use crate::storage::recovery::recover;
    use crate::storage::recovery::tests::{folder, write_log};
    use crate::storage::snapshot_writer;

    /// A snapshot as Apache may write it while `/x` is created: with the node, without its list. The one list that
    /// it has, that of the root, is for a user whose name is a character beyond the basic plane, as Java writes it.
    pub(in crate::storage) fn snapshot_without_acl() -> BytesMut {
        let mut bytes = BytesMut::from(&snapshot_writer::HEADER[..]);
        bytes.put_count(0);
        bytes.put_count(1);
        bytes.put_i64(1);
        bytes.put_count(1);
        bytes.put_i32(31);
        bytes.put_ustring("digest");
        bytes.put_buffer(Some(b"\xed\xa0\xbd\xed\xb8\x80:hash"));
        for (path, acl) in [("", 1), ("/x", 7)] {
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

    fn create(acl: &AclList) -> TxnBody {
        TxnBody::Create {
            path: "/x".into(),
            data: None,
            acl: acl.clone(),
            lifetime: Lifetime::Persistent,
            parent_cversion: 1,
        }
    }

    #[test]
    fn an_access_list_that_a_snapshot_lacks_is_taken_from_the_log() {
        let acl = access::world_readable();
        let create = create(&acl);
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
                Ok(recovered) => {
                    let root = recovered.tree.get("/").unwrap();
                    assert_eq!(root.acl[0].id, Id::new("digest", "\u{1f600}:hash"));
                    Ok(recovered.tree.get("/x").map(|node| node.acl.clone()))
                }
                Err(RecoveryError::NoAccessList { path }) if path == "/x" => Err(()),
                Err(error) => panic!("{error}"),
            };
            assert_eq!(found, expected);
        }
    }

    /// Lists that Apache forgot although their nodes are old (ZOOKEEPER-4689).
    #[test]
    fn a_snapshot_without_an_access_list_is_passed_over_for_the_one_before() {
        let acl = access::world_readable();
        let (folder, disk) = folder(&[]);
        write_log(&disk, &[(1, create(&acl))]);
        let path = folder.path().join("snapshot.1");
        std::fs::write(path, snapshot_without_acl()).unwrap();
        let recovered = recover(&disk, &disk).unwrap();
        assert_eq!(recovered.tree.get("/x").unwrap().acl, acl);
        assert!(
            recovered.wants_snapshot,
            "the next start need not do it again"
        );
    }
}
