//! Paths of Unix sockets of any length.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

/// The longest path in the address of a Unix socket, without the terminating zero byte.
const BYTES_MAX: usize = 107;

/// A path that fits into the address of a socket. A longer path is replaced by one through an open descriptor of its folder, which is
/// valid in this process until this is dropped.
#[derive(Debug)]
pub(crate) struct SocketPath {
    path: PathBuf,
    _folder: Option<File>,
}

impl SocketPath {
    pub(crate) fn new(path: &Path) -> io::Result<Self> {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        if path.as_os_str().len() <= BYTES_MAX {
            return Ok(Self {
                path: path.to_owned(),
                _folder: None,
            });
        }
        let folder = File::open(folder)?;
        let short = format!("/proc/self/fd/{}", folder.as_raw_fd());
        Ok(Self {
            path: Path::new(&short).join(name),
            _folder: Some(folder),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    #[test]
    fn sockets_are_bound_and_found_by_paths_of_any_length() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().as_os_str().len() + "//s".len();
        for length in [base + 1, BYTES_MAX, BYTES_MAX + 1, 250] {
            let deep = folder.path().join("d".repeat(length - base));
            std::fs::create_dir(&deep).unwrap();
            let path = deep.join("s");
            assert_eq!(path.as_os_str().len(), length);
            let here = SocketPath::new(&path).unwrap();
            let _listener = UnixListener::bind(here.path()).unwrap();
            assert!(path.exists());
            let there = SocketPath::new(&path).unwrap();
            UnixStream::connect(there.path()).unwrap();
        }
    }
}
