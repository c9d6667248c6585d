//! The embedded server, with handles that no client has.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bellwether_server::{Config, Hooks, MemoryStore, Server, WordList};

/// An embedded server for one test, in memory and on a free port of the loopback.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> anyhow::Result<()> {
/// use bellwether_testkit::{RawClient, TestServer};
///
/// let server = TestServer::start().await?;
/// let mut client = RawClient::connect(server.address()).await?;
/// server.expire_session(client.session_id())?;
/// client.closed().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct TestServer {
    /// Listens where the first server came to listen, so that a restart finds the same place.
    config: Config,
    /// What outlives a restart.
    store: MemoryStore,
    /// Always there but during a restart, or after one that failed.
    server: Option<Server>,
}

impl TestServer {
    /// Starts a server with short ticks, long session timeouts on demand, nodes with a time to live
    /// and all four-letter words.
    pub async fn start() -> Result<Self> {
        Self::with(Self::config()).await
    }

    /// What [`Self::start`] starts with, to be changed and given to [`Self::with`].
    pub fn config() -> Config {
        Config {
            tick: Duration::from_millis(200),
            session_timeout_max: Some(Duration::from_secs(60)),
            connections_per_address_max: 0,
            extended_types: true,
            words: WordList::all(),
            ..Config::default()
        }
    }

    /// Starts a server as `config` says.
    pub async fn with(mut config: Config) -> Result<Self> {
        let store = MemoryStore::default();
        let server = start(&config, &store).await?;
        config.listen = server.addresses().to_vec();
        Ok(Self {
            config,
            store,
            server: Some(server),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.config.listen[0]
    }

    /// The address as clients want it.
    pub fn connect_string(&self) -> String {
        self.address().to_string()
    }

    /// Stops the server and starts it again with the same address, tree and sessions.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves no server; another restart brings it back.
    pub async fn restart(&mut self) -> Result<()> {
        self.stop().await;
        self.server = Some(start(&self.config, &self.store).await?);
        Ok(())
    }

    /// As [`Self::restart`], with another configuration. The address stays.
    ///
    /// # Cancel safety
    ///
    /// As [`Self::restart`].
    pub async fn restart_with(&mut self, change: impl FnOnce(&mut Config)) -> Result<()> {
        change(&mut self.config);
        self.restart().await
    }

    /// Stops the server. Its tree and sessions stay for [`Self::restart`].
    ///
    /// # Cancel safety
    ///
    /// As [`Self::restart`].
    pub async fn stop(&mut self) {
        if let Some(server) = self.server.take() {
            server.shutdown().await;
        }
    }

    /// Expires a session, as if its client had been silent for its timeout.
    pub fn expire_session(&self, session_id: i64) -> Result<()> {
        let ended = self.hooks()?.expire_session(session_id);
        ensure!(ended, "no session {session_id:#x}");
        Ok(())
    }

    /// Sets what the next sequential child of `path` is numbered with.
    pub async fn set_child_counter(&self, path: &str, counter: i32) -> Result<()> {
        let found = self.hooks()?.set_child_counter(path, counter).await;
        ensure!(found, "no node {path}");
        Ok(())
    }

    /// Looks for empty containers and outlived nodes now, and deletes them; watches tell when.
    pub fn reap_now(&self) -> Result<()> {
        self.hooks()?.reap_now();
        Ok(())
    }

    /// Refuses longer frames from now on.
    pub fn lower_frame_limit(&self, bytes_max: usize) -> Result<()> {
        self.hooks()?.set_frame_bytes_max(bytes_max);
        Ok(())
    }

    /// How many watches are armed.
    pub fn watch_count(&self) -> Result<usize> {
        Ok(self.hooks()?.watches())
    }

    /// How many sessions there are.
    pub fn session_count(&self) -> Result<usize> {
        Ok(self.hooks()?.sessions())
    }

    /// How many connections there are.
    pub fn connection_count(&self) -> Result<usize> {
        Ok(self.hooks()?.connections())
    }

    fn hooks(&self) -> Result<Hooks> {
        Ok(self
            .server
            .as_ref()
            .context("the server is stopped")?
            .hooks())
    }
}

async fn start(config: &Config, store: &MemoryStore) -> Result<Server> {
    let builder = Server::builder()
        .config(config.clone())
        .memory(store.clone());
    Ok(builder.start().await?)
}
