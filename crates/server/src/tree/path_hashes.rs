//! Hashes of all ancestors of a path, in one pass over its bytes.
//!
//! A path may have thousands of levels. Looking up its ancestors one by one would hash the bytes of the path again for each level.

use std::hash::{BuildHasher, Hasher as _};

use super::path;

/// The ancestors of `path` except the root, highest first, and then `path` itself, each with its hash.
pub(crate) fn path_hashes<'a>(
    keys: &impl BuildHasher,
    path: &'a str,
) -> impl Iterator<Item = (&'a str, u64)> {
    let mut hasher = keys.build_hasher();
    let mut begin = 0;
    // Level by level, also where only the last hash is wanted: a hasher may tell two writes from one.
    path::below_root(path).chain([path]).map(move |above| {
        hasher.write(&above.as_bytes()[begin..]);
        begin = above.len();
        (above, hasher.finish())
    })
}

/// The hash of `path`, as [`path_hashes`] yields it.
pub(crate) fn path_hash(keys: &impl BuildHasher, path: &str) -> u64 {
    let last = path_hashes(keys, path).last();
    last.expect("the path itself is the last").1
}

/// A hasher for tests, which counts the bytes that it hashes.
#[cfg(test)]
pub(crate) mod counting {
    use std::hash::{BuildHasher, DefaultHasher, Hasher};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    #[derive(Debug, Clone, Default)]
    pub(crate) struct Counting {
        bytes: Arc<AtomicUsize>,
    }

    impl Counting {
        pub(crate) fn bytes(&self) -> usize {
            self.bytes.load(Relaxed)
        }
    }

    pub(crate) struct CountingHasher {
        inner: DefaultHasher,
        bytes: Arc<AtomicUsize>,
    }

    impl BuildHasher for Counting {
        type Hasher = CountingHasher;

        fn build_hasher(&self) -> CountingHasher {
            CountingHasher {
                inner: DefaultHasher::new(),
                bytes: self.bytes.clone(),
            }
        }
    }

    impl Hasher for CountingHasher {
        fn write(&mut self, bytes: &[u8]) {
            self.bytes.fetch_add(bytes.len(), Relaxed);
            self.inner.write(bytes);
        }

        fn finish(&self) -> u64 {
            self.inner.finish()
        }
    }
}
