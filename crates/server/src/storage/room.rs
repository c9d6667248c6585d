//! How much room the disk of the log has left.
//!
//! The free space is measured about once a second, off the path of writes. In between, each write that is decided counts against the last
//! measurement, so that a burst cannot fill the disk before it is noticed.

use std::io::{self, Read as _, Write as _};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use super::disk::Disk;

/// Least and most bytes below which the disk is nearly full by default; in between, one percent of the file system.
const LOW_BYTES: std::ops::RangeInclusive<u64> = 1 << 20..=64 << 20;

/// A file without content whose space is given up when the log cannot be written otherwise. Apache ignores it.
pub(super) const RESERVE_FILE: &str = "bellwether.reserve";

/// How full the disk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum DiskState {
    Ample,
    /// Below the low-water mark.
    Low,
    /// Below a quarter of it.
    Critical,
}

impl DiskState {
    fn of_number(number: u8) -> Self {
        match number {
            0 => Self::Ample,
            1 => Self::Low,
            _ => Self::Critical,
        }
    }
}

/// Size and free space of a file system, for this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskSpace {
    /// Bytes of the file system.
    pub size: u64,
    /// Bytes that this process can still write.
    pub free: u64,
}

/// Whether an error says that there is no space left, on the disk or in the user's quota of it.
pub(super) fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded)
}

/// Bytes of free space below which the disk is nearly full.
pub(super) fn low_water(configured: Option<u64>, size: u64) -> u64 {
    configured.unwrap_or((size / 100).clamp(*LOW_BYTES.start(), *LOW_BYTES.end()))
}

/// The next state of a disk with `free` bytes. A worse state begins at its mark. It ends a quarter above, so that it does not flicker.
fn next_state(state: DiskState, free: u64, low: u64) -> DiskState {
    let marked = |low: u64| match free {
        _ if free < low / 4 => DiskState::Critical,
        _ if free < low => DiskState::Low,
        _ => DiskState::Ample,
    };
    marked(low).max(state.min(marked(low + low / 4)))
}

/// The room on the disk of the log.
#[derive(Debug)]
pub(crate) struct DiskRoom {
    /// `None` for data in memory.
    disk: Option<Arc<dyn Disk>>,
    configured: Option<u64>,
    /// Bytes of all writes up to the last that is on disk, as the writer counts them.
    logged: AtomicU64,
    /// Values of that count from which on the disk is nearly full.
    low_at: AtomicU64,
    critical_at: AtomicU64,
    /// Bytes allocated to the log ahead of its content.
    ahead: AtomicU64,
    state: AtomicU8,
    /// Whether the reserve file exists. Locked while it is created or removed.
    has_reserve: Mutex<bool>,
}

impl DiskRoom {
    /// The room for data in memory.
    pub(crate) fn unlimited() -> Self {
        Self::new(None, None, false)
    }

    /// The room on the disk of the logs. `configured` is the low-water mark, 0 for none.
    pub(super) fn of(logs: Arc<dyn Disk>, configured: Option<u64>) -> io::Result<Self> {
        let is_known = logs.space()?.is_some();
        let has_reserve = is_known && logs.list()?.iter().any(|name| name == RESERVE_FILE);
        Ok(Self::new(Some(logs), configured, has_reserve))
    }

    fn new(disk: Option<Arc<dyn Disk>>, configured: Option<u64>, has_reserve: bool) -> Self {
        Self {
            disk,
            configured,
            logged: AtomicU64::new(0),
            low_at: AtomicU64::new(u64::MAX),
            critical_at: AtomicU64::new(u64::MAX),
            ahead: AtomicU64::new(0),
            state: AtomicU8::new(DiskState::Ample as u8),
            has_reserve: Mutex::new(has_reserve),
        }
    }

    /// The state at the last measurement.
    pub(crate) fn state(&self) -> DiskState {
        DiskState::of_number(self.state.load(Relaxed))
    }

    /// The state once all writes up to this count are on disk.
    pub(crate) fn state_at(&self, decided: u64) -> DiskState {
        let ahead = match decided {
            _ if decided > self.critical_at.load(Relaxed) => DiskState::Critical,
            _ if decided > self.low_at.load(Relaxed) => DiskState::Low,
            _ => DiskState::Ample,
        };
        ahead.max(self.state())
    }

    /// A write was refused for lack of space: the state lasts until there is a quarter more.
    pub(crate) fn refused(&self) {
        if self.state() == DiskState::Ample {
            self.enter(DiskState::Ample, DiskState::Low);
        }
    }

    /// All writes up to this count are on disk.
    pub(crate) fn logged_to(&self, count: u64) {
        self.logged.store(count, Relaxed);
    }

    /// Bytes allocated to the log ahead of its content: the file system counts them as used.
    pub(super) fn set_ahead(&self, bytes: u64) {
        self.ahead.store(bytes, Relaxed);
    }

