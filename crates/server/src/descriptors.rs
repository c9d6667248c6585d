//! File descriptors: the limit of this process, and a reserve for data files.
//!
//! Each connection takes a descriptor. A server whose clients have taken all of them could not open its next log, and would stop.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard};

use rustix::io::{Errno, FdFlags, dup2, fcntl_setfd};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::metrics;

/// Descriptors held for data files: a log, a snapshot, and their folders.
const RESERVED: usize = 6;

/// Descriptors that connections leave free at least, for everything else: connections that are refused, certificates that have changed, and
/// the program around the server.
const FREE_MIN: u64 = 16;

/// The same, as a part of all: one of so many.
const FREE_PART: u64 = 8;

/// What counts as in use if the system does not tell.
const IN_USE_UNKNOWN: u64 = 32;

/// Raises the limit of open files of this process to the highest that it may set. A limit that cannot be raised stays as it is.
///
/// For the program around a server, which decides about its process; child processes inherit the limit.
pub fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let highest = Rlimit {
        current: limit.maximum,
        ..limit
    };
    if limit.current != limit.maximum
        && let Err(error) = setrlimit(Resource::Nofile, highest)
    {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
}

/// Number of connections for which there are descriptors; `usize::MAX` if there is no limit.
pub(crate) fn room_for_connections() -> usize {
    let Some(limit) = getrlimit(Resource::Nofile).current else {
        return usize::MAX;
    };
    let in_use = metrics::open_files().unwrap_or(IN_USE_UNKNOWN);
    usize::try_from(room(limit, in_use)).unwrap_or(usize::MAX)
}

/// At least one: a server without connections is of no use.
fn room(limit: u64, in_use: u64) -> u64 {
    let free = FREE_MIN.max(limit / FREE_PART);
    let room = limit.saturating_sub(in_use + RESERVED as u64 + free);
    room.max(1)
}

/// Whether an error says that this process, or the system, has no free descriptor.
pub(crate) fn is_shortage(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(code, Some(Errno::MFILE | Errno::NFILE))
}

/// Descriptors that are given up when there are no others, to open data files.
#[derive(Debug)]
pub(crate) struct Reserve {
    /// What the descriptors are open on.
    null: File,
    held: Mutex<Vec<OwnedFd>>,
}

impl Reserve {
    pub(crate) fn new() -> io::Result<Self> {
        let reserve = Self {
            null: File::open("/dev/null")?,
            held: Mutex::default(),
        };
        reserve.fill();
        Ok(reserve)
    }

    /// Opens something with `open`; gives up reserved descriptors as long as there are no others.
    pub(crate) fn open<T>(&self, open: impl Fn() -> io::Result<T>) -> io::Result<T> {
        loop {
            let given_up = match open() {
                Err(error) if is_shortage(&error) => self.held().pop().ok_or(error)?,
                opened => return opened,
            };
            // Another thread may take it first: the next one is tried then.
            drop(given_up);
        }
    }

    /// Closes `file`. If descriptors were given up before, that of the file is kept in their place: once free, a client could take it.
    pub(crate) fn close(&self, file: File) {
        self.fill();
        let mut held = self.held();
        let mut descriptor = OwnedFd::from(file);
        if held.len() < RESERVED
            && dup2(&self.null, &mut descriptor).is_ok()
            && fcntl_setfd(&descriptor, FdFlags::CLOEXEC).is_ok()
        {
            held.push(descriptor);
        }
    }

    /// Takes free descriptors until there are enough.
    pub(crate) fn fill(&self) {
        let mut held = self.held();
        while held.len() < RESERVED
            && let Ok(descriptor) = self.null.try_clone()
        {
            held.push(descriptor.into());
        }
    }

    fn held(&self) -> MutexGuard<'_, Vec<OwnedFd>> {
        self.held.lock().expect("never panics inside")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_room_for_everything_else() {
        for (limit, in_use, expected) in [
            (64, 20, 22),
            (1024, 20, 870),
            (1 << 20, 20, 917_478),
            (64, 60, 1),
            (10, 60, 1),
        ] {
            assert_eq!(room(limit, in_use), expected, "{limit}, {in_use}");
        }
    }

    #[test]
    fn a_reserved_descriptor_is_given_up_and_comes_back_with_the_file() {
        let reserve = Reserve::new().unwrap();
        let shortage = || io::Error::from(Errno::MFILE);
        let held = || reserve.held().len();
        assert_eq!(held(), RESERVED);
        let file = reserve.open(|| match held() {
            RESERVED => Err(shortage()),
            _ => File::open("/dev/zero"),
        });
        assert_eq!(held(), RESERVED - 1);
        reserve.close(file.unwrap());
        assert_eq!(held(), RESERVED);
        // What it cannot help with is reported.
        let refused = reserve.open(|| Err::<(), _>(shortage()));
        assert!(is_shortage(&refused.unwrap_err()));
        assert_eq!(held(), 0);
        let missing = reserve.open(|| File::open("/dev/none/at/all"));
        assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
