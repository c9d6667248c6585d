//! What each client address uses: connections, requests and bytes.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Maximum number of addresses without connections whose figures are kept. Beyond it, the half with the fewest requests is forgotten: an
/// attacker with many addresses takes neither memory nor much time.
const ENDED_MAX: usize = 1000;

/// Where clients come from: all connections of a host, or of a user of this host, together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum UsageOrigin {
    Host(IpAddr),
    /// A user id, on Unix sockets.
    User(u32),
}

impl fmt::Display for UsageOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(ip) => ip.fmt(f),
            Self::User(user) => write!(f, "unix:{user}"),
        }
    }
}

/// Requests of one connection. No four-letter word resets them.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    requests: AtomicU64,
    received_bytes: AtomicU64,
}

impl Traffic {
    pub(crate) fn add_request(&self, bytes: usize) {
        self.requests.fetch_add(1, Relaxed);
        self.received_bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// What a connection that has sent this, and got `sent_bytes`, has used. It is open.
    pub(super) fn usage(&self, sent_bytes: u64) -> Usage {
        Usage {
            connections: 1,
            requests: self.requests.load(Relaxed),
            received_bytes: self.received_bytes.load(Relaxed),
            sent_bytes,
        }
    }
}

/// What an address uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Open ones; the rest counts ended ones too.
    pub(crate) connections: u64,
    pub(crate) requests: u64,
    pub(crate) received_bytes: u64,
    pub(crate) sent_bytes: u64,
}

impl Usage {
    fn add(&mut self, other: Self) {
        self.connections += other.connections;
        self.requests += other.requests;
        self.received_bytes += other.received_bytes;
        self.sent_bytes += other.sent_bytes;
    }
}

/// What connections that have ended have used.
#[derive(Debug, Default)]
pub(super) struct Ended(HashMap<UsageOrigin, Usage>);

impl Ended {
    pub(super) fn add(&mut self, origin: UsageOrigin, usage: Usage) {
        let ended = Usage {
            connections: 0,
            ..usage
        };
        self.0.entry(origin).or_default().add(ended);
        if self.0.len() > ENDED_MAX {
            let mut all: Vec<_> = self.0.drain().collect();
            all.sort_unstable_by_key(|(_, usage)| Reverse(usage.requests));
            all.truncate(ENDED_MAX / 2);
            self.0.extend(all);
        }
    }

    /// The addresses with most requests, together with the open connections.
    pub(super) fn top(
        &self,
        open: impl Iterator<Item = (UsageOrigin, Usage)>,
        count: usize,
    ) -> Vec<(UsageOrigin, Usage)> {
        let mut all = self.0.clone();
        for (origin, usage) in open {
            all.entry(origin).or_default().add(usage);
        }
        let mut all: Vec<_> = all.into_iter().collect();
        all.sort_unstable_by_key(|(origin, usage)| (Reverse(usage.requests), *origin));
        all.truncate(count);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(requests: u64) -> Usage {
        Usage {
            connections: 1,
            requests,
            received_bytes: 10 * requests,
            sent_bytes: 20 * requests,
        }
    }

    #[test]
    fn open_and_ended_connections_of_an_address_count_together() {
        let mut ended = Ended::default();
        let (one, other) = (UsageOrigin::User(1), UsageOrigin::User(2));
        ended.add(one, used(3));
        ended.add(one, used(4));
        let open = [(one, used(1)), (other, used(9))];
        let top = ended.top(open.into_iter(), 20);
        let both = Usage {
            connections: 1,
            ..used(8)
        };
        assert_eq!(top, [(other, used(9)), (one, both)]);
        assert_eq!(ended.top(open.into_iter(), 1), [(other, used(9))]);
    }

    #[test]
    fn addresses_that_asked_for_little_are_forgotten() {
        let mut ended = Ended::default();
        ended.add(UsageOrigin::User(0), used(1000));
        for user in 1..10_000 {
            ended.add(UsageOrigin::User(user), used(1));
            assert!(ended.0.len() <= ENDED_MAX);
        }
        assert_eq!(ended.top(std::iter::empty(), 1)[0].0, UsageOrigin::User(0));
    }
}
