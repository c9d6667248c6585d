//! A disk whose syncs wait while a test holds them.

use std::io::{self, Read, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use bellwether_server::files::{Disk, DiskFile};

use super::CrashDisk;

/// A [`CrashDisk`] whose syncs a test can hold back: a server's writes are not on disk until [`Self::release`].
///
/// Clones are handles of the same disk.
#[derive(Debug, Clone, Default)]
pub struct HeldDisk {
    disk: CrashDisk,
    gate: Arc<SyncGate>,
}

#[derive(Debug, Default)]
struct SyncGate {
    is_held: Mutex<bool>,
    released: Condvar,
}

impl HeldDisk {
    /// A disk without files that does not hold syncs yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Holds every sync from now on.
    pub fn hold(&self) {
        *self.gate.lock() = true;
    }

    /// Releases all syncs, waiting and later ones.
    pub fn release(&self) {
        *self.gate.lock() = false;
        self.gate.released.notify_all();
    }
}

impl SyncGate {
    fn pass(&self) {
        let is_held = self.lock();
        drop(self.released.wait_while(is_held, |held| *held));
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.is_held.lock().expect("never panics inside")
    }
}

impl Disk for HeldDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn read(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        self.disk.read(name)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(HeldFile {
            file: self.disk.create(name)?,
            gate: self.gate.clone(),
        }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn truncate(&self, name: &str, bytes: u64) -> io::Result<()> {
        self.disk.truncate(name, bytes)
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        self.gate.pass();
        self.disk.sync(name)
    }

    fn sync_names(&self) -> io::Result<()> {
        self.gate.pass();
        self.disk.sync_names()
    }
}

#[derive(Debug)]
struct HeldFile {
    file: Box<dyn DiskFile>,
    gate: Arc<SyncGate>,
}

impl Write for HeldFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl DiskFile for HeldFile {
    fn reserve(&mut self, bytes: u64) -> io::Result<bool> {
        self.file.reserve(bytes)
    }

    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        self.file.cut(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.gate.pass();
        self.file.sync()
    }
}
