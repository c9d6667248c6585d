//! All open connections, and their limits.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::client::outbox::{Outbox, OutboxTotal};
use crate::client::received::{Received, Share};
use crate::client::usage::{Ended, Usage, UsageOrigin};
use crate::client::{Origin, Peer, PeerAddress};
use crate::config::Config;
use crate::metrics::{Limit, Meters, Refused};

/// Connections of the last part that are kept for operators, where there is a Unix socket.
const FOR_OPERATORS: usize = 8;

/// Maximum number of addresses in the metrics.
const ADDRESSES_SHOWN: usize = 20;

/// The open connections.
#[derive(Debug)]
pub(crate) struct Connections {
    /// Number of connections for which the process had descriptors at the start.
    room: usize,
    outboxes: Arc<OutboxTotal>,
    received: Arc<Received>,
    meters: Arc<Meters>,
    next_number: AtomicU64,
    /// Sessions that may be opened at the same time. Each is a write, and a crowd of new clients must not delay the writes of others.
    openings: Semaphore,
    open: Mutex<Open>,
}

/// Limits on connections. A reload replaces them.
#[derive(Debug, Clone, Copy)]
struct Limits {
    all: usize,
    /// The last of them, which only operators get.
    for_operators: usize,
    per_address: usize,
    per_user: usize,
    /// 0 for no limit.
    newcomers: usize,
    /// 0 for no limit.
    newcomers_per_second: usize,
    outbox_bytes: usize,
}

impl Limits {
    /// The limits that `config` sets, where there are descriptors for `room` connections.
    fn of(config: &Config, room: usize) -> Self {
        let all = match config.connections_max {
            0 => room,
            max => max.min(room),
        };
        if all < config.connections_max {
            tracing::warn!(
                max = all,
                "fewer connections than set, because of the limit of open files"
            );
        }
        Self {
            all,
            for_operators: match config.listen_unix {
                Some(_) => FOR_OPERATORS.min(all / 4),
                None => 0,
            },
            per_address: match config.connections_per_address_max {
                0 => usize::MAX,
                max => max,
            },
            per_user: match config.connections_per_user_max {
                0 => all.div_ceil(2),
                max => max,
            },
            newcomers: config.handshakes_max,
            newcomers_per_second: config.handshakes_per_second_max,
            outbox_bytes: config.outbox_bytes_max,
        }
    }
}

#[derive(Debug)]
struct Open {
    limits: Limits,
    peers: HashMap<u64, Arc<Peer>>,
    ended: Ended,
    per_origin: HashMap<Origin, usize>,
    /// Number of connections without a session.
    newcomers: usize,
    /// Start of the current second, and the number of connections accepted in it.
    arrivals: Option<(Instant, usize)>,
    /// Whether new connections are refused.
    closed: bool,
}

impl Connections {
    /// No connections yet; `room` is the number of those for which the process has descriptors.
    pub(crate) fn new(config: &Config, room: usize) -> Self {
        let meters = Arc::<Meters>::default();
        Self {
            room,
            outboxes: Arc::new(OutboxTotal::new(config.outboxes_bytes_max, meters.clone())),
            received: Arc::new(Received::new(config.input_bytes_max)),
            meters,
            next_number: AtomicU64::new(1),
            openings: Semaphore::new(match config.session_openings_max {
                0 => Semaphore::MAX_PERMITS,
                max => max.min(Semaphore::MAX_PERMITS),
            }),
            open: Mutex::new(Open {
                limits: Limits::of(config, room),
                peers: HashMap::new(),
                ended: Ended::default(),
                per_origin: HashMap::new(),
                newcomers: 0,
                arrivals: None,
                closed: false,
            }),
        }
    }

    /// Replaces the limits. They apply to new connections; open ones stay.
    pub(crate) fn set_limits(&self, config: &Config) {
        self.lock().limits = Limits::of(config, self.room);
        self.outboxes.set_max(config.outboxes_bytes_max);
        self.received.set_max(config.input_bytes_max);
    }

