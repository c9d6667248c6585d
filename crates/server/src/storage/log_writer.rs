//! Writes the log.

use std::fs::File;
use std::io;
use std::sync::Arc;

use bytes::BytesMut;

use super::Log;
use super::disk::{Disk, DiskFile};
use super::log_record::{self, HEADER};
use super::names;
use super::snapshotter::Snapshotter;
use crate::proto::txn::{Txn, TxnBody};
use crate::tree::Tree;

/// How close to the reserved end of a file more is reserved.
const RESERVE_AHEAD_BYTES: u64 = 4096;

/// How large the buffer of a batch may be that is kept for the next one.
const WAITING_BYTES_KEPT: usize = 64 << 10;

/// When the log goes on in a new file, with a snapshot of what came before.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rolling {
    /// After this many transactions.
    pub(crate) txns: usize,
    /// After this many bytes.
    pub(crate) bytes: u64,
}

/// The log in Apache's files.
#[derive(Debug)]
pub(crate) struct LogWriter {
    disk: Arc<dyn Disk>,
    reserve_bytes: u64,
    rolling: Rolling,
    snapshotter: Snapshotter,
    /// What was appended since the last sync, and the zxid that it begins with.
    waiting: BytesMut,
    first_waiting: Option<i64>,
    file: Option<OpenFile>,
    /// Keep other servers off the folders as long as this one may write.
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
    /// A log that begins with a new file, as Apache's does at every start.
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

    /// Opens a file with the header and all that waits. It gets its name when all of that is on
    /// disk: Apache does not start with an empty log.
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
    /// Writes and syncs `bytes`, or cuts the file back to what it was before.
    ///
    /// A full disk may have taken a part. A failed fsync may have left pages in the cache that are not on the disk and count
    /// as clean: another server would read them, and no fsync of its own would write them. The cut itself may fail, so a
    /// start does not rely on it (`last_log`).
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
    /// Gives back what was reserved: an old log is kept for long, and takes no more room than its records.
    fn drop(&mut self) {
        if let Err(error) = self.file.cut(self.position) {
            tracing::warn!(%error, "cannot give back the room that was reserved for the log");
        }
    }
}

impl Log for LogWriter {
    fn append(&mut self, txn: &Txn, digest: u64) -> io::Result<()> {
        // A failure changes nothing, and Apache gives it no digest.
        let digest = Some(digest).filter(|_| !matches!(txn.body, TxnBody::Error(_)));
        log_record::put(&mut self.waiting, txn, digest);
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
        // The snapshot holds exactly what the file that ends here and those before it led to.
        if due && self.snapshotter.take(tree) {
            self.file = None;
        }
        Ok(())
    }
}
