//! A file before and after a sync, and its state after a crash.

use bellwether_server::files::{LogEnd, LogReader};

/// The size of a sector: its bytes are lost or kept together.
pub(super) const SECTOR_BYTES: usize = 512;

#[derive(Debug, Default)]
pub(super) struct File {
    /// The contents that a reader sees.
    pub(super) bytes: Vec<u8>,
    /// The offset of the next write.
    pub(super) position: usize,
    /// The contents on the disk.
    pub(super) synced: Vec<u8>,
    /// The offset from which the next sync writes. Bytes before it that a failed sync left clean in the cache are not on the disk: readers
    /// see them, and no later sync writes them.
    pub(super) synced_position: usize,
}

impl File {
    pub(super) fn synced(bytes: Vec<u8>) -> Self {
        Self {
            position: bytes.len(),
            synced_position: bytes.len(),
            synced: bytes.clone(),
            bytes,
        }
    }

    pub(super) fn append(&mut self, bytes: &[u8]) {
        let end = self.position + bytes.len();
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[self.position..end].copy_from_slice(bytes);
        self.position = end;
    }

    pub(super) fn set_length(&mut self, bytes: u64) {
        let length = usize::try_from(bytes).expect("it fits into memory");
        self.bytes.resize(length, 0);
        self.position = self.position.min(length);
        self.synced_position = self.synced_position.min(length);
    }

    /// Writes what was not written yet: long logs are synced often.
    pub(super) fn sync(&mut self) {
        let start = self.synced_position.min(self.bytes.len());
        self.synced.resize(self.bytes.len(), 0);
        self.synced[start..].copy_from_slice(&self.bytes[start..]);
        self.synced_position = self.position;
    }

    /// Readers see what is on the disk.
    pub(super) fn drop_cache(&mut self) {
        self.bytes.clone_from(&self.synced);
        self.position = self.position.min(self.bytes.len());
    }

    /// Writes the first sectors of a sync, and marks the rest as written too, as Linux does when a
    /// write to the device has failed: the pages are clean, and no later sync writes them.
    pub(super) fn fail_sync(&mut self) {
        let (start, end) = (self.synced_position, self.position);
        let half = (start + end) / 2 / SECTOR_BYTES * SECTOR_BYTES;
        let written = half.max(start);
        if self.synced.len() < written {
            self.synced.resize(written, 0);
        }
        self.synced[start.min(written)..written].copy_from_slice(&self.bytes[start..written]);
        self.synced_position = end;
    }

    /// A possible state of the file after a crash.
    pub(super) fn torn(&self, dice: &mut Dice) -> Vec<u8> {
        let mut left = self.synced.clone();
        if dice.roll(2) == 0 {
            left.resize(self.bytes.len(), 0);
        }
        let start = self.synced_position.min(self.position);
        let mut end = match dice.roll(4) {
            0 => start,
            1 => self.position,
            _ => start + dice.roll(self.position - start + 1),
        };
        if end < left.len() && end < self.position {
            end = (end / SECTOR_BYTES * SECTOR_BYTES).max(start);
        }
        if end <= start {
            return left;
        }
        if left.len() < end {
            left.resize(end, 0);
        }
        left[start..end].copy_from_slice(&self.bytes[start..end]);
        if dice.roll(3) == 0 {
            lose_sector(&mut left, start, end, dice);
        }
        left
    }
}

/// Loses one of the sectors of the last record before `end`, if it is after `start`.
fn lose_sector(bytes: &mut [u8], start: usize, end: usize, dice: &mut Dice) {
    let record = last_record(&bytes[..end]).max(start);
    let (first, last) = (record / SECTOR_BYTES, (end - 1) / SECTOR_BYTES);
    let sector = (first + dice.roll(last - first + 1)) * SECTOR_BYTES;
    let (lost, lost_end) = (sector.max(start), (sector + SECTOR_BYTES).min(end));
    // Already zeros: the record would stay complete.
    if bytes[lost.max(record)..lost_end]
        .iter()
        .any(|byte| *byte != 0)
    {
        bytes[lost..lost_end].fill(0);
    }
}

/// The offset of the last record of a log, complete or not; 0 for other files.
fn last_record(bytes: &[u8]) -> usize {
    let Ok(mut log) = LogReader::open(bytes) else {
        return 0;
    };
    let mut last = 0;
    while let Ok(Some(record)) = log.next() {
        last = record.offset;
    }
    if let LogEnd::Torn { offset, .. } | LogEnd::Damaged { offset, .. } = log.end() {
        last = offset;
    }
    usize::try_from(last).expect("it is in memory")
}

/// Pseudo-random numbers from a seed (splitmix64).
#[derive(Debug)]
pub(super) struct Dice(pub(super) u64);

impl Dice {
    /// A number below `sides`.
    pub(super) fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^= mixed >> 31;
        usize::try_from(mixed % sides as u64).expect("less than a usize")
    }
}