    /// Admits a connection. Returns `None` if a limit is reached (in total, of its origin, or without a session) or if the server is
    /// stopping.
    ///
    /// Operators, which are root and the user of the server on the Unix socket, are subject only to the total limit, and have the last
    /// connections for themselves: they can connect during an attack. Connections from within this process are
    /// refused only if the server is stopping.
    pub(crate) fn admit(self: &Arc<Self>, address: PeerAddress) -> Option<Admitted> {
        let mut open = self.lock();
        let limits = open.limits;
        if open.closed {
            self.meters.refuse(Refused::Stopping);
            return None;
        }
        let origin = address.origin();
        let here = origin.map_or(0, |origin| open.here(origin));
        if let Some(origin) = origin {
            if let Some(why) = open.refusal(origin, here) {
                self.meters.refuse(why);
                return None;
            }
            open.per_origin.insert(origin, here + 1);
        }
        let newcomer = matches!(address, PeerAddress::Tcp(_)).then(|| {
            open.newcomers += 1;
            Newcomer(self.clone())
        });
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let outbox = Outbox::new(limits.outbox_bytes, self.outboxes.clone());
        let peer = Arc::new(Peer::new(number, address, outbox, self.meters.clone()));
        open.peers.insert(number, peer.clone());
        Some(Admitted {
            peer,
            newcomer,
            connections: self.clone(),
        })
    }

    /// Waits until a session may be opened. It counts as being opened until the result is dropped.
    pub(crate) async fn opening(&self, peer: &Peer) -> SemaphorePermit<'_> {
        if let Ok(permit) = self.openings.try_acquire() {
            return permit;
        }
        peer.reach(Limit::SessionOpenings);
        let permit = self.openings.acquire().await;
        permit.expect("the semaphore is never closed")
    }

    fn remove(&self, peer: &Peer) {
        let mut open = self.lock();
        open.peers.remove(&peer.number);
        open.ended.add(peer.address.usage_origin(), peer.usage());
        if let Some(origin) = peer.address.origin()
            && let Some(here) = open.per_origin.get_mut(&origin)
        {
            *here -= 1;
            if *here == 0 {
                open.per_origin.remove(&origin);
            }
        }
    }

    /// The addresses with most requests, and what they use.
    pub(crate) fn top_addresses(&self) -> Vec<(UsageOrigin, Usage)> {
        let open = self.lock();
        let peers = open.peers.values();
        let used = peers.map(|peer| (peer.address.usage_origin(), peer.usage()));
        open.ended.top(used, ADDRESSES_SHOWN)
    }

    pub(crate) fn all(&self) -> Vec<Arc<Peer>> {
        self.lock().peers.values().cloned().collect()
    }

    /// Meters of all connections and their requests.
    pub(crate) fn meters(&self) -> &Arc<Meters> {
        &self.meters
    }

    /// Total bytes put into outboxes so far.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.outboxes.sent_bytes()
    }

    /// Bytes that wait in all outboxes.
    pub(crate) fn outbox_bytes(&self) -> usize {
        self.outboxes.bytes()
    }

    /// Bytes of requests that have not arrived completely, except short ones.
    pub(crate) fn input_bytes(&self) -> usize {
        self.received.bytes()
    }

    /// Maximum number of connections; `usize::MAX` for no limit.
    pub(crate) fn max(&self) -> usize {
        self.lock().limits.all
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().peers.len()
    }

    /// Number of connections without a session.
    pub(crate) fn newcomers(&self) -> usize {
        self.lock().newcomers
    }

    /// Refuses further connections if there are none and `also` is true. No session can appear meanwhile, because opening one takes a
    /// connection.
    pub(crate) fn close_if_none(&self, also: impl FnOnce() -> bool) -> bool {
        let mut open = self.lock();
        open.closed |= open.peers.is_empty() && also();
        open.closed
    }

    /// Whether connections are refused, because the server stops.
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Closes all connections and refuses further ones; sessions live on.
    pub(crate) fn close_all(&self) {
        let mut open = self.lock();
        open.closed = true;
        let peers: Vec<_> = open.peers.values().cloned().collect();
        drop(open);
        for peer in peers {
            peer.outbox.close();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open
            .lock()
            .expect("no code panics while it holds the connections")
    }
}

