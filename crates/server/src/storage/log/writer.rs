//! Writes the log.

use std::fs::File;
use std::io;
use std::sync::Arc;

use bytes::BytesMut;

use crate::storage::Log;
use crate::storage::disk::{Disk, DiskFile};
use crate::storage::log::record::{self, HEADER};
use crate::storage::names;
use crate::storage::snapshot::snapshotter::Snapshotter;
use crate::tree::Tree;
use crate::tree::txn::{Txn, TxnBody};

/// Distance to the preallocated end at which more is preallocated.
const RESERVE_AHEAD_BYTES: u64 = 4096;

/// Largest batch buffer that is kept for the next batch.
const WAITING_BYTES_KEPT: usize = 64 << 10;

/// When to roll the log: start a new file, and take a snapshot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rolling {
    /// After this many transactions.
    pub(crate) txns: usize,
    /// After this many bytes.
    pub(crate) bytes: u64,
}

/// Log in Apache's file format.
#[derive(Debug)]
pub(crate) struct LogWriter {
    disk: Arc<dyn Disk>,
    reserve_bytes: u64,
    rolling: Rolling,
    snapshotter: Snapshotter,
    /// Records appended since the last sync, and their first zxid.
    waiting: BytesMut,
    first_waiting: Option<i64>,
    file: Option<OpenFile>,
    /// Lock files, which keep other servers from using the folders.
    _locks: Vec<File>,
}

#[derive(Debug)]
struct OpenFile {
    file: Box<dyn DiskFile>,
    position: u64,
    reserved: u64,
    txns: usize,
}

impl LogWriter {
    /// A log that creates a new file for its first transaction, as Apache does after every start.
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        reserve_bytes: u64,
        rolling: Rolling,
        snapshotter: Snapshotter,
        locks: Vec<File>,
    ) -> Self {
        Self {
            disk,
            reserve_bytes,
            rolling,
            snapshotter,
            waiting: BytesMut::new(),
            first_waiting: None,
            file: None,
            _locks: locks,
        }
    }

    /// Creates a file with the header and all waiting records. It is renamed to its final name after the fsync, because Apache does not
    /// start with an empty log.
    fn open(&mut self, first_zxid: i64) -> io::Result<OpenFile> {
        let name = names::log(first_zxid);
        let unfinished = names::unfinished(&name);
        let file = self.disk.create(&unfinished)?;
        let mut open = OpenFile {
            file,
            position: 0,
            reserved: 0,
            txns: 0,
        };
        let mut start = BytesMut::from(&HEADER[..]);
        start.unsplit(std::mem::take(&mut self.waiting));
        open.append(&start, self.reserve_bytes)?;
        self.disk.rename(&unfinished, &name)?;
        self.disk.sync_names()?;
        Ok(open)
    }

    fn write_waiting(&mut self) -> io::Result<()> {
        let Some(first_zxid) = self.first_waiting.take() else {
            return Ok(());
        };
        if let Some(open) = &mut self.file {
            open.append(&self.waiting, self.reserve_bytes)?;
            self.waiting.clear();
            if self.waiting.capacity() > WAITING_BYTES_KEPT {
                self.waiting = BytesMut::new();
            }
            Ok(())
        } else {
            self.file = Some(self.open(first_zxid)?);
            Ok(())
        }
    }
}

impl OpenFile {
    /// Writes and fsyncs `bytes`, or truncates the file to its previous length.
    ///
    /// A full disk may have accepted a part. A failed fsync may leave pages in the cache that are not on disk but count as clean: another
    /// server would read them, and its own fsync would not write them. Truncating may fail too, so recovery does not rely on it
    /// (`LastLog::secure`).
    fn append(&mut self, bytes: &[u8], reserve_bytes: u64) -> io::Result<()> {
        let start = self.position;
        let written = self.write(bytes, reserve_bytes);
        written.and_then(|()| self.file.sync()).inspect_err(|_| {
            self.position = start;
            let _ = self.file.cut(start);
        })
    }

    fn write(&mut self, bytes: &[u8], reserve_bytes: u64) -> io::Result<()> {
        self.position += bytes.len() as u64;
        if self.position + RESERVE_AHEAD_BYTES >= self.reserved {
            self.reserved = self.position + reserve_bytes;
            self.file.reserve(self.reserved)?;
        }
        self.file.write_all(bytes)
    }
}

impl Drop for OpenFile {
    /// Frees preallocated space: old logs are kept for long, and should take no more space than their records.
    fn drop(&mut self) {
        if let Err(error) = self.file.cut(self.position) {
            tracing::warn!(%error, "cannot free the preallocated space of the log");
        }
    }
}

impl Log for LogWriter {
    fn append(&mut self, txn: &Txn, digest: u64) -> io::Result<()> {
        // A failed write changes nothing, and Apache logs it without a digest.
        let digest = Some(digest).filter(|_| !matches!(txn.body, TxnBody::Error(_)));
        record::put(&mut self.waiting, txn, digest);
        self.first_waiting.get_or_insert(txn.zxid);
        Ok(())
    }

    fn sync(&mut self, tree: &Tree, txns: usize) -> io::Result<()> {
        self.write_waiting()?;
        let Some(open) = &mut self.file else {
            return Ok(());
        };
        open.txns += txns;
        let due = open.txns >= self.rolling.txns || open.position >= self.rolling.bytes;
        // The snapshot contains exactly the transactions of this log file and the earlier ones.
        if due && self.snapshotter.take(tree) {
            self.file = None;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alarm::Alarm;
    use crate::client::Connections;
    use crate::config::Config;
    use crate::storage::disk::Folder;

    #[test]
    fn the_room_of_a_large_batch_is_given_back() {
        let folder = tempfile::tempdir().unwrap();
        let disk: Arc<dyn Disk> = Arc::new(Folder::open(folder.path()).unwrap());
        let connections = Arc::new(Connections::new(&Config::default()));
        let (alarm, _) = Alarm::new(connections);
        let snapshotter = Snapshotter::start(&alarm, disk.clone(), disk.clone(), None).unwrap();
        let rolling = Rolling {
            txns: usize::MAX,
            bytes: u64::MAX,
        };
        let mut log = LogWriter::new(disk, 0, rolling, snapshotter, Vec::new());
        let tree = Tree::fresh();
        // The first batch creates the file, the others append to it.
        for zxid in 1..4 {
            let txn = Txn {
                session_id: 1,
                cxid: 1,
                zxid,
                time_ms: 0,
                body: TxnBody::SetData {
                    path: "/".into(),
                    data: Some(vec![b'x'; 16 * WAITING_BYTES_KEPT].into()),
                    version: 1,
                },
            };
            log.append(&txn, 0).unwrap();
            log.sync(&tree, 1).unwrap();
            let kept = log.waiting.capacity();
            assert!(kept <= WAITING_BYTES_KEPT, "{kept} bytes kept");
        }
    }
}
