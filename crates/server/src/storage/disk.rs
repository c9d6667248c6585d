//! File operations of the storage layer, as a trait, so that tests can inject disk faults.

use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Advice, FallocateFlags, fadvise, fallocate, statvfs};
use rustix::io::{Errno, retry_on_intr};

use super::room::DiskSpace;
use crate::descriptors::Reserve;

/// One folder of files.
pub trait Disk: Debug + Send + Sync {
    /// Names of all files.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Reads a file from its start.
    fn read(&self, name: &str) -> io::Result<Box<dyn Read + Send>>;

    /// Creates an empty file, replacing any other of that name.
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// Renames a file, replacing any other of that name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Truncates a file to `bytes`. Returns when that is durable.
    fn truncate(&self, name: &str, bytes: u64) -> io::Result<()>;

    /// Returns when the content of a file is durable, even if another process wrote it.
    fn sync(&self, name: &str) -> io::Result<()>;

    /// Returns when the names of the files are durable (fsync of the folder).
    fn sync_names(&self) -> io::Result<()>;

    /// As [`sync`](Self::sync), and drops the file from the cache, so that the next read shows what is on the disk.
    fn sync_and_drop_cache(&self, name: &str) -> io::Result<()> {
        self.sync(name)
    }

    /// Size and free space; `None` if unknown.
    fn space(&self) -> io::Result<Option<DiskSpace>> {
        Ok(None)
    }
}

/// A file open for appending.
pub trait DiskFile: Write + Debug + Send {
    /// Extends the file to `bytes` and allocates disk space for it if possible. Bytes not yet written read as zeros. Returns whether the space
    /// was allocated.
    fn reserve(&mut self, bytes: u64) -> io::Result<bool>;

    /// Truncates the file to `bytes`. Nothing is written to it afterwards.
    fn cut(&mut self, bytes: u64) -> io::Result<()>;

    /// Returns when all written bytes are durable (fsync).
    fn sync(&mut self) -> io::Result<()>;
}

/// A folder of a real file system. Its errors name the file.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Descriptors for when all others are in use.
    reserve: Option<Arc<Reserve>>,
}

impl Folder {
    /// Opens the folder at `path`, or creates it, accessible only to its owner.
    pub fn open(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        let exists = |folder: &Path| folder.as_os_str().is_empty() || folder.exists();
        let missing: Vec<_> = path.ancestors().take_while(|it| !exists(it)).collect();
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)
            .map_err(named(&path))?;
        // The name of a new folder can be lost in a crash like that of a file, with everything in it.
        for folder in missing {
            sync_folder(folder.parent().unwrap_or(folder))?;
        }
        Ok(Self {
            path,
            reserve: None,
        })
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens files with descriptors of `reserve` when there are no others.
    pub(crate) fn with_reserve(self, reserve: Arc<Reserve>) -> Self {
        Self {
            reserve: Some(reserve),
            ..self
        }
    }

    fn open_file(&self, name: &str, options: &OpenOptions) -> io::Result<NamedFile> {
        self.open_path(self.path.join(name), options)
    }

    fn open_path(&self, path: PathBuf, options: &OpenOptions) -> io::Result<NamedFile> {
        let file = self.with_descriptor(|| options.open(&path));
        Ok(NamedFile {
            file: Some(file.map_err(named(&path))?),
            path,
            reserve: self.reserve.clone(),
        })
    }

    fn with_descriptor<T>(&self, open: impl Fn() -> io::Result<T>) -> io::Result<T> {
        match &self.reserve {
            Some(reserve) => reserve.open(open),
            None => open(),
        }
    }
}

/// An open file, and its path for errors.
#[derive(Debug)]
struct NamedFile {
    /// `None` only when it is dropped.
    file: Option<File>,
    path: PathBuf,
    reserve: Option<Arc<Reserve>>,
}

impl NamedFile {
    fn file(&self) -> &File {
        self.file.as_ref().expect("it is not dropped yet")
    }
}

impl Drop for NamedFile {
    fn drop(&mut self) {
        if let (Some(reserve), Some(file)) = (&self.reserve, self.file.take()) {
            reserve.close(file);
        }
    }
}

/// Puts the path before an error.
pub(super) fn named(path: &Path) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

