//! Ports for servers that cannot ask the system for one.

use std::hash::{BuildHasher as _, RandomState};
use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};

use anyhow::{Context, Result};

/// Below those that the system gives to connections, and to whoever asks for any.
const PORTS: std::ops::Range<u16> = 10_000..30_000;

/// A port of the loopback that nobody else has who asks here, in this process or another, until it is dropped. So a server
/// that is told of it may end and come back.
#[derive(Debug)]
pub struct Port {
    number: u16,
    /// A name that the system forgets with the process, however that ends.
    _claim: UnixListener,
}

impl Port {
    /// Finds a port on which nobody listens, and reserves it.
    pub fn reserve() -> Result<Self> {
        // From anywhere, so that processes do not go the same way one behind the other.
        let start = usize::try_from(RandomState::new().hash_one(()) % u64::from(u16::MAX))?;
        let ports = PORTS.cycle().skip(start).take(PORTS.len());
        let mut reserved = ports.filter_map(Self::claim);
        reserved.next().context("all ports are in use")
    }

    /// Reserves as many.
    pub fn reserve_all(count: usize) -> Result<Vec<Self>> {
        (0..count).map(|_| Self::reserve()).collect()
    }

    /// Its number.
    pub fn number(&self) -> u16 {
        self.number
    }

    fn claim(number: u16) -> Option<Self> {
        let name = SocketAddr::from_abstract_name(format!("bellwether-port-{number}")).ok()?;
        let claim = UnixListener::bind_addr(&name).ok()?;
        // Somebody may use it who has never asked here.
        TcpListener::bind((Ipv4Addr::LOCALHOST, number)).ok()?;
        Some(Self {
            number,
            _claim: claim,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_is_nobody_elses_until_it_is_dropped() {
        let port = Port::reserve().unwrap();
        assert!(Port::claim(port.number()).is_none());
        let number = port.number();
        drop(port);
        assert!(Port::claim(number).is_some());
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, number)).unwrap();
        assert!(Port::claim(number).is_none());
        drop(taken);
    }
}
