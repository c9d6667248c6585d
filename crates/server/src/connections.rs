//! All connections, and how many there may be.

use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::config::Config;
use crate::outbox::{Outbox, Together};
use crate::peer::Peer;
use crate::peer_address::PeerAddress;

/// The connections that are open.
#[derive(Debug)]
pub(crate) struct Connections {
    max: usize,
    per_address_max: usize,
    outbox_bytes_max: usize,
    outboxes: Arc<Together>,
    next_number: AtomicU64,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    peers: HashMap<u64, Arc<Peer>>,
    per_address: HashMap<IpAddr, usize>,
    /// Whether nobody is taken in any more.
    closed: bool,
}

impl Connections {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            max: config.connections_max,
            per_address_max: config.connections_per_address_max,
            outbox_bytes_max: config.outbox_bytes_max,
            outboxes: Arc::new(Together::new(config.outboxes_bytes_max)),
            next_number: AtomicU64::new(1),
            open: Mutex::default(),
        }
    }

    /// Takes a connection in, or `None` if there are too many, in all or from its address, or none is wanted.
    pub(crate) fn admit(self: &Arc<Self>, address: PeerAddress) -> Option<Admitted> {
        let mut open = self.lock();
        if open.closed {
            return None;
        }
        if self.max > 0 && open.peers.len() >= self.max {
            return None;
        }
        if let Some(ip) = address.ip() {
            let here = open.per_address.entry(ip).or_default();
            if self.per_address_max > 0 && *here >= self.per_address_max {
                return None;
            }
            *here += 1;
        }
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let outbox = Outbox::new(self.outbox_bytes_max, self.outboxes.clone());
        let peer = Arc::new(Peer::new(number, address, outbox));
        open.peers.insert(number, peer.clone());
        Some(Admitted {
            peer,
            connections: self.clone(),
        })
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

    /// How many bytes wait for all of them together.
    pub(crate) fn outbox_bytes(&self) -> usize {
        self.outboxes.bytes()
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().peers.len()
    }

    /// Takes nobody in any more if nobody is here and `also` holds. Sessions cannot come meanwhile: it takes a
    /// connection to open one.
    pub(crate) fn close_if_none(&self, also: impl FnOnce() -> bool) -> bool {
        let mut open = self.lock();
        open.closed |= open.peers.is_empty() && also();
        open.closed
    }

    /// Ends every connection at once and takes nobody in any more; sessions live on.
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

/// A connection that counts as open until this is dropped, also by a panic: a task that ends leaves no
/// connection behind that nobody serves.
#[derive(Debug)]
pub(crate) struct Admitted {
    peer: Arc<Peer>,
    connections: Arc<Connections>,
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