impl Disk for Folder {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        let entries = self.with_descriptor(|| fs::read_dir(&self.path));
        for entry in entries.map_err(named(&self.path))? {
            let entry = entry.map_err(named(&self.path))?;
            // A name that is not UTF-8 is not one of our files.
            names.extend(entry.file_name().into_string());
        }
        if let Some(reserve) = &self.reserve {
            reserve.fill();
        }
        Ok(names)
    }

    fn read(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(
            self.open_file(name, OpenOptions::new().read(true))?,
        ))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        Ok(Box::new(self.open_file(name, &options)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let to = self.path.join(to);
        fs::rename(self.path.join(from), &to).map_err(named(&to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let path = self.path.join(name);
        fs::remove_file(&path).map_err(named(&path))
    }

    fn truncate(&self, name: &str, bytes: u64) -> io::Result<()> {
        let mut opened = self.open_file(name, OpenOptions::new().write(true))?;
        opened.cut(bytes)?;
        opened.file().sync_all().map_err(named(&opened.path))
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        let opened = self.open_file(name, OpenOptions::new().read(true))?;
        opened.file().sync_all().map_err(named(&opened.path))
    }

    fn sync_names(&self) -> io::Result<()> {
        let folder = self.open_path(or_here(&self.path), OpenOptions::new().read(true))?;
        folder.file().sync_all().map_err(named(&folder.path))
    }

    fn sync_and_drop_cache(&self, name: &str) -> io::Result<()> {
        let opened = self.open_file(name, OpenOptions::new().read(true))?;
        opened.file().sync_all().map_err(named(&opened.path))?;
        match fadvise(opened.file(), 0, None, Advice::DontNeed) {
            // A file system without a cache has nothing to drop.
            Ok(()) | Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(()),
            Err(error) => Err(named(&opened.path)(error.into())),
        }
    }

    fn space(&self) -> io::Result<Option<DiskSpace>> {
        let figures = statvfs(&self.path).map_err(|error| named(&self.path)(error.into()))?;
        Ok(Some(DiskSpace {
            size: figures.f_blocks.saturating_mul(figures.f_frsize),
            free: figures.f_bavail.saturating_mul(figures.f_frsize),
        }))
    }
}

fn sync_folder(path: &Path) -> io::Result<()> {
    let path = or_here(path);
    let synced = File::open(&path).and_then(|folder| folder.sync_all());
    synced.map_err(named(&path))
}

/// The current folder, if `path` is empty.
fn or_here(path: &Path) -> PathBuf {
    let is_here = path.as_os_str().is_empty();
    if is_here { ".".into() } else { path.into() }
}

impl Read for NamedFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.file().read(buffer).map_err(named(&self.path))
    }
}

impl Write for NamedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file().write(bytes).map_err(named(&self.path))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file().flush().map_err(named(&self.path))
    }
}

impl DiskFile for NamedFile {
    fn reserve(&mut self, bytes: u64) -> io::Result<bool> {
        let reserved = retry_on_intr(|| fallocate(self.file(), FallocateFlags::empty(), 0, bytes));
        match reserved {
            Ok(()) => Ok(true),
            // Not every file system supports it. A nearly full one may still have space for the records.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOSPC | Errno::DQUOT) => {
                self.cut(bytes).map(|()| false)
            }
            Err(error) => Err(named(&self.path)(error.into())),
        }
    }

    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        self.file().set_len(bytes).map_err(named(&self.path))
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file().sync_data().map_err(named(&self.path))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn what_is_reserved_takes_room_and_reads_as_zeros() {
        const RESERVED: u64 = 1 << 20;
        let folder = tempfile::tempdir().unwrap();
        let disk = Folder::open(folder.path()).unwrap();
        let mut file = disk.create("a").unwrap();
        assert!(file.reserve(RESERVED).unwrap());
        file.write_all(b"x").unwrap();
        let metadata = || fs::metadata(folder.path().join("a")).unwrap();
        assert_eq!(metadata().len(), RESERVED);
        assert!(metadata().blocks() * 512 >= RESERVED, "{:?}", metadata());
        let mut bytes = Vec::new();
        disk.read("a").unwrap().read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes[0], b'x');
        assert!(bytes[1..].iter().all(|byte| *byte == 0));
        file.cut(1).unwrap();
        assert_eq!(metadata().len(), 1);
        assert!(metadata().blocks() * 512 < RESERVED, "{:?}", metadata());
    }
}
