//! A disk that loses what was not synced.

mod file;
mod held;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io::{self, Cursor, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard};

use bellwether_server::files::{Disk, DiskFile, DiskSpace};

use self::file::{Dice, File};
pub use self::held::HeldDisk;

/// A folder of files in memory, for a server whose machine will fail.
///
/// It keeps synced bytes apart from those only written. [`Self::crash`] is a power loss: it
/// returns a possible disk after it. [`Self::kill`] ends only the process, and
/// the system keeps everything. Both invalidate the old handles.
///
/// After a power loss
///
/// - of bytes that were written to a file and not synced, a first part is present. It ends anywhere if the
///   file ends with it, and at a sector boundary if the file is longer, where zeros follow.
/// - a length that was set and not synced is in effect or not.
/// - one sector of the last record of a log, or of the unsynced bytes of any other file, may be
///   missing; zeros replace it.
/// - of names that were created, changed and removed without a sync, a first part is in effect.
/// - bytes that a failed sync of a file did not write are missing, also if a later sync succeeded: a kernel may mark
///   pages clean that it could not write. Until the power loss readers see them.
///
/// Clones are handles of the same disk.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// use std::io::Write as _;
/// use bellwether_server::files::Disk as _;
/// use bellwether_testkit::CrashDisk;
///
/// let disk = CrashDisk::new();
/// let mut file = disk.create("a")?;
/// file.write_all(b"kept")?;
/// file.sync()?;
/// disk.sync_names()?;
/// file.write_all(b" or not")?;
///
/// let left = disk.crash(42).contents("a").expect("its name was synced");
/// assert!(left.starts_with(b"kept"));
/// assert!(file.sync().is_err());
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct CrashDisk {
    state: Arc<Mutex<DiskState>>,
    /// The process of this handle; all but the newest are dead.
    process: u64,
}

/// Operations that can be made to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A read of a file that is open.
    Read,
    /// [`Disk::create`].
    Create,
    /// A write to a file.
    Write,
    /// [`DiskFile::reserve`].
    Reserve,
    /// [`DiskFile::cut`].
    Cut,
    /// [`DiskFile::sync`] and [`Disk::sync`].
    Sync,
    /// [`Disk::rename`].
    Rename,
    /// [`Disk::remove`].
    Remove,
    /// [`Disk::truncate`].
    Truncate,
    /// [`Disk::sync_names`].
    SyncNames,
}

#[derive(Debug, Default)]
struct DiskState {
    files: Vec<File>,
    names: Names,
    synced_names: Names,
    name_changes: Vec<NameChange>,
    process: u64,
    /// Whether the power is off.
    down: bool,
    sync_points: u64,
    crash_at: Option<u64>,
    faults: Vec<DiskFault>,
    /// The error of every change after a permanent fault.
    read_only: Option<io::ErrorKind>,
    space: Option<usize>,
    /// The size that the disk reports.
    size: Option<u64>,
}

/// Names, and the indices of their files.
type Names = BTreeMap<String, usize>;

#[derive(Debug, Clone)]
enum NameChange {
    Give(String, usize),
    Rename(String, String),
    Remove(String),
}

#[derive(Debug)]
struct DiskFault {
    operation: Operation,
    /// The number of operations before the fault.
    after: u64,
    error: io::ErrorKind,
    lasting: bool,
}

impl Default for CrashDisk {
    fn default() -> Self {
        Self::new()
    }
}

impl CrashDisk {
    /// A disk without files.
    pub fn new() -> Self {
        Self::of(DiskState::default())
    }

    /// A disk with these files, all of them synced.
    pub fn with_files(files: impl IntoIterator<Item = (String, Vec<u8>)>) -> Self {
        let mut state = DiskState::default();
        for (name, bytes) in files {
            state.names.insert(name, state.files.len());
            state.files.push(File::synced(bytes));
        }
        state.synced_names = state.names.clone();
        Self::of(state)
    }

