//! Chooses the snapshot that recovery starts from.

use std::io;
use std::sync::Arc;

use super::RecoveryError;
use super::digest_check::DigestCheck;
use crate::storage::disk::Disk;
use crate::storage::names::{Compression, DataFile};
use crate::storage::snapshot::reader::{self as snapshot_reader, Snapshot};
use crate::tree::{Tree, access};

/// Snapshots in the order of their zxids.
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

/// A recovered tree.
pub(super) struct Loaded<T> {
    pub(super) tree: Tree,
    /// Zxid of the snapshot.
    pub(super) snapshot_zxid: i64,
    /// Result of `replay`.
    pub(super) replayed: T,
    /// Number of digests, in the snapshot and the logs, that differ from those of the tree.
    pub(super) digest_mismatches: u64,
}

/// Loads the newest usable snapshot, to which `replay` applies the logs; `None` if there is no snapshot. If a snapshot is damaged, or lacks
/// an access list that is not in the logs either, the previous one is used: the logs may lead from there.
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
                tracing::warn!(name, %error, "snapshot cannot be used, trying the previous one");
                continue;
            }
        };
        let mut digests = DigestCheck::begin(&name, snapshot.digest, &snapshot.tree);
        let replayed = replay(&mut snapshot.tree, &mut digests)?;
        if let Some(path) = without_acl(&snapshot) {
            tracing::warn!(
                name,
                path,
                "snapshot lacks an access list, trying the previous one"
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

/// A node whose access list is neither in the snapshot nor in the replayed logs.
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

/// Refuses a tree that, with the logs replayed, does not reach the newest snapshot: that snapshot is unusable, and its transactions are
/// missing in the logs.
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

    use bellwether_wire::acl::Id;
    use bellwether_wire::jute::Writer as _;

    use super::*;
    use crate::storage::recovery::recover;
    use crate::storage::recovery::tests::{folder, write_log};
    use crate::storage::snapshot::writer as snapshot_writer;
    use crate::tree::txn::{AclList, Lifetime, TxnBody};

    /// A snapshot as Apache may write it while `/x` is created: it has the node but not its list. Its only list, that of the root, names a
    /// user with a character beyond the basic plane, as Java encodes it.
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

    /// Apache may omit access lists of old nodes too (ZOOKEEPER-4689).
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
