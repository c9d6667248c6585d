//! Builder of a server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::server::Server;
use super::start::{self, StartError};
use crate::config::Config;
use crate::files::Disk;
use crate::storage::{MemoryStore, Store};

/// Settings of a server that is not started yet.
#[derive(Debug, Clone, Default)]
pub struct ServerBuilder {
    config: Config,
    store: Option<Store>,
}

impl ServerBuilder {
    /// Takes all settings from `config`.
    #[must_use]
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Listens on `address` instead of a free port.
    #[must_use]
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.config.listen = vec![address];
        self
    }

    /// Also listens on a Unix socket. Only the user of this process and root may connect there, unless [`Config::unix_peers`] says
    /// otherwise.
    #[must_use]
    pub fn listen_unix(mut self, path: impl Into<PathBuf>) -> Self {
        self.config.listen_unix = Some(path.into());
        self
    }

    /// Starts even if the settings ask for protection that this server does not offer.
    #[must_use]
    pub fn ignore_unsupported(mut self, ignore: bool) -> Self {
        self.config.ignore_unsupported = ignore;
        self
    }

    /// Sets the tick, the unit of time: sessions expire at tick boundaries, after two ticks at the earliest.
    #[must_use]
    pub fn tick(mut self, tick: Duration) -> Self {
        self.config.tick = tick;
        self
    }

    /// Uses the data that an earlier server left in `store`, and leaves its own there.
    #[must_use]
    pub fn memory(mut self, store: MemoryStore) -> Self {
        self.store = Some(Store::Memory(store));
        self
    }

    /// Keeps data files in `folder`, in Apache's format, and recovers from the files already there.
    #[must_use]
    pub fn data(mut self, folder: impl Into<PathBuf>) -> Self {
        self.config.data_dir = Some(folder.into());
        self
    }

    /// Keeps data files on [`Disk`]s that a test implements.
    #[must_use]
    pub fn disks(mut self, snapshots: Arc<dyn Disk>, logs: Arc<dyn Disk>) -> Self {
        self.store = Some(Store::Disks { snapshots, logs });
        self
    }

    /// Starts the server. When this returns, the server accepts requests.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the server is stopped.
    pub async fn start(self) -> Result<Server, StartError> {
        let store = self.store.unwrap_or_else(|| Store::of(&self.config));
        start::start(self.config, store).await
    }
}
