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
use crate::storage::retention;
use crate::storage::snapshot::pace::Pace;
use crate::tree::Tree;

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
    /// Starts the thread. `retain` is the number of snapshots to keep; `None` for all.
    pub(crate) fn start(
        alarm: &Alarm,
        snapshots: Arc<dyn Disk>,
        logs: Arc<dyn Disk>,
        retain: Option<usize>,
    ) -> io::Result<Self> {
        // Capacity 0: while one snapshot is being written, none is queued.
        let (mut snapshotter, work) = Self::new(0, snapshots, logs, retain);
        snapshotter.thread = Some(alarm.spawn("snapshot", move || work.run())?);
        Ok(snapshotter)
    }

    /// A snapshotter without a thread, and the work for one. Up to `queued` snapshots wait until that work is done.
    pub(in crate::storage) fn new(
        queued: usize,
        snapshots: Arc<dyn Disk>,
        logs: Arc<dyn Disk>,
        retain: Option<usize>,
    ) -> (Self, SnapshotWork) {
        let (trees, wanted) = mpsc::sync_channel(queued);
        let hurry = Arc::<AtomicBool>::default();
        let work = SnapshotWork {
            wanted,
            snapshots,
            logs,
            retain,
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
    retain: Option<usize>,
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
        take(&*self.snapshots, &*self.logs, self.retain, tree, pace);
    }
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
