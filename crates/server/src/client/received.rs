//! Total bytes of requests that have not arrived completely.
//!
//! A client may send a long request slowly, or only its beginning. One such request is limited by the frame length; this limits all of them
//! together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::client::outbox::KEPT_BYTES;

/// Total bytes that connections have received and not handled yet. Connections with few of them do not count.
#[derive(Debug)]
pub(crate) struct Received {
    bytes: AtomicUsize,
    bytes_max: AtomicUsize,
}

impl Received {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            bytes: AtomicUsize::new(0),
            bytes_max: AtomicUsize::new(bytes_max),
        }
    }

    pub(crate) fn set_max(&self, bytes_max: usize) {
        self.bytes_max.store(bytes_max, Relaxed);
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }
}

/// What one connection contributes, until this is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    all: Arc<Received>,
    counted: usize,
}

impl Share {
    pub(crate) fn new(all: Arc<Received>) -> Self {
        Self { all, counted: 0 }
    }

    /// Sets the contribution of this connection. Returns whether the connection may keep these bytes: it may if they are few, or if those of
    /// all connections are within the limit.
    pub(crate) fn set(&mut self, bytes: usize) -> bool {
        // Most requests are short: their connections never touch the shared counter.
        let counted = if bytes > KEPT_BYTES { bytes } else { 0 };
        if counted > self.counted {
            self.all.bytes.fetch_add(counted - self.counted, Relaxed);
        } else if counted < self.counted {
            self.all.bytes.fetch_sub(self.counted - counted, Relaxed);
        }
        self.counted = counted;
        counted == 0 || self.all.bytes() <= self.all.bytes_max.load(Relaxed)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_requests_are_counted_together_and_short_ones_always_fit() {
        let all = Arc::new(Received::new(3 * KEPT_BYTES));
        let [mut one, mut other] = [(); 2].map(|()| Share::new(all.clone()));
        assert!(one.set(KEPT_BYTES));
        assert_eq!(all.bytes(), 0);
        assert!(one.set(2 * KEPT_BYTES));
        assert!(!other.set(2 * KEPT_BYTES), "more than all may have");
        assert!(other.set(100), "few bytes fit in any case");
        assert_eq!(all.bytes(), 2 * KEPT_BYTES);
        drop(one);
        assert_eq!(all.bytes(), 0);
        assert!(other.set(3 * KEPT_BYTES));
    }
}
