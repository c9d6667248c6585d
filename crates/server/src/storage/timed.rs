//! Measures how long the log takes, and warns about slow syncs.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Log;
use crate::metrics::Meters;
use crate::tree::Tree;
use crate::tree::txn::Txn;

/// A log with timing.
pub(crate) struct TimedLog {
    log: Box<dyn Log>,
    meters: Arc<Meters>,
    /// A sync that takes longer is logged as a warning.
    warn_after: Duration,
}

impl TimedLog {
    pub(crate) fn new(log: Box<dyn Log>, meters: Arc<Meters>, warn_after: Duration) -> Self {
        Self {
            log,
            meters,
            warn_after,
        }
    }
}

impl Log for TimedLog {
    fn append(&mut self, txn: &Txn, digest: u64) -> io::Result<()> {
        self.log.append(txn, digest)
    }

    fn sync(&mut self, tree: &Tree, txns: usize) -> io::Result<()> {
        let begin = Instant::now();
        let synced = self.log.sync(tree, txns);
        let elapsed = begin.elapsed();
        if txns > 0 {
            self.meters.sync_time.add_time(elapsed);
            self.meters.commit_txns.add(txns as u64);
        }
        if elapsed > self.warn_after {
            tracing::warn!(
                ?elapsed,
                txns,
                "fsync of the log was slow; every client that writes waits for it"
            );
        }
        synced
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Level, Metadata, Subscriber};

    use super::*;

    /// A disk whose fsync takes this long.
    pub(crate) struct SlowLog(pub(crate) Duration);

    impl Log for SlowLog {
        fn append(&mut self, _: &Txn, _: u64) -> io::Result<()> {
            Ok(())
        }

        #[expect(clippy::disallowed_methods, reason = "a disk that is slow")]
        fn sync(&mut self, _: &Tree, _: usize) -> io::Result<()> {
            std::thread::sleep(self.0);
            Ok(())
        }
    }

    /// Counts warnings.
    struct Warnings(Arc<AtomicUsize>);

    impl Subscriber for Warnings {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, event: &Event<'_>) {
            let is_warning = *event.metadata().level() == Level::WARN;
            self.0.fetch_add(usize::from(is_warning), Ordering::Relaxed);
        }

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn slow_sync_is_told_of_and_a_quick_one_is_not() {
        let warnings = Arc::<AtomicUsize>::default();
        let meters = Arc::<Meters>::default();
        let sync = |takes, warn_after| {
            let log = Box::new(SlowLog(Duration::from_millis(takes)));
            let warn_after = Duration::from_millis(warn_after);
            let mut log = TimedLog::new(log, meters.clone(), warn_after);
            log.sync(&Tree::fresh(), 3).unwrap();
        };
        tracing::subscriber::with_default(Warnings(warnings.clone()), || {
            sync(0, 60_000);
            assert_eq!(warnings.load(Ordering::Relaxed), 0);
            sync(2, 1);
            assert_eq!(warnings.load(Ordering::Relaxed), 1);
        });
        assert_eq!(meters.commit_txns.sum(), 6);
    }
}
