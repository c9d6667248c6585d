//! Makes the last log durable as it was read, before anything is built on it.

use std::io::{self, BufWriter, Read, Write};

use crate::storage::disk::Disk;
use crate::storage::log::reader::LogReader;
use crate::storage::names;
use crate::storage::room::is_full;

/// Write buffer size.
const BUFFER_BYTES: usize = 1 << 20;

/// The newest log file, as recovery has read it.
#[derive(Debug)]
pub(in crate::storage) struct LastLog {
    pub(in crate::storage) name: String,
    /// Bytes after these were never acknowledged.
    pub(in crate::storage) good_bytes: u64,
    /// Whether the recovered tree contains transactions of this log that the snapshot lacks.
    pub(in crate::storage) was_applied: bool,
}

impl LastLog {
    /// Returns when the disk has the valid records of the log and nothing after them. `last_zxid` is that of the last record.
    ///
    /// An fsync is not enough. When one fails, the kernel may mark unwritten pages as clean: they can be read from the cache, while later
    /// fsyncs have nothing to do and succeed. So the log is written again, under a temporary name until it is complete. A log that was not
    /// applied is contained in the snapshot, and is only truncated. On a full disk, the log is read again from the disk instead.
    pub(in crate::storage) fn secure(&self, logs: &dyn Disk, last_zxid: i64) -> io::Result<()> {
        if self.good_bytes == 0 {
            // Without a complete header it never held a record.
            logs.remove(&self.name)
        } else if self.was_applied {
            match self.write_anew(logs, last_zxid) {
                Err(error) if is_full(&error) => self.read_again(logs, last_zxid),
                written => written,
            }
        } else {
            logs.truncate(&self.name, self.good_bytes)
        }
    }

    fn write_anew(&self, logs: &dyn Disk, last_zxid: i64) -> io::Result<()> {
        let unfinished = names::unfinished(&self.name);
        let mut copy = logs.create(&unfinished)?;
        let mut log = LogReader::open(Copying {
            input: logs.read(&self.name)?,
            output: BufWriter::with_capacity(BUFFER_BYTES, &mut *copy),
            left: self.good_bytes,
        })?;
        let mut copied_zxid = None;
        while let Some(record) = log.next()? {
            copied_zxid = Some(record.txn.zxid);
        }
        // A page that is only in the cache may be dropped from it at any time.
        self.check_same(copied_zxid == Some(last_zxid), log.good_bytes())?;
        log.into_input().output.flush()?;
        copy.sync()?;
        logs.rename(&unfinished, &self.name)
    }

    /// Without space for another copy: drops the log from the cache and reads it from the disk. If it differs from what was read before, the
    /// next start begins with what the disk has.
    fn read_again(&self, logs: &dyn Disk, last_zxid: i64) -> io::Result<()> {
        tracing::warn!(
            name = self.name,
            "no space to write the log anew, reading it again"
        );
        logs.remove(&names::unfinished(&self.name))?;
        logs.sync_and_drop_cache(&self.name)?;
        let mut log = LogReader::open(logs.read(&self.name)?)?;
        let mut found_zxid = None;
        while let Some(record) = log.next()? {
            found_zxid = Some(record.txn.zxid);
        }
        self.check_same(found_zxid == Some(last_zxid), log.good_bytes())?;
        logs.truncate(&self.name, self.good_bytes)
    }

    fn check_same(&self, is_last: bool, good_bytes: u64) -> io::Result<()> {
        if is_last && good_bytes == self.good_bytes {
            return Ok(());
        }
        let message = format!("{} is not what it was a moment ago", self.name);
        Err(io::Error::other(message))
    }
}

/// Copies the bytes read to a writer, the first `left` of them.
struct Copying<R, W> {
    input: R,
    output: W,
    left: u64,
}

impl<R: Read, W: Write> Read for Copying<R, W> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        let kept = usize::try_from(self.left).map_or(count, |left| left.min(count));
        self.output.write_all(&buffer[..kept])?;
        self.left -= kept as u64;
        Ok(count)
    }
}
