//! All open connections, and their limits.

use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::client::Peer;
use crate::client::PeerAddress;
use crate::client::outbox::{Outbox, Together};
use crate::client::received::{Received, Share};
use crate::config::Config;
use crate::metrics::{Limit, Meters, Refused};

/// The open connections.
#[derive(Debug)]
pub(crate) struct Connections {
    max: usize,
    per_address_max: usize,
    newcomers_max: usize,
    newcomers_per_second_max: usize,
    outbox_bytes_max: usize,
    outboxes: Arc<Together>,
    received: Arc<Received>,
    meters: Arc<Meters>,
    next_number: AtomicU64,
    /// Sessions that may be opened at the same time. Each is a write, and a crowd of new clients must not delay the writes of others.
    openings: Semaphore,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    peers: HashMap<u64, Arc<Peer>>,
    per_address: HashMap<IpAddr, usize>,
    /// Number of connections without a session.
    newcomers: usize,
    /// Start of the current second, and the number of connections accepted in it.
    arrivals: Option<(Instant, usize)>,
    /// Whether new connections are refused.
    closed: bool,
}

impl Connections {
    pub(crate) fn new(config: &Config) -> Self {
        let meters = Arc::<Meters>::default();
        Self {
            max: config.connections_max,
            per_address_max: config.connections_per_address_max,
            newcomers_max: config.handshakes_max,
            newcomers_per_second_max: config.handshakes_per_second_max,
            outbox_bytes_max: config.outbox_bytes_max,
            outboxes: Arc::new(Together::new(config.outboxes_bytes_max, meters.clone())),
            received: Arc::new(Received::new(config.input_bytes_max)),
            meters,
            next_number: AtomicU64::new(1),
            openings: Semaphore::new(match config.session_openings_max {
                0 => Semaphore::MAX_PERMITS,
                max => max.min(Semaphore::MAX_PERMITS),
            }),
            open: Mutex::default(),
        }
    }

    /// Admits a connection. Returns `None` if a limit is reached (in total, per address, or without a session) or if the server is
    /// stopping.
    ///
    /// Unix sockets are subject only to the total limit: operators can connect during an attack from the network.
    pub(crate) fn admit(self: &Arc<Self>, address: PeerAddress) -> Option<Admitted> {
        let mut open = self.lock();
        if open.closed {
            self.meters.refuse(Refused::Stopping);
            return None;
        }
        if self.max > 0 && open.peers.len() >= self.max {
            self.meters.refuse(Refused::TooMany);
            return None;
        }
        let mut newcomer = None;
        if let Some(ip) = address.ip() {
            let here = open.per_address.get(&ip).copied().unwrap_or(0);
            if self.per_address_max > 0 && here >= self.per_address_max {
                self.meters.refuse(Refused::TooManyFromAddress);
                return None;
            }
            if !self.has_room_for_newcomer(&mut open) {
                self.meters.refuse(Refused::TooManyHandshakes);
                return None;
            }
            open.per_address.insert(ip, here + 1);
            open.newcomers += 1;
            newcomer = Some(Newcomer(self.clone()));
        }
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let outbox = Outbox::new(self.outbox_bytes_max, self.outboxes.clone());
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

    fn has_room_for_newcomer(&self, open: &mut Open) -> bool {
        if self.newcomers_max > 0 && open.newcomers >= self.newcomers_max {
            return false;
        }
        if self.newcomers_per_second_max == 0 {
            return true;
        }
        let (_, arrived) = match &mut open.arrivals {
            Some(second) if second.0.elapsed() < Duration::from_secs(1) => second,
            other => other.insert((Instant::now(), 0)),
        };
        *arrived += 1;
        *arrived <= self.newcomers_per_second_max
    }

    fn remove(&self, peer: &Peer) {
        let mut open = self.lock();
        open.peers.remove(&peer.number);
        if let Some(ip) = peer.address.ip()
            && let Some(here) = open.per_address.get_mut(&ip)
        {
            *here -= 1;
            if *here == 0 {
                open.per_address.remove(&ip);
            }
        }
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

    #[tokio::test]
    async fn a_task_that_panics_leaves_no_connection_behind() {
        let connections = Arc::new(Connections::new(&Config {
            connections_per_address_max: 1,
            ..Config::default()
        }));
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
