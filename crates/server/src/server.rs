//! A running server.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::alarm::{Alarm, Failure};
use crate::clock::{self, Clock};
use crate::config::Config;
use crate::connections::Connections;
use crate::engine::Engine;
use crate::files::Disk;
use crate::hooks::Hooks;
use crate::net::{self, Listener, UnixSocket};
use crate::pipeline::Pipeline;
use crate::publish::{Published, WatchLimits};
use crate::reaper;
use crate::session::{SessionTable, Sweeper};
use crate::stats::ServerStats;
use crate::storage::{MemoryStore, RecoveryError, Store};
use crate::writer::{Rules, Submission, Writer};

/// The unit in which time is counted.
const MILLISECOND: Duration = Duration::from_millis(1);

/// How many threads compute answers that take long: enough that one client does not make all others wait, and few
/// enough that they leave the machine to the short ones.
const LONG_READ_THREADS: usize = 2;

/// What `gtmk` shows before anybody set it (`ZooTrace`).
const TRACE_MASK: i64 = 306;

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each field is named in its message")]
pub enum StartError {
    /// The address is taken or not of this machine. Choose another, or port 0 for a free one.
    #[error("cannot listen on {address}")]
    Listen {
        address: SocketAddr,
        source: io::Error,
    },
    /// The socket belongs to another server, or its folder is missing. Choose another path.
    #[error("cannot listen on {}", path.display())]
    ListenUnix { path: PathBuf, source: io::Error },
    /// There is nowhere to listen. Name an address.
    #[error("no address to listen on")]
    NoAddress,
    /// A setting makes no sense; the message says which.
    #[error("{0}")]
    Setting(&'static str),
    /// A configuration file promises protection that this server does not give. Take the settings out, or start without
    /// what they protect ([`Config::ignore_unsupported`]).
    #[error("this server does not support {}", settings.join(", "))]
    Unsupported { settings: Vec<String> },
    /// The data files cannot be used; the source says what can be done.
    #[error("cannot start from the data files")]
    Data(#[from] RecoveryError),
    /// The system gives no more threads.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
}

/// A server in this process. Several may run side by side.
///
/// Dropping it stops it too, but nobody learns when that is done.
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
    engine: Arc<Engine>,
    addresses: Vec<SocketAddr>,
    stop: watch::Sender<bool>,
    failure: watch::Receiver<Option<Failure>>,
    listening: JoinSet<()>,
    housekeeping: JoinSet<()>,
    pipeline: Option<Pipeline>,
    long_reads: Vec<JoinHandle<()>>,
}

impl Server {
    /// Settings to begin with: memory only, on a free port of the loopback address.
    pub fn builder() -> ServerBuilder {
        ServerBuilder::default()
    }

    /// Starts a server; it keeps its data in memory unless `config` names a folder.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        Self::builder().config(config).start().await
    }

