//! A server on a simulated machine: the same parts as [`Server`](super::Server), without threads, sockets and tasks of their own.
//!
//! The simulation runs the futures and steps of this server whenever and in whatever order it likes, and stops between any two. It brings
//! the streams of connections and the disks, and sets the time of day with [`set_time_of_day`].

use std::fmt::{self, Debug};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use bellwether_wire::stat::Stat;
use bytes::BytesMut;
use tokio::sync::watch;

use super::start::{self, StartError};
use super::{expiry, reaper};
use crate::alarm::{Alarm, Failure};
use crate::client::{Connections, Opened, ReadHalf, ReadLayer, WriteHalf, WriteLayer};
pub use crate::clock::set_time_of_day;
use crate::config::Config;
use crate::engine::Engine;
use crate::files::Disk;
use crate::net;
use crate::storage::{OpenStore, SnapshotWork, open_without_thread};
use crate::writer::Steps;

/// The server's end of a simulated connection.
pub trait Stream: Debug + Send + Sync {
    /// Resolves when bytes or the end have arrived.
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()>;

    /// Appends the bytes that have arrived; none if the stream has ended.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if none have arrived.
    fn try_read(&self, bytes: &mut BytesMut) -> io::Result<usize>;

    /// Resolves when bytes can be written.
    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<()>;

    /// Sends bytes, and returns how many.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if none can be sent now.
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize>;

    /// The server has closed the connection.
    fn close(&self);
}

/// A server whose parts the caller runs.
pub struct SimulatedServer {
    engine: Arc<Engine>,
    steps: Steps,
    snapshots: SnapshotWork,
    failure: watch::Receiver<Option<Failure>>,
}

impl Debug for SimulatedServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedServer").finish_non_exhaustive()
    }
}

impl SimulatedServer {
    /// Recovers from the disks, as [`Server`](super::Server) does.
    ///
    /// # Errors
    ///
    /// As of a real server.
    pub fn start(
        config: Config,
        snapshots: Arc<dyn Disk>,
        logs: Arc<dyn Disk>,
    ) -> Result<Self, StartError> {
        start::check(&config)?;
        let access = start::Access::open(&config)?;
        let connections = Arc::new(Connections::new(&config, usize::MAX));
        let (alarm, failure) = Alarm::new(connections.clone());
        let (opened, snapshots) = open_without_thread(&config, snapshots, logs)?;
        let OpenStore { tree, log, room } = opened;
        let passwords = start::session_passwords(&config, &OnceLock::new(), &tree)?;
        let (access, data) = ((access, passwords), (tree, room));
        let (engine, steps) =
            start::engine(config, access, connections, data, |writer, published| {
                Ok(Steps::new(writer, log, published, &alarm))
            })?;
        Ok(Self {
            engine,
            steps,
            snapshots,
            failure,
        })
    }

    /// Serves a connection, unless a limit is reached.
    pub fn serve(
        &self,
        client: SocketAddr,
        stream: Arc<dyn Stream>,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        let admitted = self.engine.connections.admit(client.into())?;
        let opened = Opened {
            reading: ReadHalf::Layer(Box::new(Reading(stream.clone()))),
            writing: WriteHalf::Layer(Box::new(Writing(stream))),
            client_name: None,
        };
        let engine = self.engine.clone();
        Some(async move {
            let greeted_by = tokio::time::Instant::now() + engine.config().handshake_timeout;
            let ready = net::Ready {
                opened,
                admitted,
                received: BytesMut::new(),
                greeted_by,
            };
            net::serve(engine, ready).await;
        })
    }

    /// Expires sessions, for as long as the server runs.
    pub fn expire_sessions(&self) -> impl Future<Output = ()> + Send + use<> {
        expiry::run(self.engine.clone())
    }

    /// Deletes empty containers, for as long as the server runs.
    pub fn delete_containers(&self) -> impl Future<Output = ()> + Send + use<> {
        reaper::run(self.engine.clone())
    }

    /// Whether writes wait to be decided.
    pub fn has_submitted(&mut self) -> bool {
        self.steps.has_submitted()
    }

    /// Decides the writes that were submitted, as one group. Returns false if there were none.
    pub fn decide(&mut self) -> bool {
        self.steps.decide()
    }

    /// Whether decided writes wait for the disk.
    pub fn has_decided(&self) -> bool {
        self.steps.has_decided()
    }

    /// Writes decided groups to the log, with one fsync. Returns false if the log has failed.
    pub fn write(&mut self) -> bool {
        self.steps.write()
    }

    /// Publishes the writes that are on disk.
    pub fn publish(&mut self) {
        self.steps.publish();
    }

    /// Takes the snapshot that is due, and removes old files. Returns false if none is due.
    pub fn take_snapshot(&mut self) -> bool {
        self.snapshots.take_one()
    }

    /// Computes one of the replies that take long. Returns false if there is none.
    pub fn answer_long_read(&self) -> bool {
        self.engine.published.answer_one_long_read()
    }

    /// Why the server has stopped by itself, if it has.
    pub fn failure(&self) -> Option<Failure> {
        self.failure.borrow().clone()
    }

    /// The last write that clients can see.
    pub fn last_zxid(&self) -> i64 {
        self.engine.published.last_zxid()
    }

    /// Paths of all nodes.
    pub fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        let tree = self.engine.published.tree();
        tree.walk_all(|path, _| paths.push(path.to_string()));
        paths
    }

    /// Visits all nodes that clients can see: path, data and stat.
    pub fn walk(&self, mut visit: impl FnMut(&str, Option<&[u8]>, &Stat)) {
        let tree = self.engine.published.tree();
        tree.walk_all(|path, node| visit(path, node.data.as_deref(), &node.stat()));
    }

    /// Sessions that clients can use.
    pub fn session_ids(&self) -> Vec<i64> {
        let tree = self.engine.published.tree();
        tree.sessions().map(|(id, _)| id).collect()
    }

    /// Paths of the nodes that belong to sessions.
    pub fn ephemerals(&self) -> Vec<String> {
        let tree = self.engine.published.tree();
        let owners = tree.ephemeral_owners();
        let paths = owners.flat_map(|session| tree.ephemerals_of(session));
        let mut paths: Vec<String> = paths.map(|path| path.to_string()).collect();
        paths.sort();
        paths
    }

    /// Number of open sessions.
    pub fn sessions(&self) -> usize {
        self.engine.sessions.len()
    }

    /// Number of watches.
    pub fn watches(&self) -> usize {
        self.engine.published.watch_count()
    }
}

#[derive(Debug)]
struct Reading(Arc<dyn Stream>);

impl ReadLayer for Reading {
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_readable(cx).map(Ok)
    }

    fn try_read_buf(&self, bytes: &mut BytesMut) -> io::Result<usize> {
        self.0.try_read(bytes)
    }
}

/// Closes the stream when it is dropped.
#[derive(Debug)]
struct Writing(Arc<dyn Stream>);

impl WriteLayer for Writing {
    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_writable(cx).map(Ok)
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn is_stuck(&self) -> bool {
        false
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.0.close();
    }
}
