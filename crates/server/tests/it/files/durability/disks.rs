//! Disks of a server, and their state after a crash.

use std::sync::Arc;
use std::time::Duration;

use bellwether_server::{Config, Server, SessionPasswords, StartError};
use bellwether_testkit::disk::CrashDisk;
use rand::Rng as _;
use rand::rngs::StdRng;

/// Whether snapshots and logs share a disk.
#[derive(Debug, Clone, Copy)]
pub(super) enum Layout {
    Together,
    Apart,
}

impl Layout {
    pub(super) fn any(rng: &mut StdRng) -> Self {
        [Self::Together, Self::Apart][rng.random_range(0..2)]
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Which {
    Snapshots,
    Logs,
}

impl Which {
    pub(super) fn any(rng: &mut StdRng) -> Self {
        [Self::Snapshots, Self::Logs][rng.random_range(0..2)]
    }
}

/// Storage of a server: one disk, or one for each kind of file.
pub(super) struct Disks {
    pub(super) snapshots: CrashDisk,
    pub(super) logs: CrashDisk,
    layout: Layout,
    /// Small limits, so that few writes reach them.
    config: Config,
}

impl Disks {
    pub(super) fn new(layout: Layout, rng: &mut StdRng) -> Self {
        let snapshots = CrashDisk::new();
        let logs = match layout {
            Layout::Together => snapshots.clone(),
            Layout::Apart => CrashDisk::new(),
        };
        let config = Config {
            // No session expires by itself.
            tick: Duration::from_secs(60),
            connections_per_address_max: 0,
            snap_count: 20,
            log_preallocation_bytes: [0, 700, 6000][rng.random_range(0..3)],
            // The key of secret ones is not kept on these disks.
            session_passwords: SessionPasswords::Apache,
            ..Config::default()
        };
        Self {
            snapshots,
            logs,
            layout,
            config,
        }
    }

    pub(super) async fn start(&self) -> Result<Server, StartError> {
        let (snapshots, logs) = (self.snapshots.clone(), self.logs.clone());
        let builder = Server::builder().config(self.config.clone());
        builder
            .disks(Arc::new(snapshots), Arc::new(logs))
            .start()
            .await
    }

    pub(super) fn get(&self, which: Which) -> &CrashDisk {
        match which {
            Which::Snapshots => &self.snapshots,
            Which::Logs => &self.logs,
        }
    }

    /// What the next server finds after a power loss, or after a kill of the process alone.
    pub(super) fn after_a_fall(&self, rng: &mut StdRng) -> Self {
        if rng.random_bool(0.25) {
            self.kill()
        } else {
            self.crash(rng)
        }
    }

    pub(super) fn crash(&self, rng: &mut StdRng) -> Self {
        self.next(|disk| disk.crash(rng.random()))
    }

    pub(super) fn kill(&self) -> Self {
        self.next(CrashDisk::kill)
    }

    fn next(&self, mut fall: impl FnMut(&CrashDisk) -> CrashDisk) -> Self {
        let snapshots = fall(&self.snapshots);
        let logs = match self.layout {
            Layout::Together => snapshots.clone(),
            Layout::Apart => fall(&self.logs),
        };
        Self {
            snapshots,
            logs,
            layout: self.layout,
            config: self.config.clone(),
        }
    }
}
