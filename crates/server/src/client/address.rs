//! Address of a client.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use bellwether_wire::acl::Id;

use crate::client::UsageOrigin;
use crate::config::UnixPeers;

/// The other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PeerAddress {
    Tcp(SocketAddr),
    /// A Unix socket, with the credentials of the connecting process.
    Unix {
        user: u32,
        /// `None` if the process is in another namespace.
        process: Option<i32>,
    },
    /// This process itself, such as its dashboard. It may connect however other clients have to authenticate.
    Inside,
}

impl PeerAddress {
    /// What its connections are counted by; none from within this process, which has no such limits.
    pub(crate) fn origin(&self) -> Option<Origin> {
        match self {
            Self::Tcp(address) => Some(Origin::of(address.ip().to_canonical())),
            Self::Unix { user, .. } => Some(Origin::User(*user)),
            Self::Inside => None,
        }
    }

    /// User of a Unix socket, or of this process.
    pub(crate) fn user(&self) -> Option<u32> {
        match self {
            Self::Tcp(_) => None,
            Self::Unix { user, .. } => Some(*user),
            Self::Inside => Some(rustix::process::geteuid().as_raw()),
        }
    }

    /// Whether the peer runs this server, or its host: the user of the server and root, on the Unix socket.
    pub(crate) fn is_operator(&self) -> bool {
        self.origin().is_some_and(Origin::is_operator)
    }

    /// Whose usage this is, for the metrics.
    pub(crate) fn usage_origin(&self) -> UsageOrigin {
        match self {
            Self::Tcp(address) => UsageOrigin::Host(address.ip().to_canonical()),
            Self::Unix { user, .. } => UsageOrigin::User(*user),
            Self::Inside => UsageOrigin::User(rustix::process::geteuid().as_raw()),
        }
    }

    /// Id of a connection before it authenticates. No `ip` entry of an access list matches a Unix socket.
    pub(crate) fn id(&self) -> Id {
        match self {
            Self::Tcp(address) => Id::new("ip", address.ip().to_canonical().to_string()),
            Self::Unix { user, .. } => Id::new("unix", user.to_string()),
            Self::Inside => Id::new("unix", rustix::process::geteuid().as_raw().to_string()),
        }
    }
}

/// Where connections come from, for limits on their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Origin {
    Address(IpAddr),
    /// The first half of an IPv6 address. A host can use all addresses of such a network, often of its own.
    Network([u16; 4]),
    /// The user of a Unix socket.
    User(u32),
}

impl Origin {
    /// Whether this is the user of the server, or root.
    pub(super) fn is_operator(self) -> bool {
        matches!(self, Self::User(user) if UnixPeers::SameUser.allows(user))
    }

    fn of(ip: IpAddr) -> Self {
        match ip {
            // Every link has this one network, for all of its hosts.
            IpAddr::V6(v6) if !v6.is_unicast_link_local() => {
                let [a, b, c, d, ..] = v6.segments();
                Self::Network([a, b, c, d])
            }
            _ => Self::Address(ip),
        }
    }
}

impl From<SocketAddr> for PeerAddress {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            // User and process id take the places of address and port.
            Self::Inside => f.write_str("inside"),
            Self::Unix { user, process } => write!(f, "unix:{user}:{}", process.unwrap_or(0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_ipv6_network_are_one_origin_and_others_are_not() {
        let origin = |ip: &str| PeerAddress::Tcp(SocketAddr::new(ip.parse().unwrap(), 1)).origin();
        assert_eq!(origin("2001:db8:0:1::1"), origin("2001:db8:0:1:ffff::2"));
        assert_ne!(origin("2001:db8:0:1::1"), origin("2001:db8:0:2::1"));
        assert_ne!(origin("fe80::1"), origin("fe80::2"));
        assert_ne!(origin("10.0.0.1"), origin("10.0.0.2"));
        // As a socket for both kinds of addresses reports it.
        assert_eq!(origin("::ffff:10.0.0.1"), origin("10.0.0.1"));
        assert_ne!(origin("::ffff:10.0.0.2"), origin("10.0.0.1"));
        assert_eq!(PeerAddress::Inside.origin(), None);
    }
}