    fn of(state: DiskState) -> Self {
        Self {
            process: state.process,
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Turns the power off, and returns a possible disk after it, which `seed` chooses. It can be
    /// called again with another seed.
    #[must_use = "this disk can no longer be used"]
    pub fn crash(&self, seed: u64) -> Self {
        let mut state = self.lock();
        state.down = true;
        let mut dice = Dice(seed);
        let mut names = state.synced_names.clone();
        let kept = dice.roll(state.name_changes.len() + 1);
        for change in &state.name_changes[..kept] {
            change.apply(&mut names);
        }
        let files = names.into_iter();
        Self::with_files(files.map(|(name, place)| (name, state.files[place].torn(&mut dice))))
    }

    /// Ends the process that uses the disk: its writes remain visible, and unsynced. The
    /// returned disk has no faults.
    #[must_use = "this handle can no longer be used"]
    pub fn kill(&self) -> Self {
        let mut state = self.lock();
        state.process += 1;
        state.down = false;
        state.crash_at = None;
        state.faults.clear();
        state.read_only = None;
        state.space = None;
        Self {
            state: self.state.clone(),
            process: state.process,
        }
    }

    /// The number of syncs so far, of files and of names; a truncation counts as one.
    pub fn sync_points(&self) -> u64 {
        self.lock().sync_points
    }

    /// Turns the power off at the `nth` sync from now on, counted from 1, before it has any effect.
    pub fn crash_at_sync(&self, nth: u64) {
        let mut state = self.lock();
        state.crash_at = Some(state.sync_points + nth);
    }

    /// Whether the power is off.
    pub fn is_down(&self) -> bool {
        self.lock().down
    }

    /// Makes one operation fail: the `nth` of its kind from now on, counted from 1. It has no effect, except that a sync of a
    /// file writes a part and marks the rest clean.
    pub fn fail(&self, operation: Operation, nth: u64, error: io::ErrorKind) {
        self.add_fault(operation, nth, error, false);
    }

    /// As [`Self::fail`], and every later change fails as well, until [`Self::kill`]: a file
    /// system that becomes read-only after an error.
    pub fn fail_for_good(&self, operation: Operation, nth: u64, error: io::ErrorKind) {
        self.add_fault(operation, nth, error, true);
    }

    fn add_fault(&self, operation: Operation, nth: u64, error: io::ErrorKind, lasting: bool) {
        self.lock().faults.push(DiskFault {
            operation,
            after: nth.saturating_sub(1),
            error,
            lasting,
        });
    }

    /// Leaves space for `bytes` more bytes. The write that exceeds it is cut short, the next one
    /// fails with [`io::ErrorKind::StorageFull`]. Reserved space counts only when it is written.
    pub fn limit_space(&self, bytes: usize) {
        self.lock().space = Some(bytes);
    }

    /// As [`Self::limit_space`], of a file system of `size` bytes whose free space can be measured.
    pub fn report_space(&self, size: u64, free: usize) {
        let mut state = self.lock();
        state.size = Some(size);
        state.space = Some(free);
    }

    /// The contents of a file, as a reader sees them.
    pub fn contents(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.lock();
        let place = *state.names.get(name)?;
        Some(state.files[place].bytes.clone())
    }

    /// All files.
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let state = self.lock();
        let files = state.names.iter();
        files
            .map(|(name, place)| (name.clone(), state.files[*place].bytes.clone()))
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, DiskState> {
        self.state.lock().expect("never panics inside")
    }

    /// Starts an operation, or returns its injected error.
    fn begin(&self, operation: Operation) -> io::Result<MutexGuard<'_, DiskState>> {
        let mut state = self.enter()?;
        if matches!(operation, Operation::SyncNames | Operation::Truncate) {
            state.count_sync()?;
        }
        match state.fault(operation) {
            Some(error) => Err(error),
            None => Ok(state),
        }
    }

    /// Syncs the file that `find` finds.
    fn sync_file(&self, find: impl FnOnce(&DiskState) -> io::Result<usize>) -> io::Result<()> {
        let mut state = self.enter()?;
        state.count_sync()?;
        let place = find(&state)?;
        if let Some(error) = state.fault(Operation::Sync) {
            state.files[place].fail_sync();
            return Err(error);
        }
        state.files[place].sync();
        Ok(())
    }

    fn enter(&self) -> io::Result<MutexGuard<'_, DiskState>> {
        let state = self.lock();
        if state.down || state.process != self.process {
            return Err(cut_off());
        }
        Ok(state)
    }
}

