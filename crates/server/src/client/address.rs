//! Address of a client.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use bellwether_wire::acl::Id;

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
}

impl PeerAddress {
    /// Address for the limit of connections per address; none for Unix sockets.
    pub(crate) fn ip(&self) -> Option<IpAddr> {
        match self {
            Self::Tcp(address) => Some(address.ip()),
            Self::Unix { .. } => None,
        }
    }

    /// Id of a connection before it authenticates. No `ip` entry of an access list matches a Unix socket.
    pub(crate) fn id(&self) -> Id {
        match self {
            Self::Tcp(address) => Id::new("ip", address.ip().to_canonical().to_string()),
            Self::Unix { user, .. } => Id::new("unix", user.to_string()),
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
            Self::Unix { user, process } => write!(f, "unix:{user}:{}", process.unwrap_or(0)),
        }
    }
}