impl Open {
    /// Number of connections of `origin`.
    fn here(&self, origin: Origin) -> usize {
        self.per_origin.get(&origin).copied().unwrap_or(0)
    }

    /// Why a connection of `origin` is refused, of which there are `here` already.
    fn refusal(&mut self, origin: Origin, here: usize) -> Option<Refused> {
        let limits = self.limits;
        let is_operator = origin.is_operator();
        let kept = if is_operator { 0 } else { limits.for_operators };
        let is_user = matches!(origin, Origin::User(_));
        if self.peers.len() + kept >= limits.all {
            Some(Refused::TooMany)
        } else if is_user {
            (!is_operator && here >= limits.per_user).then_some(Refused::TooManyOfUser)
        } else if here >= limits.per_address {
            Some(Refused::TooManyFromAddress)
        } else {
            (!self.has_room_for_newcomer()).then_some(Refused::TooManyHandshakes)
        }
    }

    fn has_room_for_newcomer(&mut self) -> bool {
        let limits = self.limits;
        if limits.newcomers > 0 && self.newcomers >= limits.newcomers {
            return false;
        }
        if limits.newcomers_per_second == 0 {
            return true;
        }
        let (_, arrived) = match &mut self.arrivals {
            Some(second) if second.0.elapsed() < Duration::from_secs(1) => second,
            other => other.insert((Instant::now(), 0)),
        };
        *arrived += 1;
        *arrived <= limits.newcomers_per_second
    }
}

/// A connection that counts as open until this is dropped, even by a panic: a task that ends leaves no connection open that is not served.
#[derive(Debug)]
pub(crate) struct Admitted {
    peer: Arc<Peer>,
    newcomer: Option<Newcomer>,
    connections: Arc<Connections>,
}

impl Admitted {
    /// Returns a guard that counts as a handshake in progress until it is dropped.
    pub(crate) fn take_newcomer(&mut self) -> Option<Newcomer> {
        self.newcomer.take()
    }

    /// Counts what the connection has received and not handled yet.
    pub(crate) fn share(&self) -> Share {
        Share::new(self.connections.received.clone())
    }
}

impl Deref for Admitted {
    type Target = Arc<Peer>;

    fn deref(&self) -> &Arc<Peer> {
        &self.peer
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.peer.outbox.close();
        self.connections.remove(&self.peer);
    }
}

/// A connection that has no session yet.
#[derive(Debug)]
pub(crate) struct Newcomer(Arc<Connections>);

