//! Takes snapshots in the background, one at a time.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::thread::JoinHandle;
use std::time::Instant;

use super::disk::Disk;
use super::pace::Pace;
use super::{retention, snapshot_writer};
use crate::alarm::Alarm;
use crate::tree::Tree;

/// A thread that writes versions of the tree to disk while the server goes on.
#[derive(Debug)]
pub(crate) struct Snapshotter {
    /// Gone when the thread is to end.
    trees: Option<SyncSender<Tree>>,
    thread: Option<JoinHandle<()>>,
    /// Set when somebody waits for the thread to end.
    hurry: Arc<AtomicBool>,
}

impl Snapshotter {
    /// Starts the thread. `retain` is how many snapshots stay; `None` for all.
    pub(crate) fn start(
        alarm: &Alarm,
        snapshots: Arc<dyn Disk>,
        logs: Arc<dyn Disk>,
        retain: Option<usize>,
    ) -> io::Result<Self> {
        // No place to wait in: while one is being written, another is not asked for.
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

    /// Asks for a snapshot of `tree`, and waits while another is being written.
    pub(crate) fn take_when_free(&self, tree: &Tree) {
        if let Some(trees) = &self.trees
            && trees.send(tree.clone()).is_err()
        {
            tracing::error!("the snapshot thread is gone");
        }
    }

    /// Asks for a snapshot of `tree`; false while another is being written.
    pub(crate) fn take(&self, tree: &Tree) -> bool {
        self.trees
            .as_ref()
            .is_some_and(|trees| trees.try_send(tree.clone()).is_ok())
    }
}

impl Drop for Snapshotter {
    /// Waits for the snapshot that is being written: a server that stops leaves nothing unfinished.
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

/// A snapshot that fails costs nothing but a longer recovery: the log has it all.
fn take(snapshots: &dyn Disk, logs: &dyn Disk, retain: Option<usize>, tree: &Tree, mut pace: Pace) {
    let start = Instant::now();
    match snapshot_writer::write(snapshots, tree, &mut pace) {
        Ok(name) => {
            tracing::info!(name, nodes = tree.node_count(), elapsed = ?start.elapsed(), "snapshot written")
        }
        Err(error) => return tracing::error!(%error, "cannot write a snapshot, the log goes on"),
    }
    if let Some(retain) = retain
        && let Err(error) = retention::purge(snapshots, logs, retain)
    {
        tracing::warn!(%error, "cannot remove old data files");
    }
}
