//! Makes sure that the last log is on disk as it was read, before anything is built on it.

use std::io::{self, BufWriter, Read, Write};

use super::disk::Disk;
use super::log_reader::LogReader;
use super::names;

/// How much is written at once.
const BUFFER_BYTES: usize = 1 << 20;

/// The log that a server wrote last, as a recovery has read it.
#[derive(Debug)]
pub(super) struct LastLog {
    pub(super) name: String,
    /// What lies behind these bytes nobody was told of.
    pub(super) good_bytes: u64,
    /// Whether the recovered tree has anything from it, beyond the snapshot.
    pub(super) was_applied: bool,
}

impl LastLog {
    /// Returns when the disk has the good records of the log and nothing behind them. `last_zxid` is that of the last one.
    ///
    /// An fsync is not enough. When one fails, the kernel may mark pages clean that it could not write: they are read from
    /// the cache, and later calls of fsync have nothing to do and succeed. So the log is written anew, under another name
    /// until it is whole. What was not applied is in the snapshot, and is only cut.
    pub(super) fn secure(&self, logs: &dyn Disk, last_zxid: i64) -> io::Result<()> {
        if self.good_bytes == 0 {
            // Without even a header it never held anything.
            logs.remove(&self.name)
        } else if self.was_applied {
            self.write_anew(logs, last_zxid)
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
        if copied_zxid != Some(last_zxid) || log.good_bytes() != self.good_bytes {
            let message = format!("{} is not what it was a moment ago", self.name);
            return Err(io::Error::other(message));
        }
        log.into_input().output.flush()?;
        copy.sync()?;
        logs.rename(&unfinished, &self.name)
    }
}

/// Writes the first bytes that are read, up to `left`.
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
