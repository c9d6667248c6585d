//! A running server.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::builder::ServerBuilder;
use super::hooks::Hooks;
use super::inside::Inside;
use super::monitor::Monitor;
use super::start::StartError;
use crate::alarm::Failure;
use crate::config::Config;
use crate::engine::Engine;
use crate::storage::{Backup, BackupError};
use crate::tls::Acceptor;
use crate::writer::{Pipeline, Submission};

/// A server in this process. Several may run side by side.
///
/// Dropping it also stops it, but does not wait until it has stopped.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use bellwether_server::Server;
///
/// let server = Server::builder().start().await?;
/// println!("zkCli.sh -server {}", server.connect_string());
/// server.shutdown().await;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Server {
    /// The settings as they were given. Those in force are in the engine.
    pub(super) started: Config,
    pub(super) acceptor: Option<Arc<Acceptor>>,
    pub(super) inside: Inside,
    pub(super) engine: Arc<Engine>,
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) tls_addresses: Vec<SocketAddr>,
    pub(super) stop: watch::Sender<bool>,
    pub(super) failure: watch::Receiver<Option<Failure>>,
    pub(super) listening: JoinSet<()>,
    pub(super) housekeeping: JoinSet<()>,
    pub(super) pipeline: Option<Pipeline>,
    /// Threads for long reads, and for connections without a session.
    pub(super) threads: Vec<JoinHandle<()>>,
}

impl Server {
    /// Default settings: in memory, on a free port of the loopback address.
    pub fn builder() -> ServerBuilder {
        ServerBuilder::default()
    }

    /// Starts a server. It keeps its data in memory unless `config` names a folder.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        Self::builder().config(config).start().await
    }

    /// Addresses it listens on, with the actual ports.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Addresses it listens on for TLS, with the actual ports.
    pub fn tls_addresses(&self) -> &[SocketAddr] {
        &self.tls_addresses
    }

    /// Unix socket it listens on.
    pub fn unix_socket(&self) -> Option<&Path> {
        self.started.listen_unix.as_deref()
    }

    /// Connect string for clients, such as `127.0.0.1:2181`; `unix:/path` if the server listens only there.
    pub fn connect_string(&self) -> String {
        if let (true, Some(path)) = (self.addresses.is_empty(), &self.started.listen_unix) {
            return format!("unix:{}", path.display());
        }
        self.addresses
            .iter()
            .map(SocketAddr::to_string)
            .collect::<Vec<_>>()
            .join(",")
    }

    /// Number of open connections.
    pub fn connections(&self) -> usize {
        self.engine.connections.len()
    }

    /// Number of open sessions.
    pub fn sessions(&self) -> usize {
        self.engine.sessions.len()
    }

    /// Stops accepting connections and returns true, if there are neither connections nor sessions. Otherwise changes nothing.
    ///
    /// For a server that exits when it is idle: a client that connects too late is refused before anything is promised to it, and a client
    /// that connects in time is served. Call [`shutdown`](Self::shutdown) next.
    #[must_use = "it may be used still"]
    pub fn retire(&self) -> bool {
        self.engine
            .connections
            .close_if_none(|| self.engine.sessions.len() == 0)
    }

    /// Returns a handle that connects to this server from within this process, however other clients have to authenticate.
    pub fn inside(&self) -> Inside {
        self.inside.clone()
    }

    /// Returns a handle to metrics and four-letter words for use in this process. The handle does not keep the server running.
    pub fn monitor(&self) -> Monitor {
        Monitor::new(self.engine.clone())
    }

    /// Writes a consistent copy of all data to `file`, in Apache's snapshot format, while the server keeps serving. It contains all writes
    /// acknowledged before the call. [`restore`](crate::restore) restores it.
    ///
    /// # Cancel safety
    ///
    /// The file is written even if the future is dropped.
    pub async fn backup(&self, file: impl Into<PathBuf>) -> Result<Backup, BackupError> {
        self.monitor().backup(file).await
    }

    /// Test hooks, which trigger what tests would otherwise wait for.
    pub fn hooks(&self) -> Hooks {
        Hooks::new(self.engine.clone())
    }

    /// Resolves with the reason when the server has stopped because of a failure.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost: a later call resolves too.
    pub async fn failed(&self) -> Failure {
        let mut failure = self.failure.clone();
        match failure.wait_for(Option::is_some).await {
            Ok(failure) => failure.clone().expect("it was waited for"),
            // The server stopped without a failure: none will follow.
            Err(_) => std::future::pending().await,
        }
    }

    /// Stops the server: closes all connections, and carries out the writes that it has accepted. Their replies may be lost. Sessions are
    /// not closed: clients resume them after the next start.
    ///
    /// # Cancel safety
    ///
    /// The server stops even if the future is dropped.
    pub async fn shutdown(mut self) {
        self.begin_stop();
        self.housekeeping.shutdown().await;
        while self.listening.join_next().await.is_some() {}
        let pipeline = self.pipeline.take();
        let threads = std::mem::take(&mut self.threads);
        let joined = tokio::task::spawn_blocking(|| {
            pipeline.into_iter().for_each(Pipeline::join);
            for thread in threads {
                thread.join().expect("a panic ends in the alarm");
            }
        });
        joined.await.expect("a panic ends in the alarm");
    }

    fn begin_stop(&self) {
        // Fails only if no receiver is left, and then there is nothing to stop.
        let _ = self.stop.send(true);
        self.engine.connections.close_all();
        self.engine.published.stop_long_reads();
        self.engine.submit.submit(Submission::Stop);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.begin_stop();
    }
}
