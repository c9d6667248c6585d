//! How many ephemeral nodes a session may have.
//!
//! When a session ends, the servers remove its ephemeral nodes in one transaction that lists all their paths. A transaction that is larger
//! than a frame cannot be read again, and stops an ensemble (ZOOKEEPER-4306). So the paths are counted here, and a request that would
//! exceed the limit is refused before it is sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The limit for the paths of a session: a frame of one mebibyte, less a reserve for nodes whose removal is still under way.
const BYTES_MAX: usize = 900_000;

/// Each path is preceded by its length.
const PATH_OVERHEAD_BYTES: usize = 4;

/// The paths of a session's ephemeral nodes. Clones count together.
#[derive(Clone, Debug, Default)]
pub(crate) struct EphemeralQuota(Arc<AtomicUsize>);

impl EphemeralQuota {
    /// The bytes in use now.
    pub(crate) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Whether one more path fits. Callers that ask at the same moment do not see each other; the limit has room for them.
    pub(crate) fn has_room(&self, path_bytes: usize) -> bool {
        self.bytes() + path_bytes + PATH_OVERHEAD_BYTES <= BYTES_MAX
    }

    /// Room for a path of `path_bytes` bytes; `None` if there is none.
    pub(crate) fn reserve(&self, path_bytes: usize) -> Option<Reserved> {
        let bytes = path_bytes + PATH_OVERHEAD_BYTES;
        let fits = |taken: usize| {
            let taken = taken.checked_add(bytes)?;
            (taken <= BYTES_MAX).then_some(taken)
        };
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        let reserved = self.0.fetch_update(set, fetch, fits);
        reserved.is_ok().then(|| self.reserved(bytes))
    }

    /// The room of a path that exists already.
    pub(crate) fn take(&self, path_bytes: usize) -> Reserved {
        let bytes = path_bytes + PATH_OVERHEAD_BYTES;
        self.0.fetch_add(bytes, Ordering::Relaxed);
        self.reserved(bytes)
    }

    fn reserved(&self, bytes: usize) -> Reserved {
        Reserved {
            ephemerals: self.clone(),
            bytes,
        }
    }
}

/// Room for the path of one ephemeral node, until this is dropped. It does not keep the session open.
#[derive(Debug)]
pub(crate) struct Reserved {
    ephemerals: EphemeralQuota,
    bytes: usize,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.ephemerals.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_given_until_the_limit_and_again_when_it_is_free() {
        let paths = EphemeralQuota::default();
        let most = paths.take(BYTES_MAX - 20 - PATH_OVERHEAD_BYTES);
        assert!(paths.reserve(17).is_none());
        let rest = paths.reserve(16).unwrap();
        assert_eq!(paths.bytes(), BYTES_MAX);
        assert!(!paths.has_room(1));
        assert!(paths.reserve(1).is_none());
        drop(rest);
        assert!(paths.has_room(16));
        assert!(!paths.has_room(17));
        drop(most);
        assert_eq!(paths.bytes(), 0);
    }
}
