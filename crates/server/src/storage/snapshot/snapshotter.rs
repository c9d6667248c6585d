//! Takes snapshots in the background, one at a time.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, SyncSender};
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
        let (trees, wanted) = mpsc::sync_channel::<Tree>(0);
        let hurry = Arc::<AtomicBool>::default();
        let hurried = hurry.clone();
        let thread = alarm.spawn("snapshot", move || {
            for tree in wanted {
                let pace = Pace::new(hurried.clone());
                take(&*snapshots, &*logs, retain, &tree, pace);
            }
        })?;
        Ok(Self {
            trees: Some(trees),
            thread: Some(thread),
            hurry,
        })
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