    async fn start_on(mut config: Config, store: Store) -> Result<Self, StartError> {
        if config.tick < MILLISECOND {
            return Err(StartError::Setting("a tick takes at least a millisecond"));
        }
        let (min, max) = config.session_timeouts();
        if min < MILLISECOND {
            return Err(StartError::Setting(
                "a session timeout is at least a millisecond",
            ));
        }
        if min > max {
            return Err(StartError::Setting(
                "the shortest session timeout is longer than the longest",
            ));
        }
        if !config.unsupported.is_empty() && !config.ignore_unsupported {
            return Err(StartError::Unsupported {
                settings: config.unsupported,
            });
        }
        if config.listen.is_empty() && config.listen_unix.is_none() {
            return Err(StartError::NoAddress);
        }
        let (mut listeners, addresses) = bind(&config.listen).await?;
        config.listen.clone_from(&addresses);

        let connections = Arc::new(Connections::new(&config));
        let (alarm, failure) = Alarm::new(connections.clone());
        let for_store = (config.clone(), alarm.clone());
        let (tree, log) =
            tokio::task::spawn_blocking(move || store.open(&for_store.0, &for_store.1))
                .await
                .expect("recovery does not panic")?;
        // Clients that wait for the file to appear find a server that is ready.
        if let Some(path) = &config.listen_unix {
            let socket = UnixSocket::bind(path, config.unix_peers);
            let socket = socket.map_err(|source| StartError::ListenUnix {
                path: path.clone(),
                source,
            })?;
            listeners.push(Listener::Unix(socket));
        }
        let clock = Clock::start();
        let tick_ms = i64::try_from(config.tick.as_millis()).unwrap_or(i64::MAX);
        let stats = Arc::new(ServerStats::default());
        let sessions = Arc::new(SessionTable::new(
            clock,
            tick_ms,
            clock::wall_ms(),
            tree.sessions(),
        ));
        let published = Arc::new(Published::new(
            tree.clone(),
            sessions.clone(),
            stats.clone(),
            config.skip_acl,
            WatchLimits::of(&config),
        ));
        let rules = Rules {
            extended_types: config.extended_types,
            skip_acl: config.skip_acl,
            enforce_quota: config.enforce_quota,
            reconfig_enabled: config.reconfig_enabled,
            acl_bytes_max: config.frame_bytes_max,
        };
        let (submit, pipeline) =
            Pipeline::start(Writer::new(tree, rules), log, published.clone(), &alarm)
                .map_err(StartError::Thread)?;
        let engine = Arc::new(Engine {
            connections,
            frame_bytes_max: AtomicUsize::new(config.frame_bytes_max),
            trace_mask: AtomicI64::new(TRACE_MASK),
            config,
            clock,
            sessions,
            published,
            stats,
            submit,
        });

        let mut server = Self {
            engine,
            addresses,
            stop: watch::Sender::new(false),
            failure,
            listening: JoinSet::new(),
            housekeeping: JoinSet::new(),
            pipeline: Some(pipeline),
            long_reads: Vec::new(),
        };
        for _ in 0..LONG_READ_THREADS {
            let published = server.engine.published.clone();
            let thread = alarm.spawn("read", move || published.serve_long_reads());
            server.long_reads.push(thread.map_err(StartError::Thread)?);
        }
        let engine = &server.engine;
        tracing::info!(address = server.connect_string(), "listening");
        for listener in listeners {
            let stopping = server.stop.subscribe();
            let accept = net::accept(engine.clone(), listener, stopping);
            server.listening.spawn(accept);
        }
        let expire = expire_sessions(engine.clone(), tick_ms);
        server.housekeeping.spawn(expire);
        server.housekeeping.spawn(reaper::run(engine.clone()));
        Ok(server)
    }

    /// Where it listens, with the ports that it got.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// What a client takes to connect, such as `127.0.0.1:2181`; `unix:/path` if the server listens nowhere else.
    pub fn connect_string(&self) -> String {
        if let (true, Some(path)) = (self.addresses.is_empty(), &self.engine.config.listen_unix) {
            return format!("unix:{}", path.display());
        }
        self.addresses
            .iter()
            .map(SocketAddr::to_string)
            .collect::<Vec<_>>()
            .join(",")
    }

    /// How many connections there are.
    pub fn connections(&self) -> usize {
        self.engine.connections.len()
    }

    /// How many sessions are open.
    pub fn sessions(&self) -> usize {
        self.engine.sessions.len()
    }

    /// Takes no more connections if there are neither connections nor sessions; else nothing changes.
    ///
    /// For a server that leaves when nobody uses it: whoever comes too late is turned away before anything is
    /// promised, and whoever came in time is served. To be followed by [`shutdown`](Self::shutdown).
    #[must_use = "it may be used still"]
    pub fn retire(&self) -> bool {
        self.engine
            .connections
            .close_if_none(|| self.engine.sessions.len() == 0)
    }

    /// Ways to make things happen that tests otherwise wait for.
    pub fn hooks(&self) -> Hooks {
        Hooks::new(self.engine.clone())
    }

    /// Resolves when the server has stopped by itself, with the reason.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost: a later call resolves as well.
    pub async fn failed(&self) -> Failure {
        let mut failure = self.failure.clone();
        match failure.wait_for(Option::is_some).await {
            Ok(failure) => failure.clone().expect("it was waited for"),
            // Whoever would tell is gone without a failure: there will be none.
            Err(_) => std::future::pending().await,
        }
    }