impl Disk for CrashDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.enter()?.names.keys().cloned().collect())
    }

    fn read(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        let state = self.enter()?;
        let place = state.place(name)?;
        let bytes = Cursor::new(state.files[place].bytes.clone());
        let disk = self.clone();
        Ok(Box::new(Reading { disk, bytes }))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.begin(Operation::Create)?;
        let place = state.files.len();
        state.files.push(File::default());
        state.change_names(NameChange::Give(name.into(), place));
        Ok(Box::new(Writing {
            disk: self.clone(),
            place,
        }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.begin(Operation::Rename)?;
        state.place(from)?;
        state.change_names(NameChange::Rename(from.into(), to.into()));
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.begin(Operation::Remove)?;
        state.place(name)?;
        state.change_names(NameChange::Remove(name.into()));
        Ok(())
    }

    fn truncate(&self, name: &str, bytes: u64) -> io::Result<()> {
        let mut state = self.begin(Operation::Truncate)?;
        let place = state.place(name)?;
        let file = &mut state.files[place];
        file.set_length(bytes);
        file.sync();
        Ok(())
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        self.sync_file(|state| state.place(name))
    }

    fn sync_names(&self) -> io::Result<()> {
        let mut state = self.begin(Operation::SyncNames)?;
        state.name_changes.clear();
        state.synced_names = state.names.clone();
        Ok(())
    }

    fn sync_and_drop_cache(&self, name: &str) -> io::Result<()> {
        self.sync(name)?;
        let mut state = self.enter()?;
        let place = state.place(name)?;
        state.files[place].drop_cache();
        Ok(())
    }

    fn space(&self) -> io::Result<Option<DiskSpace>> {
        let state = self.enter()?;
        Ok(state.size.zip(state.space).map(|(size, free)| DiskSpace {
            size,
            free: free as u64,
        }))
    }
}

/// A file that is being read, as it was when it was opened.
#[derive(Debug)]
struct Reading {
    disk: CrashDisk,
    bytes: Cursor<Vec<u8>>,
}

impl Read for Reading {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        drop(self.disk.begin(Operation::Read)?);
        self.bytes.read(buffer)
    }
}

/// An open file.
#[derive(Debug)]
struct Writing {
    disk: CrashDisk,
    place: usize,
}

impl Write for Writing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.disk.begin(Operation::Write)?;
        let count = state
            .space
            .map_or(bytes.len(), |space| space.min(bytes.len()));
        if count == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if let Some(space) = &mut state.space {
            *space -= count;
        }
        state.files[self.place].append(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl DiskFile for Writing {
    fn reserve(&mut self, bytes: u64) -> io::Result<bool> {
        let mut state = self.disk.begin(Operation::Reserve)?;
        state.files[self.place].set_length(bytes);
        // The space is taken when it is written.
        Ok(false)
    }

    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        let mut state = self.disk.begin(Operation::Cut)?;
        state.files[self.place].set_length(bytes);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.disk.sync_file(|_| Ok(self.place))
    }
}

impl DiskState {
    fn place(&self, name: &str) -> io::Result<usize> {
        let place = self.names.get(name).copied();
        place.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Counts a sync, at which the power may be turned off.
    fn count_sync(&mut self) -> io::Result<()> {
        self.sync_points += 1;
        self.down = self.crash_at == Some(self.sync_points);
        if self.down { Err(cut_off()) } else { Ok(()) }
    }

    /// The injected error of an operation.
    fn fault(&mut self, operation: Operation) -> Option<io::Error> {
        let mut failed = match operation {
            // What has become read-only can still be read.
            Operation::Read => None,
            _ => self.read_only,
        };
        let mut lasting = self.read_only;
        self.faults.retain_mut(|fault| {
            if fault.operation != operation {
                return true;
            }
            if fault.after == 0 {
                failed = Some(fault.error);
                lasting = lasting.or(fault.lasting.then_some(fault.error));
                return false;
            }
            fault.after -= 1;
            true
        });
        self.read_only = lasting;
        failed.map(|error| io::Error::new(error, "a fault that was asked for"))
    }

    fn change_names(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.name_changes.push(change);
    }
}

impl NameChange {
    fn apply(&self, names: &mut Names) {
        match self {
            Self::Give(name, place) => {
                names.insert(name.clone(), *place);
            }
            Self::Rename(from, to) => {
                if let Some(place) = names.remove(from) {
                    names.insert(to.clone(), place);
                }
            }
            Self::Remove(name) => {
                names.remove(name);
            }
        }
    }
}

fn cut_off() -> io::Error {
    io::Error::other("the disk is gone")
}
