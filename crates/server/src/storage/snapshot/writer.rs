//! Writes a version of the tree as a snapshot.

use std::collections::HashMap;
use std::io::{self, BufWriter, Write};

use adler2::Adler32;
use bellwether_wire::acl::Acl;
use bellwether_wire::jute::Writer as _;
use bytes::{BufMut, BytesMut};

use crate::storage::disk::{Disk, DiskFile};
use crate::storage::snapshot::pace::Pace;
use crate::storage::{epoch_files, names};
use crate::tree::txn::AclList;
use crate::tree::{Tree, access};

/// File header: `ZKSN`, version 2, database −1.
pub(crate) const HEADER: [u8; 16] = *b"ZKSN\0\0\0\x02\xff\xff\xff\xff\xff\xff\xff\xff";

/// Number of the list that allows everything to every client; it is not in the table.
pub(crate) const OPEN_ACL: i64 = -1;

/// Version of the digest after the first checksum.
pub(crate) const DIGEST_VERSION: i32 = 2;

/// Write buffer size.
const BUFFER_BYTES: usize = 1 << 20;

/// Bytes written between two fsyncs.
const SYNC_BYTES: usize = 8 << 20;

/// Writes the snapshot of `tree` under a temporary name, and renames it once it is complete and on disk. Before that it raises the epoch
/// files.
pub(in crate::storage) fn write(
    disk: &dyn Disk,
    tree: &Tree,
    pace: &mut Pace,
) -> io::Result<String> {
    epoch_files::raise(disk, tree.last_zxid())?;
    let name = names::snapshot(tree.last_zxid());
    write_as(disk, &name, tree, pace)?;
    Ok(name)
}

/// Like [`write()`], under another name.
pub(in crate::storage) fn write_as(
    disk: &dyn Disk,
    name: &str,
    tree: &Tree,
    pace: &mut Pace,
) -> io::Result<()> {
    let unfinished = names::unfinished(name);
    write_file(disk, &unfinished, tree, pace)
        .and_then(|()| disk.rename(&unfinished, name))
        .inspect_err(|_| {
            // Frees its space on a full disk. If this fails, the next start removes the file.
            let _ = disk.remove(&unfinished);
        })?;
    disk.sync_names()
}

fn write_file(disk: &dyn Disk, name: &str, tree: &Tree, pace: &mut Pace) -> io::Result<()> {
    let mut file = disk.create(name)?;
    let synced = Synced {
        file: &mut *file,
        waiting: 0,
    };
    let mut sealed = Sealed {
        inner: BufWriter::with_capacity(BUFFER_BYTES, synced),
        sum: Adler32::new(),
    };
    write_tree(&mut sealed, tree, pace)?;
    sealed.inner.flush()?;
    drop(sealed);
    file.sync()
}

fn write_tree(out: &mut Sealed<impl Write>, tree: &Tree, pace: &mut Pace) -> io::Result<()> {
    let mut bytes = BytesMut::from(&HEADER[..]);
    let mut sessions: Vec<_> = tree.sessions().collect();
    sessions.sort_unstable();
    bytes.put_count(sessions.len());
    for (id, timeout_ms) in sessions {
        bytes.put_i64(id);
        bytes.put_i32(timeout_ms);
    }
    let acls = number_acls(tree, pace);
    let mut table: Vec<_> = acls.iter().collect();
    table.sort_unstable_by_key(|(_, number)| **number);
    bytes.put_count(table.len());
    for (list, number) in table {
        bytes.put_i64(*number);
        Acl::encode_list(list, &mut bytes);
    }
    out.write_all(&bytes)?;

    let mut result = Ok(());
    tree.walk_all(|path, node| {
        if result.is_err() {
            return;
        }
        pace.step();
        bytes.clear();
        bytes.put_ustring(if &**path == "/" { "" } else { path });
        bytes.put_buffer(node.data.as_deref());
        bytes.put_i64(acls.get(&node.acl).copied().unwrap_or(OPEN_ACL));
        node.encode_persisted(&mut bytes);
        result = out.write_all(&bytes);
    });
    result?;
    bytes.clear();
    bytes.put_ustring("/");
    out.write_all(&bytes)?;
    out.seal()?;

    // Apache writes zeros before the first transaction.
    let digest = if tree.last_zxid() == 0 {
        0
    } else {
        tree.digest()
    };
    bytes.clear();
    bytes.put_i64(tree.last_zxid());
    bytes.put_i32(DIGEST_VERSION);
    bytes.put_u64(digest);
    out.write_all(&bytes)?;
    out.seal()
}

/// Assigns a number to each access list in use.
fn number_acls(tree: &Tree, pace: &mut Pace) -> HashMap<AclList, i64> {
    let open = access::open();
    let mut numbers = HashMap::new();
    tree.walk_all(|_, node| {
        pace.step();
        if node.acl != open && !numbers.contains_key(&node.acl) {
            let next = i64::try_from(numbers.len()).expect("far fewer than 2^63") + 1;
            numbers.insert(node.acl.clone(), next);
        }
    });
    numbers
}

/// Fsyncs at intervals, so that an fsync of the log never waits for half a gigabyte of snapshot.
struct Synced<'a> {
    file: &'a mut dyn DiskFile,
    waiting: usize,
}

impl Write for Synced<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.file.write(bytes)?;
        self.waiting += count;
        if self.waiting >= SYNC_BYTES {
            self.file.sync()?;
            self.waiting = 0;
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Computes the checksum of the written bytes.
struct Sealed<W> {
    inner: W,
    sum: Adler32,
}

impl<W: Write> Sealed<W> {
    /// Writes the checksum of all bytes so far, and the slash that marks a complete file in Apache's format.
    fn seal(&mut self) -> io::Result<()> {
        let mut bytes = BytesMut::new();
        bytes.put_i64(i64::from(self.sum.checksum()));
        bytes.put_ustring("/");
        self.write_all(&bytes)
    }
}

impl<W: Write> Write for Sealed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.sum.write_slice(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first snapshot that Apache 3.8 writes, by its length and its two checksums.
    #[test]
    fn the_snapshot_of_a_fresh_tree_is_apaches() {
        let mut bytes = Vec::new();
        let mut sealed = Sealed {
            inner: &mut bytes,
            sum: Adler32::new(),
        };
        write_tree(&mut sealed, &Tree::fresh(), &mut Pace::hurried()).unwrap();
        assert_eq!(bytes.len(), 457);
        assert_eq!(bytes[424 - 13..424 - 5], 0xB8A2_3B49_i64.to_be_bytes());
        assert_eq!(bytes[457 - 13..457 - 5], 0x95B9_3D59_i64.to_be_bytes());
        assert_eq!(bytes[452..], *b"\0\0\0\x01/");
    }
}