    /// Stops: no more connections, then everything that was accepted goes to its end. Sessions are
    /// not closed: clients find them again on the next start.
    ///
    /// # Cancel safety
    ///
    /// The server stops all the same, as when it is dropped.
    pub async fn shutdown(mut self) {
        self.begin_stop();
        self.housekeeping.shutdown().await;
        while self.listening.join_next().await.is_some() {}
        let pipeline = self.pipeline.take();
        let long_reads = std::mem::take(&mut self.long_reads);
        let joined = tokio::task::spawn_blocking(|| {
            pipeline.into_iter().for_each(Pipeline::join);
            for thread in long_reads {
                thread.join().expect("a panic ends in the alarm");
            }
        });
        joined.await.expect("a panic ends in the alarm");
    }

    fn begin_stop(&self) {
        // Sends fail only if nobody listens, and then there is nobody to stop.
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

/// A server about to start.
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

    /// Listens on a Unix socket, besides the addresses of [`Config::listen`]; only the user of this process and root may
    /// connect there, unless [`Config::unix_peers`] says otherwise.
    #[must_use]
    pub fn listen_unix(mut self, path: impl Into<PathBuf>) -> Self {
        self.config.listen_unix = Some(path.into());
        self
    }

    /// Starts also if the settings promise protection that this server does not give.
    #[must_use]
    pub fn ignore_unsupported(mut self, ignore: bool) -> Self {
        self.config.ignore_unsupported = ignore;
        self
    }

    /// Sets the unit of time: sessions expire on its boundaries, after two ticks at least.
    #[must_use]
    pub fn tick(mut self, tick: Duration) -> Self {
        self.config.tick = tick;
        self
    }

    /// Goes on with what an earlier server left in `store`, and leaves it there again.
    #[must_use]
    pub fn memory(mut self, store: MemoryStore) -> Self {
        self.store = Some(Store::Memory(store));
        self
    }

    /// Keeps data files in `folder`, in Apache's format, and goes on with those that are there.
    #[must_use]
    pub fn data(mut self, folder: impl Into<PathBuf>) -> Self {
        self.config.data_dir = Some(folder.into());
        self
    }

    /// Keeps data files on disks of a test's making.
    #[must_use]
    pub fn disks(mut self, snapshots: Arc<dyn Disk>, logs: Arc<dyn Disk>) -> Self {
        self.store = Some(Store::Disks { snapshots, logs });
        self
    }

    /// Starts the server; it serves when this returns.
    ///
    /// # Cancel safety
    ///
    /// A server that is not returned is stopped.
    pub async fn start(self) -> Result<Server, StartError> {
        let store = self.store.unwrap_or_else(|| Store::of(&self.config));
        Server::start_on(self.config, store).await
    }
}

async fn bind(addresses: &[SocketAddr]) -> Result<(Vec<Listener>, Vec<SocketAddr>), StartError> {
    let (mut listeners, mut all_bound) = (Vec::new(), Vec::new());
    for address in addresses {
        let bound = Listener::tcp(*address).await;
        let (listener, bound) = bound.map_err(|source| StartError::Listen {
            address: *address,
            source,
        })?;
        listeners.push(listener);
        all_bound.push(bound);
    }
    Ok((listeners, all_bound))
}

/// Ends sessions whose time is over, once a tick.
async fn expire_sessions(engine: Arc<Engine>, tick_ms: i64) {
    let mut sweeper = Sweeper::new(engine.clock.now_ms(), tick_ms);
    loop {
        let wait_ms = u64::try_from(sweeper.next_ms() - engine.clock.now_ms()).unwrap_or(0);
        #[expect(
            clippy::disallowed_methods,
            reason = "a real pause, until the next tick"
        )]
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        for session in sweeper.sweep(engine.clock.now_ms(), engine.sessions.all()) {
            tracing::info!(
                session = format_args!("{:#x}", session.id),
                "session expired"
            );
            engine.submit.submit(Submission::ExpireSession { session });
        }
    }
}
