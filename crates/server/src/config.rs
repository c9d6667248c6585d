//! What can be set about a server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::four_letter_words::WordList;

/// The users that may connect to a Unix socket, by the credentials that the kernel vouches for (`SO_PEERCRED`).
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

/// The settings of a server. The defaults are Apache's where it has them.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where to listen; port 0 takes a free one.
    pub listen: Vec<SocketAddr>,
    /// A Unix socket to listen on as well. Its file appears when the server is ready, and takes the place of one that a
    /// killed server has left.
    pub listen_unix: Option<PathBuf>,
    /// The users that may connect to the Unix socket.
    pub unix_peers: UnixPeers,
    /// The unit of time: sessions expire on its boundaries.
    pub tick: Duration,
    /// The shortest session timeout that clients get; two ticks unless set.
    pub session_timeout_min: Option<Duration>,
    /// The longest session timeout that clients get; twenty ticks unless set.
    pub session_timeout_max: Option<Duration>,
    /// The longest frame that is read; a longer one closes its connection.
    pub frame_bytes_max: usize,
    /// Connections in all, 0 for no limit; one more is closed at once.
    pub connections_max: usize,
    /// Connections from one address, 0 for no limit; one more is closed at once. Those of Unix sockets do not count.
    pub connections_per_address_max: usize,
    /// Requests that are neither answered nor given up; beyond it, connections that have such
    /// requests are not read.
    pub outstanding_max: usize,
    /// Bytes of those requests; beyond it, as beyond `outstanding_max`.
    pub outstanding_bytes_max: usize,
    /// Bytes that wait for a client that does not read; beyond it, its connection is closed. A multiRead
    /// whose results are more than half of it is refused.
    pub outbox_bytes_max: usize,
    /// Bytes that wait for all clients together; beyond it, a connection that gets more while 64 KiB wait for it already
    /// is closed.
    pub outboxes_bytes_max: usize,
    /// Watches of one session; one more is refused with -125 (quota exceeded), and the request with it. A persistent watch
    /// counts twice, for data and for children.
    pub watches_per_session_max: usize,
    /// Bytes of the paths that one session watches; refused like `watches_per_session_max`.
    pub watch_bytes_per_session_max: usize,
    /// Watches of all sessions together; refused like `watches_per_session_max`.
    pub watches_max: usize,
    /// Bytes of the paths that all sessions together watch; refused like `watches_per_session_max`.
    pub watch_bytes_max: usize,
    /// How long a connection may stay without a session.
    pub handshake_timeout: Duration,
    /// The four-letter words that are answered.
    pub words: WordList,
    /// Whether nodes may have a time to live.
    pub extended_types: bool,
    /// Whether hard quotas are enforced.
    pub enforce_quota: bool,
    /// Whether access lists are ignored.
    pub skip_acl: bool,
    /// The digest id, `super:<base64>`, that may do everything.
    pub super_digest: Option<String>,
    /// If not empty, a connection must have authenticated by one of these schemes before anything else.
    pub enforce_auth_schemes: Vec<String>,
    /// Settings that promise protection which this server does not give, as a configuration file names them. Unless they
    /// are to be ignored, they stop a start.
    pub unsupported: Vec<String>,
    /// Whether a server starts without the protection that `unsupported` promises.
    pub ignore_unsupported: bool,
    /// Whether `reconfig` is refused as not supported rather than as disabled.
    pub reconfig_enabled: bool,
    /// How often empty containers and outlived nodes are looked for.
    pub container_check_interval: Duration,
    /// How many of them are deleted in a minute at most.
    pub container_deletions_per_minute_max: usize,
    /// How long a container may stay that never had a child; zero for ever.
    pub container_never_used_max: Duration,
    /// Where snapshots belong.
    pub data_dir: Option<PathBuf>,
    /// Where the log belongs, if not in `data_dir`.
    pub data_log_dir: Option<PathBuf>,
    /// About how many writes go between two snapshots.
    pub snap_count: usize,
    /// How much room a log file takes from the disk ahead of what is written.
    pub log_preallocation_bytes: u64,
    /// How many snapshots are kept, with the logs that recovery from them needs; `None` for all.
    pub snapshots_kept: Option<usize>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
            listen_unix: None,
            unix_peers: UnixPeers::SameUser,
            tick: Duration::from_secs(2),
            session_timeout_min: None,
            session_timeout_max: None,
            frame_bytes_max: 0xF_FFFF,
            connections_max: 0,
            connections_per_address_max: 60,
            outstanding_max: 1000,
            outstanding_bytes_max: 256 << 20,
            outbox_bytes_max: 64 << 20,
            outboxes_bytes_max: 1 << 30,
            watches_per_session_max: 250_000,
            watch_bytes_per_session_max: 32 << 20,
            watches_max: 10_000_000,
            watch_bytes_max: 1 << 30,
            handshake_timeout: Duration::from_secs(10),
            words: WordList::default(),
            extended_types: false,
            enforce_quota: false,
            skip_acl: false,
            super_digest: None,
            enforce_auth_schemes: Vec::new(),
            unsupported: Vec::new(),
            ignore_unsupported: false,
            reconfig_enabled: false,
            container_check_interval: Duration::from_secs(60),
            container_deletions_per_minute_max: 10_000,
            container_never_used_max: Duration::ZERO,
            data_dir: None,
            data_log_dir: None,
            snap_count: 100_000,
            log_preallocation_bytes: 64 << 20,
            snapshots_kept: Some(3),
        }
    }
}

impl Config {
    /// The shortest and the longest session timeout that clients get.
    pub(crate) fn session_timeouts(&self) -> (Duration, Duration) {
        (
            self.session_timeout_min.unwrap_or(self.tick * 2),
            self.session_timeout_max.unwrap_or(self.tick * 20),
        )
    }

    /// What a client gets that asks for `requested_ms`.
    pub(crate) fn negotiate_timeout_ms(&self, requested_ms: i32) -> i32 {
        let ms = |duration: Duration| i32::try_from(duration.as_millis()).unwrap_or(i32::MAX);
        let (min, max) = self.session_timeouts();
        requested_ms.min(ms(max)).max(ms(min))
    }
}
