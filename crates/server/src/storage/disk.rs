//! File operations of the storage layer, as a trait, so that tests can inject disk faults.

use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::{Errno, retry_on_intr};

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
}

/// A file open for appending.
pub trait DiskFile: Write + Debug + Send {
    /// Extends the file to `bytes` and allocates disk space for it if possible. Bytes not yet written read as zeros.
    fn reserve(&mut self, bytes: u64) -> io::Result<()>;

    /// Truncates the file to `bytes`. Nothing is written to it afterwards.
    fn cut(&mut self, bytes: u64) -> io::Result<()>;

    /// Returns when all written bytes are durable (fsync).
    fn sync(&mut self) -> io::Result<()>;
}

/// A folder of a real file system. Its errors name the file.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
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
        Ok(Self { path })
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

/// An open file, and its path for errors.
#[derive(Debug)]
struct NamedFile {
    file: File,
    path: PathBuf,
}

impl NamedFile {
    fn open(path: PathBuf, options: &OpenOptions) -> io::Result<Self> {
        match options.open(&path) {
            Ok(file) => Ok(Self { file, path }),
            Err(error) => Err(named(&path)(error)),
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
        for entry in fs::read_dir(&self.path).map_err(named(&self.path))? {
            let entry = entry.map_err(named(&self.path))?;
            // A name that is not UTF-8 is not one of our files.
            names.extend(entry.file_name().into_string());
        }
        Ok(names)
    }

    fn read(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        let file = NamedFile::open(self.file(name), OpenOptions::new().read(true))?;
        Ok(Box::new(file))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        Ok(Box::new(NamedFile::open(self.file(name), &options)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let to = self.file(to);
        fs::rename(self.file(from), &to).map_err(named(&to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let path = self.file(name);
        fs::remove_file(&path).map_err(named(&path))
    }

    fn truncate(&self, name: &str, bytes: u64) -> io::Result<()> {
        let mut opened = NamedFile::open(self.file(name), OpenOptions::new().write(true))?;
        opened.cut(bytes)?;
        opened.file.sync_all().map_err(named(&opened.path))
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        let opened = NamedFile::open(self.file(name), OpenOptions::new().read(true))?;
        opened.file.sync_all().map_err(named(&opened.path))
    }

    fn sync_names(&self) -> io::Result<()> {
        sync_folder(&self.path)
    }
}

fn sync_folder(path: &Path) -> io::Result<()> {
    let here = path.as_os_str().is_empty();
    let path = if here { Path::new(".") } else { path };
    let synced = File::open(path).and_then(|folder| folder.sync_all());
    synced.map_err(named(path))
}

impl Read for NamedFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read(buffer).map_err(named(&self.path))
    }
}

impl Write for NamedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes).map_err(named(&self.path))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush().map_err(named(&self.path))
    }
}

impl DiskFile for NamedFile {
    fn reserve(&mut self, bytes: u64) -> io::Result<()> {
        let reserved = retry_on_intr(|| fallocate(&self.file, FallocateFlags::empty(), 0, bytes));
        match reserved {
            // Not every file system supports it. A nearly full one may still have space for the records.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOSPC) => self.cut(bytes),
            reserved => reserved.map_err(|error| named(&self.path)(error.into())),
        }
    }

    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes).map_err(named(&self.path))
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data().map_err(named(&self.path))
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
        file.reserve(RESERVED).unwrap();
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
