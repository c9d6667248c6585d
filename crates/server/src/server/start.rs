//! Starts a server: checks the settings, binds, recovers the data, starts threads and tasks.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, AtomicUsize};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::inside::Inside;
use super::server::Server;
use super::{disk_watch, expiry, memory, reaper};
use crate::alarm::Alarm;
use crate::audit::Audit;
use crate::client::Connections;
use crate::client::sasl::Users;
use crate::clock::{self, Clock};
use crate::config::{Config, TlsConfig};
use crate::descriptors;
use crate::engine::Engine;
use crate::net::{self, Listener, UnixSocket};
use crate::priority;
use crate::publish::{Published, WatchLimits};
use crate::session::{Keeper, Passwords, SessionTable};
use crate::stats::ServerStats;
use crate::storage::{DiskRoom, OpenStore, RecoveryError, Store, TimedLog};
use crate::tls::{Acceptor, TlsError};
use crate::tree::Tree;
use crate::tree::access::Schemes;
use crate::writer::{Pipeline, Rules, Submit, TreeLimits, Writer};

/// Minimum of ticks and session timeouts.
const MILLISECOND: Duration = Duration::from_millis(1);

/// Threads for reads that take long. With two, one client cannot block all others; more would take cores from the short reads.
const LONG_READ_THREADS: usize = 2;