impl Drop for Newcomer {
    fn drop(&mut self) {
        self.0.lock().newcomers -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of connections that clients of `origin` can open, one after the other.
    fn admitted(
        connections: &Arc<Connections>,
        address: PeerAddress,
        kept: &mut Vec<Admitted>,
    ) -> usize {
        let before = kept.len();
        kept.extend(std::iter::from_fn(|| connections.admit(address)).take(1000));
        kept.len() - before
    }

    #[test]
    fn users_of_the_socket_share_it_and_operators_have_the_last_connections() {
        let config = Config {
            listen_unix: Some("socket".into()),
            connections_per_address_max: 0,
            ..Config::default()
        };
        let user = |user| PeerAddress::Unix {
            user,
            process: None,
        };
        let own = rustix::process::geteuid().as_raw();
        let network = PeerAddress::Tcp(([127, 0, 0, 1], 2181).into());
        let connections = Arc::new(Connections::new(&config, 100));
        let mut kept = Vec::new();
        assert_eq!(admitted(&connections, user(own + 1), &mut kept), 50);
        assert_eq!(admitted(&connections, network, &mut kept), 42);
        assert_eq!(admitted(&connections, user(own + 2), &mut kept), 0);
        assert_eq!(admitted(&connections, user(own), &mut kept), 8);
        let refused = connections.meters().refused();
        assert!(refused.contains(&("too_many_of_user", 1)), "{refused:?}");
        assert!(refused.contains(&("too_many", 3)), "{refused:?}");
        kept.truncate(40);
        assert_eq!(admitted(&connections, user(own + 1), &mut kept), 10);
        drop(kept);
        assert_eq!(connections.len(), 0);
        assert!(connections.lock().per_origin.is_empty());
    }

    #[test]
    fn limits_are_set_and_never_beyond_the_room() {
        let config = Config {
            connections_max: 50,
            connections_per_user_max: 3,
            listen_unix: Some("socket".into()),
            ..Config::default()
        };
        for (room, max) in [(100, 50), (20, 20), (1, 1)] {
            assert_eq!(Connections::new(&config, room).max(), max);
        }
        let connections = Arc::new(Connections::new(&config, usize::MAX));
        let stranger = PeerAddress::Unix {
            user: rustix::process::geteuid().as_raw() + 1,
            process: None,
        };
        assert_eq!(admitted(&connections, stranger, &mut Vec::new()), 3);
        let connections = Connections::new(&Config::default(), usize::MAX);
        assert_eq!(connections.max(), usize::MAX);
    }

    #[test]
    fn a_reload_changes_the_limits_of_each_origin_within_the_room() {
        let mut config = Config {
            connections_per_address_max: 1,
            ..Config::default()
        };
        let network = |last| PeerAddress::Tcp(([127, 0, 0, last], 2181).into());
        let connections = Arc::new(Connections::new(&config, 8));
        let mut kept = Vec::new();
        assert_eq!(admitted(&connections, network(1), &mut kept), 1);
        config.connections_per_address_max = 3;
        config.connections_max = 50;
        connections.set_limits(&config);
        assert_eq!(admitted(&connections, network(1), &mut kept), 2);
        config.connections_per_address_max = 0;
        connections.set_limits(&config);
        assert_eq!(connections.max(), 8);
        assert_eq!(admitted(&connections, network(2), &mut kept), 5);
        // Open connections stay.
        config.connections_max = 2;
        connections.set_limits(&config);
        assert_eq!((connections.max(), connections.len()), (2, 8));
        kept.truncate(2);
        assert_eq!(admitted(&connections, network(3), &mut kept), 0);
    }

    #[test]
    fn connections_from_within_the_process_have_no_limit_but_the_stop() {
        let config = Config {
            listen_unix: Some("socket".into()),
            handshakes_max: 1,
            ..Config::default()
        };
        let connections = Arc::new(Connections::new(&config, 1));
        let mut kept = Vec::new();
        let network = PeerAddress::Tcp(([127, 0, 0, 1], 2181).into());
        assert_eq!(admitted(&connections, network, &mut kept), 1);
        assert_eq!(connections.newcomers(), 1);
        assert_eq!(admitted(&connections, PeerAddress::Inside, &mut kept), 1000);
        assert_eq!(connections.newcomers(), 1);
        connections.close_all();
        assert_eq!(admitted(&connections, PeerAddress::Inside, &mut kept), 0);
        drop(kept);
        assert!(connections.lock().per_origin.is_empty());
    }

    #[tokio::test]
    async fn a_task_that_panics_leaves_no_connection_behind() {
        let config = Config {
            connections_per_address_max: 1,
            ..Config::default()
        };
        let connections = Arc::new(Connections::new(&config, usize::MAX));
        let address = PeerAddress::Tcp(([127, 0, 0, 1], 2181).into());
        let admitted = connections.admit(address).unwrap();
        let peer = admitted.clone();
        assert!(connections.admit(address).is_none());
        let task = tokio::spawn(async move {
            let _admitted = admitted;
            panic!("as a bug would");
        });
        assert!(task.await.unwrap_err().is_panic());
        assert_eq!(connections.len(), 0);
        assert!(!peer.outbox.is_open());
        assert!(connections.admit(address).is_some());
    }
}
