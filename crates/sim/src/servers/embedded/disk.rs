//! The disk of the embedded server: it ends the server at any operation.

use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bellwether_server::files::{Disk, DiskFile};
use bellwether_testkit::CrashDisk;
use bellwether_testkit::disk::Operation;

/// A [`CrashDisk`] that counts operations. Clones are handles of the same disk.
#[derive(Debug, Clone)]
pub(super) struct ServerDisk {
    disk: CrashDisk,
    state: Arc<Mutex<DiskState>>,
}

#[derive(Debug, Default)]
struct DiskState {
    /// How the server ends, after this many more operations.
    planned: Option<(u64, Death)>,
    /// The next fsync of a file fails.
    sync_fails: bool,
    /// The next fsync of the directory fails.
    name_sync_fails: bool,
    /// An fsync has failed.
    has_failed: bool,
    /// How the server ended: every later operation fails, and has no effect.
    death: Option<Death>,
}

/// How a server ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Death {
    /// The process is killed: everything it wrote can be read.
    Kill,
    /// The machine loses power: what was not synced may be lost. If that is silent, clients do not learn it.
    PowerLoss { is_silent: bool },
}

impl ServerDisk {
    /// A disk with these files.
    pub(super) fn new(disk: CrashDisk) -> Self {
        Self {
            disk,
            state: Arc::default(),
        }
    }

    /// Ends the server at the `nth` operation from now on, counted from 1.
    pub(super) fn plan(&self, nth: u64, death: Death) {
        self.lock().planned = Some((nth, death));
    }

    /// Makes the next fsync fail: of a file, or of the directory.
    pub(super) fn fail_sync(&self, of_names: bool) {
        let mut state = self.lock();
        match of_names {
            true => state.name_sync_fails = true,
            false => state.sync_fails = true,
        }
    }

    /// Whether an fsync has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.lock().has_failed
    }

    /// Cancels the faults that have not happened yet.
    pub(super) fn calm(&self) {
        let mut state = self.lock();
        state.planned = None;
        state.sync_fails = false;
        state.name_sync_fails = false;
    }

    /// How the server ended at this disk, if it did.
    pub(super) fn death(&self) -> Option<Death> {
        self.lock().death
    }

    /// The files after the server ended. They are complete until its machine loses power.
    pub(super) fn after(&self, death: Death, seed: u64) -> CrashDisk {
        let mut state = self.lock();
        state.death = Some(death);
        match death {
            Death::Kill => self.disk.kill(),
            Death::PowerLoss { .. } => self.disk.crash(seed),
        }
    }

    /// Counts an operation, at which the server may end.
    fn begin(&self) -> io::Result<MutexGuard<'_, DiskState>> {
        let mut state = self.lock();
        if let Some((left, death)) = &mut state.planned {
            *left = left.saturating_sub(1);
            if *left == 0 {
                state.death = Some(*death);
                state.planned = None;
            }
        }
        match state.death {
            Some(_) => Err(io::Error::other("the server has ended")),
            None => Ok(state),
        }
    }

    /// Starts an fsync of a file.
    fn begin_sync(&self) -> io::Result<()> {
        let mut state = self.begin()?;
        if std::mem::take(&mut state.sync_fails) {
            state.has_failed = true;
            self.disk.fail(Operation::Sync, 1, io::ErrorKind::Other);
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, DiskState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Disk for ServerDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        drop(self.begin()?);
        self.disk.list()
    }

    fn read(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        drop(self.begin()?);
        self.disk.read(name)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        drop(self.begin()?);
        Ok(Box::new(ServerFile {
            file: self.disk.create(name)?,
            disk: self.clone(),
        }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        drop(self.begin()?);
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        drop(self.begin()?);
        self.disk.remove(name)
    }

    fn truncate(&self, name: &str, bytes: u64) -> io::Result<()> {
        drop(self.begin()?);
        self.disk.truncate(name, bytes)
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        self.begin_sync()?;
        self.disk.sync(name)
    }

    fn sync_names(&self) -> io::Result<()> {
        let mut state = self.begin()?;
        if std::mem::take(&mut state.name_sync_fails) {
            state.has_failed = true;
            self.disk
                .fail(Operation::SyncNames, 1, io::ErrorKind::Other);
        }
        drop(state);
        self.disk.sync_names()
    }
}

#[derive(Debug)]
struct ServerFile {
    file: Box<dyn DiskFile>,
    disk: ServerDisk,
}

impl Write for ServerFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let lived = self.disk.death().is_none();
        let begun = self.disk.begin().map(drop);
        if lived && begun.is_err() {
            // It ends in the middle of this write.
            let _ = self.file.write(&bytes[..bytes.len() / 2]);
        }
        begun?;
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl DiskFile for ServerFile {
    fn reserve(&mut self, bytes: u64) -> io::Result<bool> {
        drop(self.disk.begin()?);
        self.file.reserve(bytes)
    }

    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        drop(self.disk.begin()?);
        self.file.cut(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.disk.begin_sync()?;
        self.file.sync()
    }
}
