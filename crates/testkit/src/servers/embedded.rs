//! The embedded server, with controls for tests.

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
    /// With the address of the first start, so that a restart uses the same one.
    config: Config,
    /// The data, which survives a restart.
    store: MemoryStore,
    /// `None` only during a restart, or after one that failed.
    server: Option<Server>,
}

impl TestServer {
    /// Starts a server with short ticks, long session timeouts on demand, nodes with a time to live
    /// and all four-letter words.
    pub async fn start() -> Result<Self> {
        Self::with(Self::config()).await
    }

    /// The configuration of [`Self::start`], to be changed and given to [`Self::with`].
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

    /// Starts a server with `config`.
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

    /// The address of the server.
    pub fn address(&self) -> SocketAddr {
        self.config.listen[0]
    }

    /// The connect string for clients.
    pub fn connect_string(&self) -> String {
        self.address().to_string()
    }

    /// Stops the server and starts it again with the same address, tree and sessions.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves no server running; another restart starts it.
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

    /// Sets the number of the next sequential child of `path`.
    pub async fn set_child_counter(&self, path: &str, counter: i32) -> Result<()> {
        let found = self.hooks()?.set_child_counter(path, counter).await;
        ensure!(found, "no node {path}");
        Ok(())
    }

    /// Deletes empty containers and expired nodes now; watches report it.
    pub fn reap_now(&self) -> Result<()> {
        self.hooks()?.reap_now();
        Ok(())
    }

    /// Refuses longer frames from now on.
    pub fn lower_frame_limit(&self, bytes_max: usize) -> Result<()> {
        self.hooks()?.set_frame_bytes_max(bytes_max);
        Ok(())
    }

    /// The number of armed watches.
    pub fn watch_count(&self) -> Result<usize> {
        Ok(self.hooks()?.watches())
    }

    /// The number of sessions.
    pub fn session_count(&self) -> Result<usize> {
        Ok(self.hooks()?.sessions())
    }

    /// The number of connections.
    pub fn connection_count(&self) -> Result<usize> {
        Ok(self.hooks()?.connections())
    }

    /// The number of connections that have no session yet.
    pub fn handshake_count(&self) -> Result<usize> {
        Ok(self.hooks()?.handshakes())
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
