//! Writes the log.

use std::io;
use std::sync::Arc;

use bytes::BytesMut;

use crate::storage::Log;
use crate::storage::disk::{Disk, DiskFile};
use crate::storage::log::record::{self, HEADER};
use crate::storage::names;
use crate::storage::room::{DiskRoom, is_full};
use crate::storage::snapshot::snapshotter::Snapshotter;
use crate::storage::store::Claim;
use crate::tree::txn::{Txn, TxnBody};
use crate::tree::{Tree, zxid};

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
    room: Arc<DiskRoom>,
    /// Records appended since the last sync, and their first zxid.
    waiting: BytesMut,
    first_waiting: Option<i64>,
    file: Option<OpenFile>,
    /// Zxid of the last synced record; `None` before the first.
    synced: Option<i64>,
    /// `None` on disks that a test implements.
    claim: Option<Claim>,
}

#[derive(Debug)]
struct OpenFile {
    file: Box<dyn DiskFile>,
    position: u64,
    reserved: u64,
    /// Whether disk space is allocated up to `reserved`.
    is_allocated: bool,
    txns: usize,
    first_zxid: i64,
}

impl LogWriter {
    /// A log that creates a new file for its first transaction, as Apache does after every start.
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        reserve_bytes: u64,
        rolling: Rolling,
        snapshotter: Snapshotter,
        room: Arc<DiskRoom>,
        claim: Option<Claim>,
    ) -> Self {
        Self {
            disk,
            reserve_bytes,
            rolling,
            snapshotter,
            room,
            waiting: BytesMut::new(),
            first_waiting: None,
            file: None,
            synced: None,
            claim,
        }
    }

    /// Creates a file with the header and all waiting records. It is renamed to its final name after the fsync, because Apache does not
    /// start with an empty log.
    fn open(&mut self, first_zxid: i64) -> io::Result<OpenFile> {
        self.mark();
        let name = names::log(first_zxid);
        let unfinished = names::unfinished(&name);
        let file = self.disk.create(&unfinished)?;
        let mut open = OpenFile {
            file,
            position: 0,
            reserved: 0,
            is_allocated: false,
            txns: 0,
            first_zxid,
        };
        let mut start = BytesMut::from(&HEADER[..]);
        start.extend_from_slice(&self.waiting);
        open.append(&start, self.reserve_bytes)?;
        self.disk.rename(&unfinished, &name)?;
        self.disk.sync_names()?;
        Ok(open)
    }

    /// Records the last zxid beside the data files.
    fn mark(&self) {
        if let (Some(claim), Some(zxid)) = (&self.claim, self.synced) {
            claim.mark.note(zxid);
        }
    }

    fn write_waiting(&mut self) -> io::Result<()> {
        let Some(first_zxid) = self.first_waiting else {
            return Ok(());
        };
        match self.write_records(first_zxid) {
            Err(error) if is_full(&error) && self.room.give_up_reserve() => {
                tracing::error!(%error, "the log gets the space that was reserved");
                // In a new file: nothing is written to one that was cut. Recovery skips what this one has twice.
                self.file = None;
                self.write_records(first_zxid)?;
            }
            written => written?,
        }
        self.first_waiting = None;
        self.waiting.clear();
        if self.waiting.capacity() > WAITING_BYTES_KEPT {
            self.waiting = BytesMut::new();
        }
        Ok(())
    }

    fn write_records(&mut self, first_zxid: i64) -> io::Result<()> {
        match &mut self.file {
            Some(open) => open.append(&self.waiting, self.reserve_bytes),
            None => {
                self.file = Some(self.open(first_zxid)?);
                Ok(())
            }
        }
    }

    fn tell_room(&self) {
        let ahead = self.file.as_ref().map_or(0, OpenFile::ahead);
        self.room.set_ahead(ahead);
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        self.mark();
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
            self.is_allocated = self.file.reserve(self.reserved)?;
        }
        self.file.write_all(bytes)
    }

    /// Bytes allocated ahead of the content.
    fn ahead(&self) -> u64 {
        match self.is_allocated {
            true => self.reserved.saturating_sub(self.position),
            false => 0,
        }
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
        self.synced = Some(tree.last_zxid());
        let Some(open) = &mut self.file else {
            return Ok(());
        };
        open.txns += txns;
        let due = open.txns >= self.rolling.txns
            || open.position >= self.rolling.bytes
            // The snapshot raises the epoch files.
            || zxid::epoch(open.first_zxid) < zxid::epoch(tree.last_zxid());
        // The snapshot contains exactly the transactions of this log file and the earlier ones.
        if due && self.snapshotter.take(tree) {
            self.file = None;
        }
        self.tell_room();
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
    use crate::storage::snapshot::snapshotter::Keeping;

    #[test]
    fn the_room_of_a_large_batch_is_given_back() {
        let folder = tempfile::tempdir().unwrap();
        let disk: Arc<dyn Disk> = Arc::new(Folder::open(folder.path()).unwrap());
        let connections = Arc::new(Connections::new(&Config::default(), usize::MAX));
        let (alarm, _) = Alarm::new(connections);
        let snapshotter =
            Snapshotter::start(&alarm, disk.clone(), disk.clone(), Keeping::default()).unwrap();
        let rolling = Rolling {
            txns: usize::MAX,
            bytes: u64::MAX,
        };
        let room = Arc::new(DiskRoom::unlimited());
        let mut log = LogWriter::new(disk, 0, rolling, snapshotter, room, None);
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
