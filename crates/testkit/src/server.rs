//! The embedded server, with handles that no client has.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use bellwether_server::{Config, Server, WordList};

/// An embedded server for one test, in memory and on a free port of the loopback.
///
/// ```no_run
/// # async fn example() -> anyhow::Result<()> {
/// use bellwether_testkit::{RawClient, TestServer};
///
/// let server = TestServer::start().await?;
/// let mut client = RawClient::connect(server.address()).await?;
/// server.expire_session(client.session_id()).await?;
/// client.closed().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct TestServer {
    /// Listens where the first server came to listen, so that a restart finds the same place.
    config: Config,
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
        let server = Server::start(config.clone()).await?;
        config.listen = server.addresses().to_vec();
        Ok(Self {
            config,
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
        self.stop().await?;
        self.server = Some(Server::start(self.config.clone()).await?);
        Ok(())
    }

    /// Stops the server. Its tree and sessions stay for [`Self::restart`].
    ///
    /// # Cancel safety
    ///
    /// As [`Self::restart`].
    pub async fn stop(&mut self) -> Result<()> {
        if let Some(server) = self.server.take() {
            server.shutdown().await?;
        }
        Ok(())
    }

    /// Expires a session now, as if its client had been silent for its timeout.
    pub async fn expire_session(&self, session_id: i64) -> Result<()> {
        Ok(self.server()?.hooks().expire_session(session_id).await?)
    }

    /// Sets what the next sequential child of `path` is numbered with.
    pub async fn set_child_counter(&self, path: &str, counter: i32) -> Result<()> {
        let hooks = self.server()?.hooks();
        Ok(hooks.set_child_counter(path, counter).await?)
    }

    /// Looks for empty containers and outlived nodes now, and deletes them.
    pub async fn reap_now(&self) -> Result<()> {
        Ok(self.server()?.hooks().reap_now().await?)
    }

    /// Refuses longer frames from now on.
    pub async fn lower_frame_limit(&self, bytes_max: usize) -> Result<()> {
        let hooks = self.server()?.hooks();
        Ok(hooks.set_frame_bytes_max(bytes_max).await?)
    }

    /// How many watches are armed.
    pub fn watch_count(&self) -> Result<usize> {
        Ok(self.server()?.hooks().watches())
    }

    /// How many sessions there are.
    pub fn session_count(&self) -> Result<usize> {
        Ok(self.server()?.hooks().sessions())
    }

    /// How many connections there are.
    pub fn connection_count(&self) -> Result<usize> {
        Ok(self.server()?.hooks().connections())
    }

    fn server(&self) -> Result<&Server> {
        self.server.as_ref().context("the server is stopped")
    }
}
