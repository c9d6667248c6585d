//! Settings of a server.

mod reload;
mod tls;
mod word_list;
pub mod zoo_cfg;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub use self::reload::Reloaded;
pub use self::tls::{ClientCertificates, TlsConfig, TlsVersion};
pub(crate) use self::word_list::known as known_word;
pub use self::word_list::{UnknownWord, WordList};

/// Users that may connect to a Unix socket, by the credentials that the kernel reports (`SO_PEERCRED`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnixPeers {
    /// The user of this process, and root.
    SameUser,
    /// All users that the file's permissions let connect.
    AllUsers,
}

impl UnixPeers {
    pub(crate) fn allows(self, user: u32) -> bool {
        self == Self::AllUsers || user == 0 || user == rustix::process::geteuid().as_raw()
    }
}

/// Session passwords, with which clients resume their sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionPasswords {
    /// Derived from a key in the data folder, which is created for the first server. Sessions that are in the folder then keep Apache's
    /// passwords, beside which their clients get secret ones.
    Secret,
    /// Computed from the session id, as Apache does: sessions can continue there, but any client can compute the password too, and take over
    /// a session. A folder that had secret passwords accepts them too, so that its clients can change over before it is moved.
    Apache,
}

/// The settings of a server. The defaults are Apache's where it has them.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where to listen; port 0 takes a free one.
    pub listen: Vec<SocketAddr>,
    /// A Unix socket to listen on as well. Its file appears when the server is ready, and replaces the stale file of a killed server.
    pub listen_unix: Option<PathBuf>,
    /// The users that may connect to the Unix socket.
    pub unix_peers: UnixPeers,
    /// TLS listener, besides `listen`.
    pub tls: Option<TlsConfig>,
    /// A file with a line `user:password` for each user of SASL DIGEST-MD5. The connection of `user` has the id `sasl:user`.
    pub sasl_users: Option<PathBuf>,
    /// SASL user that may do everything.
    pub sasl_super_user: Option<String>,
    /// Which session passwords clients get.
    pub session_passwords: SessionPasswords,
    /// File to which one JSON object is appended for each write, session, failed authentication and change by a four-letter word.
    pub audit_log: Option<PathBuf>,
    /// The tick, the unit of time: sessions expire at its boundaries.
    pub tick: Duration,
    /// Minimum session timeout; two ticks unless set.
    pub session_timeout_min: Option<Duration>,
    /// Maximum session timeout; twenty ticks unless set.
    pub session_timeout_max: Option<Duration>,
    /// Maximum frame length; a longer frame closes its connection.
    pub frame_bytes_max: usize,
    /// Maximum number of connections; one more is closed at once. 0, and the most, is what the limit of open files leaves room for. With a
    /// Unix socket, the last 8 of them, or a quarter if that is less, are for root and the user of the server there.
    pub connections_max: usize,
    /// Maximum number of connections per address, or per network of 64 bits for IPv6; 0 for no limit. One more is closed at once. Unix
    /// sockets do not count.
    pub connections_per_address_max: usize,
    /// Maximum number of connections per user of the Unix socket; one more is closed at once. 0 is half of all connections. Root and the user
    /// of the server have no such limit.
    pub connections_per_user_max: usize,
    /// Maximum number of connections that have no session yet, TLS handshakes included, 0 for no limit; one more is closed at once. Unix
    /// sockets do not count.
    pub handshakes_max: usize,
    /// Maximum number of connections accepted per second, 0 for no limit; one more is closed at once. Unix sockets do not count.
    pub handshakes_per_second_max: usize,
    /// Maximum number of outstanding requests. Above it, connections that have outstanding requests are not read.
    pub outstanding_max: usize,
    /// Maximum size of all outstanding requests in bytes; same effect as `outstanding_max`.
    pub outstanding_bytes_max: usize,
    /// Maximum bytes of requests that have not arrived completely, of all connections. Above it, a connection that has sent 64 KiB of such a
    /// request is closed when it sends more.
    pub input_bytes_max: usize,
    /// Maximum bytes that wait for one client to read them. Above it, the connection is closed. A multiRead whose results take more than
    /// half of it is refused.
    pub outbox_bytes_max: usize,
    /// Maximum bytes that wait for all clients together. Above it, a connection for which 64 KiB already wait is closed when it gets more.
    pub outboxes_bytes_max: usize,
    /// Maximum watches per session. One more is refused with -125 (quota exceeded), together with its request. A persistent watch counts
    /// twice, for data and for children.
    pub watches_per_session_max: usize,
    /// Maximum length of all paths that one session watches; refused like `watches_per_session_max`.
    pub watch_bytes_per_session_max: usize,
    /// Maximum watches of all sessions together; refused like `watches_per_session_max`.
    pub watches_max: usize,
    /// Maximum length of all watched paths; refused like `watches_per_session_max`.
    pub watch_bytes_max: usize,
    /// Maximum number of sessions. A client that asks for one more is disconnected; existing sessions are not affected.
    pub sessions_max: usize,
    /// Maximum number of new sessions that wait for the log at the same time, 0 for no limit; clients that ask for more wait for their turn.
    pub session_openings_max: usize,
    /// Maximum ephemeral nodes per session; one more is refused with -125 (quota exceeded). When the session ends, all their paths are
    /// written as one transaction.
    pub ephemerals_per_session_max: usize,
    /// Maximum memory of the tree, in bytes: an estimate that includes what each node takes besides its path and data. A write that would make
    /// a larger tree is refused with -125 (quota exceeded); deletes are not. `None` for half of the memory that this process may use.
    pub tree_bytes_max: Option<usize>,
    /// Maximum number of nodes, 0 for no limit; one more is refused like `tree_bytes_max`.
    pub tree_nodes_max: usize,
    /// Free bytes on the disk of the log below which writes that make the tree larger are refused with -125 (quota exceeded); deletes are not.
    /// 0 for no limit, `None` for 1 % of the file system, at least 1 MiB and at most 64 MiB. A quarter of it is kept as a reserve file.
    pub disk_free_bytes_min: Option<u64>,
    /// Time that a connection has to open a session, including the TLS handshake.
    pub handshake_timeout: Duration,
    /// The four-letter words that are answered.
    pub words: WordList,
    /// Whether TTL nodes may be created.
    pub extended_types: bool,
    /// Whether hard quotas are enforced.
    pub enforce_quota: bool,
    /// Whether access lists are ignored.
    pub skip_acl: bool,
    /// The digest id, `super:<base64>`, that may do everything.
    pub super_digest: Option<String>,
    /// If not empty, a connection must have authenticated by one of these schemes before anything else.
    pub enforce_auth_schemes: Vec<String>,
    /// Settings for protection that this server does not offer, as a configuration file names them. They prevent the start unless
    /// `ignore_unsupported` is set.
    pub unsupported: Vec<String>,
    /// Whether to start without the protection named in `unsupported`.
    pub ignore_unsupported: bool,
    /// The members of an ensemble, as a configuration file names them. They prevent the start unless `standalone` is set: this server is
    /// not a member of an ensemble, and several started from such files would be separate services, whose locks do not exclude each other.
    pub members: Vec<String>,
    /// Whether to start as a single server although `members` are named.
    pub standalone: bool,
    /// Whether `reconfig` is refused as not supported rather than as disabled.
    pub reconfig_enabled: bool,
    /// Interval at which empty containers and outlived TTL nodes are deleted.
    pub container_check_interval: Duration,
    /// Maximum number of such deletes per minute.
    pub container_deletions_per_minute_max: usize,
    /// How long a container that never had a child may stay; zero means for ever.
    pub container_never_used_max: Duration,
    /// Folder of the snapshots.
    pub data_dir: Option<PathBuf>,
    /// Whether zxids, and with them fencing tokens, continue in a new epoch, above all that were assigned until now. A server does so by
    /// itself where it notices that its folder was set back. It cannot notice that a whole disk or virtual machine was.
    pub new_epoch: bool,
    /// Folder of the write-ahead log, if not `data_dir`.
    pub data_log_dir: Option<PathBuf>,
    /// Approximate number of writes between two snapshots.
    pub snap_count: usize,
    /// How many bytes a log file is preallocated ahead of its content.
    pub log_preallocation_bytes: u64,
    /// An fsync of the log that takes longer is reported as a warning.
    pub fsync_warning: Duration,
    /// A request whose answer takes as long is logged, with the time of each stage; zero for none.
    pub slow_request: Duration,
    /// Number of snapshots to keep, with the logs that recovery from them needs; `None` for all.
    pub snapshots_kept: Option<usize>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
            listen_unix: None,
            unix_peers: UnixPeers::SameUser,
            tls: None,
            sasl_users: None,
            sasl_super_user: None,
            session_passwords: SessionPasswords::Secret,
            audit_log: None,
            tick: Duration::from_secs(2),
            session_timeout_min: None,
            session_timeout_max: None,
            frame_bytes_max: 0xF_FFFF,
            connections_max: 0,
            connections_per_address_max: 60,
            connections_per_user_max: 0,
            handshakes_max: 4096,
            handshakes_per_second_max: 0,
            outstanding_max: 1000,
            outstanding_bytes_max: 256 << 20,
            input_bytes_max: 256 << 20,
            outbox_bytes_max: 64 << 20,
            outboxes_bytes_max: 1 << 30,
            watches_per_session_max: 250_000,
            watch_bytes_per_session_max: 32 << 20,
            watches_max: 10_000_000,
            watch_bytes_max: 1 << 30,
            sessions_max: 1_000_000,
            session_openings_max: 16,
            ephemerals_per_session_max: 100_000,
            tree_bytes_max: None,
            tree_nodes_max: 0,
            disk_free_bytes_min: None,
            handshake_timeout: Duration::from_secs(10),
            words: WordList::default(),
            extended_types: false,
            enforce_quota: false,
            skip_acl: false,
            super_digest: None,
            enforce_auth_schemes: Vec::new(),
            unsupported: Vec::new(),
            ignore_unsupported: false,
            members: Vec::new(),
            standalone: false,
            reconfig_enabled: false,
            container_check_interval: Duration::from_secs(60),
            container_deletions_per_minute_max: 10_000,
            container_never_used_max: Duration::ZERO,
            data_dir: None,
            data_log_dir: None,
            new_epoch: false,
            snap_count: 100_000,
            log_preallocation_bytes: 64 << 20,
            fsync_warning: Duration::from_secs(1),
            slow_request: Duration::from_secs(1),
            snapshots_kept: Some(3),
        }
    }
}

impl Config {
    /// Minimum and maximum session timeout.
    pub(crate) fn session_timeouts(&self) -> (Duration, Duration) {
        (
            self.session_timeout_min.unwrap_or(self.tick * 2),
            self.session_timeout_max.unwrap_or(self.tick * 20),
        )
    }

    /// Session timeout granted to a client that asks for `requested_ms`.
    pub(crate) fn negotiate_timeout_ms(&self, requested_ms: i32) -> i32 {
        let ms = |duration: Duration| i32::try_from(duration.as_millis()).unwrap_or(i32::MAX);
        let (min, max) = self.session_timeouts();
        requested_ms.min(ms(max)).max(ms(min))
    }
}
