//! Takes snapshots in the background, one at a time.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::JoinHandle;
use std::time::Instant;

use super::writer;
use crate::alarm::Alarm;
use crate::storage::disk::Disk;
use crate::storage::snapshot::pace::Pace;
use crate::storage::{retention, room};
use crate::tree::Tree;

/// What is kept of the disk's files and of its space.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::storage) struct Keeping {
    /// Number of snapshots to keep; `None` for all.
    pub(in crate::storage) snapshots: Option<usize>,
    /// As [`Config::disk_free_bytes_min`](crate::Config::disk_free_bytes_min).
    pub(in crate::storage) free_bytes: Option<u64>,
}

/// A thread that writes versions of the tree to disk while the server keeps serving.
#[derive(Debug)]
pub(crate) struct Snapshotter {
    /// `None` when the thread is to end.
    trees: Option<SyncSender<Tree>>,
    thread: Option<JoinHandle<()>>,
    /// Set when a caller waits for the thread to end.
    hurry: Arc<AtomicBool>,
}

impl Snapshotter {
    /// Starts the thread.
    pub(crate) fn start(
        alarm: &Alarm,
        snapshots: Arc<dyn Disk>,
        logs: Arc<dyn Disk>,
        keeping: Keeping,
    ) -> io::Result<Self> {
        // Capacity 0: while one snapshot is being written, none is queued.
        let (mut snapshotter, work) = Self::new(0, snapshots, logs, keeping);
        snapshotter.thread = Some(alarm.spawn("snapshot", move || work.run())?);
        Ok(snapshotter)
    }

    /// A snapshotter without a thread, and the work for one. Up to `queued` snapshots wait until that work is done.
    pub(in crate::storage) fn new(
        queued: usize,
        snapshots: Arc<dyn Disk>,
        logs: Arc<dyn Disk>,
        keeping: Keeping,
    ) -> (Self, SnapshotWork) {
        let (trees, wanted) = mpsc::sync_channel(queued);
        let hurry = Arc::<AtomicBool>::default();
        let work = SnapshotWork {
            wanted,
            snapshots,
            logs,
            keeping,
            hurry: hurry.clone(),
        };
        let snapshotter = Self {
            trees: Some(trees),
            thread: None,
            hurry,
        };
        (snapshotter, work)
    }

    /// Requests a snapshot of `tree`; waits while another is being written.
    pub(crate) fn take_when_free(&self, tree: &Tree) {
        if let Some(trees) = &self.trees
            && trees.send(tree.clone()).is_err()
        {
            tracing::error!("the snapshot thread is gone");
        }
    }

    /// Requests a snapshot of `tree`; false while another is being written.
    pub(crate) fn take(&self, tree: &Tree) -> bool {
        self.trees
            .as_ref()
            .is_some_and(|trees| trees.try_send(tree.clone()).is_ok())
    }
}

impl Drop for Snapshotter {
    /// Waits for the snapshot being written: a server that stops leaves no unfinished file.
    fn drop(&mut self) {
        self.trees = None;
        self.hurry.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else {
            return;
        };
        thread.thread().unpark();
        if thread.join().is_err() {
            tracing::error!("the snapshot thread panicked");
        }
    }
}

/// Writes the snapshots that a [`Snapshotter`] requests.
#[derive(Debug)]
pub(crate) struct SnapshotWork {
    wanted: Receiver<Tree>,
    snapshots: Arc<dyn Disk>,
    logs: Arc<dyn Disk>,
    keeping: Keeping,
    hurry: Arc<AtomicBool>,
}

impl SnapshotWork {
    fn run(self) {
        while let Ok(tree) = self.wanted.recv() {
            self.take(&tree, Pace::new(self.hurry.clone()));
        }
    }

    /// Takes the snapshot that waits. Returns false if none does.
    #[cfg(feature = "simulation")]
    pub(crate) fn take_one(&self) -> bool {
        let wanted = self.wanted.try_recv();
        if let Ok(tree) = &wanted {
            self.take(tree, Pace::hurried());
        }
        wanted.is_ok()
    }

    fn take(&self, tree: &Tree, pace: Pace) {
        let short = lacks_space(&*self.snapshots, self.keeping, tree);
        match short {
            Ok(false) => take(
                &*self.snapshots,
                &*self.logs,
                self.keeping.snapshots,
                tree,
                pace,
            ),
            Ok(true) => tracing::error!("no snapshot: it would leave too little space on the disk"),
            Err(error) => tracing::error!(%error, "no snapshot: cannot measure the disk"),
        }
    }
}

/// Whether a snapshot of `tree` would take space that the log may need soon.
fn lacks_space(snapshots: &dyn Disk, keeping: Keeping, tree: &Tree) -> io::Result<bool> {
    /// Bytes of a node in a snapshot, besides its path and data.
    const NODE_BYTES: usize = 76;
    let Some(space) = snapshots.space()? else {
        return Ok(false);
    };
    let low = room::low_water(keeping.free_bytes, space.size);
    let bytes = tree.bytes() + tree.node_count() * NODE_BYTES;
    Ok(low > 0 && space.free < low / 2 + bytes as u64)
}

/// A failed snapshot only makes recovery longer: the log has all transactions.
fn take(snapshots: &dyn Disk, logs: &dyn Disk, retain: Option<usize>, tree: &Tree, mut pace: Pace) {
    let start = Instant::now();
    match writer::write(snapshots, tree, &mut pace) {
        Ok(name) => {
            tracing::info!(name, nodes = tree.node_count(), elapsed = ?start.elapsed(), "snapshot written")
        }
        Err(error) => {
            return tracing::error!(%error, "cannot write a snapshot; recovery will replay more of the log");
        }
    }
    if let Some(retain) = retain
        && let Err(error) = retention::purge(snapshots, logs, retain)
    {
        tracing::warn!(%error, "cannot remove old data files");
    }
}
