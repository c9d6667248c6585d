//! How many ephemeral nodes a session may have.
//!
//! When a session ends, the servers remove its ephemeral nodes in one transaction that lists all their paths. A transaction that is larger
//! than a frame cannot be read again, and stops an ensemble (ZOOKEEPER-4306). So the paths are counted here, and a request that would
//! exceed the limit is refused before it is sent.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::session::open_session::Session;

/// The limit for the paths of a session: a frame of one mebibyte, less a reserve for nodes whose removal is still under way.
const BYTES_MAX: usize = 900_000;

/// Each path is preceded by its length.
const PATH_OVERHEAD_BYTES: usize = 4;

/// The paths of a session's ephemeral nodes.
#[derive(Debug, Default)]
pub(crate) struct Ephemerals(AtomicUsize);

impl Ephemerals {
    /// The bytes in use now.
    pub(crate) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Whether one more path fits. Callers that ask at the same moment do not see each other; the limit has room for them.
    pub(crate) fn has_room(&self, path_bytes: usize) -> bool {
        self.bytes() + path_bytes + PATH_OVERHEAD_BYTES <= BYTES_MAX
    }

    fn reserve(&self, bytes: usize) -> bool {
        let fits = |taken: usize| {
            let taken = taken.checked_add(bytes)?;
            (taken <= BYTES_MAX).then_some(taken)
        };
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        self.0.fetch_update(set, fetch, fits).is_ok()
    }

    fn free(&self, bytes: usize) {
        self.0.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Room for the path of one ephemeral node, until this is dropped.
#[derive(Debug)]
pub(crate) struct Room {
    session: Session,
    bytes: usize,
}

impl Room {
    /// The room of a path that exists already.
    pub(crate) fn taken(session: &Session, path_bytes: usize) -> Self {
        let bytes = path_bytes + PATH_OVERHEAD_BYTES;
        session.ephemerals().0.fetch_add(bytes, Ordering::Relaxed);
        Self {
            session: session.clone(),
            bytes,
        }
    }

    /// Room for a path of `path_bytes` bytes; `None` if there is none.
    pub(crate) fn reserve(session: &Session, path_bytes: usize) -> Option<Self> {
        let bytes = path_bytes + PATH_OVERHEAD_BYTES;
        session.ephemerals().reserve(bytes).then(|| Self {
            session: session.clone(),
            bytes,
        })
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.session.ephemerals().free(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_given_until_the_limit_and_again_when_it_is_free() {
        let paths = Ephemerals::default();
        assert!(paths.reserve(BYTES_MAX - 10));
        assert!(!paths.reserve(11));
        assert!(paths.reserve(10));
        assert!(!paths.reserve(1));
        assert!(!paths.has_room(1));
        paths.free(5);
        assert!(paths.has_room(1));
        assert!(paths.reserve(5));
        assert_eq!(paths.bytes(), BYTES_MAX);
    }
}
