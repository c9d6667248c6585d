//! The little that data files need of a disk, so that a test can put a treacherous one in its place.

use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::{Errno, retry_on_intr};

/// One folder of files.
pub trait Disk: Debug + Send + Sync {
    /// The names of all files.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Reads a file from its start.
    fn read(&self, name: &str) -> io::Result<Box<dyn Read + Send>>;

    /// Makes an empty file, in place of any other of that name.
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// Gives a file another name, in place of any other of that name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Cuts a file to `bytes`, and returns when that cannot be lost any more.
    fn truncate(&self, name: &str, bytes: u64) -> io::Result<()>;

    /// Returns when what is in a file cannot be lost any more, whoever wrote it.
    fn sync(&self, name: &str) -> io::Result<()>;

    /// Returns when the names of the files cannot be lost any more.
    fn sync_names(&self) -> io::Result<()>;
}

/// A file that is being written. What is written goes behind what was written before.
pub trait DiskFile: Write + Debug + Send {
    /// Makes the file `bytes` long, which is longer than it was, and takes the room for it from the disk if that is
    /// possible. What is not written yet reads as zeros.
    fn reserve(&mut self, bytes: u64) -> io::Result<()>;

    /// Cuts the file to `bytes`. Nothing is written to it behind that.
    fn cut(&mut self, bytes: u64) -> io::Result<()>;

    /// Returns when what was written cannot be lost any more.
    fn sync(&mut self) -> io::Result<()>;
}

/// A folder of a real file system.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// The folder at `path`, made for its owner alone if there is none.
    pub fn open(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        let exists = |folder: &Path| folder.as_os_str().is_empty() || folder.exists();
        let missing: Vec<_> = path.ancestors().take_while(|it| !exists(it)).collect();
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)?;
        // The name of a new folder can be lost as that of a file can, with everything in it.
        for folder in missing {
            sync_folder(folder.parent().unwrap_or(folder))?;
        }
        Ok(Self { path })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Disk for Folder {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            // A name that is not UTF-8 is none of ours.
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn read(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(File::open(self.file(name))?))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        Ok(Box::new(options.open(self.file(name))?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.file(from), self.file(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.file(name))
    }

    fn truncate(&self, name: &str, bytes: u64) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(self.file(name))?;
        file.set_len(bytes)?;
        file.sync_all()
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        File::open(self.file(name))?.sync_all()
    }

    fn sync_names(&self) -> io::Result<()> {
        sync_folder(&self.path)
    }
}

fn sync_folder(path: &Path) -> io::Result<()> {
    let here = path.as_os_str().is_empty();
    File::open(if here { Path::new(".") } else { path })?.sync_all()
}

impl DiskFile for File {
    fn reserve(&mut self, bytes: u64) -> io::Result<()> {
        let reserved = retry_on_intr(|| fallocate(&*self, FallocateFlags::empty(), 0, bytes));
        match reserved {
            // Not every file system can. A nearly full one may still have room for what is written.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOSPC) => self.set_len(bytes),
            reserved => Ok(reserved?),
        }
    }

    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
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