    /// Measures the free space. Creates the reserve file again if there is space for it.
    pub(crate) fn measure(&self) {
        let Some(disk) = &self.disk else {
            return;
        };
        match self.measured(&**disk) {
            Ok(Some((logged, space))) => self.note(&**disk, logged, space),
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "cannot measure the free space of the disk"),
        }
    }

    /// The count of writes on disk, and the space after them. The log may allocate or write meanwhile, so it is measured again then.
    fn measured(&self, disk: &dyn Disk) -> io::Result<Option<(u64, DiskSpace)>> {
        const TRIES: usize = 3;
        let mut found = None;
        for _ in 0..TRIES {
            let (logged, ahead) = (self.logged.load(Relaxed), self.ahead.load(Relaxed));
            let Some(mut space) = disk.space()? else {
                return Ok(None);
            };
            space.free = space.free.saturating_add(ahead);
            found = Some((logged, space));
            if self.ahead.load(Relaxed) <= ahead {
                break;
            }
        }
        Ok(found)
    }

    fn note(&self, disk: &dyn Disk, logged: u64, space: DiskSpace) {
        let low = low_water(self.configured, space.size);
        let before = self.state();
        let state = next_state(before, space.free, low);
        let margin = |bytes: u64| match bytes {
            // Without a mark.
            0 => u64::MAX,
            _ => logged.saturating_add(space.free.saturating_sub(bytes)),
        };
        self.low_at.store(margin(low), Relaxed);
        self.critical_at.store(margin(low / 4), Relaxed);
        self.enter(before, state);
        let reserve = low / 4;
        if state == DiskState::Ample && space.free > low + low / 4 + reserve {
            let is_new = self.restore_reserve(disk, reserve);
            if is_new {
                self.measure();
            }
        }
    }

    fn enter(&self, before: DiskState, state: DiskState) {
        self.state.store(state as u8, Relaxed);
        if before == state {
            return;
        }
        match state {
            DiskState::Ample => tracing::info!("the disk has space again"),
            _ => tracing::error!(
                ?state,
                "the disk is nearly full: writes that need space are refused, deletes are not"
            ),
        }
    }

    /// A write of the log has found no space. Frees the reserve, and returns whether there was one.
    pub(super) fn give_up_reserve(&self) -> bool {
        let Some(disk) = &self.disk else {
            return false;
        };
        let mut has_reserve = self.has_reserve.lock().expect("never panics inside");
        if !std::mem::take(&mut *has_reserve) {
            return false;
        }
        self.enter(self.state(), DiskState::Critical);
        self.critical_at.store(0, Relaxed);
        match disk.remove(RESERVE_FILE) {
            Ok(()) => true,
            Err(error) => {
                tracing::error!(%error, "cannot free the reserve of the disk");
                false
            }
        }
    }

    /// Creates the reserve file if there is none. Returns whether it did.
    fn restore_reserve(&self, disk: &dyn Disk, bytes: u64) -> bool {
        let mut has_reserve = self.has_reserve.lock().expect("never panics inside");
        if *has_reserve || bytes == 0 {
            return false;
        }
        match create_reserve(disk, bytes) {
            Ok(()) => *has_reserve = true,
            Err(error) => {
                tracing::warn!(%error, "cannot reserve space on the disk");
                // What was written of it would only take space.
                let _ = disk.remove(RESERVE_FILE);
            }
        }
        *has_reserve
    }
}

fn create_reserve(disk: &dyn Disk, bytes: u64) -> io::Result<()> {
    let mut file = disk.create(RESERVE_FILE)?;
    if !file.reserve(bytes)? {
        // The file system cannot allocate: only written bytes have space.
        io::copy(&mut io::repeat(0).take(bytes), &mut file)?;
        file.flush()?;
    }
    file.sync()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mark_is_one_percent_within_bounds() {
        const MIB: u64 = 1 << 20;
        assert_eq!(low_water(None, 10 * MIB), MIB);
        assert_eq!(low_water(None, 1000 * MIB), 10 * MIB);
        assert_eq!(low_water(None, 1_000_000 * MIB), 64 * MIB);
        assert_eq!(low_water(Some(7), 1000 * MIB), 7);
    }

    #[test]
    fn a_worse_state_ends_a_quarter_above_its_mark() {
        use DiskState::{Ample, Critical, Low};
        for (before, free, after) in [
            (Ample, 1000, Ample),
            (Ample, 999, Low),
            (Ample, 249, Critical),
            (Low, 1249, Low),
            (Low, 1250, Ample),
            (Low, 250, Low),
            (Low, 249, Critical),
            (Critical, 311, Critical),
            (Critical, 312, Low),
            (Critical, 1249, Low),
            (Critical, 1250, Ample),
        ] {
            assert_eq!(next_state(before, free, 1000), after, "{before:?} {free}");
        }
        // Without a mark nothing is ever low.
        assert_eq!(next_state(Ample, 0, 0), Ample);
    }
}