/// Initial value of the trace mask that `gtmk` shows (`ZooTrace`).
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
    /// The certificates or keys cannot be used; the source names the file.
    #[error("cannot listen for TLS")]
    Tls(#[source] TlsError),
    /// The file of SASL users cannot be used; the source says why.
    #[error("cannot read the SASL users from {}", path.display())]
    SaslUsers { path: PathBuf, source: io::Error },
    /// The key for secret session passwords cannot be read or created. If its file is damaged, delete it: open sessions then expire.
    #[error("cannot use the session key in {}", folder.display())]
    SessionKey { folder: PathBuf, source: io::Error },
    /// The audit log cannot be written. Choose another path.
    #[error("cannot write the audit log {}", path.display())]
    AuditLog { path: PathBuf, source: io::Error },
    /// No address to listen on is set. Set one.
    #[error("no address to listen on")]
    NoAddress,
    /// A setting makes no sense; the message says which.
    #[error("{0}")]
    Setting(&'static str),
    /// A configuration file asks for protection that this server does not offer. Remove the settings, or start without that protection
    /// ([`Config::ignore_unsupported`]).
    #[error("this server does not support {}", settings.join(", "))]
    Unsupported { settings: Vec<String> },
    /// A configuration file names the members of an ensemble, and this server is not a member of one. Run Apache ZooKeeper, or start a single
    /// server ([`Config::standalone`]).
    #[error("this server cannot be a member of an ensemble, as {} would have it", settings.join(", "))]
    Members { settings: Vec<String> },
    /// The data files cannot be used; the source says what to do.
    #[error("cannot start from the data files")]
    Data(#[from] RecoveryError),
    /// The system cannot create another thread.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
}

/// Starts a server on a store. When this returns, the server accepts requests.
pub(super) async fn start(mut config: Config, store: Store) -> Result<Server, StartError> {
    check(&config)?;
    let started = config.clone();
    // Written back, as ports are.
    set_tree_bytes(&mut config);
    let mut listeners = Listeners::bind(&mut config).await?;
    let access = Access::open(&config)?;
    let session_key = match &store {
        Store::Memory(memory) => memory.session_key(),
        _ => Arc::default(),
    };
    let connections = Arc::new(Connections::new(
        &config,
        descriptors::room_for_connections(),
    ));
    let (alarm, failure) = Alarm::new(connections.clone());
    let opened = recover(store, &config, &alarm, &connections).await?;
    let passwords = session_passwords(&config, &session_key, &opened.tree)?;
    let access = (access, passwords);
    // Bound last: a client that waits for the socket file finds a server that is ready.
    listeners.bind_unix(&config)?;
    let OpenStore { tree, log, room } = opened;
    let data = (tree, room);
    let (engine, pipeline) = engine(config, access, connections, data, |writer, published| {
        Pipeline::start(writer, log, published, &alarm).map_err(StartError::Thread)
    })?;
    let (inside, streams) = mpsc::channel(Inside::WAITING_MAX);
    let mut server = Server {
        started,
        inside: Inside(inside),
        acceptor: listeners.acceptor,
        engine,
        addresses: listeners.addresses,
        tls_addresses: listeners.tls_addresses,
        stop: watch::Sender::new(false),
        failure,
        listening: JoinSet::new(),
        housekeeping: JoinSet::new(),
        pipeline: Some(pipeline),
        threads: Vec::new(),
    };
    for _ in 0..LONG_READ_THREADS {
        let published = server.engine.published.clone();
        let meters = server.engine.stats.meters.clone();
        let thread = alarm.spawn("read", move || {
            priority::lower(&meters);
            published.serve_long_reads();
        });
        server.threads.push(thread.map_err(StartError::Thread)?);
    }
    let engine = &server.engine;
    tracing::info!(address = server.connect_string(), "listening");
    if !listeners.network.is_empty() {
        let stopping = server.stop.subscribe();
        let door = net::open_door(engine.clone(), listeners.network, stopping, &alarm).await;
        let (thread, guests) = door.map_err(StartError::Thread)?;
        server.threads.push(thread);
        server.listening.spawn(guests.serve(engine.clone()));
    }
    if let Some(listener) = listeners.unix {
        let stopping = server.stop.subscribe();
        let accept = net::without_door(engine.clone(), listener, stopping);
        server.listening.spawn(accept);
    }
    let inside = Listener::inside(streams);
    let accept = net::without_door(engine.clone(), inside, server.stop.subscribe());
    server.listening.spawn(accept);
    server.housekeeping.spawn(expiry::run(engine.clone()));
    server.housekeeping.spawn(reaper::run(engine.clone()));
    server.housekeeping.spawn(disk_watch::run(engine.clone()));
    Ok(server)
}

/// Sets the default of the tree's memory, which depends on the machine.
pub(super) fn set_tree_bytes(config: &mut Config) {
    config.tree_bytes_max = config.tree_bytes_max.or_else(memory::share_of_tree);
}

/// Refuses settings that contradict each other or are out of range.
pub(super) fn check(config: &Config) -> Result<(), StartError> {
    if config.tick < MILLISECOND {
        return Err(StartError::Setting(
            "the tick must be at least one millisecond",
        ));
    }
    let (min, max) = config.session_timeouts();
    if min < MILLISECOND {
        return Err(StartError::Setting(
            "session timeouts must be at least one millisecond",
        ));
    }
    if min > max {
        return Err(StartError::Setting(
            "the minimum session timeout is longer than the maximum",
        ));
    }
    if !config.unsupported.is_empty() && !config.ignore_unsupported {
        return Err(StartError::Unsupported {
            settings: config.unsupported.clone(),
        });
    }
    if !config.members.is_empty() && !config.standalone {
        return Err(StartError::Members {
            settings: config.members.clone(),
        });
    }
    let has_tls = |tls: &TlsConfig| !tls.listen.is_empty();
    if config.listen.is_empty()
        && config.listen_unix.is_none()
        && !config.tls.as_ref().is_some_and(has_tls)
    {
        return Err(StartError::NoAddress);
    }
    Ok(())
}

/// The listening sockets.
struct Listeners {
    network: Vec<Listener>,
    unix: Option<Listener>,
    addresses: Vec<SocketAddr>,
    tls_addresses: Vec<SocketAddr>,
    acceptor: Option<Arc<Acceptor>>,
}

impl Listeners {
    /// Binds the TCP addresses, and writes the ports that the system chose back to `config`.
    async fn bind(config: &mut Config) -> Result<Self, StartError> {
        let (network, addresses) = bind(&config.listen, None).await?;
        config.listen.clone_from(&addresses);
        let mut listeners = Self {
            network,
            unix: None,
            addresses,
            tls_addresses: Vec::new(),
            acceptor: None,
        };
        if let Some(tls) = &mut config.tls {
            let acceptor = Arc::new(Acceptor::new(tls.clone()).map_err(StartError::Tls)?);
            let (secure, bound) = bind(&tls.listen, Some(&acceptor)).await?;
            listeners.network.extend(secure);
            tls.listen.clone_from(&bound);
            listeners.tls_addresses = bound;
            listeners.acceptor = Some(acceptor);
        }
        Ok(listeners)
    }

    fn bind_unix(&mut self, config: &Config) -> Result<(), StartError> {
        if let Some(path) = &config.listen_unix {
            let socket = UnixSocket::bind(path, config.unix_peers);
            let socket = socket.map_err(|source| StartError::ListenUnix {
                path: path.clone(),
                source,
            })?;
            self.unix = Some(Listener::Unix(socket));
        }
        Ok(())
    }
}

async fn bind(
    addresses: &[SocketAddr],
    acceptor: Option<&Arc<Acceptor>>,
) -> Result<(Vec<Listener>, Vec<SocketAddr>), StartError> {
    let (mut listeners, mut all_bound) = (Vec::new(), Vec::new());
    for address in addresses {
        let bound = Listener::tcp(*address, acceptor).await;
        let (listener, bound) = bound.map_err(|source| StartError::Listen {
            address: *address,
            source,
        })?;
        listeners.push(listener);
        all_bound.push(bound);
    }
    Ok((listeners, all_bound))
}

/// What access control needs: SASL users and the audit log.
pub(super) struct Access {
    sasl_users: Option<Users>,
    audit: Option<Arc<Audit>>,
}

impl Access {
    pub(super) fn open(config: &Config) -> Result<Self, StartError> {
        let open_audit = |path: &PathBuf| {
            let opened = Audit::open(path).map_err(|source| audit_error(path, source));
            opened.map(Arc::new)
        };
        Ok(Self {
            sasl_users: config.sasl_users.as_deref().map(read_users).transpose()?,
            audit: config.audit_log.as_ref().map(open_audit).transpose()?,
        })
    }
}

pub(super) fn read_users(path: &Path) -> Result<Users, StartError> {
    Users::read(path).map_err(|source| StartError::SaslUsers {
        path: path.to_owned(),
        source,
    })
}

pub(super) fn audit_error(path: &Path, source: io::Error) -> StartError {
    StartError::AuditLog {
        path: path.to_owned(),
        source,
    }
}

/// Loads or creates the key of session passwords; in memory, if there is no data folder.
pub(super) fn session_passwords(
    config: &Config,
    memory: &OnceLock<[u8; 32]>,
    tree: &Tree,
) -> Result<Passwords, StartError> {
    let folder = config.data_dir.as_deref();
    let keeper = folder.map_or(Keeper::Memory(memory), Keeper::Folder);
    let open = tree.sessions().map(|(id, _)| id);
    Passwords::load(config.session_passwords, keeper, open).map_err(|source| {
        StartError::SessionKey {
            folder: folder.unwrap_or(Path::new("memory")).to_owned(),
            source,
        }
    })
}

/// Reads the data of the store on a blocking thread.
async fn recover(
    store: Store,
    config: &Config,
    alarm: &Alarm,
    connections: &Connections,
) -> Result<OpenStore, StartError> {
    let is_durable = !matches!(store, Store::Memory(_));
    let for_store = (config.clone(), alarm.clone());
    let opened = tokio::task::spawn_blocking(move || store.open(&for_store.0, &for_store.1));
    let opened = opened.await.expect("recovery does not panic")?;
    if !is_durable {
        return Ok(opened);
    }
    let meters = connections.meters().clone();
    let log = TimedLog::new(opened.log, meters, config.fsync_warning);
    Ok(OpenStore {
        log: Box::new(log),
        ..opened
    })
}

/// Builds the engine, with the pipeline that `start` starts.
pub(super) fn engine<P>(
    config: Config,
    (access, passwords): (Access, Passwords),
    connections: Arc<Connections>,
    (tree, room): (Tree, Arc<DiskRoom>),
    start: impl FnOnce(Writer, Arc<Published>) -> Result<(Submit, P), StartError>,
) -> Result<(Arc<Engine>, P), StartError> {
    let clock = Clock::start();
    let stats = Arc::new(ServerStats {
        meters: connections.meters().clone(),
        ..ServerStats::default()
    });
    let sessions = Arc::new(SessionTable::new(
        clock,
        expiry::tick_ms(&config),
        clock::wall_ms(),
        passwords,
        tree.sessions(),
    ));
    let published = Arc::new(Published::new(
        tree.clone(),
        sessions.clone(),
        stats.clone(),
        config.skip_acl,
        WatchLimits::of(&config),
        access.audit.clone(),
        config.slow_request,
    ));
    let writer = Writer::new(tree, rules(&config), room.clone());
    let (submit, pipeline) = start(writer, published.clone())?;
    let engine = Engine {
        connections,
        frame_bytes_max: AtomicUsize::new(config.frame_bytes_max),
        trace_mask: AtomicI64::new(TRACE_MASK),
        settings: watch::Sender::new(Arc::new(config)),
        clock,
        sessions,
        published,
        stats,
        audit: access.audit,
        sasl_users: Mutex::new(access.sasl_users.map(Arc::new)),
        submit,
        room,
    };
    Ok((Arc::new(engine), pipeline))
}

/// Bytes of the longest list in a transaction that Apache can read back from a log: it reads records of two frames at most
/// (`jute.maxbuffer` and as much extra).
fn longest_record_bytes(config: &Config) -> usize {
    const HEADER_BYTES: usize = 1024;
    (config.frame_bytes_max.saturating_mul(2)).saturating_sub(HEADER_BYTES)
}

pub(super) fn rules(config: &Config) -> Rules {
    Rules {
        extended_types: config.extended_types,
        skip_acl: config.skip_acl,
        enforce_quota: config.enforce_quota,
        reconfig_enabled: config.reconfig_enabled,
        schemes: schemes(config),
        ephemerals_per_session_max: config.ephemerals_per_session_max,
        ephemeral_bytes_max: longest_record_bytes(config),
        acl_bytes_max: config.frame_bytes_max,
        tree: TreeLimits::of(config),
    }
}

/// Authentication schemes that access lists may name, besides the built-in ones.
fn schemes(config: &Config) -> Schemes {
    Schemes {
        x509: config.tls.as_ref().is_some_and(TlsConfig::knows_clients),
        sasl: config.sasl_users.is_some(),
        unix: config.listen_unix.is_some(),
    }
}
